"""The number of buckets of `rules.on_spark()`: the user's, or by the cores; a checkpoint lives with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.pipelines import orders, write_files
from waterclock import Rules
from waterclock.errors import StateMismatch, UsageError
from waterclock.sinks import SQLiteSink
from waterclock.spark import write_once
from waterclock.spark.packing.closing import ClosingReader
from waterclock.spark.packing.transform import packer, timed_packer
from waterclock.streaming.frames import TIMESTAMP

DDL = "order string, at timestamp, what string, id string, n long"
RULES = Rules(key="order", time="at", type="what", id="id").delay(after="created", by="1 hour", emit="remind")


def results(spark: SparkSession, folder: Path, buckets: int | None = None) -> DataFrame:
    rows = spark.readStream.schema(DDL).json(str(folder / "in"))
    return rows.transform(RULES.on_spark("1 hour", buckets))


def written(stream: DataFrame, folder: Path) -> None:
    """By a writer of Spark's own, to which waterclock says nothing."""
    writer = stream.select("key", "rule").writeStream.format("parquet").option("path", str(folder / "out"))
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()


@pytest.mark.parametrize(("given", "error"), [(1, ValueError), (4097, ValueError), (2.5, TypeError), (True, TypeError)])
def test_a_number_of_buckets_is_an_integer_from_two_to_4096(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"on_spark\(buckets=\)"):
        RULES.on_spark("1 hour", given)


@pytest.mark.parametrize("pack", [packer(RULES, 64), timed_packer(RULES, 0, 64)])
def test_rows_go_into_as_many_buckets_as_are_told(pack: Any) -> None:
    keys = [f"k{n}" for n in range(2_000)]
    at = pa.array([0] * len(keys), pa.int64()).cast(TIMESTAMP)
    columns = {"order": keys, "at": at, "what": keys, "id": keys, "n": range(len(keys)), "_row_id": keys}
    (packed,) = pack(iter([pa.RecordBatch.from_pydict(columns)]))
    assert len(set(packed.column("bucket").to_pylist())) == 64


def test_a_stream_that_closes_tells_its_number_where_it_is_not_sixteen(tmp_path: Path) -> None:
    sixteen, more = ClosingReader(str(tmp_path / "none"), 16), ClosingReader(str(tmp_path / "none"), 64)
    assert (sixteen.initialOffset(), more.initialOffset()) == ({"heartbeats": 0}, {"heartbeats": 0, "buckets": 64})
    for reader, other in ((sixteen, more), (more, sixteen)):
        with pytest.raises(UsageError, match="keeps its state in"):
            reader.latestOffset(other.initialOffset(), None)
        with pytest.raises(UsageError, match="keeps its state in"):
            reader.partitions(other.initialOffset(), reader.initialOffset())
        assert reader.latestOffset(reader.initialOffset(), None) == reader.initialOffset()


def test_before_pyspark_4_2_it_tells_no_number_for_it_could_not_look_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waterclock.spark.packing.closing._STARTS_ARE_TOLD", False)
    reader = ClosingReader(str(tmp_path / "none"), 64)
    assert reader.latestOffset() == reader.initialOffset() == {"heartbeats": 0}
    assert reader.partitions({"heartbeats": 0}, {"heartbeats": 0}) == []


@pytest.mark.spark
@pytest.mark.long(seconds=15)
def test_another_number_with_an_old_checkpoint_is_refused_and_the_old_one_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    # nothing noticed: keys looked for their state in other buckets, and what they had waited for never came
    rows = orders(6)
    write_files(rows[:9], tmp_path / "in", 1)
    written(results(spark, tmp_path), tmp_path)
    write_files(rows[9:], tmp_path / "later", 1)
    (tmp_path / "later" / "000.jsonl").rename(tmp_path / "in" / "001.jsonl")
    with pytest.raises(StreamingQueryException, match=r"keeps its state in 16 buckets, and on_spark\(\) has 64 now"):
        written(results(spark, tmp_path, 64), tmp_path)
    written(results(spark, tmp_path, 16), tmp_path)
    assert spark.read.parquet(str(tmp_path / "out")).where("rule = 'pass'").count() == len(rows)


@pytest.mark.spark
@pytest.mark.long(seconds=9)
def test_write_once_refuses_another_number_too(spark: SparkSession, tmp_path: Path) -> None:
    write_files(orders(2), tmp_path / "in", 1)
    write_once(results(spark, tmp_path, 20), SQLiteSink(tmp_path / "out.db"), tmp_path / "checkpoint", close=False)
    with pytest.raises(StateMismatch, match=r"in 20 buckets, and 16 are asked for"):
        write_once(results(spark, tmp_path), SQLiteSink(tmp_path / "out.db"), tmp_path / "checkpoint", close=False)
