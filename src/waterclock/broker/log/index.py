"""The sparse index of one segment: which batch starts at which byte, and how late time is up to there.

Rule 1: an entry goes to the file only once its batch is durable. So the last entry of the file is where a recovery starts.
Rule 2: entries lie at least INDEX_EVERY bytes apart; offsets and positions both rise from one to the next.
Rule 3: the third column is the latest timestamp of all batches before the entry: it never falls.
Rule 4: an entry carries its own check, in which its segment has a part. The first one that is not good ends what is
    read: the others are found again.
Rule 5: a disk that refuses an entry costs time at the next start, no more: no error is raised, and it is tried again.
Rule 6: a good entry behind the end of its segment says that the segment was longer: it is kept, and `beyond` names it.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import compress, count, repeat
from operator import ge, gt, ne, xor
from typing import Final

from waterclock.disk import flush_file, write_all

INDEX_EVERY: Final = 4096
ENTRY: Final = struct.Struct(">qqqq")  # offset, byte, latest timestamp before it (ms), and the check
SALT: Final = 0x5761_7465_7263_6C6B  # so that a row of zeros is no good one
NEVER: Final = -1


class Index:
    """Offsets, positions and times of the batches of the segment from offset `base` on, a row each INDEX_EVERY bytes."""

    __slots__ = ("_due", "_path", "_salt", "_written", "at", "bases", "beyond", "times")

    def __init__(self, path: str, base: int) -> None:
        self._path, self._salt = path, SALT ^ base
        self.bases = array("q")
        self.at = array("q")
        self.times = array("q")
        self._written = 0  # rows in the file
        self._due = 0
        self.beyond = -1  # the byte of its last row, if the segment ended before it when this was read; rule 6

    def note(self, base: int, at: int, latest: int) -> None:
        """A batch starts at byte `at` with offset `base`; before it, time had come to `latest`."""
        if at >= self._due:
            self.bases.append(base)
            self.at.append(at)
            self.times.append(latest)
            self._due = at + INDEX_EVERY

    def save(self, durable: int) -> None:
        """Write the rows of all batches before byte `durable` that are not in the file yet."""
        upto = bisect_left(self.at, durable)
        if upto <= self._written:
            return
        new = slice(self._written, upto)
        rows = b"".join(
            ENTRY.pack(base, at, latest, base ^ at ^ latest ^ self._salt)
            for base, at, latest in zip(self.bases[new], self.at[new], self.times[new], strict=True)
        )
        with suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                write_all(fd, rows, ENTRY.size * self._written)
                self._written = upto
            finally:
                os.close(fd)

    @property
    def complete(self) -> bool:
        """Whether every row is in the file."""
        return self._written == len(self.at)

    def load(self, size: int) -> None:
        """Read the rows as far as they are good, and drop the others from the file. The segment has `size` bytes."""
        cells = array("q")
        cells.frombytes(_whole_rows(self._path))
        if sys.byteorder == "little":
            cells.byteswap()
        self.bases = cells[0::4]
        self.at = cells[1::4]
        self.times = cells[2::4]
        had = self._written = len(self.at)
        self._keep(self._good(cells[3::4]))
        self.beyond = self.at[-1] if self.at and self.at[-1] >= size else -1
        if self._written < had:
            os.truncate(self._path, ENTRY.size * self._written)

    def _good(self, checks: array[int]) -> int:
        """How many rows from the first on are whole, and rise."""
        if not self.at or self.at[0]:
            return 0
        sums = map(xor, map(xor, self.bases, self.at), map(xor, self.times, repeat(self._salt)))
        return min(
            next(compress(count(), map(ne, sums, checks)), len(checks)),
            next(compress(count(1), map(ge, self.at, self.at[1:])), len(checks)),
            next(compress(count(1), map(ge, self.bases, self.bases[1:])), len(checks)),
            next(compress(count(1), map(gt, self.times, self.times[1:])), len(checks)),
        )

    def forget(self, size: int) -> None:
        """Drop the rows of batches that start at byte `size` or later, here and in the file."""
        had = self._written
        self._keep(bisect_left(self.at, size))
        if self._written < had:
            os.truncate(self._path, ENTRY.size * self._written)
            flush_file(self._path)  # a row that came back would say that the segment was longer

    def _keep(self, rows: int) -> None:
        for column in (self.bases, self.at, self.times):
            del column[rows:]
        self._written = min(self._written, rows)
        self._due = self.at[-1] + INDEX_EVERY if self.at else 0

    def before_offset(self, offset: int) -> int:
        """The byte of the last row at or before `offset`; 0 if there is none."""
        row = bisect_right(self.bases, offset) - 1
        return self.at[row] if row >= 0 else 0

    def before_byte(self, byte: int) -> int:
        """The byte of the last row at or before `byte`."""
        row = bisect_right(self.at, byte) - 1
        return self.at[row] if row >= 0 else 0

    def offset_after(self, byte: int) -> int | None:
        """The offset of the first row at or after `byte`; None if there is none."""
        row = bisect_left(self.at, byte)
        return self.bases[row] if row < len(self.bases) else None

    def before_time(self, timestamp: int) -> int:
        """The byte from which the first batch with a record at or after `timestamp` has to be looked for."""
        row = bisect_left(self.times, timestamp) - 1
        return self.at[row] if row >= 0 else 0


def last_row(path: str, start: int) -> tuple[int, int, int] | None:
    """The last row in the file of the segment from offset `start` on; None if there is no good one.

    It is its offset, its byte, and the latest timestamp before it.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            whole = os.fstat(file.fileno()).st_size // ENTRY.size * ENTRY.size
            raw = os.pread(file.fileno(), ENTRY.size, max(0, whole - ENTRY.size))
    except FileNotFoundError:
        return None
    if len(raw) < ENTRY.size:
        return None
    base, at, latest, check = ENTRY.unpack(raw)
    return (base, at, latest) if check == base ^ at ^ latest ^ SALT ^ start and base >= start and at >= 0 else None


def read_rows(path: str, start: int) -> Iterator[tuple[int, int]]:
    """Offset and byte of each good row in the file of the segment from offset `start` on, damaged ones left out."""
    for base, at, latest, check in ENTRY.iter_unpack(_whole_rows(path)):
        if check == base ^ at ^ latest ^ SALT ^ start and base >= start and at >= 0:
            yield base, at


def _whole_rows(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return b""
    return data[: len(data) // ENTRY.size * ENTRY.size]
