"""A state on a server is carried over, and the process that does it is killed behind each numbered step: one checkpoint
goes on, whole. A batch is under way meanwhile.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import run, table
from tests.spark.rescaling.staged import go_on_with, usable
from tests.spark.rescaling.test_kills import LAST, ended
from tests.spark.test_crashes import DRIVER, whatever_the_batch
from tests.streaming.places.servers import Store, pipeline_on
from waterclock.streaming.toml.config import load

pytestmark = [pytest.mark.spark, pytest.mark.servers]


@pytest.mark.long(seconds=110)
@pytest.mark.parametrize("steps", [(2, 3, 4), (5, 6, 7)], ids=str)
def test_a_kill_behind_each_step_leaves_one_checkpoint_that_goes_on(
    spark: SparkSession, store: Store, clean: list[tuple[Any, ...]], tmp_path: Path, steps: Sequence[int]
) -> None:
    file = pipeline_on(store, tmp_path, 3)
    died = subprocess.run([sys.executable, str(DRIVER), str(file), "committed", "1"], capture_output=True, timeout=300)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2000:]
    old = load(file).checkpoint
    new = old.parent / "new"
    for step in steps:
        ended(file, new, -signal.SIGKILL, step)
        assert usable(spark, file, old, new) == [new if step == LAST else old], step
    go_on_with(file, new if LAST in steps else old)
    run(spark, file)
    assert Counter(map(whatever_the_batch, table(tmp_path))) == Counter(map(whatever_the_batch, clean))
