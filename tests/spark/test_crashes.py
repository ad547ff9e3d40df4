"""The driver is killed, at every numbered step and at random moments; run again, the table is the same byte for byte."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.crash_driver import AHEAD, BACK, POINTS
from tests.spark.pipelines import make_pipeline, orders, table
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.pipeline import configured
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark
FILES = len(POINTS)
TWO_STEPS = pytest.mark.parametrize("steps", [POINTS[n : n + 2] for n in (0, 2, 4)], ids=" and ".join)
SNAPSHOTS = """"spark.sql.streaming.stateStore.minDeltasForSnapshot" = "1"
"spark.sql.streaming.stateStore.maintenanceInterval" = "100ms"
"""
DRIVER = Path(__file__).with_name("crash_driver.py")


def run_to_the_end(spark: SparkSession, file: Path) -> list[tuple[Any, ...]]:
    pipeline = configured(load(file))
    try:
        pipeline.run(spark)
    finally:
        pipeline.close()
    return table(file.parent)


def killed(file: Path, point: str, number: int) -> bool:
    """Run a driver that kills itself there; False where it came to its end first."""
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(file), point, str(number)], capture_output=True, timeout=120
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()[-2000:]
    return done.returncode != 0


def kill_at_each_step(file: Path, steps: Sequence[str]) -> None:
    """A kill in each batch, from the first on."""
    for batch, point in enumerate(steps):
        assert killed(file, point, batch), f"the driver should have died at {point}"


def kill_at_random(file: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(kills):
        killed(file, "random", chance.randrange(500, 9_000))


def whatever_the_batch(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A result without the number of its batch and the watermark of that."""
    kind, key, rule, due, _, *rest = row[1:]
    return kind, key, rule, due, *rest


def undo_the_last_batch(folder: Path) -> None:
    """The checkpoint and the table as a kill leaves them that comes behind the batch before the last one."""
    last = Checkpoint(folder / "checkpoint").last_batch()
    for part in ("offsets", "commits"):
        for file in (folder / "checkpoint" / part).glob(f"*{last}*"):
            file.unlink()
    with closing(sqlite3.connect(folder / "out.db", isolation_level=None)) as db:
        for name in ("results", "results_batches"):
            db.execute(f"DELETE FROM {name} WHERE batch_id = {last}")
    (folder / "checkpoint" / "source-closed").unlink()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_pipeline(tmp_path / "killed", orders(120), FILES)


@pytest.fixture(scope="module")
def clean(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    return run_to_the_end(spark, make_pipeline(tmp_path_factory.mktemp("clean"), orders(120), FILES))


@pytest.mark.long(seconds=20)
def test_a_kill_between_the_commit_and_sparks_note_of_it_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    file = make_pipeline(tmp_path / "killed", orders(40), files=3)
    assert killed(file, "committed", 1)
    assert run_to_the_end(spark, file) == run_to_the_end(spark, make_pipeline(tmp_path / "clean", orders(40), files=3))


@pytest.mark.long(seconds=35)
@TWO_STEPS
def test_a_kill_at_each_numbered_step_changes_nothing(
    spark: SparkSession, file: Path, clean: list[tuple[Any, ...]], steps: Sequence[str]
) -> None:
    kill_at_each_step(file, steps)
    assert run_to_the_end(spark, file) == clean


@pytest.mark.long(seconds=60)
def test_a_kill_while_spark_is_ahead_of_the_sink_and_while_that_is_taken_back_changes_nothing(
    spark: SparkSession, file: Path, clean: list[tuple[Any, ...]]
) -> None:
    # in the batches 0, 1 and 2; batch 2 is then taken back with a kill behind each step of it
    kill_at_each_step(file, [*AHEAD[:3], *BACK])
    assert run_to_the_end(spark, file) == clean


@pytest.mark.long(seconds=40)
def test_what_is_planned_anew_behind_a_batch_that_was_taken_back_has_no_state_of_what_was_planned_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Spark prefers a snapshot of a version to its changes: one of the first plan would have keys of a file that had not
    # been read by then. It matters where that version is read from the disk: behind one more kill
    file, again = (make_pipeline(tmp_path / name, orders(40), 5) for name in ("killed", "clean"))
    late, written = file.parent / "in" / "002.jsonl", file.read_text()
    late.rename(tmp_path / "late")
    file.write_text(written + SNAPSHOTS)
    assert killed(file, "snapshot", 1)
    (tmp_path / "late").rename(late)  # older than the one that was planned as batch 2
    file.write_text(written)
    assert killed(file, "taken", 3)
    assert run_to_the_end(spark, file) == run_to_the_end(spark, again)


@pytest.mark.long(seconds=5)
def test_a_kill_while_the_first_offsets_are_written_changes_nothing(
    spark: SparkSession, file: Path, clean: list[tuple[Any, ...]]
) -> None:
    # what such a kill left behind, once in thousands: an empty file with a temporary name, before there is any offset
    offsets = file.parent / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.5e227ddc-9deb-4bfa-992e-6f176a5e8681.tmp").touch()
    assert run_to_the_end(spark, file) == clean


@pytest.mark.long(seconds=50)
@pytest.mark.parametrize("round_", range(3))
def test_many_kills_at_random_moments_change_nothing(
    spark: SparkSession, file: Path, clean: list[tuple[Any, ...]], campaign_seed: int, round_: int
) -> None:
    # A kill between Spark's own two first writes of a batch, list of files and offsets, leaves the next start a batch
    # of two files: seen once, with the seed 739943. Its rows have another batch and another watermark beside them.
    kill_at_random(file, 5, campaign_seed)
    assert Counter(map(whatever_the_batch, run_to_the_end(spark, file))) == Counter(map(whatever_the_batch, clean))


@pytest.mark.long(seconds=10)
def test_a_kill_between_the_closing_heartbeat_and_the_last_batch_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Spark's batch without input was not made up for: every later run ended with success and with all that was held
    file = make_pipeline(tmp_path / "closing", orders(40), files=1)
    whole = sorted(run_to_the_end(spark, file))
    undo_the_last_batch(file.parent)
    assert len(table(file.parent)) < len(whole)
    assert sorted(run_to_the_end(spark, file)) == whole
