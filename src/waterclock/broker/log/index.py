"""The sparse index of one segment: which batch starts at which byte, and how late time is up to there.

Rule 1: an entry goes to the file only once its batch is durable. So the last entry of the file is where a recovery starts.
Rule 2: entries lie at least INDEX_EVERY bytes apart; offsets and positions both rise from one to the next.
Rule 3: the third column is the latest timestamp of all batches before the entry: it never falls.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

INDEX_EVERY: Final = 4096
ENTRY: Final = struct.Struct(">qqq")  # offset, byte, latest timestamp before it (ms)
NEVER: Final = -1


class Index:
    """Offsets, positions and times of a segment's batches, a row each INDEX_EVERY bytes."""

    __slots__ = ("_due", "_path", "_written", "at", "bases", "times")

    def __init__(self, path: str) -> None:
        self._path = path
        self.bases, self.at, self.times = array("q"), array("q"), array("q")
        self._written = 0  # rows in the file
        self._due = 0

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
        rows = zip(
            self.bases[self._written : upto],
            self.at[self._written : upto],
            self.times[self._written : upto],
            strict=True,
        )
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)  # a flush has no time for more
        try:
            os.write(fd, b"".join([ENTRY.pack(*row) for row in rows]))
        finally:
            os.close(fd)
        self._written = upto

    def load(self, size: int) -> None:
        """Read the file's rows as far as they make sense for a segment of `size` bytes; drop the others from the file."""
        for row in ENTRY.iter_unpack(_whole_rows(self._path)):
            if row[1] >= size or (self.at and (row[1] <= self.at[-1] or row[0] <= self.bases[-1])):
                break
            self.bases.append(row[0])
            self.at.append(row[1])
            self.times.append(row[2])
        self._written = len(self.at)
        self._due = self.at[-1] + INDEX_EVERY if self.at else 0
        if os.path.exists(self._path):
            os.truncate(self._path, ENTRY.size * self._written)

    def forget(self, size: int) -> None:
        """Drop the rows of batches that start at byte `size` or later, here and in the file."""
        upto = bisect_left(self.at, size)
        for column in (self.bases, self.at, self.times):
            del column[upto:]
        if self._written > upto:
            self._written = upto
            os.truncate(self._path, ENTRY.size * upto)
        self._due = self.at[-1] + INDEX_EVERY if self.at else 0

    def before_offset(self, offset: int) -> int:
        """The byte of the last row at or before `offset`; 0 where there is none."""
        row = bisect_right(self.bases, offset) - 1
        return self.at[row] if row >= 0 else 0

    def before_byte(self, byte: int) -> int:
        """The byte of the last row at or before `byte`."""
        row = bisect_right(self.at, byte) - 1
        return self.at[row] if row >= 0 else 0

    def before_time(self, timestamp: int) -> int:
        """The byte from which the first batch with a record at or after `timestamp` has to be looked for."""
        row = bisect_left(self.times, timestamp) - 1
        return self.at[row] if row >= 0 else 0


def _whole_rows(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return b""
    return data[: len(data) // ENTRY.size * ENTRY.size]
