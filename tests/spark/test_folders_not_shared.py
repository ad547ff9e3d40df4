"""Machines that do not share a folder with the driver: whatever the folder is for, the run ends with a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.pipelines import make_pipeline, orders, table
from tests.spark.standalone import cluster, driver_environment, python_without_waterclock
from tests.spark.test_cluster import PATIENCE_S, can_hide_a_folder, for_a_cluster
from waterclock.clock import ManualClock
from waterclock.errors import EnvironmentMissing
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.checkpoint.state_files import refuse_unseen_state


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """One of a batch in two partitions, of which the driver sees the state of one."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{"conf": {"spark.sql.shuffle.partitions": "2"}}\n')
    for partition in ("0", "1"):
        (tmp_path / "state" / "0" / partition).mkdir(parents=True)
    (tmp_path / "state" / "0" / "1" / "1.changelog").touch()
    return Checkpoint(tmp_path)


def test_state_that_the_driver_does_not_see_is_told_with_how_much_of_it(checkpoint: Checkpoint) -> None:
    clock = ManualClock()
    with pytest.raises(EnvironmentMissing, match="that of 1 of 2 partitions is not there: mount the folder"):
        refuse_unseen_state(checkpoint, 0, "spark://one:7077", clock)
    assert 60 <= clock.monotonic_s() < 61  # a folder of NFS may show it as late
    refuse_unseen_state(checkpoint, 0, "local[2]", clock)
    (checkpoint.local / "state" / "0" / "0" / "1_ab12.zip").touch()
    refuse_unseen_state(checkpoint, 0, "spark://one:7077", clock)
    (checkpoint.local / "offsets" / "0").rename(checkpoint.local / "offsets" / "1")
    with pytest.raises(EnvironmentMissing, match="that of 2 of 2 partitions"):
        refuse_unseen_state(checkpoint, 1, "spark://one:7077", clock)


@pytest.mark.spark
@pytest.mark.long(seconds=100)
def test_a_checkpoint_that_no_worker_has_mounted_ends_the_run_before_a_row_is_written(tmp_path: Path) -> None:
    if not can_hide_a_folder(tmp_path):
        pytest.skip("it takes rights to mount something over a folder")
    python = python_without_waterclock(tmp_path / "venv")
    file = for_a_cluster(make_pipeline(tmp_path / "p", orders(20), files=2))
    (tmp_path / "p" / "checkpoint").mkdir()
    command = [sys.executable, "-m", "waterclock.cli", "run", str(file), "--json", "--master"]
    with cluster(tmp_path / "cluster", unseen=tmp_path / "p" / "checkpoint") as made:
        done = subprocess.run(
            [*command, made.url], capture_output=True, text=True, env=driver_environment(python), timeout=PATIENCE_S
        )
    assert done.returncode == 1, done.stdout
    assert "in the checkpoint" in done.stderr, done.stderr
    assert "that of 2 of 2 partitions is not there: mount the folder there" in done.stderr
    assert table(file.parent) == []
