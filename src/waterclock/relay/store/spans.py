"""Spans of due time, and the files of each: hours near, days further out, then months, then years (UTC).

A span has two files: data (messages end to end) and index (rows). Both grow at their ends, until the span is full.

Rule 1: the edges between hours, days, months and years rise with the clock and never fall. What was filed in a coarse span
    is split into finer ones when an edge passes it, long before it is due.
Rule 2: an edge lies between two spans of the coarser kind: a span is before it or behind it, never both.
Rule 3: what is due more than a day in the past lies in one span, the span of the past, which begins at 0: however wild the
    due times of late messages are, they do not make files by the thousand.
Rule 4: if messages are filed together, each span gets one write of data and one of index.
Rule 5: the index is verified whole before a row of it is believed; a message by the checksum in its row.
Rule 6: of a span that is being split, the first `moved` rows lie in finer spans already.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np

from waterclock.relay.store.files import HEADER, AppendedFile, CheckedFile, StoreDamaged, StoreFiles
from waterclock.relay.store.rows import ROW, Array

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


class SpanLevel(IntEnum):
    """How long a span is."""

    HOUR = 0
    DAY = 1
    MONTH = 2
    YEAR = 3


_UNITS: Final = ("h", "D", "M", "Y")  # NumPy's


def starts_of(level: SpanLevel, dues: Array) -> Array:
    """Where the span of each due time begins, in ms.

    >>> starts_of(SpanLevel.MONTH, np.array([0, 31 * DAY_MS])).tolist()
    [0, 2678400000]
    """
    if level == SpanLevel.HOUR:
        return np.asarray(dues - dues % HOUR_MS)
    return dues.astype("M8[ms]").astype(f"M8[{_UNITS[level]}]").astype("M8[ms]").astype("<i8")


def start_of(level: SpanLevel, due_ms: int) -> int:
    """Where the span of one due time begins, in ms."""
    return int(starts_of(level, np.array([due_ms]))[0])


def end_of(level: SpanLevel, start_ms: int) -> int:
    """Where the span that begins at `start_ms` ends, in ms."""
    unit = np.datetime64(start_ms, "ms").astype(f"M8[{_UNITS[level]}]") + 1
    return int(unit.astype("M8[ms]").astype("i8"))


def label(level: SpanLevel, start_ms: int) -> str:
    """What its files are called.

    >>> label(SpanLevel.HOUR, 7 * HOUR_MS), label(SpanLevel.MONTH, 0)
    ('1970-01-01T07', '1970-01')
    """
    return str(np.datetime64(start_ms, "ms").astype(f"M8[{_UNITS[level]}]"))


@dataclass(frozen=True, slots=True)
class Span:
    """What is pending of a span of due time: how many messages, by the topic that they are for."""

    level: SpanLevel
    start_ms: int
    end_ms: int
    pending: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edges:
    """Up to where spans are hours, days and months, in ms; behind the last edge they are years."""

    hours_until: int = 0
    days_until: int = 0
    months_until: int = 0

    @classmethod
    def at(cls, now_ms: int, loaded_until: int) -> Edges:
        """Hours for today and tomorrow at least, and for what is loaded; days for a month more, months for three years."""
        hours = start_of(SpanLevel.DAY, max(now_ms + 2 * DAY_MS, loaded_until + DAY_MS))
        days = start_of(SpanLevel.MONTH, hours + 62 * DAY_MS)
        return cls(hours, days, start_of(SpanLevel.YEAR, days + 3 * 366 * DAY_MS))

    def later(self, other: Edges) -> Edges:
        """The later of each two. Rule 1."""
        return Edges(
            max(self.hours_until, other.hours_until),
            max(self.days_until, other.days_until),
            max(self.months_until, other.months_until),
        )

    def level_at(self, start_ms: int) -> SpanLevel:
        """How long a span that begins there is to be."""
        edges = (self.hours_until, self.days_until, self.months_until)
        return SpanLevel(sum(start_ms >= edge for edge in edges))

    def places(self, dues: Array, past_ms: int) -> tuple[Array, Array]:
        """The level and the start of the span that each due time is filed in; what is due before `past_ms`: rule 3."""
        levels = np.zeros(len(dues), "u1")
        starts = starts_of(SpanLevel.HOUR, dues)
        edges = (self.hours_until, self.days_until, self.months_until)
        for level, edge in zip((SpanLevel.DAY, SpanLevel.MONTH, SpanLevel.YEAR), edges, strict=True):
            far = dues >= edge
            if not far.any():
                break
            levels[far], starts[far] = level, starts_of(level, dues[far])
        starts[dues < past_ms] = 0
        return levels, starts


FULL_ROWS: Final = 131_072  # whoever loads a span reads its index whole, the settled rows of it too
FULL_BYTES: Final = 64 << 20  # of data
GAP: Final = 4_096  # bytes that are read along where two messages lie near each other
TOGETHER: Final = 1 << 20  # bytes read at once, at most


class StagedSpan(NamedTuple):
    """What lies behind the ends of a span's files, and does not count before `SpanFiles.grow`."""

    span: SpanFiles
    data: bytes
    rows: bytes  # of the index
    first_due: int  # ms since the epoch


