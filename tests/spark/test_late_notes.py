"""A pipeline is not started on notes of Spark's that a driver wrote over after it was taken over: on file://."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import behind, make_pipeline, orders, table
from waterclock.errors import StateMismatch
from waterclock.spark.pipeline import configured
from waterclock.streaming.places.hadoop import HadoopPath
from waterclock.streaming.toml.config import load


@pytest.mark.spark
@pytest.mark.long(seconds=20)
def test_a_start_on_a_list_of_files_that_was_written_over_is_refused_and_reads_nothing_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = behind(f"file://{tmp_path}", make_pipeline(tmp_path, orders(20), files=2, files_per_batch=2))
    file.write_text(file.read_text().replace('watermark_delay = "1 hour"', 'watermark_delay = "1 hour"\nclose = false'))
    config = load(file)
    with closing(configured(config)) as pipeline:
        pipeline.run(spark)
    before = table(tmp_path)
    entry = HadoopPath(f"file://{tmp_path}/checkpoint/sources/0/0")
    version, first, _ = entry.read_text().splitlines()
    entry.write_whole(f"{version}\n{first}".encode())  # that of a driver which saw one of the two files
    with closing(configured(config)) as pipeline, pytest.raises(StateMismatch, match="written it when it woke up"):
        pipeline.run(spark)
    assert table(tmp_path) == before
