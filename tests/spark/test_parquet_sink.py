"""Plain Parquet files with a manifest, and a real Spark: it reads the rows of committed batches, with nothing of ours."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sinks.parquet_look import ParquetStore, agree
from tests.sinks.stores import SCHEMA, batch
from tests.spark.lakes import PARQUET, held, lake_pipeline
from tests.spark.pipelines import orders
from waterclock.errors import UsageError
from waterclock.sinks import ParquetSink, apply_once
from waterclock.sinks.parquet.folders import PlaceFolder
from waterclock.sinks.parquet.manifests import Manifests
from waterclock.spark.fresh import start_over
from waterclock.spark.pipeline import configured
from waterclock.spark.places.hadoop import HadoopPath
from waterclock.spark.toml.config import load
from waterclock.spark.toml.sink import ParquetFolder

pytestmark = pytest.mark.spark


def seen(spark: SparkSession, folder: Path) -> list[str]:
    return sorted(row.source_id for row in spark.read.parquet(str(folder)).select("source_id").collect())


def test_spark_reads_what_is_committed_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    with closing(ParquetSink(tmp_path / "results")) as sink:
        sink.open(SCHEMA)
        for number in range(2):
            apply_once(sink, batch(number))
        sink.begin()
        sink.write(batch(2))
        assert seen(spark, tmp_path / "results") == ["0-0", "0-1", "1-0", "1-1"]


@pytest.mark.long(seconds=6)
def test_so_it_does_however_many_batches_there_are(spark: SparkSession, tmp_path: Path) -> None:
    folder, expected = tmp_path / "a b" / "results", list[str]()
    with closing(ParquetSink(folder)) as sink:
        sink.open(SCHEMA)
        assert spark.read.parquet(str(folder)).count() == 0
        for number in range(62):
            apply_once(sink, batch(number))
            expected += [f"{number}-{n}" for n in range(2)]
            if number in (0, 8, 9, 10, 28, 29, 61):  # before a fold of Spark's list, with it, and behind it
                assert seen(spark, folder) == sorted(expected)
        sink.begin()
        sink.write(batch(62))
        assert seen(spark, folder) == sorted(expected)
    letters = spark.read.parquet(f"{folder}_dead_letters")
    assert letters.count() == 62
    assert spark.read.parquet(str(folder)).filter("batch_id = 61 AND event_n = 1").count() == 1


AS_SOURCE = """
[pipeline]
name = "next"
checkpoint = "checkpoint"
[source]
path = "results"
format = "parquet"
[source.columns]
key = "string"
due = "timestamp"
kind = "string"
source_id = "string"
[time]
watermark_delay = "1 hour"
[rules]
key = "key"
time = "due"
type = "kind"
id = "source_id"
[rules.order]
wait = "1 hour"
[sink]
path = "out.db"
"""


@pytest.mark.long(seconds=5)
def test_a_pipeline_whose_source_it_is_reads_what_is_committed_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    with closing(ParquetSink(tmp_path / "results")) as sink:
        sink.open(SCHEMA)
        for number in range(2):
            apply_once(sink, batch(number))
        sink.begin()
        sink.write(batch(2))
    (tmp_path / "next.toml").write_text(AS_SOURCE)
    with closing(configured(load(tmp_path / "next.toml"))) as pipeline:
        pipeline.run(spark)
    with closing(sqlite3.connect(tmp_path / "out.db")) as made:
        rows = made.execute("SELECT source_id FROM results ORDER BY 1").fetchall()
    assert rows == [("0-0",), ("0-1",), ("1-0",), ("1-1",)]


@pytest.mark.long(seconds=8)
def test_a_pipeline_writes_it_and_fresh_removes_it(spark: SparkSession, tmp_path: Path) -> None:
    file = lake_pipeline(tmp_path / "p", orders(5), PARQUET, files=2)
    config = load(file)
    assert config.sink == ParquetFolder(str(tmp_path / "p" / "lake" / "orders"), tmp_path / "p" / "lake" / "orders")
    with closing(configured(config)) as pipeline:
        pipeline.run(spark)
    rows = held(tmp_path / "p")
    assert seen(spark, tmp_path / "p" / "lake" / "orders") == sorted(row[7] for row in rows)
    with closing(configured(load(file))) as pipeline:
        assert pipeline.run(spark).batches == 0
    start_over(load(file))
    assert list((tmp_path / "p" / "lake").iterdir()) == []


def test_a_mirror_of_it_is_refused(tmp_path: Path) -> None:
    file = lake_pipeline(tmp_path / "p", orders(1), PARQUET + '\nmode = "apply"', files=2)
    with pytest.raises(UsageError, match="a folder of Parquet files cannot be a mirror: what was written to it stays"):
        load(file)


def test_manifests_behind_a_uri_are_made_and_read_through_sparks_java(spark: SparkSession, tmp_path: Path) -> None:
    store = ParquetStore(tmp_path)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0))
    folder = PlaceFolder(HadoopPath(f"file://{store.folder}/results_batches"))
    there, late = (Manifests(folder, "the table") for _ in range(2))
    assert (there.load(), late.load()) == (True, True)
    assert [each.number for each in there.recent] == [0, 1]
    assert there.commit(there.next("owner", there.marks, {})) is True
    assert late.commit(late.next("owner", late.marks, {})) is False
    folder.make("inner")
    assert folder.create_new("inner/a", b"a") is True
    assert folder.create_new("inner/a", b"b") is False
    assert (folder.names("inner"), folder.names("nothing"), folder.read("inner/a")) == (["a"], [], b"a")
    folder.remove("inner/a")
    with pytest.raises(FileNotFoundError):
        folder.read("inner/a")
    agree(store)
