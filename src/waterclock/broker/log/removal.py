"""What goes from a partition: by retention the oldest segments; of a follower's, by truncation, the records that its leader
does not have, any more or yet (KIP-101).

    retention             segments go from the oldest on while
    a start that moved    the next one begins at or before it
    retention.bytes       the partition without them still has that much
    retention.ms          their latest record is older, by its own timestamp

    truncation
    cut                   the tail goes, which no leader acknowledged; before its own start: all of it: the log begins there
    begin_anew            everything goes: what comes next at the leader begins behind the end here
    begin_at              the start moves along with the leader's

Rule 1: by retention go whole segments, all before the high watermark. If all are too old, a new one is begun first.
Rule 2: topics that are compacted only lose nothing but what lies before their start.
Rule 3: the files are cut and the partition is opened anew: what it knows of producers and transactions is found again.
Rule 4: a crash between any two steps of a cut leaves a partition that can be opened, with records that are cut again, or
    gone. Whose they were is forgotten last: by that the next start finds that there is something to cut (fetcher.py).
Source: log retention of Apache Kafka, which counts the same way.
"""

from __future__ import annotations

from collections.abc import Iterator

from waterclock.broker.log import snapshot, tail
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.log.segment import Segment
from waterclock.disk import flush_folder
from waterclock.outside import os


def retire(partition: Partition, now_ms: int) -> list[Segment]:
    """Take out what is to go, and return it for its files to be removed; OSError if no new segment can begin."""
    if partition.upkept:
        return []
    gone: list[Segment] = []
    for rule in (_before_start, _too_many, _too_old):
        if rule is not _before_start and "delete" not in partition.settings["cleanup.policy"]:
            continue
        count, segments = 0, partition.segments
        for number, segment in enumerate(rule(partition, now_ms)):
            last = number + 1 == len(segments)
            upto = partition.end if last else segments[number + 1].base
            if partition.high < upto or (last and not segment.size):
                break
            count = number + 1
        gone += partition.drop(count)
    return gone


def due_in_ms(partition: Partition, now_ms: int) -> int | None:
    """In how many ms there may be something to retire, if nothing is written meanwhile; None if time changes nothing.

    0 if it is due, and something else was in the way.
    """
    first = partition.segments[0]
    if len(partition.segments) == 1 and not first.size:
        return None
    deletes = "delete" in partition.settings["cleanup.policy"]
    if any(
        next(rule(partition, now_ms), None) for rule in ((_before_start, _too_many) if deletes else (_before_start,))
    ):
        return 0
    if not deletes or partition.settings["retention.ms"] < 0:
        return None
    return max(0, _latest_ms(partition, first) + int(partition.settings["retention.ms"]) + 1 - now_ms)


def _before_start(partition: Partition, now_ms: int) -> Iterator[Segment]:
    for segment, after in zip(partition.segments, partition.segments[1:], strict=False):
        if after.base > partition.start:
            return
        yield segment


def _too_many(partition: Partition, now_ms: int) -> Iterator[Segment]:
    most = partition.settings["retention.bytes"]
    over = sum(segment.size for segment in partition.segments) - most
    for segment in partition.segments if most >= 0 else ():
        over -= segment.size
        if over < 0:
            return
        yield segment


def _too_old(partition: Partition, now_ms: int) -> Iterator[Segment]:
    keep_ms = partition.settings["retention.ms"]
    for segment in partition.segments if keep_ms >= 0 else ():
        if now_ms - _latest_ms(partition, segment) <= keep_ms:
            return
        yield segment


def _latest_ms(partition: Partition, segment: Segment) -> int:
    """The latest timestamp in a segment; if its records have none, when it was last written to."""
    latest = partition.latest_in(segment)
    return latest if latest >= 0 else int(os.fstat(segment.fd).st_mtime * 1000)


def cut(partition: Partition, end: int) -> Partition:
    """The partition without the records from offset `end` on; it takes the place of the one that was given."""
    _drop_proofs(partition, end)
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


def _drop_proofs(partition: Partition, end: int) -> None:
    """Drop what says that the log had come further than `end`, durably, and before any record goes: behind the log's end a
    snapshot says that it is damaged, and an index without a log where it goes on."""
    names = os.listdir(partition.folder)
    snapshot.drop_after(partition.folder, end, names)
    for path, _, witness in tail.strays(partition.folder, names, 0):
        if witness is not None and witness.known > end:
            os.unlink(path)
    flush_folder(partition.folder)


def begin_anew(partition: Partition, start: int) -> Partition:
    """The partition without any record, its end and its start at `start`, which lies behind its end."""
    memo = partition.memo
    memo.epochs = [(memo.epoch, start)]
    memo.start = memo.cleaned = start
    memo.save()  # from here on a crash leaves records before the start, which are not there for anybody
    _drop_proofs(partition, -1)
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
        snapshot.flush_last(partition.folder)
    for segment in gone:
        segment.delete()
