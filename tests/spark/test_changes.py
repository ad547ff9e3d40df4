"""A pipeline on a change topic: one word in [source], and each table of the source has one in the sink."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

if not importlib.util.find_spec("confluent_kafka") or not importlib.util.find_spec("kio"):
    pytest.skip("needs waterclock[kafka,broker]", allow_module_level=True)

from tests.sinks.stores import PostgresStore
from tests.spark.topic_contract import run
from tests.spark.topics import Sender
from waterclock.cdc.position import Position
from waterclock.cdc.produce import PER_TABLE, Publisher, Target, topic_of
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.changes.sql_types import ColumnTypes
from waterclock.testing import Broker

pytestmark = pytest.mark.spark
_numbers = count()
SQLITE = '[sink]\npath = "out.db"\n'
Begin = Callable[..., tuple[Path, Sender]]


def pipeline(folder: Path, bootstrap: str, topic: str, value: str, sink: str, more: str = "") -> Path:
    file = folder / "pipeline.toml"
    source = f'format = "kafka"\nservers = "{bootstrap}"\ntopics = ["{topic}"]\nvalue = "{value}"\n{more}'
    file.write_text(f'[pipeline]\nname = "shop"\ncheckpoint = "checkpoint"\n[source]\n{source}\n{sink}')
    return file


@pytest.fixture
def begin(tmp_path: Path, kafka_broker: Broker) -> Begin:
    """A topic, and a pipeline on it."""

    def make(value: str, sink: str = SQLITE, more: str = "", partitions: int = 2) -> tuple[Path, Sender]:
        topic = f"changes-{next(_numbers)}"
        kafka_broker.create_topic(topic, partitions)
        file = pipeline(tmp_path, kafka_broker.bootstrap, topic, value, sink, more)
        return file, Sender(kafka_broker.bootstrap, topic)

    return make


def maxwell(table: str, kind: str, n: int, data: dict[str, Any], old: dict[str, Any] | None = None) -> str:
    fields = {"database": "shop", "table": table, "type": kind, "sequence": n, "xoffset": 0, "data": data}
    fields["primary_key_columns"] = ["id"]
    return json.dumps(fields if old is None else {**fields, "old": old})


def debezium(table: str, op: str, lsn: int, row: dict[str, Any]) -> tuple[str, str]:
    after = None if op == "d" else row
    value = {"op": op, "before": None, "after": after, "source": {"schema": "shop", "table": table, "lsn": lsn}}
    return json.dumps({"id": row["id"]}), json.dumps(value)


def rows(file: Path, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file.parent / "out.db")) as db:
        return db.execute(f'SELECT {columns} FROM "{table}" ORDER BY 1').fetchall()


@pytest.mark.long(seconds=9)
def test_changes_of_maxwell_are_put_into_tables_like_the_sources(spark: SparkSession, begin: Begin) -> None:
    file, sender = begin("maxwell")
    sender.put(
        maxwell("item", "insert", 1, {"id": 1, "price": 1.5}), maxwell("buyer", "insert", 2, {"id": 9, "n": "Ann"})
    )
    sender.put(maxwell("item", "update", 3, {"id": 2, "price": 2}, {"id": 1, "price": 1.5}), "strange")
    summary = run(spark, file)
    assert rows(file, "shop.item") == [(2, 2)]
    assert rows(file, "shop.buyer") == [(9, "Ann")]
    assert rows(file, "changes_dead_letters", "line, text") == [(3, "strange")]
    assert (summary.events, summary.totals["records"], summary.totals["dead_letters"]) == (4, 4, 1)


@pytest.mark.long(seconds=4)
def test_a_topic_for_each_table_is_read_as_one_for_all(spark: SparkSession, begin: Begin, kafka_broker: Broker) -> None:
    """What `--topics per-table` wrote, by the capture's own publisher."""
    target = Target(kafka_broker.bootstrap, "till", topics=PER_TABLE)
    publisher = Publisher(target, "till")
    for n, table in enumerate(["item", "buyer", "odd name"]):
        data = {"id": str(n), "j": " null"}
        where = ("shop", table, "insert", 1, f"0-1-{n}", n, 0, True, ("id",))
        publisher.send(MaxwellMessage(*where, data, types=ColumnTypes.parsed({"j": "json"})))
    publisher.commit(Position("0-1-3"))
    publisher.close()
    topics = [topic_of("till", "shop", table) for table in ("item", "buyer", "odd name")]
    file, _ = begin("maxwell")
    text = file.read_text()
    first = text.partition("topics = [")[2].partition("]")[0]
    file.write_text(text.replace(first, ", ".join(f'"{topic}"' for topic in topics)))
    run(spark, file)
    assert [rows(file, f"shop.{table}") for table in ("item", "buyer", "odd name")] == [
        [(0, "null")],
        [(1, "null")],
        [(2, "null")],
    ]


