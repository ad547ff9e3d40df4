"""A DataFrame's pipeline and `write_once`, killed at every numbered step; run again, the table is the same."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.open_crash_driver import WAYS
from tests.spark.pipelines import orders, table, write_files
from tests.spark.test_crashes import whatever_the_batch
from waterclock.errors import WaterclockError
from waterclock.sinks import Batch, SQLiteSink

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
POINTS = ("taken", "begun", "looked", "written", "committed")
TWO_STEPS = pytest.mark.parametrize("steps", [POINTS[n : n + 2] for n in (0, 2, 4)], ids=" and ".join)
Clean = Callable[[str, int, int], list[tuple[Any, ...]]]
EACH_WAY = pytest.mark.parametrize("way", WAYS)


def made(folder: Path, keys: int, files: int) -> Path:
    write_files(orders(keys), folder / "in", files)
    return folder


def run_to_the_end(spark: SparkSession, way: str, folder: Path, sink: Any = None) -> list[tuple[Any, ...]]:
    with closing(sink or SQLiteSink(folder / "out.db")) as written:
        WAYS[way](spark, folder, written)
    return table(folder)


@pytest.fixture(scope="module")
def clean(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Clean:
    """The table of a run that nothing happens to, of a way and so many keys and files."""

    @cache
    def clean(way: str, keys: int, files: int) -> list[tuple[Any, ...]]:
        return run_to_the_end(spark, way, made(tmp_path_factory.mktemp("clean"), keys, files))

    return clean


def killed(folder: Path, way: str, point: str, number: int) -> bool:
    """Run a driver that kills itself there; False where it came to its end first."""
    command = [sys.executable, "-m", "tests.spark.open_crash_driver", str(folder), way, point, str(number)]
    done = subprocess.run(command, capture_output=True, timeout=120, cwd=ROOT)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()[-2000:]
    return done.returncode != 0


class FailingOnce(SQLiteSink):
    """A sink whose process dies, as far as a batch can tell, at each point of POINTS: one after the other, then no more."""

    def __init__(self, path: Path, points: list[str]) -> None:
        super().__init__(path)
        self._points = points

    def begin(self) -> None:
        self._die_at("taken")
        super().begin()
        self._die_at("begun")

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        applied = super().is_applied(query_id, batch_id)
        self._die_at("looked")
        return applied

    def write(self, batch: Batch) -> Batch:
        written = super().write(batch)
        self._die_at("written")
        return written

    def commit(self) -> None:
        super().commit()
        self._die_at("committed")

    def _die_at(self, point: str) -> None:
        if self._points[:1] == [point] and self.db.db.in_transaction is (point not in ("taken", "committed")):
            self._points.pop(0)
            raise WaterclockError(f"died at {point}")


@pytest.mark.long(seconds=25)
@EACH_WAY
def test_a_run_that_fails_at_each_numbered_step_goes_on_as_if_it_had_not(
    spark: SparkSession, clean: Clean, tmp_path: Path, way: str
) -> None:
    folder, points = made(tmp_path / "failed", 6, files=1), list(POINTS)
    while points:
        with pytest.raises(WaterclockError, match=f"died at {points[0]}"):
            run_to_the_end(spark, way, folder, FailingOnce(folder / "out.db", points))
    assert run_to_the_end(spark, way, folder) == clean(way, 6, 1)


@pytest.mark.long(seconds=45)
@EACH_WAY
@TWO_STEPS
def test_a_kill_at_each_numbered_step_changes_nothing(
    spark: SparkSession, clean: Clean, tmp_path: Path, way: str, steps: tuple[str, ...]
) -> None:
    folder = made(tmp_path / "killed", 30, files=3)
    for batch, point in enumerate(steps):
        assert killed(folder, way, point, batch), f"the driver should have died at {point}"
    assert run_to_the_end(spark, way, folder) == clean(way, 30, 3)


@pytest.mark.long(seconds=50)
@EACH_WAY
def test_kills_at_random_moments_change_nothing(
    spark: SparkSession, clean: Clean, tmp_path: Path, campaign_seed: int, way: str
) -> None:
    folder, chance = made(tmp_path / "killed", 30, files=3), random.Random(campaign_seed)
    for _ in range(3):
        killed(folder, way, "random", chance.randrange(4_000, 14_000))
    found = run_to_the_end(spark, way, folder)
    assert Counter(map(whatever_the_batch, found)) == Counter(map(whatever_the_batch, clean(way, 30, 3)))
