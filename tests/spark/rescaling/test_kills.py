"""The process that carries a state over is killed, behind each step and at random; one checkpoint goes on, whole."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import behind
from tests.spark.rescaling.kill_driver import STEPS
from tests.spark.rescaling.staged import (
    STAGES,
    expected,
    go_on_with,
    next_stage,
    outcomes,
    run,
    staged_pipeline,
    usable,
)
from waterclock.streaming.places.place import Place, place_of

pytestmark = pytest.mark.spark
DRIVER = Path(__file__).with_name("kill_driver.py")
PATIENCE_S = 150
LAST = max(STEPS)  # the sink is handed over


def rescaling(file: Path, new: Place, step: int = 0) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(DRIVER), str(step), "rescale", str(file), "--buckets", "64", "--to", str(new)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def ended(file: Path, new: Place, code: int, step: int = 0) -> None:
    """Carry over, to the end or to the death behind `step`."""
    process = rescaling(file, new, step)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, err.decode()[-2000:]


def killed_after(file: Path, new: Place, seconds: float) -> None:
    process = rescaling(file, new)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)
    process.kill()
    process.communicate(timeout=PATIENCE_S)


def to_the_end(spark: SparkSession, file: Path, checkpoint: Place) -> None:
    go_on_with(file, checkpoint)
    for stage in range(1, STAGES):
        next_stage(file, stage)
    run(spark, file)
    assert outcomes(file) == expected(file)


@pytest.mark.long(seconds=45)
@pytest.mark.parametrize(
    ("steps", "scheme"),
    [((2, 3), ""), ((4, 5), "file://"), ((6, 7), "")],
    ids=["2 and 3", "4 and 5 behind a URI", "6 and 7"],
)
def test_a_kill_behind_each_step_leaves_one_checkpoint_that_goes_on(
    spark: SparkSession, tmp_path: Path, steps: Sequence[int], scheme: str
) -> None:
    file = staged_pipeline(tmp_path)
    if scheme:
        behind(f"{scheme}{tmp_path}", file)
    old, new = (place_of(f"{scheme}{tmp_path}/{name}", tmp_path) for name in ("checkpoint", "new"))
    next_stage(file, 0)
    run(spark, file)
    for step in steps:
        ended(file, new, -signal.SIGKILL, step)
        assert usable(spark, file, old, new) == [new if step == LAST else old], step
    to_the_end(spark, file, new if LAST in steps else old)


@pytest.mark.long(seconds=90)
def test_kills_at_random_moments_and_the_command_again_carry_everything_over(
    spark: SparkSession, tmp_path: Path, campaign_seed: int
) -> None:
    file, old, new = staged_pipeline(tmp_path), tmp_path / "checkpoint", tmp_path / "new"
    next_stage(file, 0)
    run(spark, file)
    chance = random.Random(campaign_seed)
    for _ in range(4):
        if usable(spark, file, old, new) == [old]:
            killed_after(file, new, chance.uniform(3, 25))
    if usable(spark, file, old, new) == [old]:
        ended(file, new, 0)
    assert usable(spark, file, old, new) == [new]
    to_the_end(spark, file, new)
