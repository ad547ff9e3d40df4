"""The way "python": topics as a data source of PySpark's own kind, over confluent-kafka. Nothing but pip is needed.

Spark calls it in three kinds of processes. In the planner, beside the driver: how far the next batch goes, and which task
reads what. In the workers: read. The class that Spark is given is made for each pipeline, with its plan inside, so that
secrets stand in no option, which Spark would show in plans and logs.

Rule 1: a batch goes up to `per_batch` records further, never beyond `ending`; if nothing is new, it is the same text.
Rule 2: rows leave the workers packed: no record passes through the JVM by itself.
Rule 3: new partitions are found while the stream runs, and read from their first record on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from waterclock.errors import EnvironmentMissing, WaterclockError
from waterclock.kafka import Offsets, Partition
from waterclock.spark.kafka.packing import PacksRecords
from waterclock.streaming.toml.topics import Where
from waterclock.streaming.topics.fetcher import PATIENCE_S, Fetcher, client_for, gone, kept, resolved
from waterclock.streaming.topics.offsets import Range, from_json, ranges, shares, to_json, up_to

try:
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
except ImportError as error:
    raise EnvironmentMissing(
        'way = "python" in [source] needs PySpark 4.2 or newer: pip install --upgrade pyspark, or take way = "connector"',
        door="spark",
    ) from error

if TYPE_CHECKING:
    from waterclock.kafka.client import Client

NAME = "waterclock_kafka"
_NEW_PARTITIONS_EVERY_S = 2.0
_GONE_AFTER_S = 5.0  # a broker that has just started may not know its topics yet
_FORGOTTEN_AFTER_S = 60.0
_AGAIN_AFTER_S = 0.2


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
        self._client: Client | None = None
        self._places: list[Partition] = []
        self._looked_s = 0.0

    # in the planner ------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        self._look()
        return to_json(resolved(self._door(), self._plan.starting, self._places))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._plan.per_batch)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before, latest = from_json(start), self._latest()
        lost = {place: at for place, at in before.items() if at > latest.get(place, -1)}
        if lost:
            latest = self._confirmed(before)
            lost = {place: at for place, at in before.items() if at > latest.get(place, -1)}
        for place, at in lost.items():
            if self._plan.on_loss == "fail":
                raise gone(place, latest.get(place, 0), at)
        back = {place: latest[place] for place in lost if place in latest}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        ending = self._plan.ending
        if ending is not None:  # of a run to the end, if the topics ended at its start
            limits = {**before, **ending}
            latest = {place: min(end, limits[place]) for place, end in latest.items() if place in limits}
        return to_json({**up_to(before, latest, most), **back})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Share]:
        before, after = from_json(start), from_json(end)
        vanished = [place for place in before if place not in after]
        found = shares(ranges(before, after), self._plan.tasks)
        if vanished and not found:  # somebody must report it: no later batch knows
            found = [[]]
        return [Share(each, list(after), vanished) for each in found]

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()

    def _door(self) -> Client:
        if self._client is None:
            self._client = client_for(self._plan.settings, PATIENCE_S)
        return self._client

    def _look(self) -> None:
        self._places = self._door().partitions(self._plan.topics)
        self._looked_s = self._door().clock.monotonic_s()

    def _latest(self) -> Offsets:
        """The end of every partition; which ones there are is looked up now and then."""
        client = self._door()
        if not self._places or client.clock.monotonic_s() - self._looked_s > _NEW_PARTITIONS_EVERY_S:
            self._look()
        return client.ends(self._places)

    def _confirmed(self, before: Offsets) -> Offsets:
        """The ends once more, after a while, if some lie before what was read, or are not there at all. A partition that is
        given up is forgotten: were it only away for a while, it would be read a second time."""
        client = self._door()
        began_s = client.clock.monotonic_s()
        while True:
            self._look()
            latest = client.ends(self._places)
            if all(at <= latest.get(place, -1) for place, at in before.items()):
                return latest
            forgets = self._plan.on_loss != "fail" and not before.keys() <= latest.keys()
            if client.clock.monotonic_s() - began_s > (_FORGOTTEN_AFTER_S if forgets else _GONE_AFTER_S):
                return latest
            client.clock.sleep_s(_AGAIN_AFTER_S)

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
