"""Records of a partition into packed rows, the same for both ways of reading them.

    event frames   to the buckets of their keys
    dead frame     with the counters, to the first bucket: what belongs to no key
    clock frame    to every bucket: how far this partition is, and which others there are
    changes frame  of topics of changes, in place of events: CHANGES of changes/packed.py, to the first bucket

Rule 1: packed rows of a topic carry no time for Spark's watermark; streaming/state/bucket.py says why.
Rule 2: `origin` is topic, partition, offset: in that order a bucket takes what a batch brings it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql.types import StructType

from waterclock.kafka import Partition
from waterclock.spark.packing.packs import FIRST, NO_TIME, TIMED, Packs, timed
from waterclock.streaming import buckets, frames
from waterclock.streaming.topics.records import (
    ChangeLayout,
    Records,
    TopicLayout,
    own_watermark,
    read_changes,
    read_records,
    watermarks_of,
)


class PacksRecords(Protocol):
    """What every task is given: `RowPacker` for events, `ChangePacker` for changes of tables, `StepPacker`
    (stepping.py) for what goes through a step of the user's own first."""

    @property
    def columns(self) -> str | StructType:
        """The columns of what it makes, as Spark takes them."""

    def pack(self, records: Records, known: Iterable[Partition], gone: Iterable[Partition] = ()) -> pa.RecordBatch:
        """Packed rows of `records`; `known` are all partitions there are, `gone` those that are no more."""

    def pack_gone(self, known: Iterable[Partition], gone: Iterable[Partition]) -> pa.RecordBatch | None:
        """Packed rows of a batch that brings no record, only that the partitions of `gone` are no more; None if that
        does not matter."""


@dataclass(frozen=True, slots=True)
class RowPacker:
    """What every task needs to pack: the layout of the records, how far the watermark stays behind, how many buckets."""

    layout: TopicLayout
    delay_us: int
    count: int = buckets.BUCKETS

    @property
    def columns(self) -> str:
        return TIMED

    def pack(self, records: Records, known: Iterable[Partition], gone: Iterable[Partition] = ()) -> pa.RecordBatch:
        """Packed rows of `records`; `known` are all partitions there are, `gone` those that are no more: they hold
        nobody back."""
        packs = Packs(f"{records.topic} {records.partition:010d} {records.offsets[0]:020d}", self.count)
        taken = read_records(records, self.layout)
        key = self.layout.rules.key
        for batch in taken.rows.combine_chunks().to_batches():
            packs.add_rows(batch, key)
        counted = frames.with_counters(taken.dead, taken.counters, "dead")
        packs.add(FIRST, frames.to_bytes(counted))
        own = own_watermark(taken.latest_us, self.delay_us)
        return _with_clocks(packs, {**watermarks_of(known, gone), records.place: own})

    def pack_gone(self, known: Iterable[Partition], gone: Iterable[Partition]) -> pa.RecordBatch:
        """Packed rows of a batch that brings no record, only that the partitions of `gone` are no more."""
        return _with_clocks(Packs("gone", self.count), watermarks_of(known, gone))


@dataclass(frozen=True, slots=True)
class ChangePacker:
    """What every task needs to pack changes."""

    layout: ChangeLayout
    delay_us: int = 0

    @property
    def columns(self) -> str:
        return TIMED

    def pack(self, records: Records, known: Iterable[Partition], gone: Iterable[Partition] = ()) -> pa.RecordBatch:
        """Packed changes of `records`; which partitions there are does not matter."""
        packs = Packs(f"{records.topic} {records.partition:010d} {records.offsets[0]:020d}")
        changes, dead, counters = read_changes(records, self.layout)
        packs.add(FIRST, frames.to_bytes(frames.with_counters(dead, counters, "dead")))
        packs.add(FIRST, frames.to_bytes(changes))
        return timed(packs, NO_TIME)

    def pack_gone(self, known: Iterable[Partition], gone: Iterable[Partition]) -> None:
        """Changes have no watermark that anybody could hold back."""


def _with_clocks(packs: Packs, watermarks: dict[str, int | None]) -> pa.RecordBatch:
    packs.add_to_each(frames.to_bytes(frames.clock(watermarks)))
    return timed(packs, NO_TIME)
