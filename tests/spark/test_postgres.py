"""Pipelines into PostgreSQL, on a real server: its tables hold what SQLite's hold, whatever is killed on the way."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

if not all(map(importlib.util.find_spec, ("psycopg", "pgpq", "confluent_kafka", "kio"))):
    pytest.skip("needs waterclock[postgres,kafka,broker]", allow_module_level=True)

from tests.postgres_server import PostgresServer
from tests.sinks.stores import PostgresStore
from tests.spark.crash_driver import POINTS
from tests.spark.pipelines import START, into_postgres, make_pipeline, orders, table, write_files
from tests.spark.test_crashes import TWO_STEPS, kill_at_each_step, kill_at_random
from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.errors import WaterclockError
from waterclock.spark.fresh import start_over
from waterclock.spark.pipeline import configured
from waterclock.streaming.summary import Progress
from waterclock.streaming.toml.config import load
from waterclock.testing import Broker

pytestmark = [pytest.mark.spark, pytest.mark.postgres]
Rows = list[tuple[Any, ...]]
Make = Callable[..., Path]
SOURCES = ("files", "topic")
SAME = "kind, key, rule, source_id, result_id, event_order, event_what, event_id, event_n, batch_id"
TIMES = ("due", "emitted_at", "event_at")
MORE = "per_batch = 60"


def run(spark: SparkSession, file: Path, tell: Callable[[Progress], None] | None = None) -> None:
    pipeline = configured(load(file))
    try:
        pipeline.run(spark, report=tell)
    finally:
        pipeline.close()


@pytest.fixture(scope="module")
def topic(kafka_broker: Broker) -> str:
    """The orders of `make`, in three partitions."""
    kafka_broker.create_topic("orders-for-postgres", 3)
    Sender(kafka_broker.bootstrap, "orders-for-postgres").orders(orders(120))
    return "orders-for-postgres"


@pytest.fixture
def make(kafka_broker: Broker, topic: str, tmp_path: Path) -> Make:
    """A pipeline from files or from the topic, the same events; it writes to SQLite until told otherwise."""

    def make(source: str, name: str, files: int = len(POINTS)) -> Path:
        if source == "files":
            return make_pipeline(tmp_path / name, orders(120), files=files)
        return make_topic_pipeline(tmp_path / name, kafka_broker.bootstrap, topic, more=MORE)

    return make


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server, started again where a test leaves it stopped."""
    yield postgres
    if not postgres.is_running():
        postgres.start()


@pytest.fixture
def store(server: PostgresServer) -> PostgresStore:
    return PostgresStore(server)


def put_into(store: PostgresStore, file: Path) -> Path:
    return into_postgres(file, store.server.url(), store.schema)


def everything(store: PostgresStore) -> Rows:
    """All that is in the results, in the order in which it was written, as PostgreSQL shows it."""
    return store.in_order("results::text")


def whatever_the_batch(row: tuple[str]) -> tuple[str, ...]:
    """A result as PostgreSQL shows it, without batch, place in the batch, and watermark."""
    _, _, kind, key, rule, due, _, *rest = row[0].strip("()").split(",")
    return kind, key, rule, due, *rest


@pytest.fixture
def clean(spark: SparkSession, server: PostgresServer, make: Make) -> Callable[[str], Rows]:
    """What a run that nothing happens to leaves."""

    def clean(source: str) -> Rows:
        store = PostgresStore(server)
        run(spark, put_into(store, make(source, "clean")))
        return everything(store)

    return clean


# Nothing happens -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["files", pytest.param("topic", marks=pytest.mark.long(seconds=12))])
@pytest.mark.long(seconds=12)
def test_postgres_gets_the_rows_that_sqlite_gets(
    spark: SparkSession, store: PostgresStore, make: Make, source: str
) -> None:
    run(spark, sqlite := make(source, "sqlite", files=2))
    run(spark, put_into(store, make(source, "postgres", files=2)))
    shown = ", ".join(f"to_char({name} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')" for name in TIMES)
    expected = table(sqlite.parent, f"{SAME}, {', '.join(TIMES)}")
    assert len(expected) > 500
    assert store.in_order(f"{SAME}, {shown}") == expected


@pytest.mark.long(seconds=12)
def test_a_second_run_goes_on_and_fresh_begins_anew(spark: SparkSession, store: PostgresStore, make: Make) -> None:
    file = put_into(store, make("files", "again"))
    file.write_text(file.read_text().replace("[rules]\n", "close = false\n[rules]\n", 1))
    run(spark, file)
    first = everything(store)
    late = START + timedelta(days=2)
    row = {"order": "last", "at": late, "what": "created", "id": "last-1", "n": 1}
    write_files([row], file.parent / "more", 1)
    (file.parent / "more" / "000.jsonl").rename(file.parent / "in" / "last.jsonl")
    run(spark, file)
    assert everything(store)[: len(first)] == first
    assert len(store.look("query_id, batch_id", "results_batches")) > 6
    start_over(load(file))
    assert store.tables() == []
    run(spark, file)
    assert [key for (key,) in store.in_order("key")].count("last") == 1


# Something is killed -------------------------------------------------------------------------------------------


@pytest.mark.long(seconds=50)
@pytest.mark.parametrize("source", SOURCES)
@TWO_STEPS
def test_a_kill_at_each_numbered_step_changes_nothing(
    spark: SparkSession,
    store: PostgresStore,
    make: Make,
    clean: Callable[[str], Rows],
    source: str,
    steps: Sequence[str],
) -> None:
    file = put_into(store, make(source, "killed"))
    kill_at_each_step(file, steps)
    run(spark, file)
    assert everything(store) == clean(source)


@pytest.mark.long(seconds=50)
@pytest.mark.parametrize("source", SOURCES)
def test_kills_at_random_moments_change_nothing(
    spark: SparkSession,
    store: PostgresStore,
    make: Make,
    clean: Callable[[str], Rows],
    source: str,
    campaign_seed: int,
) -> None:
    file = put_into(store, make(source, "killed"))
    kill_at_random(file, 4, campaign_seed)
    run(spark, file)
    found, wanted = everything(store), clean(source)
    if source == "files":  # a batch may have got two files: test_crashes.py says when
        found, wanted = (sorted(map(whatever_the_batch, rows)) for rows in (found, wanted))
    assert found == wanted


@pytest.mark.long(seconds=25)
def test_a_server_that_restarts_in_the_middle_is_only_a_second_try(
    spark: SparkSession, store: PostgresStore, make: Make, clean: Callable[[str], Rows]
) -> None:
    def restart(progress: Progress) -> None:
        if progress.batch_id == 2:
            store.server.crash()
            store.server.start()

    run(spark, put_into(store, make("topic", "restarted")), restart)
    assert everything(store) == clean("topic")


@pytest.mark.long(seconds=12)
def test_a_server_that_stays_away_ends_the_run_in_a_sentence_and_the_next_one_goes_on(
    spark: SparkSession, store: PostgresStore, make: Make, clean: Callable[[str], Rows]
) -> None:
    def crash(progress: Progress) -> None:
        if progress.batch_id == 2:
            store.server.crash()

    file = put_into(store, make("files", "away"))
    with pytest.raises(WaterclockError, match=r"went away: .*\. What was committed stays; the same command goes on"):
        run(spark, file, crash)
    store.server.start()
    run(spark, file)
    assert everything(store) == clean("files")
