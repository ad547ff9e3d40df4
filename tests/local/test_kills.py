"""Killed at every numbered step, in replays and at random: run again, the tables are those of a run in peace."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.local.crash_driver import STEPS
from tests.spark.pipelines import make_pipeline, orders

DRIVER = Path(__file__).with_name("crash_driver.py")
FILES = 12


def driven(file: Path, step: str = "never", count: int = 0) -> int | None:
    """How many batches were read once more; None if it was killed."""
    command = [sys.executable, str(DRIVER), str(file), step, str(count)]
    done = subprocess.run(command, capture_output=True, timeout=120, text=True)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-2000:]
    return int(done.stdout) if not done.returncode else None


def tables(file: Path) -> list[list[tuple[Any, ...]]]:
    """Results, dead letters, and all of the batches but how long they took and what a replay may write elsewhere."""
    counters = "json_remove(counters, '$.state_bytes')"  # what is written when is another matter
    of_batches = f"batch_id, offsets, watermark, {counters} FROM results_batches"
    with closing(sqlite3.connect(file.parent / "out.db")) as db:
        wanted = ("* FROM results", "* FROM results_dead_letters", of_batches)
        return [db.execute(f"SELECT {each} ORDER BY rowid").fetchall() for each in wanted]


@pytest.fixture(scope="module")
def peace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline that has run in peace; some lines are damaged, some events late, and what comes twice counts twice."""
    file = make_pipeline(tmp_path_factory.mktemp("peace"), orders(120), FILES)
    text = file.read_text().replace('[rules.deduplicate]\nwithin = "1 day"\n', "")
    text = text.replace('[rules.order]\nwait = "1 hour"\n', "").replace('sequence = "n"\n', "")
    file.write_text(text.replace('watermark_delay = "1 hour"', 'watermark_delay = "20 minutes"'))
    for path in sorted((file.parent / "in").iterdir())[::3]:
        moment = path.stat().st_mtime_ns
        path.write_text(path.read_text() + '{"order": \n')
        os.utime(path, ns=(moment, moment))
    assert driven(file) == 0
    return file


@pytest.fixture
def file(peace: Path, expected: list[list[tuple[Any, ...]]]) -> Path:
    """The same input at the same path, which dead letters name, and nothing else."""
    for name in ("out.db", "out.db-wal", "out.db-shm"):
        (peace.parent / name).unlink(missing_ok=True)
    shutil.rmtree(peace.parent / "checkpoint", ignore_errors=True)
    return peace


@pytest.fixture(scope="module")
def expected(peace: Path) -> list[list[tuple[Any, ...]]]:
    found = tables(peace)
    assert len(found[0]) > 300
    assert len(found[1]) == 4
    return found


@pytest.mark.parametrize("step", STEPS[:-1])
def test_killed_at_a_step_it_ends_as_in_peace(file: Path, expected: list[list[tuple[Any, ...]]], step: str) -> None:

    for count in (1, 2, 5):
        assert driven(file, step, count) is None
    assert driven(file) is not None
    assert tables(file) == expected


def test_killed_in_a_replay_and_in_the_one_after_it_it_ends_as_in_peace(
    file: Path, expected: list[list[tuple[Any, ...]]], tmp_path: Path
) -> None:

    assert driven(file, "committed", 7) is None
    assert driven(file, "replayed", 2) is None
    assert driven(file, "replayed", 1) is None
    assert (driven(file) or 0) > 0
    assert tables(file) == expected


def test_killed_at_random_it_ends_as_in_peace(
    file: Path, expected: list[list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    chance = random.Random(tmp_path.name)
    for _ in range(6):
        driven(file, "random", chance.randrange(1, 120))
    assert driven(file) is not None
    assert tables(file) == expected
