"""Pipelines into a topic, on our broker: its committed records are SQLite's rows, whatever is killed on the way."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

if not all(map(importlib.util.find_spec, ("confluent_kafka", "kio"))):
    pytest.skip("needs waterclock[kafka,broker]", allow_module_level=True)

from tests.sinks.stores import TopicStore
from tests.spark.pipelines import make_pipeline, orders, table
from tests.spark.test_crashes import TWO_STEPS, kill_at_each_step, kill_at_random
from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.spark.pipeline import configured
from waterclock.streaming.toml.config import load
from waterclock.testing import Broker

pytestmark = pytest.mark.spark
SAME = "batch_id, kind, key, rule, source_id, result_id, event_order, event_what, event_id, event_n"
MORE = "per_batch = 60"


@pytest.fixture(scope="module")
def topic(kafka_broker: Broker) -> str:
    """120 orders, in three partitions."""
    kafka_broker.create_topic("orders-for-topics", 3)
    Sender(kafka_broker.bootstrap, "orders-for-topics").orders(orders(120))
    return "orders-for-topics"


@pytest.fixture
def store(kafka_broker: Broker) -> TopicStore:
    return TopicStore(kafka_broker.bootstrap)


def into_topic(file: Path, store: TopicStore, table: str = "results") -> Path:
    sink = f'format = "kafka"\nservers = "{store.servers}"\ntopic = "{store.named(table)}"\npartitions = 3'
    file.write_text(file.read_text().replace('path = "out.db"', sink))
    return file


def run(spark: SparkSession, file: Path) -> None:
    pipeline = configured(load(file))
    try:
        pipeline.run(spark)
    finally:
        pipeline.close()


def per_key(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by key, in the order in which they stand; without the batch, which is cut elsewhere after a kill."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["key"], []).append({name: value for name, value in row.items() if name != "batch_id"})
    return found


def committed(store: TopicStore, table: str = "results") -> list[dict[str, Any]]:
    return [row for _, row in store.records(table)]


@pytest.mark.long(seconds=12)
def test_a_topic_gets_the_rows_that_sqlite_gets_and_each_key_in_its_order(
    spark: SparkSession, store: TopicStore, tmp_path: Path
) -> None:
    run(spark, sqlite := make_pipeline(tmp_path / "sqlite", orders(60), files=2))
    run(spark, into_topic(make_pipeline(tmp_path / "topic", orders(60), files=2), store))
    names = SAME.split(", ")
    expected = [dict(zip(names, row, strict=True)) for row in table(sqlite.parent, SAME)]
    found = [{name: row[name] for name in names} for row in committed(store)]
    assert len(expected) > 250
    assert per_key(found) == per_key(expected)


@pytest.fixture(scope="module")
def clean(
    spark: SparkSession, kafka_broker: Broker, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """What a run from topic to topic leaves that nothing happens to."""
    store = TopicStore(kafka_broker.bootstrap)
    file = make_topic_pipeline(tmp_path_factory.mktemp("clean"), kafka_broker.bootstrap, topic, more=MORE)
    run(spark, into_topic(file, store))
    return per_key(committed(store))


@pytest.fixture
def file(kafka_broker: Broker, topic: str, store: TopicStore, tmp_path: Path) -> Path:
    return into_topic(make_topic_pipeline(tmp_path / "killed", kafka_broker.bootstrap, topic, more=MORE), store)


@pytest.mark.long(seconds=50)
@TWO_STEPS
def test_from_topic_to_topic_a_kill_at_each_numbered_step_loses_and_doubles_nothing(
    spark: SparkSession, file: Path, store: TopicStore, clean: Any, steps: Sequence[str]
) -> None:
    kill_at_each_step(file, steps)
    run(spark, file)
    assert per_key(committed(store)) == clean


@pytest.mark.long(seconds=50)
@pytest.mark.parametrize("round_", range(2))
def test_from_topic_to_topic_kills_at_random_moments_lose_and_double_nothing(
    spark: SparkSession, file: Path, store: TopicStore, clean: Any, campaign_seed: int, round_: int
) -> None:
    kill_at_random(file, 4, campaign_seed + round_)
    run(spark, file)
    assert per_key(committed(store)) == clean


@pytest.mark.long(seconds=20)
def test_what_one_pipeline_writes_the_next_one_reads(
    spark: SparkSession, store: TopicStore, file: Path, kafka_broker: Broker, tmp_path: Path
) -> None:
    run(spark, file)
    text = file.read_text().partition("[sink]")[0].replace('"checkpoint"', '"checkpoint-2"')
    second = tmp_path / "killed" / "second.toml"
    columns = 'key = "string"\nkind = "string"\ndue = "timestamp"\nresult_id = "string"\n'
    source = (
        f'[source]\nformat = "kafka"\nservers = "{store.servers}"\ntopics = ["{store.named("results")}"]\n'
        f'[source.columns]\n{columns}[rules]\nkey = "key"\ntime = "due"\nid = "result_id"\n'
    )
    second.write_text(f"{text.partition('[source]')[0]}{source}[sink]\npath = 'second.db'\n")
    run(spark, second)
    import sqlite3

    rows = sqlite3.connect(tmp_path / "killed" / "second.db").execute("SELECT event_result_id FROM results").fetchall()
    assert sorted(rows) == sorted((row["result_id"],) for row in committed(store) if row["due"] is not None)
