"""A bucket whose deadline comes while it has no rows: Spark calls it, by the one alarm that the operator keeps.

Spark takes an alarm that lies at or before its watermark for one that rings now, and forgets it after that call. Results
were lost in both ways below: the bucket was never called again, not even at the close.
"""

from __future__ import annotations

import json
import os
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import table
from waterclock.rules.deadlines import LEVEL_BITS
from waterclock.spark.packing import operator
from waterclock.spark.pipeline import configured
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark

PIPELINE = """
[pipeline]
name = "alarms"
checkpoint = "checkpoint"
[source]
path = "in"
files_per_batch = 1
[source.columns]
key = "string"
at = "timestamp"
what = "string"
id = "string"
[rules]
key = "key"
time = "at"
type = "what"
id = "id"
[[rules.delay]]
after = "start"
by = "5 seconds"
emit = "remind"
[sink]
path = "out.db"
"""
SLOT = timedelta(microseconds=2 ** LEVEL_BITS[-1])


def reminded(spark: SparkSession, folder: Path, start: datetime) -> list[tuple[str, datetime]]:
    """(source id, watermark) of each reminder. The key `a` has an event in each of three batches of one time; then
    another bucket's key goes on."""
    events = [(0, "a", "start"), (0, "a", "start"), (0, "a", "start"), (8, "b", "other"), (9, "b", "other")]
    (folder / "in").mkdir(parents=True)
    for number, (after_s, key, what) in enumerate(events):
        at = (start + timedelta(seconds=after_s)).isoformat()
        file = folder / "in" / f"{number}.jsonl"
        file.write_text(json.dumps({"key": key, "at": at, "what": what, "id": f"{key}{number}"}))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    (folder / "pipeline.toml").write_text(PIPELINE)
    with closing(configured(load(folder / "pipeline.toml"))) as pipeline:
        pipeline.run(spark)
    return table(folder, "source_id, emitted_at", "kind = 'emit'")


@pytest.mark.long(seconds=10)
def test_a_deadline_outlives_batches_of_its_bucket_in_which_the_watermark_stands_still(
    spark: SparkSession, tmp_path: Path
) -> None:
    in_a_slot = datetime(1970, 1, 1, tzinfo=UTC) + 100_000 * SLOT + timedelta(seconds=1)
    told = f"{in_a_slot + timedelta(seconds=8):%Y-%m-%d %H:%M:%S.%f}"
    assert reminded(spark, tmp_path, in_a_slot) == [(f"a{n}", told) for n in range(3)]


@pytest.mark.long(seconds=12)
def test_deadlines_before_1970_where_spark_has_no_watermark_are_met_in_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They waited for the close."""
    found = reminded(spark, tmp_path, datetime(1960, 1, 1, tzinfo=UTC))
    assert found == [(f"a{n}", "1960-01-01 00:00:08.000000") for n in range(3)]


@pytest.mark.long(seconds=10)
def test_a_deadline_on_the_other_side_of_1970_is_met_in_time(spark: SparkSession, tmp_path: Path) -> None:
    found = reminded(spark, tmp_path, datetime(1969, 12, 31, 23, 59, 57, tzinfo=UTC))
    assert found == [(f"a{n}", "1970-01-01 00:00:05.000000") for n in range(3)]


def test_the_columns_of_the_state_are_those_that_checkpoints_hold(spark: SparkSession) -> None:
    # given as types: as texts they cost each task of each batch three questions to Spark's Java
    told = [operator._BUCKET, operator._NUMBER, operator._BLOB]
    ddl = ["alarm bigint, engine binary, held binary", "number bigint", "blob binary"]
    assert told == [spark.createDataFrame([], columns).schema for columns in ddl]
