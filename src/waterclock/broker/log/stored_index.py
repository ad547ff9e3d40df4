"""The index of a segment that is closed, looked up in its file: a bisection, and no row is kept in memory.

A log of a hundred gigabytes has indexes of some hundred megabytes; to read one as a whole would hold up the loop for as
long as a gigabyte's segment takes.

Rule 1: a row is checked when it is met. A damaged one has the index mended first, and the question is asked there again.
Rule 2: any good row before what is looked for is a right place to begin at: a row too few costs time, no more.
Rule 3: the file is opened for each question, unless it was opened before its name came to be another's (`pinned`).
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from waterclock.broker.log.index import ENTRY, SALT

if TYPE_CHECKING:
    from waterclock.broker.log.index import Index

Row: TypeAlias = "tuple[int, int, int]"  # offset, byte, latest timestamp before it
OFFSET, BYTE, LATEST = 0, 1, 2
NOTHING: Final[Row] = (0, 0, 0)


class DamagedRow(Exception):
    """A row that is not what was written."""


class Rows:
    """The rows in the file `fd` of the segment from offset `base` on, each read when it is asked for."""

    def __init__(self, fd: int, base: int) -> None:
        self._fd, self._salt = fd, SALT ^ base
        self._count = os.fstat(fd).st_size // ENTRY.size

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> Row:
        raw = os.pread(self._fd, ENTRY.size, ENTRY.size * row)
        if len(raw) < ENTRY.size:
            raise DamagedRow
        base, at, latest, check = ENTRY.unpack(raw)
        if check != base ^ at ^ latest ^ self._salt:
            raise DamagedRow
        return base, at, latest


class StoredIndex:
    """The index at `path` of the segment from offset `base` on. `mended()` gives one that can be asked instead."""

    __slots__ = ("_base", "_mended", "_path", "_pinned")

    def __init__(self, path: str, base: int, pinned: int | None, mended: Callable[[], Index | StoredIndex]) -> None:
        self._path, self._base, self._pinned, self._mended = path, base, pinned, mended

    def before_offset(self, offset: int) -> int:
        """As `Index.before_offset`, and so are the others."""
        row = self._row(bisect_right, offset, OFFSET, -1)
        return self._mended().before_offset(offset) if row is None else row[BYTE]

    def before_byte(self, byte: int) -> int:
        row = self._row(bisect_right, byte, BYTE, -1)
        return self._mended().before_byte(byte) if row is None else row[BYTE]

    def offset_after(self, byte: int) -> int | None:
        row = self._row(bisect_left, byte, BYTE, 0)
        if row is None:
            return self._mended().offset_after(byte)
        return None if row is NOTHING else row[OFFSET]

    def before_time(self, timestamp: int) -> int:
        row = self._row(bisect_left, timestamp, LATEST, -1)
        return self._mended().before_time(timestamp) if row is None else row[BYTE]

    def _row(self, bisect: Callable[..., int], value: int, column: int, shift: int) -> Row | None:
        """The row `shift` behind where `value` stands in a column, NOTHING if there is none; None if one is damaged."""
        fd = self._pinned
        try:
            if fd is None:
                fd = os.open(self._path, os.O_RDONLY)
            rows = Rows(fd, self._base)
            number = bisect(rows, value, key=itemgetter(column)) + shift
            return rows[number] if 0 <= number < len(rows) else NOTHING
        except (FileNotFoundError, DamagedRow):
            return None
        finally:
            if fd is not None and fd != self._pinned:
                os.close(fd)
