"""Cutting a partition: what a follower does with records that its leader does not have, any more or yet. KIP-101.

    cut           the tail goes, which no leader acknowledged; before its own start: everything, and the log begins there
    begin_anew    everything goes: what comes next at the leader begins behind the end here
    begin_at      the start moves along with the leader's

Rule 1: the files are cut and the partition is opened anew: what it knows of producers and transactions is found again.
Rule 2: a crash between any two steps leaves a partition that can be opened, with records that are cut again, or gone.
    Whose they were is forgotten last: by that the next start finds that there is something to cut (fetcher.py).
"""

from __future__ import annotations

import os

from waterclock.broker.log import snapshot
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import open_partition
from waterclock.disk import flush_folder


def cut(partition: Partition, end: int) -> Partition:
    """The partition without the records from offset `end` on; it takes the place of the one that was given."""
    _drop_snapshots(partition, end)
    for segment in [s for s in partition.segments if s.base >= end][::-1]:
        segment.delete()
        partition.segments.remove(segment)
    if partition.segments:
        last = partition.active
        later = (at for at, batch in last.headers(last.lookup.before_offset(end)) if batch.last >= end)
        last.cut(next(later, last.size))
        last.flush()  # before the memo forgets whose records they were: none of them must come back
    flush_folder(partition.folder)
    partition.memo.forget_from(end)
    partition.memo.save()
    return open_partition(partition.topic, partition.number, partition.folder, partition.settings)


def _drop_snapshots(partition: Partition, end: int) -> None:
    """Durably, and before any record goes: a snapshot behind the log's end says that the log is damaged."""
    snapshot.drop_after(partition.folder, end, os.listdir(partition.folder))
    flush_folder(partition.folder)


def begin_anew(partition: Partition, start: int) -> Partition:
    """The partition without any record, its end and its start at `start`, which lies behind its end."""
    memo = partition.memo
    memo.epochs = [(memo.epoch, start)]
    memo.start = memo.cleaned = start
    memo.save()  # from here on a crash leaves records before the start, which are not there for anybody
    _drop_snapshots(partition, -1)
    for segment in partition.segments[::-1]:
        segment.delete()
    flush_folder(partition.folder)
    return open_partition(partition.topic, partition.number, partition.folder, partition.settings)


def begin_at(partition: Partition, start: int) -> None:
    """Hide what lies before `start`, and remove the segments that lie before it entirely."""
    memo, was = partition.memo, partition.memo.start
    memo.start = max(was, min(start, partition.end))
    try:
        memo.save()
    except OSError:
        memo.start = was
        raise
    before = [after.base for after in partition.segments[1:] if after.base <= partition.memo.start]
    gone = partition.drop(len(before))
    if gone:
        snapshot.settle(partition.folder)
    for segment in gone:
        segment.delete()
