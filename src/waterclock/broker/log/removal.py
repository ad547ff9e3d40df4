"""What goes from a partition: by retention the oldest segments; of a follower's, by truncation, the records that its leader
does not have, any more or yet (KIP-101).

    retention             the start moves behind the oldest segments while
    retention.bytes       the partition without them still has that much before the high watermark: a new leader may lack
                          what comes behind
    retention.ms          their latest record is older, by its own timestamp

    truncation
    cut                   the tail goes, which no leader acknowledged; before its own start: all of it: the log begins there
    begin_anew            everything goes: what comes next at the leader begins behind the end here
    begin_at              the start moves along with the leader's

Rule 1: by retention go whole segments, all before the high watermark. If all are too old, a new one is begun first.
Rule 2: topics that are compacted only lose nothing but what lies before their start. A start moves on the disk first
    (memo.py), then for readers; then the segments before it go.
Rule 3: the files are cut and the partition is opened anew: what it knows of producers and transactions is found again.
Rule 4: a crash between any two steps of a cut leaves a partition that can be opened, with records that are cut again, or
    gone. Whose they were is forgotten last: by that the next start finds that there is something to cut (fetcher.py).
Source: log retention of Apache Kafka, which counts the same way.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import accumulate, takewhile

from waterclock.broker.log import snapshot, tail
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.log.segment import Segment
from waterclock.disk import flush_folder
from waterclock.outside import os


def first_kept(partition: Partition, now_ms: int) -> int:
    """The first offset that retention keeps: the log's start if nothing goes. OSError if no new segment can begin."""
    segments, gone = _live(partition), 0
    if "delete" in partition.settings["cleanup.policy"]:
        gone = max(_too_many(partition, segments), _too_old(partition, segments, now_ms))
    while gone and partition.high < (partition.end if gone == len(segments) else segments[gone].base):
        gone -= 1
    if gone and gone == len(segments):
        if partition.active.size:
            segments.append(partition.roll())
        else:
            gone -= 1
    return max(partition.start, segments[gone].base)


def due_in_ms(partition: Partition, now_ms: int) -> int | None:
    """In how many ms there may be something to retire, if nothing is written meanwhile; None if time changes nothing.

    0 if it is due, and something else was in the way.
    """
    segments = _live(partition)
    if len(segments) < len(partition.segments):
        return 0
    if "delete" not in partition.settings["cleanup.policy"] or (len(segments) == 1 and not segments[0].size):
        return None
    if _too_many(partition, segments):
        return 0
    if partition.settings["retention.ms"] < 0:
        return None
    return max(0, _latest_ms(partition, segments[0]) + int(partition.settings["retention.ms"]) + 1 - now_ms)


def _live(partition: Partition) -> list[Segment]:
    """The segments that readers may ask for."""
    return partition.segments[partition.segment_of(partition.start) :]


def _too_many(partition: Partition, segments: list[Segment]) -> int:
    most = partition.settings["retention.bytes"]
    if most < 0:
        return 0
    sizes = [*accumulate(partition.bytes_before(partition.high, segment) for segment in segments)]
    return sum(size <= sizes[-1] - most for size in sizes)


def _too_old(partition: Partition, segments: list[Segment], now_ms: int) -> int:
    keep_ms = partition.settings["retention.ms"]
    old = takewhile(lambda segment: now_ms - _latest_ms(partition, segment) > keep_ms, segments)
    return len([*old]) if keep_ms >= 0 else 0


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
    partition.memo.begin_at(min(start, partition.end))
    remove(partition, partition.trim())


def remove(partition: Partition, segments: list[Segment]) -> None:
    """Remove the files of segments that were taken out: without them a start must know what they said of producers."""
    if segments:
        with suppress(FileNotFoundError):  # the topic was deleted meanwhile
            snapshot.flush_last(partition.folder)
    for segment in segments:
        segment.delete()
