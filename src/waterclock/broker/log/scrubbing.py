"""A segment read again, batch by batch: which bytes are damaged, which offsets are lost with them, and where it goes on.

    a batch                                            then
    is whole: length, format, checksum                 its offset is looked at
    follows the one before it                          good
    comes later, and the one behind it later still     good: a compaction has left a gap, or what lies between is damaged
    anything else                                      damaged

Behind damage the segment goes on where the damaged header says, if a whole batch stands there with the offset that the
header says too. Otherwise it goes on at the next row of its index where a whole batch stands, or before it, at the first
byte from which whole batches lead to exactly that row. Bytes that a client made look like a batch do neither.

Rule 1: what is read here is durable, so nothing but damage changes it. Who cuts a log while this runs drops what is found.
Rule 2: bytes that the disk refuses to give are damaged like any others.
Rule 3: nothing is changed, and any thread may do it, a step at a time.
Rule 4: bytes go from a file to a socket, and nobody reads them on the way. An answer ends before known damage. If nobody
    has read the file since the broker's start, it ends before the first batch that is not whole, too, and is no longer
    than what was looked at: clients take nonsense for a length or a record, and wait for ever or end their process. The
    scrub has read all files some time after a start; from then on this costs nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import cached_property
from typing import Final, Generic, NamedTuple, TypeVar

from crc32c import crc32c

from waterclock.broker.log.batch import CHECKED, EPOCH, FRAME, HEADER, MAGIC, PREFIX, header_of
from waterclock.broker.log.index import NEVER, read_rows
from waterclock.broker.log.segment import Damage, Segment
from waterclock.outside import os

CHUNK: Final = 256 << 10  # bytes read at once
LOOKED_AT: Final = 1 << 20
"""Bytes of one answer, or its first batch if that is longer: at most some ten milliseconds, with the smallest batches."""
NEAR: Final = 1 << 20  # how far before a row of the index whole batches are looked for
MAGIC_AT: Final = 16
File = TypeVar("File", bound="Segment | RenamedLog")


class RenamedLog(NamedTuple):
    """A segment's file that was renamed, and is still read (tail.py)."""

    fd: int
    path: str
    base: int


class BatchPlace(NamedTuple):
    """A byte at which a whole batch starts, and its offset; or the end of both."""

    at: int
    offset: int


