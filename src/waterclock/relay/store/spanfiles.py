"""The two files of a span: data (messages end to end) and index (rows). Both grow at their ends.

Rule 1: if messages are filed together, each span gets one write of data and one of index.
Rule 2: the index is verified whole before a row of it is believed; a message by the checksum in its row.
Rule 3: of a span that is being split, the first `moved` rows lie in finer spans already.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from waterclock.relay.store.files import HEADER, AppendedFile, CheckedFile, StoreDamaged, StoreFiles
from waterclock.relay.store.rows import ROW, Array
from waterclock.relay.store.spans import SpanLevel, end_of, label

GAP: Final = 4_096  # bytes that are read along where two messages lie near each other
TOGETHER: Final = 1 << 20  # bytes read at once, at most


class StagedSpan(NamedTuple):
    """What lies behind the ends of a span's files, and does not count before `SpanFiles.grow`."""

    span: SpanFiles
    data: bytes
    rows: bytes  # of the index
    first_due: int  # ms since the epoch


class SpanFiles:
    """One span's; `number` is its own for ever."""

    def __init__(self, number: int, level: SpanLevel, start_ms: int, data: AppendedFile, index: CheckedFile) -> None:
        self.number = number
        self.level = level
        self.start_ms = start_ms
        self.data = data
        self.index = index
        self.first_due: int | None = None  # ms since the epoch; None while there is no row
        self.moved = 0  # rows; rule 3

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
        """Rows (ROW) from `first` to before `last`, in slices. Rule 2 is the caller's: `index.verify()`."""
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
