"""Executors of a cluster write results, and one dies between its file and the commit: no row twice, none missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.spark.lakes import BY_EXECUTORS, DELTA, ICEBERG, beside, held, lake_pipeline, orphans, table
from tests.spark.pipelines import orders
from tests.spark.standalone import Cluster, cluster, driver_environment, python_without_waterclock
from tests.spark.test_cluster import PATIENCE_S, for_a_cluster
from waterclock.spark.pipeline import configured
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster") / "of two") as made:
        yield made


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_without_waterclock(tmp_path_factory.mktemp("python") / "venv")


def drive(file: Path, made: Cluster, python: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.spark.killed_executor_driver", str(file), made.url, *more]
    environment = driver_environment(python)
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE_S)


@pytest.mark.long(seconds=60)
@pytest.mark.parametrize("sink", [DELTA, ICEBERG], ids=["delta", "iceberg"])
def test_an_executor_that_is_killed_between_its_file_and_the_commit_writes_no_row_twice(
    spark: SparkSession, two_workers: Cluster, python: Path, tmp_path: Path, sink: str
) -> None:
    rows = orders(60)
    here = lake_pipeline(tmp_path / "here", rows, sink + BY_EXECUTORS, files=2)
    with closing(configured(load(here))) as pipeline:
        pipeline.run(spark)
    there = for_a_cluster(lake_pipeline(tmp_path / "there", rows, sink + BY_EXECUTORS, files=2))
    before, mark = two_workers.started_executors(), tmp_path / "mark"
    done = drive(there, two_workers, python, str(mark))
    assert done.returncode == 0, f"{done.stderr}\n{two_workers.logs()}"
    assert held(tmp_path / "there") == held(tmp_path / "here")
    assert beside(tmp_path / "there") == beside(tmp_path / "here")
    assert two_workers.started_executors() == before + 3
    lost = mark.read_text()
    assert len(list((tmp_path / "there" / "lake").rglob(lost))) == 1
    if sink != ICEBERG:
        assert orphans(tmp_path / "there") == {lost}
    if sink == DELTA:
        lake = DeltaTable(tmp_path / "there" / "lake" / "orders")
        lake.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
        assert held(tmp_path / "there") == held(tmp_path / "here")


@pytest.mark.long(seconds=30)
def test_a_folder_that_executors_do_not_share_with_the_driver_ends_the_run_before_a_commit(
    two_workers: Cluster, python: Path, tmp_path: Path
) -> None:
    file = for_a_cluster(lake_pipeline(tmp_path / "p", orders(20), DELTA + BY_EXECUTORS, files=2))
    (tmp_path / "elsewhere").mkdir()
    done = drive(file, two_workers, python, str(tmp_path / "mark"), str(tmp_path / "elsewhere"))
    assert done.returncode != 0
    assert "mount one folder on all machines" in done.stderr, done.stderr
    assert table(tmp_path / "p").num_rows == 0
    assert list((tmp_path / "elsewhere").glob("part-0-*.parquet"))
