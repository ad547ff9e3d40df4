"""Opening a partition's folder, after a clean stop or after a crash.

1. What a compaction had begun is finished or thrown away (swap.py).
2. The segments are listed. Those that a later one proves durable must end with a whole batch, before the next one's first.
3. The others, most often the last alone, are read from their index's last row on, checksums and all: what the index names
   was durable. The first batch that is not whole ends the log: it and all after it were never acknowledged.
4. The producers' last snapshot is loaded, the aborted transactions before it, and the headers of the batches after it.

Rule 1: what was durable is never cut off. A segment is proved durable by one after it that has rows in its index, or has
    none at all (segment.py, rule 4), or by a snapshot of a later offset; a batch by a row of its segment's index.
    Damage there is said with the file and the byte.
Rule 2: what is kept was flushed before it is used: the machine may have died, not only the process.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from waterclock.broker.errors import LogDamaged
from waterclock.broker.log import snapshot
from waterclock.broker.log.batch import CHECKED, EPOCH, HEADER, PREFIX, Batch, header_of
from waterclock.broker.log.index import NEVER
from waterclock.broker.log.memo import Memo
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.segment import Segment
from waterclock.broker.log.swap import finish
from waterclock.disk import flush_folder

if TYPE_CHECKING:
    from waterclock.broker.settings import TopicSettings

CHUNK: Final = 4 << 20


def open_partition(topic: str, number: int, folder: str, settings: TopicSettings) -> Partition:
    """The partition as it was left in `folder`, or a new one; LogDamaged if no crash explains what is found."""
    os.makedirs(folder, exist_ok=True)
    finish(folder)
    memo = Memo.load(folder)
    partition = Partition(topic, number, folder, settings, memo)
    partition.segments = [Segment(folder, base) for base in _bases(folder) or [memo.start]]
    memo.start = max(memo.start, partition.segments[0].base)
    unproved = _first_unproved(partition)
    for segment, following in zip(partition.segments[:unproved], partition.segments[1:], strict=False):
        _check_end(segment, following.base)
    end = _find_end(partition, unproved)
    if end < snapshot.newest_offset(folder):
        raise partition.active.broken(partition.active.size)  # a snapshot is of what was durable
    if end < partition.start:  # it was to begin anew, and a crash came between: what is left is there for nobody
        _drop(partition.segments, 0)
        partition.segments, unproved, end = [Segment(folder, partition.start)], 0, partition.start
    _replay(partition, end)
    _settle(partition, unproved, end)
    return partition


def begin_partition(topic: str, number: int, folder: str, settings: TopicSettings) -> Partition:
    """A new partition; OSError, and no folder, if it cannot be made. The folder's name is the caller's to flush.

    What is in it need not be durable yet: its first flush makes the names so, and a start makes anew what is missing.
    """
    try:
        os.mkdir(folder)
    except FileExistsError:  # a removal has left it
        return open_partition(topic, number, folder, settings)
    try:
        partition = Partition(topic, number, folder, settings, Memo.load(folder))
        partition.segments = [Segment(folder, partition.start)]
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return partition


def _bases(folder: str) -> list[int]:
    return sorted(int(name[:-4]) for name in os.listdir(folder) if name.endswith(".log") and name[:-4].isdigit())


def _first_unproved(partition: Partition) -> int:
    """The number of the first segment that no later one proves durable (rule 1)."""
    known = snapshot.newest_offset(partition.folder)
    for number in range(len(partition.segments) - 1, 0, -1):
        segment = partition.segments[number]
        if known > segment.base or not _never_flushed(segment):
            return number
    return 0


def _never_flushed(segment: Segment) -> bool:
    try:
        return os.path.getsize(segment.path + ".index") == 0
    except FileNotFoundError:
        return False


def _check_end(segment: Segment, following: int) -> None:
    """A segment that was closed ends with a whole batch, before the next one's first."""
    if segment.check_end() > following:
        raise LogDamaged(
            f"{segment.path}.log goes beyond offset {following}, where the next segment begins. Restore the file, or "
            f"delete it to go on without its records"
        )


def _find_end(partition: Partition, unproved: int) -> int:
    """Cut the log after its last good batch, and index what the indexes lack; the offset after that batch."""
    segments = partition.segments
    end = segments[unproved].base
    gaps = partition.settings.compact or partition.memo.cleaned > 0
    for number in range(unproved, len(segments)):
        segment, size = segments[number], segments[number].size
        end = _scan(segment, end, gaps)
        following = segments[number + 1].base if number + 1 < len(segments) else end
        if segment.size < size or end != following:  # a file between may be gone with its name
            _drop(segments, number + 1)
            break
    return end