class SpanFiles:
    """The files of one span; `number` is its own for ever."""

    def __init__(self, number: int, level: SpanLevel, start_ms: int, data: AppendedFile, index: CheckedFile) -> None:
        self.number = number
        self.level = level
        self.start_ms = start_ms
        self.data = data
        self.index = index
        self.first_due: int | None = None  # ms since the epoch; None while there is no row
        self.moved = 0  # rows; rule 6

    @classmethod
    def create(cls, files: StoreFiles, number: int, level: SpanLevel, start_ms: int) -> SpanFiles:
        """An empty one."""
        name = f"{label(level, start_ms)}.{number}"
        data = AppendedFile.create(files, f"{name}.data")
        with data.scrapping():
            index = CheckedFile.create(files, f"{name}.index")
        return cls(number, level, start_ms, data, index)

    @classmethod
    def restore(cls, files: StoreFiles, stored: list[Any]) -> SpanFiles:
        """As a manifest has it. `StoreDamaged` if a file is not like that."""
        number, level, start_ms, first_due, moved, data, index = stored
        found = cls(
            number, SpanLevel(level), start_ms, AppendedFile.restore(files, data), CheckedFile.restore(files, index)
        )
        found.first_due, found.moved = first_due, moved
        return found

    def stored(self) -> list[Any]:
        """What a manifest says of it."""
        own = [self.number, int(self.level), self.start_ms, self.first_due, self.moved]
        return [*own, self.data.stored(), self.index.stored()]

    @property
    def end_ms(self) -> int:
        return end_of(self.level, self.start_ms)

    @property
    def count(self) -> int:
        """Rows in the index, settled or not."""
        return (self.index.length - HEADER) // ROW.itemsize

    @property
    def is_full(self) -> bool:
        """Whether it takes no more rows, and goes as soon as nothing in it is pending."""
        return self.count >= FULL_ROWS or self.data.length > FULL_BYTES

    def write(self, rows: Array, blobs: Sequence[bytes]) -> StagedSpan:
        """Write rows (ROW) and the bytes of each behind the ends; fills in `pos`. They count with `grow`."""
        sizes = rows["length"].astype("u8")
        rows["pos"] = self.data.length + np.cumsum(sizes) - sizes
        written = StagedSpan(self, b"".join(blobs), rows.tobytes(), int(rows["due"].min()))
        self.data.write(written.data)
        self.index.write(written.rows)
        return written

    def grow(self, written: StagedSpan) -> None:
        """What was written counts."""
        self.data.grow(written.data)
        self.index.grow(written.rows)
        self.first_due = written.first_due if self.first_due is None else min(self.first_due, written.first_due)

    def rows(self, first: int, last: int, most: int) -> Iterator[Array]:
        """Rows (ROW) from `first` to before `last`, in slices. Rule 5 is the caller's: `index.verify()`."""
        for start in range(first, last, most):
            size = min(most, last - start) * ROW.itemsize
            yield np.frombuffer(self.index.read(size, HEADER + start * ROW.itemsize), ROW)

    def blobs(self, rows: Array) -> list[bytes]:
        """The messages of rows, in their order; `StoreDamaged` for one that is not what was written."""
        order = np.argsort(rows["pos"], kind="stable")
        starts = rows["pos"][order].astype("i8")
        lengths = rows["length"][order].astype("i8")
        found: list[bytes] = []
        for first, last in _groups(starts, starts + lengths):
            at = int(starts[first])
            together = self.data.read(int(starts[last - 1] + lengths[last - 1]) - at, at)
            begins = (starts[first:last] - at).tolist()
            found += [together[b : b + n] for b, n in zip(begins, lengths[first:last].tolist(), strict=True)]
        if (np.diff(order) < 0).any():  # what was due in the order in which it was filed lies so
            found = [found[n] for n in np.argsort(order, kind="stable").tolist()]
        if list(map(zlib.crc32, found)) != rows["crc"].tolist():
            raise StoreDamaged(f"{self.data.name} does not hold what was written to it: a message's checksum is wrong")
        return found

    def drop(self) -> None:
        """Remove both after the next checkpoint."""
        self.data.drop()
        self.index.drop()


def _groups(starts: Array, ends: Array) -> Iterator[tuple[int, int]]:
    """First and last + 1 of what is read at once: neighbours with small gaps, up to `TOGETHER` bytes. Both arrays (i8) are
    bytes from the start of the file; the starts rise."""
    apart = np.flatnonzero(starts[1:] - ends[:-1] > GAP) + 1
    for first, last in zip([0, *apart.tolist()], [*apart.tolist(), len(starts)], strict=True):
        while first < last:
            fits = first + int(np.searchsorted(ends[first:last], starts[first] + TOGETHER, side="right"))
            yield first, max(first + 1, min(last, fits))
            first = max(first + 1, min(last, fits))
