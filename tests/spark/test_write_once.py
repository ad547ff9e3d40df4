"""Results of `rules.on_spark()`, and what was done with them, written once and closed."""

from __future__ import annotations

import gc
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.pipelines import orders, table, write_files
from tests.spark.test_pipeline_api import ORDERS, TOLD, expected
from waterclock import Rules
from waterclock.errors import StateMismatch, UsageError
from waterclock.sinks import SQLiteSink
from waterclock.spark import write_once
from waterclock.spark.packing.closing import ClosingReader, OnSpark, bind, bindings_of, unbind
from waterclock.streaming.layout import END_US

pytestmark = pytest.mark.spark
DDL = "order string, at timestamp, what string, id string, n long"
BY_TIME = Rules(key="order", time="at", type="what", id="id").deduplicate(within="1 day").quiet("1 hour", "quiet")


def results_of(spark: SparkSession, folder: Path, rules: Rules = ORDERS, delay: str = "1 hour") -> DataFrame:
    rows = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    return rows.transform(rules.on_spark(delay))


def write(stream: DataFrame, folder: Path, **more: Any) -> Any:
    with closing(SQLiteSink(folder / "out.db")) as sink:
        return write_once(stream, sink, folder / "checkpoint", **more)


def test_results_of_on_spark_are_written_and_closed_as_those_of_a_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    # nothing closed such a stream: what waited behind the last watermark never came
    rows = orders(30)
    write_files(rows, tmp_path / "in", 3)
    summary = write(results_of(spark, tmp_path), tmp_path)
    assert Counter(table(tmp_path, TOLD)) == expected(rows)
    assert summary.totals["results"] == len(table(tmp_path))
    last = table(tmp_path, "DISTINCT emitted_at", "emitted_at > '2030'")
    assert last == [("9999-12-30 23:00:00.000000",)]
    assert write(results_of(spark, tmp_path), tmp_path).batches == 0