@pytest.mark.long(seconds=6)
def test_a_second_run_goes_on_and_a_change_that_was_written_twice_changes_nothing(
    spark: SparkSession, begin: Begin
) -> None:
    file, sender = begin("maxwell")
    first, second = maxwell("item", "insert", 1, {"id": 1, "n": "a"}), maxwell("item", "update", 2, {"id": 1, "n": "b"})
    sender.put(first, second)
    run(spark, file)
    sender.put(first, partition=1)
    assert run(spark, file).events == 1
    assert rows(file, "shop.item") == [(1, "b")]
    assert run(spark, file).events == 0


@pytest.mark.long(seconds=4)
def test_changes_of_debezium_are_read_with_the_types_that_the_file_tells(spark: SparkSession, begin: Begin) -> None:
    file, sender = begin("debezium", more='[source.types]\nday = "Date"\n')
    for key, value in (debezium("item", "c", 5, {"id": 1, "day": 3}), debezium("item", "c", 6, {"id": 2, "day": 4}),
                       debezium("item", "d", 7, {"id": 2, "day": None})):  # fmt: skip
        sender.put(value, key=key)
        sender.put(None, key=key)
    assert run(spark, file).totals["tombstones"] == 3
    assert rows(file, "shop.item") == [(1, "1970-01-04")]


@pytest.mark.long(seconds=4)
def test_only_tables_that_are_asked_for_are_made(spark: SparkSession, begin: Begin) -> None:
    file, sender = begin("maxwell", more='tables = ["shop.b*"]')
    sender.put(*(maxwell(table, "insert", 1, {"id": 1}) for table in ("item", "buyer")))
    run(spark, file)
    assert rows(file, "shop.buyer") == [(1,)]
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        rows(file, "shop.item")


@pytest.mark.postgres
@pytest.mark.long(seconds=4)
def test_in_postgresql_a_table_that_was_made_beforehand_keeps_its_types(
    spark: SparkSession, begin: Begin, request: pytest.FixtureRequest
) -> None:
    store = PostgresStore(request.getfixturevalue("postgres"))
    store.run("CREATE SCHEMA shop")
    try:
        store.run("CREATE TABLE shop.item (id integer PRIMARY KEY, at timestamp, price numeric(8, 2))")
        sink = f'[sink]\nformat = "postgres"\nurl = "{store.server.url()}"\nschema = "{store.schema}"\n'
        file, sender = begin("maxwell", sink)
        sender.put(maxwell("item", "insert", 1, {"id": 1, "at": "2026-11-22 05:00:00.5", "price": 3, "new": [1]}))
        run(spark, file)
        assert store.look("id, at::text, price::text, new", "shop.item") == [(1, "2026-11-22 05:00:00.5", "3.00", [1])]
        assert store.tables() == ["changes_batches", "changes_dead_letters", "changes_positions"]
    finally:
        store.run("DROP SCHEMA shop CASCADE")
