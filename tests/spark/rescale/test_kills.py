"""The process that carries a state over is killed, behind each step and at random; one checkpoint goes on, whole."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.rescale.kill_driver import STEPS
from tests.spark.rescale.staged import STAGES, expected, go_on_with, next_stage, outcomes, run, staged_pipeline, usable

pytestmark = pytest.mark.spark
DRIVER = Path(__file__).with_name("kill_driver.py")
PATIENCE_S = 150


def rescaling(file: Path, new: Path, step: int = 0) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(DRIVER), str(file), "64", str(new), str(step)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def killed_behind(file: Path, new: Path, step: int) -> None:
    process = rescaling(file, new, step)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGKILL, err.decode()[-2000:]


def killed_after(file: Path, new: Path, seconds: float) -> None:
    process = rescaling(file, new)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)
    process.kill()
    process.communicate(timeout=PATIENCE_S)


def to_the_end(spark: SparkSession, file: Path, checkpoint: Path) -> None:
    go_on_with(file, checkpoint)
    for stage in range(1, STAGES):
        next_stage(file, stage)
    run(spark, file)
    assert outcomes(file) == expected(file)


@pytest.mark.long(seconds=40)
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_behind_a_step_leaves_one_checkpoint_that_goes_on(
    spark: SparkSession, tmp_path: Path, step: int
) -> None:
    file, old, new = staged_pipeline(tmp_path), tmp_path / "checkpoint", tmp_path / "new"
    next_stage(file, 0)
    run(spark, file)
    killed_behind(file, new, step)
    (left,) = usable(spark, file, old, new)
    assert left == (new if step == 7 else old)
    to_the_end(spark, file, left)


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
        assert rescaling(file, new).wait(timeout=PATIENCE_S) == 0
    assert usable(spark, file, old, new) == [new]
    to_the_end(spark, file, new)