@pytest.mark.long(seconds=5)
def test_what_is_done_behind_the_rules_is_what_is_written(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(12)
    write_files(rows, tmp_path / "in", 2)
    names = spark.createDataFrame([(f"o{n}", f"customer {n}") for n in range(12)], "key string, customer string")
    quiet = results_of(spark, tmp_path, BY_TIME).where("kind = 'quiet'").join(F.broadcast(names), "key")
    write(quiet.select("key", "customer", "due", "emitted_at"), tmp_path)
    told = [r for r in BY_TIME.run(rows, "1 hour") if r.kind == "quiet"]
    found = Counter((r.key, f"customer {r.key[1:]}", f"{r.due:%Y-%m-%d %H:%M:%S.%f}") for r in told)
    assert Counter(table(tmp_path, "key, customer, due")) == found
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        columns = [name for _, name, *_ in db.execute("PRAGMA table_info(results)")]
    assert columns == ["batch_id", "key", "customer", "due", "emitted_at"]


@pytest.mark.long(seconds=6)
def test_a_stream_that_stays_open_goes_on_where_it_ended(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(12)
    write_files(rows[:18], tmp_path / "in", 1)
    write(results_of(spark, tmp_path), tmp_path, close=False)
    write_files(rows[18:], tmp_path / "more", 1)
    (tmp_path / "more" / "000.jsonl").rename(tmp_path / "in" / "more.jsonl")
    write(results_of(spark, tmp_path), tmp_path)
    assert Counter(table(tmp_path, TOLD)) == expected(rows)


@pytest.mark.long(seconds=5)
def test_rules_delay_and_columns_that_changed_are_refused_and_what_stands_behind_the_rules_may(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_files(orders(3), tmp_path / "in", 1)
    write(results_of(spark, tmp_path), tmp_path, close=False)
    for told, stream in {
        "rules": results_of(spark, tmp_path, ORDERS.quiet("1 day", "quiet")),
        "watermark_delay_us": results_of(spark, tmp_path, delay="2 hours"),
    }.items():
        with pytest.raises(StateMismatch, match=rf"the pipeline changed .*\({told}\)"):
            write(stream, tmp_path, close=False)
    with pytest.raises(UsageError, match=r"has other columns than this pipeline writes"):
        write(results_of(spark, tmp_path).drop("rule"), tmp_path, close=False)
    write(results_of(spark, tmp_path).where("kind <> 'met'"), tmp_path, close=False)


@pytest.mark.long(seconds=6)
def test_rows_after_the_close_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_files(orders(3), tmp_path / "in", 1)
    write(results_of(spark, tmp_path), tmp_path)
    before = table(tmp_path)
    (tmp_path / "in" / "more.jsonl").write_text((tmp_path / "in" / "000.jsonl").read_text().replace(': "o', ': "p'))
    with pytest.raises(UsageError, match=r"the pipeline was closed, and rows came after that"):
        write(results_of(spark, tmp_path), tmp_path)
    assert table(tmp_path) == before


def test_a_batch_dataframe_and_a_session_without_rocksdb_are_refused_with_the_remedy(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"is a batch DataFrame: .*Spark's own writers"):
        write(spark.createDataFrame([], DDL), tmp_path)
    (tmp_path / "in").mkdir()
    provider = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(provider)
    spark.conf.unset(provider)
    spark.conf.set(provider, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    try:
        with pytest.raises(UsageError, match=rf"{provider}' is not RocksDB's.*spark\.conf\.set"):
            write(results_of(spark, tmp_path), tmp_path)
    finally:
        spark.conf.set(provider, before)


def test_a_watermark_of_ones_own_beside_the_rules_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    # Spark takes the least of all watermarks: the close would never have come, and nobody would have said so
    (tmp_path / "in").mkdir()
    rows = spark.readStream.schema(DDL).json(str(tmp_path / "in")).withWatermark("at", "1 hour")
    with pytest.raises(UsageError, match=r"has a withWatermark of its own .* hold the close back: leave it out"):
        write(rows.transform(ORDERS.on_spark("1 hour")), tmp_path)


def test_one_stream_is_closed_by_one_checkpoint_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    made = bindings_of(results_of(spark, tmp_path))
    bind(made, tmp_path / "one" / "heartbeats")
    bind(made, tmp_path / "one" / "heartbeats")
    with pytest.raises(UsageError, match=r"is being written with the checkpoint \S+/one, .*on_spark\(\) once more"):
        bind(made, tmp_path / "two" / "heartbeats")
    unbind(made, tmp_path / "two" / "heartbeats")
    with pytest.raises(UsageError, match=r"is being written"):
        bind(made, tmp_path / "two" / "heartbeats")
    unbind(made, tmp_path / "one" / "heartbeats")
    bind(made, tmp_path / "two" / "heartbeats")
    unbind(made, tmp_path / "two" / "heartbeats")


def test_a_heartbeat_counts_once_bound_and_a_batch_that_is_run_again_has_the_same(tmp_path: Path) -> None:
    binding = tmp_path / "binding"
    reader = ClosingReader(str(binding), 16)
    assert (reader.initialOffset(), reader.latestOffset()) == ({"heartbeats": 0}, {"heartbeats": 0})
    (tmp_path / "heartbeats").mkdir()
    binding.write_text(str(tmp_path / "heartbeats"))
    assert reader.latestOffset() == {"heartbeats": 0}
    (tmp_path / "heartbeats" / "closing.jsonl").touch()
    assert reader.latestOffset() == {"heartbeats": 1}
    binding.unlink()  # another process, which has not bound it yet
    (beat,) = reader.partitions({"heartbeats": 0}, {"heartbeats": 1})
    (rows,) = reader.read(beat)
    assert rows.column("ts").cast(pa.int64()).to_pylist() == [END_US]
    assert reader.partitions({"heartbeats": 1}, {"heartbeats": 1}) == []


def test_a_stream_that_is_made_leaves_nothing_behind_when_it_is_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    # each use of on_spark left a record for as long as the process lived
    def kept() -> int:
        gc.collect()
        return sum(isinstance(each, OnSpark) for each in gc.get_objects())

    (tmp_path / "in").mkdir()
    before = kept()
    made = [results_of(spark, tmp_path) for _ in range(3)]
    assert [each.watermark_delay_us for one in made for each in bindings_of(one).values()] == [3_600_000_000] * 3
    assert len({binding for one in made for binding in bindings_of(one)}) == 3
    made.clear()
    assert kept() == before
