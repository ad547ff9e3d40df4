"""waterclock's pipeline on Spark in a process of its own, and reading and writing without rules; a run for each line.

    python -m waterclock.bench.processors.ours LOG

    files INPUT sqlite|nothing FOLDER                the pipeline over the files
    floor INPUT sqlite FOLDER                        Spark reads the files and writes SQLite
    topic SERVERS INPUT_TOPIC OUTPUT_TOPIC FOLDER    the pipeline, topic to topic
    loop SERVERS INPUT_TOPIC OUTPUT_TOPIC FOLDER     librdkafka reads the topic and writes another in transactions

Rule 1: one Spark session for all runs, as it comes with two cores.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pyspark
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from waterclock.bench import contenders
from waterclock.bench.orders import ALL, COLUMNS
from waterclock.bench.processors.course import PARTITIONS
from waterclock.bench.processors.runs import BEHIND_US, Marks, Record, ThrownAway, serve
from waterclock.sinks import SQLiteSink, TopicSink
from waterclock.spark import Pipeline, folder, topics
from waterclock.spark.session.session import start

AT_ONCE: Final = 25_000
CORES: Final = 2
DDL: Final = "id string, key string, seq bigint, kind string, ts timestamp, deliver_at timestamp"
SPARK: Final = f"Spark {pyspark.__version__}"


def files(spark: SparkSession, given: str, sink: str, place: str) -> Record:
    """The pipeline over files."""
    marks, kept = Marks(SPARK), SQLiteSink(f"{place}/results.db") if sink == "sqlite" else ThrownAway()
    source = folder(given, columns=COLUMNS, format="jsonl", files_per_batch=1)
    _run(spark, Pipeline(source, ALL, kept, f"{place}/checkpoint", watermark_delay=BEHIND_US), marks)
    return marks.record(dict(kept.counts) if isinstance(kept, ThrownAway) else {})


def topic(spark: SparkSession, servers: str, given: str, output: str, place: str) -> Record:
    """The pipeline from topic to topic."""
    marks, source = Marks(SPARK), topics(servers, [given], columns=COLUMNS)
    sink = TopicSink(servers, output, partitions=PARTITIONS)
    _run(spark, Pipeline(source, ALL, sink, f"{place}/checkpoint", watermark_delay=BEHIND_US), marks)
    return marks.record({})


def _run(spark: SparkSession, made: Pipeline, marks: Marks) -> None:
    with made as pipeline:
        pipeline.run(spark, report=lambda progress: marks.note(progress.totals.get("events", 0)))


def floor(spark: SparkSession, given: str, sink: str, place: str) -> Record:
    """No rules: a table of what comes."""
    marks, taken = Marks(SPARK), 0
    with closing(sqlite3.connect(f"{place}/results.db", check_same_thread=False)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE results (id TEXT, key TEXT, seq INTEGER, kind TEXT, ts INTEGER, deliver INTEGER)")

        def keep(batch: DataFrame, _: int) -> None:
            nonlocal taken
            rows = batch.toArrow()
            with db:
                db.executemany(
                    "INSERT INTO results VALUES (?, ?, ?, ?, ?, ?)",
                    zip(*(column.to_pylist() for column in rows.columns), strict=True),
                )
            taken += rows.num_rows
            marks.note(taken)

        stream = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(given)
        made = contenders.as_it_comes(stream).writeStream.foreachBatch(keep)
        query = made.option("checkpointLocation", f"{place}/checkpoint").start()
        query.processAllAvailable()
        query.stop()
    return marks.record({"rows": taken})


def loop(_: SparkSession, servers: str, given: str, output: str, place: str) -> Record:
    """No rules: each record into another topic, and how far in the same transaction."""
    marks, taken = Marks(SPARK), 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"loop-{output}", "enable.auto.commit": False})
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"loop-{output}", "linger.ms": 5})
    consumer.assign([TopicPartition(given, partition, 0) for partition in range(PARTITIONS)])
    producer.init_transactions(30)
    end = sum(consumer.get_watermark_offsets(TopicPartition(given, number))[1] for number in range(PARTITIONS))
    while taken < end:
        producer.begin_transaction()
        taken += _passed_on(consumer, producer, output, min(AT_ONCE, end - taken))
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
        marks.note(taken)
    consumer.close()
    return marks.record({"rows": taken})


def _passed_on(consumer: Consumer, producer: Producer, output: str, most: int) -> int:
    passed = 0
    while passed < most:
        for message in consumer.consume(min(most - passed, 1000), 0.2):
            producer.produce(output, message.value(), message.key())
            passed += 1
        producer.poll(0)
    return passed


RUNS: Final[dict[str, Callable[..., Record]]] = {"files": files, "topic": topic, "floor": floor, "loop": loop}


def main() -> None:
    """A record for each line."""
    spark = start("bench", CORES, log=Path(sys.argv[1])).spark
    try:
        serve(RUNS, spark)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
