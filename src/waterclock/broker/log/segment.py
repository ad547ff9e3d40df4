"""One file of a partition's log: batches one after the other, and its index.

Rule 1: `size` is where the next batch goes. What a failed or cut-off write left behind it is overwritten by the next.
Rule 2: `durable` bytes are on the disk; nobody but the writer of this file reads beyond them.
Rule 3: the file is open as long as somebody holds the segment: a flusher or an answer on its way may outlive its deletion.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import Final

from waterclock.broker.errors import LogDamaged
from waterclock.broker.log.batch import FRAME, HEADER, PREFIX, Batch, Buffer, header_of
from waterclock.broker.log.index import INDEX_EVERY, NEVER, Index

CHUNK: Final = 1 << 20


class Slice:
    """Bytes of a segment on their way to a reader: `size` bytes from byte `at`. Holds the file open."""

    __slots__ = ("at", "segment", "size")

    def __init__(self, segment: Segment, at: int, size: int) -> None:
        self.segment, self.at, self.size = segment, at, size

    def read(self) -> bytes:
        return os.pread(self.segment.fd, self.size, self.at)


class Segment:
    """The batches from offset `base` on, in `folder`. Opening one that exists reads nothing but its size."""

    def __init__(self, folder: str, base: int) -> None:
        self.base = base
        self.path = os.path.join(folder, f"{base:020}")
        self.fd = os.open(self.path + ".log", os.O_RDWR | os.O_CREAT, 0o644)
        self.size = self.durable = os.fstat(self.fd).st_size
        self.latest = NEVER  # the latest timestamp, in ms, of what was noted since it was opened

    @cached_property
    def index(self) -> Index:
        """Read from its file when first asked for: a log of many segments opens at once."""
        index = Index(self.path + ".index")
        index.load(self.size)
        return index

    def append(self, data: Buffer, base: int, timestamp: int) -> None:
        """Write a batch at the end; OSError where not all of it could be written, and nothing has changed."""
        written = os.pwrite(self.fd, data, self.size)
        if written != len(data):
            raise OSError(28, f"{written} of {len(data)} bytes written", self.path + ".log")
        self.note(base, self.size, len(data), timestamp)

    def note(self, base: int, at: int, size: int, timestamp: int) -> None:
        """There is a batch of `size` bytes at byte `at`, the last so far."""
        self.index.note(base, at, self.latest)
        if timestamp > self.latest:
            self.latest = timestamp
        self.size = at + size

    def flushed(self, size: int) -> None:
        """All before byte `size` is durable, and so may its index be."""
        if size > self.durable:
            self.durable = size
            self.index.save(size)

    def locate(self, offset: int) -> tuple[int, int]:
        """Byte and size of the batch that holds `offset`, or of the first one after it. It must be there."""
        at = self.index.before_offset(offset)
        while True:
            chunk = os.pread(self.fd, INDEX_EVERY + HEADER, at)
            here = 0
            while here + HEADER <= len(chunk):
                base, length, _, _, _, _, delta = FRAME.unpack_from(chunk, here)
                if base + delta >= offset:
                    return at + here, PREFIX + length
                if length < HEADER - PREFIX:
                    raise self._broken(at + here)
                here += PREFIX + length
            if not here:
                raise self._broken(at)
            at += here

    def _broken(self, at: int) -> LogDamaged:
        return LogDamaged(
            f"{self.path}.log is broken at byte {at}: no batch starts there. Restore the file, or delete it to go on "
            f"without its records"
        )

    def headers(self, at: int = 0) -> Iterator[tuple[int, Batch]]:
        """Byte and header of each batch from byte `at` on, which must be the start of one."""
        while at + HEADER <= self.size:
            chunk = os.pread(self.fd, min(CHUNK, self.size - at), at)
            here = 0
            while here + HEADER <= len(chunk):
                batch = header_of(chunk, here)
                if batch.length < HEADER - PREFIX:
                    raise self._broken(at + here)
                yield at + here, batch
                here += PREFIX + batch.length
            at += here

    @cached_property
    def last_offset(self) -> int:
        """The offset of the last record of a segment that nothing is appended to any more; `base` - 1 of an empty one."""
        last = self.base - 1
        for _, batch in self.headers(self.index.at[-1] if self.index.at else 0):
            last = batch.last
        return last

    @cached_property
    def latest_timestamp(self) -> int:
        """The latest timestamp, in ms, of a segment that nothing is appended to any more; -1 of an empty one."""
        latest = self.index.times[-1] if self.index.times else NEVER
        for _, batch in self.headers(self.index.at[-1] if self.index.at else 0):
            latest = max(latest, batch.max_timestamp)
        return latest

    def cut(self, size: int) -> None:
        """Drop everything from byte `size` on."""
        os.ftruncate(self.fd, size)
        self.index.forget(size)
        self.size, self.durable = size, min(self.durable, size)

    def flush(self) -> None:
        """Put what was written onto the disk."""
        os.fdatasync(self.fd)

    def delete(self) -> None:
        """Remove its files; who reads it now may finish."""
        for ending in (".log", ".index", ".aborted"):
            with suppress(FileNotFoundError):
                os.unlink(self.path + ending)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self.fd)
