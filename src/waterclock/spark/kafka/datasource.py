"""The way "python": topics as a data source of PySpark's own kind, over confluent-kafka. Nothing but pip is needed.

Spark calls it in three kinds of processes. In the planner, beside the driver: how far the next batch goes, and which task
reads what. In the workers: read. The class that Spark is given is made for each pipeline, with its plan inside, so that
secrets stand in no option, which Spark would show in plans and logs.

Rule 1: if nothing is new, the offset is the same text.
Rule 2: rows leave the workers packed: no record passes through the JVM by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from waterclock.errors import EnvironmentMissing, WaterclockError
from waterclock.kafka import Offsets, Partition
from waterclock.spark.kafka.packing import PacksRecords
from waterclock.streaming.toml.topics import Where
from waterclock.streaming.topics.fetcher import PATIENCE_S, Fetcher, client_for, kept
from waterclock.streaming.topics.offsets import Range, from_json, ranges, shares, to_json
from waterclock.streaming.topics.planner import Planner

try:
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
except ImportError as error:
    raise EnvironmentMissing(
        'way = "python" in [source] needs PySpark 4.2 or newer: pip install --upgrade pyspark, or take way = "connector"',
        door="spark",
    ) from error

NAME = "waterclock_kafka"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What the planner and the workers need to know. `ending` is None for a stream that goes on."""

    settings: Mapping[str, str] = field(repr=False)
    topics: tuple[str, ...]
    starting: Where
    ending: Offsets | None
    per_batch: int
    on_loss: str
    tasks: int
    packing: PacksRecords


class Share(InputPartition):  # type: ignore[misc]  # PySpark is untyped here
    """What one task reads; the partitions that there are, and those that are gone."""

    def __init__(self, ranges: list[Range], known: list[Partition], gone: list[Partition]) -> None:
        self.ranges = ranges
        self.known = known
        self.gone = gone


class TopicReader(DataSourceStreamReader):  # type: ignore[misc]  # PySpark is untyped here
    """The planner's side, and `read`, which runs in workers. A client is made when one is needed: none can travel."""

    def __init__(self, plan: TopicPlan) -> None:
        self._plan = plan
        self._planner: Planner | None = None

    # in the planner ------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        return to_json(self._planned().first())

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._plan.per_batch)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json(self._planned().ends(from_json(start), most))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Share]:
        before, after = from_json(start), from_json(end)
        vanished = [place for place in before if place not in after]
        found = shares(ranges(before, after), self._plan.tasks)
        if vanished and not found:  # somebody must report it: no later batch knows
            found = [[]]
        return [Share(each, list(after), vanished) for each in found]

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.client.close()

    def _planned(self) -> Planner:
        if self._planner is None:
            plan = self._plan
            client = client_for(plan.settings, PATIENCE_S)
            self._planner = Planner(client, plan.topics, plan.starting, plan.ending, plan.on_loss)
        return self._planner

    # in the workers ------------------------------------------------------------------------------------------

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        reported = False
        for packed in self._records(partition):
            reported = True
            yield packed
        # no record, or aborted ones and markers only: who is gone must be reported all the same
        if not reported and partition.gone:
            packed = self._plan.packing.pack_gone(partition.known, partition.gone)
            yield from [] if packed is None else [packed]

    def _records(self, partition: Share) -> Iterator[pa.RecordBatch]:
        if not partition.ranges:
            return
        client = kept(frozenset(self._plan.settings.items()))
        try:
            for records in Fetcher(client, partition.ranges, self._plan.on_loss).records():
                yield self._plan.packing.pack(records, partition.known, partition.gone)
        except WaterclockError:
            kept.cache_clear()
            raise


def source_of(plan: TopicPlan) -> type[DataSource]:
    """The data source of one pipeline, to be registered with a session; its format is NAME."""

    class WaterclockKafka(DataSource):  # type: ignore[misc]  # PySpark is untyped here
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str | StructType:
            return plan.packing.columns

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return TopicReader(plan)

    return WaterclockKafka
