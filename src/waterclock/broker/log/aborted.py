"""The transactions of a partition that were aborted: readers of committed records are told which to pass over.

Rule 1: a transaction is found by its marker's offset: it concerns who reads at or before the marker.
Rule 2: kept in a file of each segment (the one with the marker), written once the marker is durable. A disk that refuses
    is asked again with the next: until the next snapshot of the producers, a start finds the rows in the log.
Rule 3: `settled` makes them durable, before a snapshot says that a start need not read their markers again.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from waterclock.broker.durable import flush_file, flush_folder, write_whole
from waterclock.broker.log.producers import Aborted
from waterclock.broker.log.segment import Segment

ROW: Final = struct.Struct(">qqq")


class AbortedTransactions:
    """In the order of their markers."""

    def __init__(self) -> None:
        self._rows: list[Aborted] = []
        self._written = 0
        self._unflushed: set[str] = set()
        self._doubtful = False  # whether a flush has failed

    def add(self, aborted: Aborted) -> None:
        self._rows.append(aborted)

    def between(self, first: int, upto: int) -> list[Aborted]:
        """Those that concern a reader of the offsets from `first` to before `upto`."""
        start = bisect_left(self._rows, first, key=lambda row: row.last)
        return [row for row in self._rows[start:] if row.first < upto]

    def save(self, segments: Iterable[Segment], durable: int) -> None:
        """Write those whose marker is durable and not in a file yet."""
        if self._written == len(self._rows):
            return
        homes = list(segments)
        with suppress(OSError):
            while self._written < len(self._rows) and self._rows[self._written].last < durable:
                row = self._rows[self._written]
                home = max((s for s in homes if s.base <= row.last), key=lambda s: s.base, default=None)
                if home is not None:
                    self._append(home.path + ".aborted", row)
                self._written += 1

    def _append(self, path: str, row: Aborted) -> None:
        self._unflushed.add(path)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            at = os.fstat(fd).st_size // ROW.size * ROW.size  # a row that was cut off is overwritten
            if os.pwrite(fd, ROW.pack(*row), at) != ROW.size:
                raise OSError(28, "a row was not written whole", path)
        finally:
            os.close(fd)

    def settled(self, before: int) -> bool:
        """Put the rows of markers before offset `before` onto the disk; False where they cannot be there."""
        if self._written < len(self._rows) and self._rows[self._written].last < before:
            return False
        if self._doubtful:
            return False
        self._doubtful = bool(self._unflushed)  # a flush that fails is not tried again: a start finds the rows itself
        for path in self._unflushed:
            with suppress(FileNotFoundError):  # gone with its segment
                flush_file(path)
                flush_folder(os.path.dirname(path))  # it may be new
        self._unflushed.clear()
        self._doubtful = False
        return True

    def load(self, segments: Iterable[Segment], before: int) -> None:
        """Read those whose marker lies before offset `before`; the walk of the recovery finds the later ones."""
        for segment in segments:
            had = read_rows(segment.path)
            kept = [row for row in had if row.last < before]
            self._rows += kept
            if len(kept) < len(had):  # so that none stands twice
                write_rows(segment.path, kept)
        self._rows.sort(key=lambda row: row.last)
        self._written = len(self._rows)

    def forget(self, start: int, end: int) -> None:
        """Drop those whose marker lies before `start` or not before `end`."""
        kept = [row for row in self._rows if start <= row.last < end]
        unwritten = sum(start <= row.last < end for row in self._rows[self._written :])
        self._rows, self._written = kept, len(kept) - unwritten

    def replace(self, first: int, upto: int, rows: list[Aborted]) -> None:
        """What a compaction has left of those with markers from `first` to before `upto`, all of them in files."""
        before = [row for row in self._rows if row.last < first]
        after = [row for row in self._rows if row.last >= upto]
        unwritten = sum(row.last >= upto for row in self._rows[self._written :])
        self._rows = [*before, *rows, *after]
        self._written = len(self._rows) - unwritten


def read_rows(path: str) -> list[Aborted]:
    """The rows of the segment at `path` (without an ending), each once, in the order of their markers."""
    try:
        with open(path + ".aborted", "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    return sorted({Aborted(*row) for row in ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size])}, key=_marker)


def write_rows(path: str, rows: Iterable[Aborted]) -> None:
    """Replace those rows, durably."""
    write_whole(path + ".aborted", b"".join(ROW.pack(*row) for row in rows))


def _marker(row: Aborted) -> int:
    return row.last
