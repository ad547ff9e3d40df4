"""The transactions of a partition that were aborted: answers to readers of committed records list which to pass over.

Rule 1: a transaction is found by its marker's offset: it concerns who reads at or before the marker.
Rule 2: kept in a file of each segment (the one with the marker), written once the marker is durable. A disk that refuses
    is asked again with the next: until the next snapshot of the producers, a start finds the rows in the log.
Rule 3: they are made durable before a snapshot says that a start need not read their markers again: `unsettled` says
    which files that takes, snapshot.py has it done.
Rule 4: a reader costs as much as there are transactions from its first record to the last marker of one that begins
    before its end, however many came later: `_floors` never fall, so where the later ones begin is found by bisection.
Rule 5: no row is believed that the snapshot does not vouch for: it has the number and the checksum of each file's rows
    before it. If a file has others, a start finds the transactions in the log again (replaying.py).
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import accumulate
from operator import attrgetter
from typing import Final, NamedTuple

from crc32c import crc32c

from waterclock.broker.log.producers import AbortedTransaction
from waterclock.broker.log.segment import Segment
from waterclock.disk import write_all, write_whole

ROW: Final = struct.Struct(">qqq")
ENDING: Final = ".aborted"
MARKER: Final = attrgetter("last")  # the offset of a row's marker


class RowsChecksum(NamedTuple):
    """How many rows there are, and their checksum, in the order of their markers."""

    rows: int = 0
    checksum: int = 0

    @classmethod
    def of(cls, rows: Collection[AbortedTransaction]) -> RowsChecksum:
        return cls(len(rows), crc32c(b"".join(ROW.pack(*row) for row in rows)))


class AbortedTransactions:
    """In the order of their markers."""

    def __init__(self) -> None:
        self._have([])
        self._written = 0
        self._unflushed: dict[str, None] = {}  # in the order of writing, not of hashes: the same at each run
        self._homes: dict[int, RowsChecksum] = {}  # by the bases of the segments with the markers

    def __len__(self) -> int:
        return len(self._rows)

    def _have(self, rows: list[AbortedTransaction]) -> None:
        self._rows = rows
        self._floors = [*accumulate((row.first for row in reversed(rows)), min)][::-1]  # of each row and all after it

    def add(self, aborted: AbortedTransaction, home: int) -> None:
        """One more, with the last marker of all, in the segment from offset `home` on."""
        row, first = len(self._rows), aborted.first
        rows, checksum = self._homes.get(home, RowsChecksum())
        self._homes[home] = RowsChecksum(rows + 1, crc32c(ROW.pack(*aborted), checksum))
        self._rows.append(aborted)
        self._floors.append(first)
        while row and self._floors[row - 1] > first:
            row -= 1
            self._floors[row] = first

    def between(self, first: int, upto: int) -> list[AbortedTransaction]:
        """Those that concern a reader of the offsets from `first` to before `upto`."""
        start = bisect_left(self._rows, first, key=MARKER)
        return [row for row in self._rows[start : bisect_left(self._floors, upto)] if row.first < upto]

    def save(self, segments: Iterable[Segment], durable: int) -> None:
        """Write those whose marker is durable and not in a file yet."""
        if self._written == len(self._rows):
            return
        homes = list(segments)[::-1]
        with suppress(OSError):
            while self._written < len(self._rows) and self._rows[self._written].last < durable:
                row = self._rows[self._written]
                home = next((segment for segment in homes if segment.base <= row.last), None)
                if home is not None:
                    path = home.path + ENDING
                    self._unflushed[path] = None
                    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
                    try:
                        at = os.fstat(fd).st_size // ROW.size * ROW.size  # a row that was cut off is overwritten
                        write_all(fd, ROW.pack(*row), at)
                    finally:
                        os.close(fd)
                self._written += 1

    def unsettled(self, before: int) -> list[str] | None:
        """The files with rows of markers before offset `before` that may not be on the disk: whoever asks flushes them.

        None if such a row is in no file yet.
        """
        if self._written < len(self._rows) and self._rows[self._written].last < before:
            return None
        files, self._unflushed = list(self._unflushed), {}
        return files

    def vouched(self, start: int) -> dict[int, RowsChecksum]:
        """What the files of the segments from offset `start` on hold, or will; by their bases."""
        self._homes = {base: one for base, one in self._homes.items() if base >= start}
        return self._homes

    def load(self, homes: dict[int, list[AbortedTransaction]]) -> None:
        """Have these, which are all in the files of the segments from these offsets on."""
        rows = [row for some in homes.values() for row in some]
        self._homes = {base: RowsChecksum.of(some) for base, some in homes.items() if some}
        self._have(sorted(rows, key=MARKER))
        self._written = len(rows)

    def forget(self, start: int, end: int) -> None:
        """Drop those whose marker lies before `start` or not before `end`."""
        kept = [row for row in self._rows if start <= row.last < end]
        unwritten = sum(start <= row.last < end for row in self._rows[self._written :])
        self._have(kept)
        self._written = len(kept) - unwritten

    def replace(self, first: int, upto: int, rows: list[AbortedTransaction]) -> None:
        """What a compaction has left of those with markers from `first` to before `upto`, all of them in files."""
        rows = sorted(rows, key=MARKER)
        self._homes = {base: one for base, one in self._homes.items() if not first <= base < upto}
        if rows:
            self._homes[first] = RowsChecksum.of(rows)
        before = [row for row in self._rows if row.last < first]
        after = [row for row in self._rows if row.last >= upto]
        unwritten = sum(row.last >= upto for row in self._rows[self._written :])
        self._have([*before, *rows, *after])
        self._written = len(self._rows) - unwritten


def read_rows(path: str) -> list[AbortedTransaction]:
    """The rows of the segment at `path` (without an ending), each once, in the order of their markers."""
    try:
        with open(path + ENDING, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    return sorted(
        {AbortedTransaction(*row) for row in ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size])}, key=MARKER
    )


def write_rows(path: str, rows: Iterable[AbortedTransaction]) -> None:
    """Replace those rows, durably."""
    write_whole(path + ENDING, b"".join(ROW.pack(*row) for row in rows))
