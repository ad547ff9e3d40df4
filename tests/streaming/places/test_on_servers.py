"""Places on a real HDFS and a real S3 server: the contract, and pipelines killed at each numbered step with their
checkpoint and their files there.

The S3 server is not brought by this: it takes 750 MB and Go; `python -m waterclock.bench.servers.s3` does.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.crash_driver import POINTS
from tests.spark.pipelines import run, table
from tests.spark.rescaling.staged import carry
from tests.spark.test_crashes import DRIVER, whatever_the_batch
from tests.streaming.places.place_contract import ServerContract
from tests.streaming.places.servers import Store, pipeline_on
from waterclock import Rules
from waterclock.errors import UsageError
from waterclock.sinks import SQLiteSink
from waterclock.spark import Pipeline, folder
from waterclock.spark.fresh import start_over
from waterclock.spark.pipeline import configured
from waterclock.streaming.places.hadoop import HadoopPath
from waterclock.streaming.toml.config import load

pytestmark = [pytest.mark.spark, pytest.mark.servers]


class TestPlaces(ServerContract):
    """The contract."""


# Pipelines


@pytest.mark.long(seconds=25)
@pytest.mark.parametrize(("batch", "point"), [(n % 3, point) for n, point in enumerate(POINTS)])
def test_a_kill_at_a_numbered_step_changes_nothing(
    spark: SparkSession, store: Store, clean: list[tuple[Any, ...]], tmp_path: Path, batch: int, point: str
) -> None:
    file = pipeline_on(store, tmp_path, 3)
    command = [sys.executable, str(DRIVER), str(file), point, str(batch)]
    died = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2000:]
    run(spark, file)
    assert table(tmp_path) == clean


@pytest.mark.long(seconds=45)
def test_a_state_is_carried_over_there_to_sixty_four_and_to_eight_buckets(
    spark: SparkSession, store: Store, clean: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    file = pipeline_on(store, tmp_path, 3)
    command = [sys.executable, str(DRIVER), str(file), "committed", "1"]  # a batch is under way
    died = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2000:]
    for buckets in (64, 8):
        made = carry(spark, file, buckets)
        assert isinstance(made.checkpoint, HadoopPath)
        assert (made.buckets, made.keys > 0) == (buckets, True)
    run(spark, file)
    assert Counter(map(whatever_the_batch, table(tmp_path))) == Counter(map(whatever_the_batch, clean))


def test_a_pipeline_is_run_again_refused_and_started_over(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    file = pipeline_on(store, tmp_path, 1)
    config = load(file)
    with closing(configured(config)) as pipeline:
        pipeline.run(spark)
    with closing(configured(config)) as pipeline:
        assert pipeline.run(spark).events == 0
    source = config.source.path  # type: ignore[union-attr]
    assert isinstance(source, HadoopPath)
    (source / "late.jsonl").write_whole(b"rubbish")
    with closing(configured(config)) as pipeline, pytest.raises(UsageError, match="1 file came after that"):
        pipeline.run(spark)
    before = table(tmp_path)
    start_over(config)
    (source / "late.jsonl").unlink()
    with closing(configured(config)) as pipeline:
        pipeline.run(spark)
    assert table(tmp_path) == before


def test_sparks_own_readers_read_there_and_keep_what_they_inferred(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    place = store.folder()
    (place / "in" / "a.csv").write_whole(b"case,ts,n\na,2026-01-01T00:00:00Z,1\n")
    rules = Rules(key="case", time="ts")
    source = folder(str(place / "in"), format="csv", options={"header": "true"})
    sink = SQLiteSink(tmp_path / "out.db")
    with closing(Pipeline(source, rules, sink, str(place / "checkpoint"))) as pipeline:
        assert pipeline.run(spark).events == 1
    assert (place / "checkpoint" / "inferred.json").exists()
