"""The hand-over to another checkpoint waits for a sink that lacks a batch which Spark notes as done; killed then, the start
behind it takes the batch back, and the old checkpoint goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.rescaling import lagging
from tests.spark.rescaling.lagging import OVER, WAYS, Lagging
from tests.spark.rescaling.living import Living
from tests.spark.rescaling.staged import refused, usable
from waterclock.errors import UsageError, WaterclockError
from waterclock.spark.batch.outlets import Outlets
from waterclock.spark.checkpoint.taken_back import BESIDE
from waterclock.spark.succession import RECORDING, Succession

pytestmark = pytest.mark.spark
PATIENCE_S = 300


def killed(living: Living, way: str) -> None:
    command = [sys.executable, "-m", lagging.__name__, str(living.folder), way]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]


@pytest.mark.long(seconds=60)
@pytest.mark.parametrize("way", WAYS)
def test_a_kill_while_the_sink_lacks_a_batch_and_the_run_is_told_to_halt_leaves_the_old_checkpoint_with_all(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    living = Living(spark, tmp_path, files=12)
    killed(living, way)
    assert (living.old.local / BESIDE).exists()
    assert usable(spark, living.file, living.new.path, living.old.path) == [living.old.path]
    living.to_the_end(living.old)


@pytest.mark.long(seconds=60)
def test_a_kill_while_the_sink_lacks_the_new_checkpoints_first_batch_leaves_that_with_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    living = Living(spark, tmp_path, files=24)
    killed(living, OVER)
    assert (living.new.local / BESIDE).exists()
    lacks = living.new.last_done()
    assert usable(spark, living.file, living.old.path, living.new.path) == [living.new.path]
    assert living.new.last_done() == (lacks or 0) - 1
    living.to_the_end(living.new)


@pytest.mark.long(seconds=40)
@pytest.mark.parametrize("way", WAYS)
def test_the_run_halts_when_its_sink_has_all_that_is_done(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    living, answers = Living(spark, tmp_path, files=12), list[str]()
    late = Lagging(living, way, lambda: answers.append(late.answered()))
    monkeypatch.setattr(Outlets, "write", lambda *given: late.write(*given))
    living.begin()
    living.more(3)
    living.carry(report=late.report)
    living.more(2)
    assert living.failure is None
    living.end()
    assert answers == [RECORDING]
    assert "was carried over" in refused(spark, living.file, living.old.path)
    assert not any((checkpoint.local / BESIDE).exists() for checkpoint in (living.old, living.new))
    living.to_the_end(living.new)


@pytest.mark.long(seconds=60)
@pytest.mark.parametrize("begins", [False, True], ids=["while it works on nothing", "where a batch begins"])
def test_a_run_told_to_halt_whose_last_batch_fails_says_why_and_hands_nothing_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    living, came, look = Living(spark, tmp_path, files=12), list[int](), Succession.look

    def fail() -> None:
        raise UsageError("the disk is full")

    def bring(succession: Succession, query: Any) -> None:
        if not succession.halts:
            look(succession, query)
        elif not came:
            came.append(living.come())

    late = Lagging(living, "idle", fail)
    with monkeypatch.context() as patched:
        patched.setattr(Outlets, "write", lambda *given: late.write(*given))
        if begins:
            patched.setattr(Succession, "look", bring)
        living.begin()
        living.more(3)
        with pytest.raises(WaterclockError, match="ended"):
            living.carry(report=late.report)
        assert "the disk is full" in str(living.died())
    assert bool(came) == begins
    assert usable(spark, living.file, living.new.path, living.old.path) == [living.old.path]
    living.to_the_end(living.old)
