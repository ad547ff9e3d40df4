"""Cutting a partition's tail: what a follower does with records that its new leader does not have. KIP-101.

Rule 1: the files are cut and the partition is opened anew: what it knows of producers and transactions is found again.
"""

from __future__ import annotations

from waterclock.broker.log import snapshot
from waterclock.broker.log.memo import flush_folder
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.log.segment import Segment


def cut(partition: Partition, end: int) -> Partition:
    """The partition without the records from offset `end` on; it takes the place of the one that was given."""
    for segment in [s for s in partition.segments if s.base >= end][::-1]:
        if segment is not partition.segments[0]:
            segment.delete()
            partition.segments.remove(segment)
    last = partition.active
    last.cut(_first_byte(last, end))
    snapshot.drop_after(partition.folder, end)
    memo = partition.memo
    memo.epochs = [row for row in memo.epochs if row[1] < end] or [memo.epochs[0]]
    memo.start = min(memo.start, end)
    memo.save()
    flush_folder(partition.folder)
    return open_partition(partition.topic, partition.number, partition.folder, partition.settings)


def _first_byte(segment: Segment, end: int) -> int:
    """Where the first batch with a record at or after `end` begins."""
    for at, batch in segment.headers(segment.index.before_offset(end)):
        if batch.last >= end:
            return at
    return segment.size
