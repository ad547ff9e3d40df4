"""Spark begins a slow task a second time, and takes what comes first: no row, letter or count comes twice, none is lost."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.lakes import BY_EXECUTORS, DELTA, beside, held, lake_pipeline, orphans
from tests.spark.pipelines import orders
from tests.spark.standalone import cluster, driver_environment, python_without_waterclock
from tests.spark.test_cluster import PATIENCE_S, for_a_cluster
from waterclock.spark.pipeline import configured
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark
APART = ("127.0.0.1", "127.0.0.2")  # Spark begins no task twice on one host


@pytest.mark.long(seconds=90)
def test_a_slow_task_that_is_begun_twice_with_its_state_and_its_file_changes_no_answer(
    spark: SparkSession, tmp_path: Path
) -> None:
    here, there = (lake_pipeline(tmp_path / name, orders(60), DELTA + BY_EXECUTORS, files=2) for name in ("a", "b"))
    with closing(configured(load(here))) as pipeline:
        pipeline.run(spark)
    mark, python = tmp_path / "mark", python_without_waterclock(tmp_path / "venv")
    with cluster(tmp_path / "cluster", hosts=APART) as made:
        command = [sys.executable, "-m", "tests.spark.slow_task_driver", str(for_a_cluster(there)), made.url, str(mark)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=driver_environment(python), timeout=PATIENCE_S
        )
        assert done.returncode == 0, f"{done.stderr}\n{made.logs()}"
    assert held(tmp_path / "b") == held(tmp_path / "a")
    assert beside(tmp_path / "b") == beside(tmp_path / "a")
    assert orphans(tmp_path / "b") <= {mark.read_text()}