def _drop(segments: list[Segment], number: int) -> None:
    """Remove the segments that came after what was lost: nothing of them was durable either."""
    for segment in reversed(segments[number:]):
        segment.delete()
    del segments[number:]


def _scan(segment: Segment, least: int, gaps: bool) -> int:
    """Cut a segment after its last good batch; the offset after that batch, or `least` if there is none.

    `gaps`: offsets may be missing between batches. Elsewhere a gap is damage, as a batch's offset has no checksum.
    """
    index, size = segment.index, segment.size
    durable = index.at[-1] if index.at else -1
    wrong = durable >= 0 and not _starts(segment, durable, index.bases[-1])
    if wrong:  # what it names was durable, and is not there: one of the two is damaged
        index = segment.index_anew()
    at, end = (index.at[-1], index.bases[-1]) if index.at else (0, least)
    segment.latest, segment.size = index.times[-1] if index.times else NEVER, at
    while at < size:
        most = max(CHUNK, _next_size(segment, at))
        chunk = memoryview(os.pread(segment.fd, min(most, size - at), at))
        here, end = _whole_batches(segment, chunk, at, end, gaps)
        if not here:
            break
        at += here
    if segment.size <= durable:
        at, segment.size = segment.size, size
        raise segment.broken(at)
    if wrong:
        os.truncate(segment.path + ".index", 0)
    if segment.size < size:
        segment.cut(segment.size)
    if segment.size:
        segment.began_ms = header_of(os.pread(segment.fd, HEADER, 0)).max_timestamp
    return end


def _starts(segment: Segment, at: int, base: int) -> bool:
    """Whether a whole batch with that offset starts at byte `at`."""
    data = os.pread(segment.fd, _next_size(segment, at), at)
    return len(data) >= HEADER and header_of(data).base == base and _good(header_of(data), base, memoryview(data))


def _next_size(segment: Segment, at: int) -> int:
    """How long the batch at byte `at` says it is, within its file."""
    head = os.pread(segment.fd, PREFIX, at)
    if len(head) < PREFIX:
        return 0
    size: int = PREFIX + max(0, EPOCH.unpack_from(head, 8)[0])
    return min(size, os.fstat(segment.fd).st_size - at)


def _whole_batches(segment: Segment, chunk: memoryview, at: int, end: int, gaps: bool) -> tuple[int, int]:
    """Note the good batches at the start of `chunk`, which lies at byte `at`: how many bytes, and the offset after."""
    here = 0
    while here + HEADER <= len(chunk):
        batch = header_of(chunk, here)
        after = here + PREFIX + batch.length
        if batch.length < HEADER - PREFIX or after > len(chunk) or not _good(batch, end, chunk[here:after]):
            break
        if batch.base > end and not gaps:
            break
        segment.note(batch.base, at + here, after - here, batch.max_timestamp)
        here, end = after, batch.last + 1
    return here, end


def _good(batch: Batch, end: int, data: memoryview) -> bool:
    follows = batch.base >= end and batch.last_delta >= 0
    return batch.magic == 2 and follows and crc32c(data[CHECKED:]) == batch.crc


def _replay(partition: Partition, end: int) -> None:
    """Learn of the producers: from the last snapshot, and from the headers of what came after it."""
    snapshot.drop_after(partition.folder, end)
    since, partition.producers = snapshot.newest(partition.folder, partition.segments[0].base, end)
    partition.aborted.load(partition.segments, since)
    for segment in partition.segments[partition.segment_of(since) :]:
        for at, batch in segment.headers(segment.lookup.before_offset(since)):
            if batch.base >= since:
                partition.note(batch, _body(segment, at, batch))
    partition.aborted.forget(partition.start, end)


def _body(segment: Segment, at: int, batch: Batch) -> bytes:
    """A marker's bytes; nobody asks for another batch's."""
    return os.pread(segment.fd, PREFIX + batch.length, at) if batch.control else b""


def _settle(partition: Partition, unproved: int, end: int) -> None:
    """What was found is durable from here on, and the readers' end."""
    for segment in partition.segments[unproved:]:
        segment.flush()
        segment.durable = 0
        segment.flushed(segment.size)
        if segment is not partition.active:
            segment.rest()
    flush_folder(partition.folder)
    partition.end = partition.durable = partition.high = end
    partition.aborted.save(partition.segments, end)
