"""The transactions of a partition that were aborted: readers of committed records are told which to pass over.

Rule 1: a transaction is found by its marker's offset: it concerns who reads at or before the marker.
Rule 2: kept in a file of each segment (the one with the marker), written once the marker is durable.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from waterclock.broker.log.producers import Aborted
from waterclock.broker.log.segment import Segment

ROW: Final = struct.Struct(">qqq")


class AbortedTransactions:
    """In the order of their markers."""

    def __init__(self) -> None:
        self._rows: list[Aborted] = []
        self._written = 0

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
        bases = list(segments)
        while self._written < len(self._rows) and self._rows[self._written].last < durable:
            row = self._rows[self._written]
            home = max((s for s in bases if s.base <= row.last), key=lambda s: s.base)
            with open(home.path + ".aborted", "ab", buffering=0) as file:
                file.write(ROW.pack(*row))
            self._written += 1

    def load(self, segments: Iterable[Segment], before: int) -> None:
        """Read those whose marker lies before offset `before`; the walk of the recovery finds the later ones."""
        for segment in segments:
            kept = [row for row in _read(segment) if row.last < before]
            self._rows += kept
            _rewrite(segment, kept)
        self._rows.sort(key=lambda row: row.last)
        self._written = len(self._rows)

    def forget(self, start: int, end: int) -> None:
        """Drop those whose marker lies before `start` or not before `end`."""
        unwritten = len(self._rows) - self._written
        self._rows = [row for row in self._rows if start <= row.last < end]
        self._written = max(0, len(self._rows) - unwritten)


def _read(segment: Segment) -> list[Aborted]:
    try:
        with open(segment.path + ".aborted", "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    return [Aborted(*row) for row in ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size])]


def _rewrite(segment: Segment, rows: list[Aborted]) -> None:
    """The file without the rows that are found again, so that none stands twice."""
    try:
        with open(segment.path + ".aborted", "r+b") as file:
            file.truncate(ROW.size * len(rows))
    except FileNotFoundError:
        pass
