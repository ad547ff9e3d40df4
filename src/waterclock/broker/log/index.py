"""The sparse index of one segment: which batch starts at which byte, and how late time is up to there.

Rule 1: an entry goes to the file only once its batch is durable. So the last entry of the file is where a recovery starts.
Rule 2: entries lie at least INDEX_EVERY bytes apart; offsets and positions both rise from one to the next.
Rule 3: the third column is the latest timestamp of all batches before the entry: it never falls.
Rule 4: an entry carries its own check, in which its segment has a part. The first one that is not good ends what is
    read: the others are found again.
Rule 5: a disk that refuses an entry costs time at the next start, no more: no error is raised, and it is tried again.
Rule 6: a good entry behind the end of its segment says that the segment was longer: it is kept, and `beyond` names it.

The index of a segment that is closed is looked up in its file, by bisection, and no row is kept in memory: `StoredIndex`.
A log of a hundred gigabytes has indexes of some hundred megabytes; to read one as a whole would hold up the loop for as
long as a gigabyte's segment takes.

Rule 7: there a row is checked when it is met. If it is damaged the index is mended first, and looked up again.
Rule 8: any good row before what is looked for is a right place to begin at: a row too few costs time, no more.
Rule 9: the file is opened for each question, unless it was opened before its name came to be another's (`pinned`).
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import compress, count, repeat
from operator import ge, gt, itemgetter, ne, xor
from typing import Final, TypeAlias

from waterclock.disk import flush_file, write_all
from waterclock.outside import open_file, os

INDEX_EVERY: Final = 4096
ENTRY: Final = struct.Struct(">qqqq")  # offset, byte, latest timestamp before it (ms), and the check
SALT: Final = 0x5761_7465_7263_6C6B  # so that a row of zeros is no good one
NEVER: Final = -1
Row: TypeAlias = "tuple[int, int, int]"  # offset, byte, latest timestamp before it
OFFSET, BYTE, LATEST = 0, 1, 2
NOTHING: Final[Row] = (0, 0, 0)


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
        with open_file(path, "rb", buffering=0) as file:
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
        with open_file(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return b""
    return data[: len(data) // ENTRY.size * ENTRY.size]


# In the file of a closed segment


class DamagedRow(Exception):
    """A row that is not what was written."""


class StoredRows:
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
        self._path = path
        self._base = base
        self._pinned = pinned
        self._mended = mended

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
            rows = StoredRows(fd, self._base)
            number = bisect(rows, value, key=itemgetter(column)) + shift
            return rows[number] if 0 <= number < len(rows) else NOTHING
        except (FileNotFoundError, DamagedRow):
            return None
        finally:
            if fd is not None and fd != self._pinned:
                os.close(fd)
