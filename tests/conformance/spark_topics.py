"""Spark's Kafka source and sink, in few words; nothing of the broker's code.

Rule 1: rows come back by partition and offset, as plain values.
Rule 2: a topic that ends with `*` is a pattern of topics.
Rule 3: an option `kafka_isolation_level` is the setting `isolation.level` of Kafka's client, and so on.
Rule 4: a stream writes files of JSON, a sink of Spark's that keeps each batch once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conformance.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WITHIN_S = 60
# Waits are cut, nothing else: a second before Spark asks again for an offset that surprises it (three times), and two
# minutes for a record that should be there.
PATIENCE = {"fetchOffset.retryIntervalMs": 20, "kafkaConsumer.pollTimeoutMs": 20_000}
READ = "CAST(value AS STRING) AS value"


class SparkTopics:
    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark, self._folder = spark, folder
        self.endpoint = {"kafka.bootstrap.servers": bootstrap}

    def table(self, topic: str, **options: Any) -> DataFrame:
        """A topic as a table."""
        return self.spark.read.format("kafka").options(**self._source(topic, options)).load()

    def rows(self, topic: str, *columns: str, **options: Any) -> list[tuple[Any, ...]]:
        """These columns of every record."""
        table = self.table(topic, **options).selectExpr("partition", "offset", *columns)
        return [tuple(row)[2:] for row in sorted(table.collect(), key=lambda row: row[:2])]

    def values(self, topic: str, **options: Any) -> list[str]:
        return [value for (value,) in self.rows(topic, READ, **options)]

    def write(self, rows: str, **options: Any) -> None:
        """Append what a SELECT gives."""
        self.spark.sql(rows).write.format("kafka").options(**self.endpoint, **dotted(options)).save()

    def _source(self, topic: str, options: dict[str, Any]) -> dict[str, Any]:
        how = "subscribePattern" if topic.endswith("*") else "subscribe"
        return {**self.endpoint, **PATIENCE, how: topic, **dotted(options)}

    def stream(self, topic: str, **options: Any) -> DataFrame:
        """A topic as a stream, from its first offset on."""
        answer = {"startingOffsets": "earliest", **self._source(topic, options)}
        return self.spark.readStream.format("kafka").options(**answer).load()

    def to_files(self, topic: str, *, options: dict[str, Any] | None = None, **trigger: Any) -> StreamingQuery:
        """Begin to copy a topic to the files, or go on from the checkpoint."""
        found = self.stream(topic, **options or {}).selectExpr("partition", "offset", READ)
        return self.begin(found.writeStream.format("json").option("path", f"{self._folder}/files"), **trigger)

    def begin(self, writer: Any, **trigger: Any) -> StreamingQuery:
        query: StreamingQuery = (
            writer.option("checkpointLocation", f"{self._folder}/checkpoint").trigger(**trigger).start()
        )
        return query

    def copied(self) -> list[str]:
        """The values in the files, by partition and offset, as often as they are there."""
        table = self.spark.read.schema("partition INT, offset BIGINT, value STRING").json(f"{self._folder}/files")
        return [row.value for row in sorted(table.collect())]


def dotted(options: dict[str, Any]) -> dict[str, Any]:
    """`kafka_compression_type` as `kafka.compression.type`."""
    return {key.replace("_", ".") if key.startswith("kafka_") else key: value for key, value in options.items()}


def finished(query: StreamingQuery) -> list[int]:
    """Wait for the end of what is there now; how many rows each batch had. An error of the stream is raised."""
    assert query.awaitTermination(WITHIN_S), query.status
    return rows_of(query)


def rows_of(query: StreamingQuery) -> list[int]:
    return [answer["numInputRows"] for answer in query.recentProgress if answer["numInputRows"]]


def arrived(query: StreamingQuery, count: int) -> None:
    """Wait until a stream has taken in so many rows."""
    until(lambda: query.exception() or sum(rows_of(query)) >= count, within_s=WITHIN_S)
    assert query.exception() is None


def at(topic: str, *offsets: int) -> str:
    """Offsets as Spark wants them told: one for each partition."""
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(offsets)}})
