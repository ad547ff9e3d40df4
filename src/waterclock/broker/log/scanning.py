"""How much of a segment is whole: its batches from its index's last row on, checksums and all.

Rule 1: nothing is changed but what is known of the segment in memory: who asked decides whether what follows was torn by a
    crash, and may be cut, or was damaged.
Rule 2: a row that is good, where no batch starts: one of the two files is damaged. The segment is read from its start.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from crc32c import crc32c

from waterclock.broker.log.batch import CHECKED, EPOCH, HEADER, PREFIX, Batch, header_of
from waterclock.broker.log.index import NEVER
from waterclock.broker.log.segment import Segment

CHUNK: Final = 4 << 20


class WholePart(NamedTuple):
    """What is whole: so many bytes, up to before offset `end`, with leaders' epochs up to `epoch`.

    Its index proves that the batch at byte `row` was durable (-1 if it proves nothing), which ends before offset `sure`.
    """

    size: int
    end: int
    epoch: int
    row: int
    sure: int
    fits: bool
    """Whether the index is the log's."""


def scan(segment: Segment, least: int, *, gaps: bool) -> WholePart:
    """What is whole of a segment; its end is `least` if nothing is. Its index in memory has it all then.

    `gaps`: offsets may be missing between batches. Elsewhere a gap is damage, as a batch's offset has no checksum.
    """
    index, size = segment.index, segment.size
    row = index.at[-1] if index.at else -1
    sure: int | None = -1
    if index.at:
        data = memoryview(os.pread(segment.fd, _next_size(segment, row), row))
        batch = header_of(data) if len(data) >= HEADER else None
        good = batch is not None and batch.base == index.bases[-1] and _good(batch, batch.base, data)
        sure = batch.last + 1 if batch is not None and good else None
    if sure is None:
        index = segment.index_anew()
        segment.tell_of_index()
    at, end = (index.at[-1], index.bases[-1]) if index.at else (0, least)
    segment.latest, epoch, here = index.times[-1] if index.times else NEVER, 0, -1
    while at < size and here:
        most = max(CHUNK, _next_size(segment, at))
        chunk = memoryview(os.pread(segment.fd, min(most, size - at), at))
        here, end, epoch = _whole_batches(segment, chunk, at, end, epoch, gaps)
        at += here
    segment.size = size
    return WholePart(at, end, epoch, row, -1 if sure is None else sure, sure is not None)


def _whole_batches(
    segment: Segment, chunk: memoryview, at: int, end: int, epoch: int, gaps: bool
) -> tuple[int, int, int]:
    """Note the good batches at the start of `chunk`, which lies at byte `at`: their bytes, the offset after, an epoch."""
    here = 0
    while here + HEADER <= len(chunk):
        batch = header_of(chunk, here)
        after = here + PREFIX + batch.length
        if batch.length < HEADER - PREFIX or after > len(chunk) or not _good(batch, end, chunk[here:after]):
            break
        if batch.base > end and not gaps:
            break
        segment.note(batch.base, at + here, after - here, batch.max_timestamp)
        here, end, epoch = after, batch.last + 1, max(epoch, batch.leader_epoch)
    return here, end, epoch


def _next_size(segment: Segment, at: int) -> int:
    """How long the batch at byte `at` says it is, within its file."""
    head = os.pread(segment.fd, PREFIX, at)
    if len(head) < PREFIX:
        return 0
    size: int = PREFIX + max(0, EPOCH.unpack_from(head, 8)[0])
    return min(size, os.fstat(segment.fd).st_size - at)


def _good(batch: Batch, end: int, data: memoryview) -> bool:
    follows = batch.base >= end and batch.last_delta >= 0
    return batch.magic == 2 and follows and crc32c(data[CHECKED:]) == batch.crc
