"""Opening a partition's folder, after a clean stop or after a crash.

1. The segments are listed. Of all but the last, the end is checked: it must be where the next one begins.
2. The last segment is read from its index's last row on, checksums and all: what the index names was durable.
   The first batch that is not whole ends the log: it and all after it were never acknowledged.
3. The producers' last snapshot is loaded, the aborted transactions before it, and the headers of the batches after it.

Rule 1: only the last segment may end in a torn batch. Anything else is damage, said with the file and the byte.
Rule 2: what is kept was flushed before it is used: the machine may have died, not only the process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from waterclock.broker.errors import LogDamaged
from waterclock.broker.log import snapshot
from waterclock.broker.log.batch import CHECKED, EPOCH, HEADER, PREFIX, Batch, header_of
from waterclock.broker.log.index import NEVER
from waterclock.broker.log.memo import Memo
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.segment import Segment

if TYPE_CHECKING:
    from waterclock.broker.settings import TopicSettings

CHUNK: Final = 4 << 20


def open_partition(topic: str, number: int, folder: str, settings: TopicSettings) -> Partition:
    """The partition as it was left in `folder`, or a new one; LogDamaged where no crash explains what is found."""
    os.makedirs(folder, exist_ok=True)
    memo = Memo.load(folder)
    partition = Partition(topic, number, folder, settings, memo)
    partition.segments = [Segment(folder, base) for base in _bases(folder) or [memo.start]]
    for segment, following in zip(partition.segments, partition.segments[1:], strict=False):
        _check_end(segment, following.base)
    memo.start = max(memo.start, partition.segments[0].base)
    _replay(partition)
    return partition


def _bases(folder: str) -> list[int]:
    return sorted(int(name[:-4]) for name in os.listdir(folder) if name.endswith(".log") and name[:-4].isdigit())


def _check_end(segment: Segment, following: int) -> None:
    """A segment that was closed ends with a whole batch, before the next one's first."""
    at, end = (segment.index.at[-1] if segment.index.at else 0), segment.base
    try:
        for byte, batch in segment.headers(at):
            at, end = byte + PREFIX + batch.length, batch.last + 1
    except LogDamaged:
        end = following + 1
    if at != segment.size or end > following:
        raise LogDamaged(
            f"{segment.path}.log is broken at byte {at} of {segment.size}, and it is not the last segment. Restore the "
            f"file, or delete it to go on without its records ({segment.base} to {following - 1})"
        )


def _replay(partition: Partition) -> None:
    """Find the end, then read the headers of what came after the last snapshot."""
    active = partition.active
    end = max(_find_end(active), partition.start)
    since, partition.producers = snapshot.newest(partition.folder, partition.start, end)
    partition.aborted.load(partition.segments, since)
    for segment in partition.segments[partition.segment_of(since) :]:
        for at, batch in segment.headers(segment.index.before_offset(since)):
            if batch.base >= since:
                partition.note(batch, _body(segment, at, batch))
    _settle(partition, end)


def _settle(partition: Partition, end: int) -> None:
    """What was found is durable from here on, and the readers' end."""
    for segment in partition.segments[-2:]:
        segment.flush()
    active = partition.active
    active.durable = 0
    active.flushed(active.size)
    snapshot.drop_after(partition.folder, end)
    partition.end = partition.durable = partition.high = end
    partition.aborted.save(partition.segments, end)


def _body(segment: Segment, at: int, batch: Batch) -> bytes:
    """A marker's bytes; nobody asks for another batch's."""
    return os.pread(segment.fd, PREFIX + batch.length, at) if batch.control else b""


def _find_end(segment: Segment) -> int:
    """Cut the last segment after its last good batch, and index what the index lacks; the offset after that batch."""
    index = segment.index
    at, end = (index.at[-1], index.bases[-1]) if index.at else (0, segment.base)
    size, segment.size = segment.size, at
    segment.latest = index.times[-1] if index.times else NEVER
    while at < size:
        chunk = memoryview(os.pread(segment.fd, max(CHUNK, _next_size(segment, at)), at))
        here, end = _whole_batches(segment, chunk, at, end)
        if not here:
            break
        at += here
    if segment.size < size:
        segment.cut(segment.size)
    return end


def _next_size(segment: Segment, at: int) -> int:
    """How long the batch at byte `at` says it is, within reason."""
    head = os.pread(segment.fd, PREFIX, at)
    if len(head) < PREFIX:
        return 0
    return min(PREFIX + max(0, int(EPOCH.unpack_from(head, 8)[0])), 1 << 30)


def _whole_batches(segment: Segment, chunk: memoryview, at: int, end: int) -> tuple[int, int]:
    """Note the good batches at the start of `chunk`, which lies at byte `at`: how many bytes, and the offset after."""
    here = 0
    while here + HEADER <= len(chunk):
        batch = header_of(chunk, here)
        after = here + PREFIX + batch.length
        if batch.length < HEADER - PREFIX or after > len(chunk) or not _good(batch, end, chunk[here:after]):
            break
        segment.note(batch.base, at + here, after - here, batch.max_timestamp)
        here, end = after, batch.last + 1
    return here, end


def _good(batch: Batch, end: int, data: memoryview) -> bool:
    follows = batch.base >= end and batch.last_delta >= 0
    return batch.magic == 2 and follows and crc32c(data[CHECKED:]) == batch.crc