class SegmentScrub(Generic[File]):
    """The first `size` bytes of `segment`, which end before offset `end`. `at` is how far it has come."""

    def __init__(self, segment: File, size: int, end: int) -> None:
        self.segment = segment
        self.size = size
        self._end = end
        self.at = 0
        self.next_offset = segment.base
        """The offset that comes next if nothing is missing."""
        self.latest = NEVER
        self.damages: list[Damage] = []

    @property
    def done(self) -> bool:
        return self.at >= self.size

    def steps(self, most: int) -> Iterator[None]:
        """Read some `most` bytes more, a batch a step."""
        until = min(self.at + most, self.size)
        while self.at < until:
            # the batch here, the next one's header, and more if there is room; less if the file has no such batch
            size, here = PREFIX + self._length_at(self.at) + HEADER, 0
            chunk = memoryview(self._read(self.at, max(CHUNK, size)) or self._read(self.at, size))
            while self.at + here < until and (after := self._after(chunk, here)):
                here = after
                yield
            self.at += here
            if not here:
                yield from self._pass_over()

    def _length_at(self, at: int) -> int:
        """The length that the batch at byte `at` says it has, if it can have that; one of CHUNK or more ends at a row."""
        head = self._read(at, PREFIX)
        length = EPOCH.unpack_from(head, 8)[0] if len(head) == PREFIX else 0
        if length >= CHUNK and PREFIX + length > next((row.at for row in self._rows if row.at > at), self.size) - at:
            return 0
        return max(0, int(length))

    def _read(self, at: int, size: int) -> bytes:
        """Bytes that are to be checked; none if the disk refuses (rule 2)."""
        try:
            return os.pread(self.segment.fd, min(size, self.size - at), at)
        except OSError:
            return b""

    def _after(self, chunk: memoryview, here: int) -> int:
        """Where the batch at place `here` of the chunk ends, if it is good; 0 if not, or if more is to be read first."""
        if here + HEADER > len(chunk):
            return 0
        batch = header_of(chunk, here)
        after = here + PREFIX + batch.length
        if here and after + HEADER > len(chunk) and self.at + after < self.size:
            return 0  # read on from here: what is behind it says something of its offset
        if not is_whole(chunk, here) or batch.base < self.next_offset:
            return 0
        if batch.base > self.next_offset:  # its offset lies outside of its checksum: what comes behind speaks for it
            behind = self._end
            if self.at + after < self.size and after + HEADER <= len(chunk):
                offset, _, _, magic, *_ = FRAME.unpack_from(chunk, after)
                behind = offset if magic == MAGIC else behind  # one that is damaged itself says nothing
            if batch.last >= behind:
                return 0
        self.next_offset, self.latest = batch.last + 1, max(self.latest, batch.max_timestamp)
        return after

    # Behind damage

    def _pass_over(self) -> Generator[None, None, None]:
        """What is here is damaged: go on at the next good place."""
        place = self._where_it_says()
        if place is None:
            row = BatchPlace(self.size, self._end)  # unless a whole batch stands at a later row of the index
            for later in [row for row in self._rows if self.at < row.at < self.size and row.offset >= self.next_offset]:
                if self._stands(later):
                    row = later
                    break
                yield
            place = yield from self._before(row)
        self.damages.append(Damage(self.at, place.at, self.next_offset, max(self.next_offset, place.offset)))
        self.at, self.next_offset = place.at, max(self.next_offset, place.offset)

    def _where_it_says(self) -> BatchPlace | None:
        """The place that the header here leads to, if a whole batch stands there with the offset that it leads to."""
        head = self._read(self.at, HEADER)
        if len(head) < HEADER:
            return None
        batch = header_of(head)
        behind = BatchPlace(self.at + PREFIX + batch.length, batch.last + 1)
        if (
            batch.base != self.next_offset
            or batch.last_delta < 0
            or batch.length < HEADER - PREFIX
            or behind.at >= self.size
        ):
            return None
        return behind if self._stands(behind) else None

    def _stands(self, place: BatchPlace) -> bool:
        """Whether a whole batch stands there."""
        data = memoryview(self._read(place.at, PREFIX + self._length_at(place.at)))
        return is_whole(data, 0) and header_of(data).base == place.offset

    @cached_property
    def _rows(self) -> list[BatchPlace]:
        return [BatchPlace(at, base) for base, at in read_rows(self.segment.path + ".index", self.segment.base)]

    def _before(self, row: BatchPlace) -> Generator[None, None, BatchPlace]:
        """The first place from which whole batches lead to a row, or the row itself."""
        start = max(self.at + 1, row.at - NEAR)
        data = memoryview(between := self._read(start, row.at - start))
        magic = between.find(MAGIC, MAGIC_AT)
        while magic >= 0:
            here = magic - MAGIC_AT
            if self._leads(data, here, row.offset):
                return BatchPlace(start + here, header_of(data, here).base)
            magic = between.find(MAGIC, magic + 1)
            yield
        return row

    def _leads(self, data: memoryview, here: int, upto: int) -> bool:
        """Whether whole batches go from place `here` to the end of the bytes, with offsets that rise to before `upto`."""
        least = self.next_offset
        while here + HEADER <= len(data):
            base, length, _, _, _, _, delta = FRAME.unpack_from(data, here)
            if not least <= base <= base + delta < upto or not is_whole(data, here):
                return False
            here, least = here + PREFIX + length, base + delta + 1
        return here == len(data)


def is_whole(data: memoryview, here: int) -> bool:
    """Whether a batch stands at place `here`, all of it, as its checksum says."""
    if here + HEADER > len(data):
        return False
    _, length, _, magic, crc, _, delta = FRAME.unpack_from(data, here)
    after = here + PREFIX + length
    if magic != MAGIC or length < HEADER - PREFIX or after > len(data) or delta < 0:
        return False
    return bool(crc32c(data[here + CHECKED : after]) == crc)


def sound_bytes(segment: Segment, at: int, size: int) -> int:
    """How many of the `size` bytes from byte `at` on, where a batch starts, may be handed out; LogDamaged if none may."""
    ahead = next((damage for damage in segment.damages if at < damage.upto), None)
    if ahead is not None:
        if ahead.at <= at:
            raise segment.lost(ahead)
        size = min(size, ahead.at - at)
    if at >= segment.unread:
        return size
    sound, least = 0, -1
    data = memoryview(os.pread(segment.fd, min(size, LOOKED_AT), at))
    if len(data) >= HEADER and len(data) < (first := PREFIX + FRAME.unpack_from(data)[1]) <= size:
        data = memoryview(os.pread(segment.fd, first, at))
    while is_whole(data, sound):
        base, length, _, _, _, _, delta = FRAME.unpack_from(data, sound)
        if base < least:
            break
        sound, least = sound + PREFIX + length, base + delta + 1
    if not sound:
        raise segment.broken(at)
    return sound
