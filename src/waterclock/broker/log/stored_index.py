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
        try:
            row = self._row(lambda rows: bisect_right(rows, offset, key=lambda row: row[OFFSET]) - 1)
        except DamagedRow:
            return self._mended().before_offset(offset)
        return (row or NOTHING)[BYTE]

    def before_byte(self, byte: int) -> int:
        try:
            row = self._row(lambda rows: bisect_right(rows, byte, key=lambda row: row[BYTE]) - 1)
        except DamagedRow:
            return self._mended().before_byte(byte)
        return (row or NOTHING)[BYTE]

    def offset_after(self, byte: int) -> int | None:
        try:
            row = self._row(lambda rows: bisect_left(rows, byte, key=lambda row: row[BYTE]))
        except DamagedRow:
            return self._mended().offset_after(byte)
        return None if row is None else row[OFFSET]

    def before_time(self, timestamp: int) -> int:
        try:
            row = self._row(lambda rows: bisect_left(rows, timestamp, key=lambda row: row[LATEST]) - 1)
        except DamagedRow:
            return self._mended().before_time(timestamp)
        return (row or NOTHING)[BYTE]

    def _row(self, row_in: Callable[[Rows], int]) -> Row | None:
        if self._pinned is not None:
            return _found(Rows(self._pinned, self._base), row_in)
        try:
            fd = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            raise DamagedRow from None
        try:
            return _found(Rows(fd, self._base), row_in)
        finally:
            os.close(fd)


def _found(rows: Rows, row_in: Callable[[Rows], int]) -> Row | None:
    row = row_in(rows)
    return rows[row] if 0 <= row < len(rows) else None
