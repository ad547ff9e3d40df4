"""Who reads the topic and writes the rows: our pipeline on both engines, Spark alone with its own Kafka connector, and a
consumer that does nothing but that.

Each says its sender when the first row is committed, and ends when all are.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from waterclock import Rules
from waterclock.bench.broker.workloads import QUIET
from waterclock.bench.latency.sender import Sender
from waterclock.local import LocalPipeline
from waterclock.local.command import configured as configured_local
from waterclock.sinks.postgres.destination import PostgresDatabase
from waterclock.sinks.sqlite.sqlite import SQLiteFile
from waterclock.spark.pipeline import Pipeline, Progress, configured
from waterclock.streaming.toml.config import Config
from waterclock.streaming.toml.steps import Outlet
from waterclock.streaming.toml.table import FileTable
from waterclock.streaming.toml.topics import topics_from

RULES: Final = (
    Rules(key="key", time="ts", type="kind", id="id", sequence="seq")
    .deduplicate(within="10 minutes")
    .order(wait="1 minute")
)
COLUMNS: Final = {"id": "string", "key": "string", "seq": "long", "kind": "string", "ts": "timestamp"}
DDL: Final = "id string, key string, seq bigint, kind string, ts string"
AGAIN_S: Final = 0.1
MOST: Final = 1000  # records in a transaction
Sink = SQLiteFile | PostgresDatabase
Row = tuple[int, str, str, int]  # batch, message, key, number in its key


@dataclass(frozen=True, slots=True)
class Course:
    """What a contender is given: a topic that is there, a folder that is not, and where it writes."""

    spark: SparkSession
    bootstrap: str
    topic: str
    folder: Path
    sink: Sink


@dataclass(frozen=True, slots=True)
class Committed:
    """When each batch was committed, and the rows in the order in which they were written."""

    at_s: dict[int, float]
    rows: list[Row]


def ours(course: Course, sender: Sender) -> Committed:
    """A pipeline in order and without duplicates."""
    pipeline = configured(_config(course))
    return _piped(course, sender, pipeline, partial(pipeline.run, course.spark))


def local(course: Course, sender: Sender) -> Committed:
    """The same pipeline with engine = "local", in this process."""
    pipeline = configured_local(_config(course))
    return _piped(course, sender, pipeline, pipeline.run)


def _config(course: Course) -> Config:
    source = topics_from(
        FileTable("[source]", {"servers": course.bootstrap, "topics": [course.topic], "columns": COLUMNS}, Path.cwd())
    )
    return Config(course.topic, course.folder, source, 0, False, RULES, (Outlet(course.sink),), None, {})


def _piped(course: Course, sender: Sender, pipeline: Pipeline | LocalPipeline, run: Callable[..., object]) -> Committed:
    at_s: dict[int, float] = {}

    def reported(progress: Progress) -> None:
        at_s[progress.batch_id] = time.monotonic()
        sender.go_on()
        if sender.failure or progress.totals.get("events", 0) >= sender.messages:
            pipeline.end()

    with closing(pipeline):
        run(live=True, report=reported)
    with closing(_connected(course.sink)) as db:
        found = f"SELECT batch_id, event_id, event_key, event_seq FROM {course.sink.table} WHERE kind = 'event'"
        return Committed(at_s, db.execute(f"{found} ORDER BY {_written(course.sink)}").fetchall())


def spark_alone(course: Course, sender: Sender) -> Committed:
    """Spark's own connector, its own parser of JSON, and rows into the table in one transaction a batch."""
    with closing(Table(course.sink, sender)) as table:

        def keep(batch: DataFrame, batch_id: int) -> None:
            table.keep(batch_id, list(zip(*(column.to_pylist() for column in batch.toArrow().columns), strict=True)))

        _until(_stream(course, keep), table.is_whole)
        return table.committed()


def consumer_alone(course: Course, sender: Sender) -> Committed:
    """librdkafka's consumer, Python's parser of JSON, and what is there into the table in one transaction."""
    consumer = Consumer({"bootstrap.servers": course.bootstrap, "group.id": "unused", **QUIET})
    with closing(consumer), closing(Table(course.sink, sender)) as table:
        partitions = consumer.list_topics(course.topic).topics[course.topic].partitions
        consumer.assign([TopicPartition(course.topic, number, OFFSET_BEGINNING) for number in partitions])
        for number in count():
            if table.is_whole():
                return table.committed()
            if (first := consumer.poll(AGAIN_S)) is not None:
                found = [json.loads(each.value()) for each in (first, *consumer.consume(MOST, 0))]
                table.keep(number, [tuple(row.values()) for row in found])
    raise AssertionError("numbers do not end")


class Table:
    """Where who has no rules writes: its rows, and when each batch was committed."""

    def __init__(self, sink: Sink, sender: Sender) -> None:
        self._sink, self._sender, self._rows = sink, sender, 0
        self._at_s: dict[int, float] = {}
        self._db = _connected(sink)
        self._db.execute(
            f"CREATE TABLE {sink.table} (batch_id INTEGER, id TEXT, key TEXT, seq INTEGER, kind TEXT, ts TEXT)"
        )
        self._db.commit()
        mark = "?" if isinstance(sink, SQLiteFile) else "%s"
        self._insert = f"INSERT INTO {sink.table} VALUES ({', '.join([mark] * 6)})"

    def keep(self, batch_id: int, rows: list[tuple[Any, ...]]) -> None:
        """Rows in one transaction."""
        self._db.cursor().executemany(self._insert, [(batch_id, *row) for row in rows])
        self._db.commit()
        self._at_s[batch_id] = time.monotonic()
        self._rows += len(rows)
        if rows:
            self._sender.go_on()

    def is_whole(self) -> bool:
        """Whether all that is sent is there, or no more will come."""
        return bool(self._sender.failure) or self._rows >= self._sender.messages

    def committed(self) -> Committed:
        """All rows, in the order of their writing."""
        found = f"SELECT batch_id, id, key, seq FROM {self._sink.table} ORDER BY {_written(self._sink)}"
        return Committed(self._at_s, self._db.execute(found).fetchall())

    def close(self) -> None:
        self._db.close()


def _stream(course: Course, keep: Callable[[DataFrame, int], None]) -> Any:
    options = {"kafka.bootstrap.servers": course.bootstrap, "subscribe": course.topic, "startingOffsets": "earliest"}
    read = course.spark.readStream.format("kafka").options(**options).load()
    rows = read.select(F.from_json(F.col("value").cast("string"), DDL).alias("row")).select("row.*")
    return rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(course.folder)).start()


def _until(query: Any, over: Callable[[], bool]) -> None:
    try:
        while not over():
            query.awaitTermination(AGAIN_S)
    finally:
        query.stop()


def _connected(sink: Sink) -> Any:
    if isinstance(sink, SQLiteFile):
        db = sqlite3.connect(sink.path, check_same_thread=False)
        db.execute("PRAGMA journal_mode=WAL")  # as the pipelines have it
        return db
    return psycopg.connect(sink.url)


def _written(sink: Sink) -> str:
    """The column by which rows are in the order of their writing; nothing was ever deleted."""
    return "rowid" if isinstance(sink, SQLiteFile) else "ctid"
