"""The Python samples of docs/pipeline-api.md and docs/spark.md run as they stand, each with a small input beside it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.samples import blocks, run_block
from tests.sinks.stores import batch
from tests.test_readme import ROOT
from waterclock import Rules
from waterclock.sinks import Batch, PostgresSink, SQLiteSink, TopicSink, apply_once
from waterclock.sinks.base import sink_of
from waterclock.spark import Pipeline, folder, reshaped, write_once
from waterclock.testing import Broker

API = [content for _, content in blocks(ROOT / "docs" / "pipeline-api.md", "python")]
GUIDE = [content for _, content in blocks(ROOT / "docs" / "spark.md", "python")]
RULES = Rules(key="order", time="at", type="what").expect(
    "paid", after="created", within="30 minutes", otherwise="unpaid"
)
# (order, moment, what): the first was paid in time, the second never
ORDERS = [("A1", "10:00", "created"), ("A1", "10:20", "paid"), ("B2", "10:05", "created")]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sample names its files without a folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def spark_here(spark: SparkSession, here: Path) -> Iterator[SparkSession]:
    """The session, which looks for paths without a folder where the JVM was started, looks here."""
    hadoop = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    files = hadoop.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    files.setWorkingDirectory(hadoop.Path(str(here)))
    yield spark
    files.setWorkingDirectory(before)


def sample(word: str) -> str:
    """The one block of the guides in which the word stands."""
    (found,) = [content for content in API + GUIDE if word in content]
    return found


def json_lines(folder: Path) -> Path:
    folder.mkdir()
    rows = [{"order": order, "at": f"2026-01-01T{at}:00Z", "what": what} for order, at, what in ORDERS]
    (folder / "orders.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def told(file: Path, columns: str = "kind, key") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as db:
        return db.execute(f"SELECT {columns} FROM results ORDER BY 1, 2").fetchall()


def events_of(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("order string, at timestamp, what string").json(str(json_lines(folder)))


def test_there_is_no_sample_that_is_not_run() -> None:
    run_here = (
        "folder(",
        "spark.readStream",
        "write_once(unpaid",
        "class Alerts",
        "reshaped(SQLiteSink",
        "sinks = [",
        "on_spark(watermark_delay",
        "SparkTable(",
    )
    assert sorted(API + GUIDE) == sorted(map(sample, run_here))


def test_the_sample_of_a_table_of_sparks_catalog_names_it() -> None:
    """What becomes of one is in tests/spark/tables, with the Spark that their libraries are built for."""
    names: dict[str, Any] = {}
    run_block(sample("SparkTable("), names)
    assert "lake.shop.orders" in names["sink"].describe()


@pytest.mark.spark
def test_the_first_sample_writes_who_paid_and_who_did_not(spark: SparkSession, here: Path) -> None:
    json_lines(here / "in")
    names: dict[str, Any] = {}
    run_block(sample("folder("), names)
    assert names["summary"].events == 3
    rows = [row for row in told(here / "orders.db") if row[0] != "event"]
    assert rows == [("expired", "B2"), ("met", "A1")]


@pytest.mark.spark
@pytest.mark.long(seconds=10)
def test_the_sample_of_a_dataframe_reads_a_foreign_time_and_joins_a_table(spark_here: SparkSession, here: Path) -> None:
    (here / "in").mkdir()
    lines = [f"{order},01.01.2026 {at}:00,{what}" for order, at, what in ORDERS]
    (here / "in" / "orders.csv").write_text("\n".join(["order,at,what", *lines, ""]))
    spark_here.createDataFrame([("A1", "Ghent")], "order string, shop string").write.parquet("shops")
    assert (here / "shops").is_dir()
    run_block(sample("spark.readStream"), {**named(), "spark": spark_here, "rules": RULES})
    rows = [row for row in told(here / "orders.db", "kind, key, event_shop") if row[0] == "event"]
    assert rows == [("event", "A1", "Ghent")] * 2 + [("event", "B2", None)]


@pytest.mark.spark
@pytest.mark.long(seconds=10)
def test_the_sample_of_write_once_writes_the_stream_behind_the_rules(spark: SparkSession, here: Path) -> None:
    customers = spark.createDataFrame([("B2", "Ada")], "key string, name string")
    names = {**named(), "events": events_of(spark, here / "in"), "rules": RULES, "customers": customers}
    run_block(sample("write_once(unpaid"), names)
    assert told(here / "unpaid.db", "key, name") == [("B2", "Ada")]


@pytest.mark.spark
@pytest.mark.long(seconds=10)
def test_the_sample_of_on_spark_makes_a_stream_of_results(spark: SparkSession, here: Path) -> None:
    names = {"events": events_of(spark, here / "in"), "rules": RULES}
    run_block(sample("on_spark(watermark_delay"), names)
    write_once(names["results"], SQLiteSink("results.db"), "checkpoint")
    assert [kind for kind, _ in told(here / "results.db")] == ["event"] * 3 + ["expired", "met"]


@pytest.mark.spark
@pytest.mark.long(seconds=10)
def test_the_sample_of_a_reshaped_sink_keeps_what_its_query_asks_for(spark: SparkSession, here: Path) -> None:
    names = named()
    run_block(sample("reshaped(SQLiteSink"), names)
    source = folder(json_lines(here / "in"), columns={"order": "string", "at": "timestamp", "what": "string"})
    with Pipeline(source, RULES, names["sink"], here / "checkpoint") as pipeline:
        pipeline.run(spark)
    assert told(here / "late.db", "key, due") == [("B2", "2026-01-01 10:35:00.000000")]


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.long(seconds=15)
def test_the_sample_of_several_sinks_writes_what_is_late_elsewhere(
    spark: SparkSession, here: Path, kafka_broker: Broker, request: pytest.FixtureRequest
) -> None:
    psycopg = pytest.importorskip("psycopg")
    url = request.getfixturevalue("postgres").url()
    block = sample("sinks = [").replace("localhost:9092", kafka_broker.bootstrap)
    columns = {"order": "string", "at": "timestamp", "what": "string"}
    names = {**named(), "url": url, "rules": RULES, "source": folder(json_lines(here / "in"), columns=columns)}
    names |= {"PostgresSink": PostgresSink, "TopicSink": TopicSink, "Pipeline": lambda *given: given}
    run_block(block, names)
    with Pipeline(names["source"], RULES, names["sinks"], here / "orders-checkpoint") as pipeline:
        pipeline.run(spark)
    with closing(psycopg.connect(url)) as db:
        rows = db.execute("SELECT kind, key FROM results WHERE kind <> 'event' ORDER BY 2").fetchall()
    assert rows == [("met", "A1"), ("expired", "B2")]


@pytest.mark.postgres
def test_the_sample_of_an_own_sink_keeps_each_batch_once_in_postgresql(request: pytest.FixtureRequest) -> None:
    psycopg = pytest.importorskip("psycopg")
    url = request.getfixturevalue("postgres").url()
    with closing(psycopg.connect(url, autocommit=True)) as db:
        db.execute("CREATE TABLE alerts (key text, rule text, due timestamptz)")
        db.execute("CREATE TABLE alerts_last (query text, batch bigint)")
        names: dict[str, Any] = {"psycopg": psycopg, "Batch": Batch}
        run_block(sample("class Alerts"), names)
        alerts = names["Alerts"](url)
        try:
            sink = sink_of(alerts)
            assert [apply_once(sink, batch(number)) for number in (0, 0, 1, 1)] == [True, False, True, False]
            assert db.execute("SELECT count(*) FROM alerts").fetchone() == (2 * batch(0).results.num_rows,)
            assert db.execute("SELECT query, batch FROM alerts_last").fetchall() == [("q", 1)]
        finally:
            alerts._db.close()


def named() -> dict[str, Any]:
    """What the guide's first sample imported, and what stands in its text."""
    return {"F": F, "Pipeline": Pipeline, "SQLiteSink": SQLiteSink, "reshaped": reshaped, "write_once": write_once}
