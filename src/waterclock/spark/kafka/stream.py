"""The stream of topics that a pipeline runs on, by either way.

Rule 1: the broker is looked at before Spark starts: whether it answers, lets us in, and has the topics.
Rule 2: a run to the end reads up to where the topics ended at its start; what comes later is the next run's. After the
        closing heartbeat nothing is read: it would be late.
Rule 3: the heartbeats of the checkpoint are the only rows that have a time for Spark: its watermark stays at none until
        the close, and the topics' own (streaming/state/bucket.py) rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from waterclock.errors import UsageError, WaterclockError
from waterclock.kafka import Offsets, Partition
from waterclock.rules.model import Rules
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.files import reader
from waterclock.spark.kafka.packing import ChangePacker, RowPacker
from waterclock.spark.kafka.stepping import StepPacker, SteppedRows
from waterclock.spark.packing.packs import TIMED, in_workers
from waterclock.spark.packing.transform import delay_text
from waterclock.spark.session.cluster import cores_of
from waterclock.spark.source import Stream, names_of
from waterclock.streaming.layout import came_after_the_close
from waterclock.streaming.toml.topics import Topics
from waterclock.streaming.topics.fetcher import BEHIND_A_LOSS, client_for, resolved, settings_of
from waterclock.streaming.topics.offsets import from_json, to_json
from waterclock.streaming.topics.records import ChangeLayout, TopicLayout
from waterclock.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from waterclock.kafka.client import Client

_PATIENCE_S = 10.0
_ASK_EVERY_S = 0.5
GONE = f"records are gone before they were read: a topic was cut shorter, made anew or deleted. {BEHIND_A_LOSS}"


class TopicStream(Stream):
    """A `Stream` of topics of Kafka."""

    unit = "records"
    reads_again = True

    def __init__(self, topics: Topics, rules: Rules | None, delay_us: int, checkpoint: Checkpoint) -> None:
        self._topics = topics
        self._checkpoint = checkpoint
        self._delay_us = delay_us
        self._stepped = None if topics.step is None or rules is None else SteppedRows(topics, rules, delay_us)
        self._packing: RowPacker | ChangePacker | StepPacker
        if self._stepped is not None:
            self._packing = self._stepped.packing
        elif rules is None:
            self._packing = ChangePacker(ChangeLayout(topics.value, topics.tables, topics.types))
        else:
            self._packing = RowPacker(TopicLayout(dict(topics.columns), dict(topics.record), rules), delay_us)
        self.packs_itself = topics.way == "python" and self._stepped is None
        self.closes = rules is not None  # of changes, nothing is held back
        self._client: Client | None = None
        self._ends: tuple[float, int] | None = None  # (when they were read, offsets of all partitions)

    def begin(self, session: SparkSession) -> None:
        """What is read is known; what a step makes of it, Spark knows."""
        if self._stepped is not None:
            self._stepped.begin(session)

    def schema(self) -> pa.Schema | None:
        return self._packing.layout.schema() if self._stepped is None else self._stepped.schema()

    def settings(self) -> dict[str, Any]:
        topics = self._topics
        own: dict[str, Any] = {"columns": dict(topics.columns), "record": dict(topics.record)}
        if topics.changes:
            own = {"value": topics.value, "tables": list(topics.tables)}
        stepped = {} if self._stepped is None else self._stepped.settings()
        return {**own, "topics": list(topics.topics), **stepped}

    def check(self) -> None:
        places = self._places()
        missing = [name for name in self._topics.topics if name not in {topic for topic, _ in places}]
        if missing:
            raise UsageError(
                f"the topic {missing[0]!r} is not on the broker at {self._topics.servers}: create it, or mend 'topics' "
                "in [source]"
            )
        for name, where in (("starting", self._topics.starting), ("ending", self._topics.ending)):
            named = {(t, p) for t in where for p in where[t]} if isinstance(where, Mapping) else set()
            if unknown := sorted(named - set(places)):
                topic, partition = unknown[0]
                raise UsageError(
                    f"[source]: {name!r} names the partition {partition} of {topic!r}, which it does not have"
                )

    def refuse_if_closed(self) -> None:
        if not self._checkpoint.is_closed():
            return
        done, ends = self._closed_at(), self._door().ends(self._places())
        late = {place: end - done.get(place, 0) for place, end in sorted(ends.items()) if end > done.get(place, 0)}
        if late:
            count, where = sum(late.values()), "/".join(map(str, next(iter(late))))
            raise came_after_the_close(counted(count, "record"), where)

    def packed(self, session: SparkSession, live: bool, count: int) -> DataFrame:
        if isinstance(self._packing, RowPacker):
            self._packing = replace(self._packing, count=count)
        rows = self._by_connector(session) if self._topics.way == "connector" else self._by_python(session, live)
        rows = rows if self._stepped is None else self._stepped.packed(rows, count)
        beats = in_workers(names_of(session, self._checkpoint.heartbeats, 1, beat=True), reader(None), TIMED)
        return rows.unionByName(beats).withWatermark("ts", delay_text(self._delay_us)).drop("ts")

    def trigger(self, live: bool) -> dict[str, Any]:
        """Spark's connector knows no other end than where the topics end when a query that ends by itself begins."""
        return {} if live or self._topics.way == "python" else {"availableNow": True}

    def progress(self, totals: Mapping[str, int]) -> tuple[int, int]:
        done = sum(from_json(self._checkpoint.source_offsets()).values())
        try:
            # where the topics ended half a second ago at most: each batch of a live run would wait for the answer
            door = self._door()
            now_s = door.clock.monotonic_s()
            if self._ends is None or now_s - self._ends[0] > _ASK_EVERY_S:
                self._ends = now_s, sum(door.ends(self._places()).values())
            return done, max(done, self._ends[1])
        except WaterclockError:
            return done, done  # the broker is away: that is for the reading of records to wait for

    def explain(self, story: str) -> str | None:
        """Spark's own connector reports records that are gone in a story of many lines."""
        return GONE if "may have been lost" in story or "failOnDataLoss" in story else None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _by_python(self, session: SparkSession, live: bool) -> DataFrame:
        from waterclock.spark.kafka.datasource import NAME, TopicPlan, source_of

        topics = self._topics
        plan = TopicPlan(
            settings=settings_of(topics),
            topics=topics.topics,
            starting=self._starting(),
            ending=None if live else self._ending(),
            per_batch=topics.per_batch,
            on_loss=topics.on_loss,
            tasks=cores_of(session),
            packing=self._packing,
        )
        session.dataSource.register(source_of(plan))
        return session.readStream.format(NAME).load()

    def _by_connector(self, session: SparkSession) -> DataFrame:
        from waterclock.spark.kafka.connector import EARLIEST, packed_topics

        begun = self._starting()
        starting = {(topic, n): begun.get(topic, {}).get(n, EARLIEST) for topic, n in self._places()}
        ending = self._closed_at() if self._checkpoint.is_closed() else None
        return packed_topics(session, self._topics, self._packing, starting, ending)

    def _starting(self) -> dict[str, dict[int, int]]:
        """Where the first batch begins: found out once, for "latest" and even "earliest" are elsewhere after a crash."""
        starting = self._checkpoint.starting()
        if starting is None:
            starting = to_json(resolved(self._door(), self._topics.starting, self._places()))
            self._checkpoint.begin_at(starting)
        return {topic: {int(n): offset for n, offset in offsets.items()} for topic, offsets in starting.items()}

    def _ending(self) -> Offsets:
        if self._checkpoint.is_closed():
            return self._closed_at()
        ending, places = self._topics.ending, self._places()
        if isinstance(ending, Mapping):  # a partition that is not named is read to its end, not up to its first record
            return {**self._door().ends(places), **resolved(self._door(), ending, ())}
        return resolved(self._door(), ending, places)

    def _closed_at(self) -> Offsets:
        """Where the topics ended for good: up to there they were read at the close, or if no batch came, from there on.

        Not how far the batches have come: Spark's connector cannot stop there. What comes during the close it reads, to
        pass it over.
        """
        return {**from_json(self._checkpoint.starting() or {}), **from_json(self._checkpoint.closed_at())}

    def _places(self) -> list[Partition]:
        return self._door().partitions(self._topics.topics)

    def _door(self) -> Client:
        if self._client is None:
            self._client = client_for(settings_of(self._topics), _PATIENCE_S)
        return self._client
