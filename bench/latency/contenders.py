"""Who reads the topic and writes the rows: a pipeline of ours, and Spark alone with its own Kafka connector.

Each says its sender when the first row is committed, and ends when all are.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from waterclock import Rules
from waterclock.bench.latency.sender import Sender
from waterclock.sinks.postgres.destination import PostgresDatabase
from waterclock.sinks.sqlite.sqlite import SQLiteFile
from waterclock.spark.pipeline import Progress, configured
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
    at_s: dict[int, float] = {}
    source = topics_from(
        FileTable("[source]", {"servers": course.bootstrap, "topics": [course.topic], "columns": COLUMNS}, Path.cwd())
    )
    config = Config(course.topic, course.folder, source, 0, False, RULES, (Outlet(course.sink),), None, {})
    with closing(configured(config)) as pipeline:

        def reported(progress: Progress) -> None:
            at_s[progress.batch_id] = time.monotonic()
            sender.go_on()
            if sender.failure or progress.totals.get("events", 0) >= sender.messages:
                pipeline.end()

        pipeline.run(course.spark, live=True, report=reported)
    with closing(_connected(course.sink)) as db:
        found = f"SELECT batch_id, event_id, event_key, event_seq FROM {course.sink.table} WHERE kind = 'event'"
        return Committed(at_s, db.execute(f"{found} ORDER BY {_written(course.sink)}").fetchall())


def spark_alone(course: Course, sender: Sender) -> Committed:
    """Spark's own connector, its own parser of JSON, and rows into the table in one transaction a batch."""
    at_s: dict[int, float] = {}
    table, mark = course.sink.table, "?" if isinstance(course.sink, SQLiteFile) else "%s"
    insert = f"INSERT INTO {table} VALUES ({', '.join([mark] * 6)})"
    with closing(_connected(course.sink)) as db:
        db.execute(f"CREATE TABLE {table} (batch_id INTEGER, id TEXT, key TEXT, seq INTEGER, kind TEXT, ts TEXT)")
        db.commit()

        def keep(batch: DataFrame, batch_id: int) -> None:
            columns = [column.to_pylist() for column in batch.toArrow().columns]
            db.cursor().executemany(insert, [(batch_id, *row) for row in zip(*columns, strict=True)])
            db.commit()
            at_s[batch_id] = time.monotonic()
            if columns[0]:
                sender.go_on()

        _until(_stream(course, keep), lambda: bool(sender.failure) or _count(db, table) >= sender.messages)
        found = f"SELECT batch_id, id, key, seq FROM {table} ORDER BY {_written(course.sink)}"
        return Committed(at_s, db.execute(found).fetchall())


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


def _count(db: Any, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _connected(sink: Sink) -> Any:
    if isinstance(sink, SQLiteFile):
        return sqlite3.connect(sink.path, check_same_thread=False)
    return psycopg.connect(sink.url)


def _written(sink: Sink) -> str:
    """The column by which rows are in the order of their writing; nothing was ever deleted."""
    return "rowid" if isinstance(sink, SQLiteFile) else "ctid"
