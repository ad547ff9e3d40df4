"""Whose a checkpoint is: one run's at a time, one pipeline's, and nobody else removes it. No session is started."""

from __future__ import annotations

import errno
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.spark.least_pipeline import LEAST
from waterclock.errors import UsageError
from waterclock.spark.checkpoint.owner import LOCK, Owner
from waterclock.spark.fresh import start_over
from waterclock.spark.pipeline import configured
from waterclock.streaming.toml.config import Config, load

HOLD = """
import sys
from pathlib import Path
from waterclock.spark.checkpoint.owner import Owner
owner = Owner(Path(sys.argv[1]))
owner.take()
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "in").mkdir()
    (tmp_path / "p.toml").write_text(LEAST)
    return load(tmp_path / "p.toml")


def test_a_second_run_of_a_pipeline_is_refused_until_the_first_is_closed(config: Config) -> None:
    # Spark noticed it sometimes, in its own words, and said that the same command goes on
    with closing(configured(config)) as first, closing(configured(config)) as second:
        first.check()
        first.check()
        with pytest.raises(UsageError, match=r"another run has the checkpoint .*/pipeline-checkpoint open: wait"):
            second.check()
        first.close()
        second.check()


def test_what_a_run_works_on_is_not_removed_from_under_it(config: Config) -> None:
    with closing(configured(config)) as pipeline:
        pipeline.check()
        with pytest.raises(UsageError, match="another run has the checkpoint"):
            start_over(config)
    assert (config.checkpoint / "waterclock.json").exists()
    start_over(config)
    assert not config.checkpoint.exists()


def test_the_checkpoint_of_another_pipeline_is_not_removed(config: Config, tmp_path: Path) -> None:
    # two files without a name of their own share one: the second was refused, told to take --fresh, and took the first's
    (tmp_path / "q.toml").write_text(LEAST.replace("out.db", "other.db"))
    other = load(tmp_path / "q.toml")
    with closing(configured(config)) as pipeline:
        pipeline.check()
    with pytest.raises(
        UsageError, match=r"is that of the pipeline with the table 'results' in .*/out\.db, so it is not removed"
    ):
        start_over(other)
    assert (config.checkpoint / "waterclock.json").exists()
    start_over(config)
    start_over(other)


def test_a_pipeline_that_was_moved_with_its_sink_may_start_over(config: Config, tmp_path: Path) -> None:
    with closing(configured(config)) as pipeline:
        pipeline.check()
    tmp_path.rename(tmp_path.with_name("moved"))
    moved = load(tmp_path.with_name("moved") / "p.toml")
    start_over(moved)
    assert not moved.checkpoint.exists()


def test_a_process_that_was_killed_holds_nobody_off(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(UsageError, match="another run"):
            Owner(tmp_path).take()
        other.kill()
    owner = Owner(tmp_path)
    owner.take()
    owner.let_go()


def test_a_file_system_without_locks_gives_the_checkpoint_to_everybody(tmp_path: Path) -> None:
    with patch("fcntl.flock", side_effect=OSError(errno.ENOLCK, "No locks available")):
        for owner in (Owner(tmp_path), Owner(tmp_path)):
            owner.take()
            owner.let_go()


def test_a_lock_that_went_with_its_folder_is_taken_anew(tmp_path: Path) -> None:
    owner, other = Owner(tmp_path / "cp"), Owner(tmp_path / "cp")
    owner.take()  # nothing is there to be taken
    (tmp_path / "cp").mkdir()
    owner.take()
    (tmp_path / "cp" / LOCK).unlink()
    owner.take()
    with pytest.raises(UsageError, match="another run"):
        other.take()
    owner.let_go()
