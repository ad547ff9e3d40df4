"""Records of a partition into packed rows, the same for both ways of reading them.

    event frames   to the buckets of their keys
    dead frame     with the counters, to the first bucket: what belongs to no key
    clock frame    to every bucket: how far this partition is, and which others there are

Rule 1: packed rows of a topic carry no time for Spark's watermark; watermarks.py tells why.
Rule 2: `origin` is topic, partition, offset: in that order a bucket takes what a batch brings it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from waterclock.spark import buckets, frames, operator
from waterclock.spark.kafka.offsets import Place
from waterclock.spark.kafka.records import Records, Taken, TopicLayout, read_records
from waterclock.spark.layout import LATEST_US
from waterclock.spark.source import FIRST, NO_TIME, timed
from waterclock.spark.transform import Packs


class PacksRecords(Protocol):
    """What every task is given: `Packing` for events, `ChangePacking` (changes.py) for changes of tables."""

    def pack(self, records: Records, known: Iterable[Place], gone: Iterable[Place] = ()) -> pa.RecordBatch:
        """Packed rows of `records`; `known` are all partitions there are, `gone` those that are no more."""


@dataclass(frozen=True, slots=True)
class Packing:
    """What every task needs to pack: the layout of the records, and how far the watermark stays behind."""

    layout: TopicLayout
    delay_us: int

    def pack(self, records: Records, known: Iterable[Place], gone: Iterable[Place] = ()) -> pa.RecordBatch:
        """Packed rows of `records`; `known` are all partitions there are, `gone` those that are no more: they hold
        nobody back."""
        packs = Packs(f"{records.topic} {records.partition:010d} {records.offsets[0]:020d}")
        taken = read_records(records, self.layout)
        key = self.layout.rules.key
        for batch in taken.rows.combine_chunks().to_batches():
            for label, part in buckets.split(batch, batch.column(key), operator.BUCKETS):
                packs.add(label, frames.to_bytes(part))
        counted = frames.with_counters(taken.dead, taken.counters, b"dead")
        packs.add(FIRST, frames.to_bytes(counted))
        clock = frames.to_bytes(frames.clock(self._watermarks(records, taken, known, gone)))
        for label in buckets.labels(operator.BUCKETS):
            packs.add(label, clock)
        return timed(packs, NO_TIME)

    def _watermarks(
        self, records: Records, taken: Taken, known: Iterable[Place], gone: Iterable[Place]
    ) -> dict[str, int | None]:
        found: dict[str, int | None] = {f"{topic}/{partition}": None for topic, partition in known}
        found.update({f"{topic}/{partition}": LATEST_US for topic, partition in gone})
        found[records.place] = None if taken.latest_us is None else taken.latest_us - self.delay_us
        return found
