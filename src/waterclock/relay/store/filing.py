"""Where messages are filed: all spans of a partition, and the steps by which messages come into their files.

Rule 1: of each level and start there is one span that rows are filed in; when it is full, the next one. One that is coarser
    than the edges want it gets no more rows, and waits to be split.
Rule 2: a row that is due before `loaded_until` lies in a span that begins before it. Others do not, but for one case: what
    was filed in the span of the past, before the clock was set back, comes with the first load, however late it is due.
Rule 3: nothing counts before the last step of `StagedRows`. That one is done in memory and cannot fail.
Rule 4: what a step before it has written when the disk refuses lies behind the ends of files, and is written over.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from waterclock.relay.store.files import StoreFiles
from waterclock.relay.store.ids import Ids, hashes
from waterclock.relay.store.ledger import OriginLedger
from waterclock.relay.store.origins import OTHER
from waterclock.relay.store.rows import MOST_DUE, MOST_ORIGIN, ROW, Array, ids_of
from waterclock.relay.store.spans import DAY_MS, HOUR_MS, Edges, Span, SpanFiles, SpanLevel, StagedSpan


class SpanTable:
    """The spans by their numbers; `number` gives one to a new span."""

    def __init__(self, files: StoreFiles, number: Callable[[], int]) -> None:
        self._files = files
        self._number = number
        self._places: dict[tuple[int, int], SpanFiles] = {}  # level, start
        self.edges = Edges()
        self.by_number: dict[int, SpanFiles] = {}

    def __contains__(self, span: SpanFiles) -> bool:
        """Whether it was not dropped."""
        return span.number in self.by_number

    def raise_edges(self, now_ms: int, loaded_until: int) -> None:
        """Move the edges to where the clock wants them."""
        self.edges = self.edges.later(Edges.at(now_ms, loaded_until))

    def write(self, rows: Array, blobs: Sequence[bytes], past_ms: int) -> tuple[Array, list[StagedSpan]]:
        """Write rows (ROW) and the bytes of each to their spans' files, and fill in `pos`.

        Returns the number (i8) of each row's span, and what counts with `SpanFiles.grow`, for each span.
        """
        levels, starts = self.edges.places(rows["due"], past_ms)
        keys = starts * len(SpanLevel) + levels
        order = np.argsort(keys, kind="stable")
        numbers, written = np.zeros(len(rows), "i8"), []
        for which in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
            level, start_ms = SpanLevel(levels[which[0]]), int(starts[which[0]])
            span = self._places.get((level, start_ms))
            if span is None or span.is_full:
                span = self._add(SpanFiles.create(self._files, self._number(), level, start_ms))
            part = rows[which]
            written.append(span.write(part, [blobs[n] for n in which.tolist()]))
            rows["pos"][which] = part["pos"]
            numbers[which] = span.number
        return numbers, written

    def _add(self, span: SpanFiles) -> SpanFiles:
        self.by_number[span.number] = self._places[span.level, span.start_ms] = span
        return span

    def blobs(self, rows: Array, spans: Array) -> list[bytes]:
        """The messages of rows (ROW), in their order; `spans` has the numbers (i8) of their spans. `StoreDamaged`: see
        SpanFiles."""
        numbers = np.unique(spans).tolist()
        if len(numbers) == 1:
            return self.by_number[numbers[0]].blobs(rows)
        found: list[bytes] = [b""] * len(rows)
        for number in numbers:
            which = np.flatnonzero(spans == number)
            for n, blob in zip(which.tolist(), self.by_number[number].blobs(rows[which]), strict=True):
                found[n] = blob
        return found

    def spans(self, counts: Iterable[tuple[int, int, int]], targets: Sequence[str]) -> list[Span]:
        """Those in which something is pending, by their start; `counts`: (span, target, count) each."""
        all_spans = self.by_number.values()
        found = {(span.level, span.start_ms): Span(span.level, span.start_ms, span.end_ms) for span in all_spans}
        for number, target, count in counts:
            if count:
                name = "(other topics)" if target == OTHER else targets[target]
                one = self.by_number[number]
                pending = found[one.level, one.start_ms].pending
                pending[name] = pending.get(name, 0) + count
        return sorted((span for span in found.values() if span.pending), key=lambda span: (span.start_ms, span.level))

    def all_rows(self, most: int, dues: Collection[int] = ()) -> Iterator[Array]:
        """The rows of all spans, in slices, which may be empty; or of those that hold one of these due times. What is filed
        or split between two slices comes too; some come twice. Where a row says that its bytes lie holds until the next
        slice."""
        looked: dict[int, int] = {}
        while (span := self._not_looked_at(looked, dues)) is not None:
            if span.number not in looked:
                yield from self.verified(span)
            if span in self:
                at = max(span.moved, looked.get(span.number, 0))
                looked[span.number] = min(span.count, at + most)
                yield from span.rows(at, looked[span.number], most)

    def _not_looked_at(self, looked: Mapping[int, int], dues: Collection[int]) -> SpanFiles | None:
        """One that has rows behind those that were looked at; that of the past holds any due time."""
        for span in self.by_number.values():
            holds = not dues or not span.start_ms or any(span.start_ms <= due < span.end_ms for due in dues)
            if holds and max(span.moved, looked.get(span.number, 0)) < span.count:
                return span
        return None

    def verified(self, span: SpanFiles) -> Iterator[Array]:
        """Empty slices, until the index of a span is known to be what was written."""
        for _ in span.index.verify() if span in self else ():
            yield np.empty(0, ROW)
            if span not in self:
                return

    def coarse(self) -> list[SpanFiles]:
        """Those that are to be split, by their start."""
        found = (span for span in self.by_number.values() if span.level > self.edges.level_at(span.start_ms))
        return sorted(found, key=lambda span: span.start_ms)

    def drop(self, span: SpanFiles) -> None:
        """Forget one; its files go with the next checkpoint."""
        del self.by_number[span.number]
        if self._places.get((span.level, span.start_ms)) is span:
            del self._places[span.level, span.start_ms]
        span.drop()

    def stored(self) -> dict[str, Any]:
        """What the manifest says of them."""
        edges = [self.edges.hours_until, self.edges.days_until, self.edges.months_until]
        return {"edges": edges, "spans": [span.stored() for span in self.by_number.values()]}

    def restore(self, stored: dict[str, Any]) -> None:
        """As a manifest has them. `StoreDamaged` if a file is not like that."""
        self.edges = Edges(*stored["edges"])
        for one in stored["spans"]:
            self._add(SpanFiles.restore(self._files, one))

    def names(self) -> set[str]:
        """Of their files."""
        return {file.name for span in self.by_number.values() for file in (span.data, span.index)}

    def bytes_of(self, counts: Iterable[tuple[int, int, int]]) -> int:
        """About how many bytes so many messages have: (span, target, count) each."""
        means = {number: span.data.length / max(1, span.count) for number, span in self.by_number.items()}
        return int(sum(count * means.get(number, 0) for number, _, count in counts if count))

    @property
    def bytes_on_disk(self) -> int:
        return sum(span.data.length + span.index.length for span in self.by_number.values())


def past_ms(now_ms: int, loaded_until: int) -> int:
    """What is due before lies in the span of the past. Never behind `loaded_until` if something is loaded: rule 2."""
    near = min(now_ms, loaded_until) if loaded_until else now_ms
    return near - near % HOUR_MS - DAY_MS


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Messages to be filed: three columns of one length."""

    rows: Array  # ROW
    blobs: Sequence[bytes]
    targets: Sequence[str]

    @classmethod
    def of(cls, rows: Array, blobs: Sequence[bytes], targets: Sequence[str]) -> RowBatch:
        """With a copy of the rows. ValueError for columns that do not fit together, or a number out of bounds."""
        if rows.dtype != ROW or not len(rows) == len(blobs) == len(targets):
            lengths = f"{len(rows)} rows, {len(blobs)} blobs, {len(targets)} targets"
            raise ValueError(f"rows must be of dtype ROW, each with a blob and a target; got {rows.dtype}, {lengths}")
        for name, end in (("due", MOST_DUE), ("origin", MOST_ORIGIN)):
            wrong = (rows[name] < 0) | (rows[name] >= end)
            if wrong.any():
                raise ValueError(f"{name} must be in 0 .. {end - 1}, got {rows[name][wrong][0]}")
        return cls(rows.copy(), blobs, targets)

    def __len__(self) -> int:
        return len(self.rows)

    def first_of_each(self) -> Array:
        """Which rows are the first of their origin: a message and its copy may come together."""
        origins = self.rows["origin"]
        first = np.ones(len(self), bool)
        if (np.diff(origins) <= 0).any():
            first[:] = False
            first[np.unique(origins, return_index=True)[1]] = True
        return first

    def only(self, which: Array) -> RowBatch:
        """The rows of which `which` (bool) is true."""
        if which.all():
            return self
        kept = np.flatnonzero(which).tolist()
        return RowBatch(self.rows[which], [self.blobs[n] for n in kept], [self.targets[n] for n in kept])

    def measure(self) -> None:
        """Fill in lengths and checksums."""
        self.rows["length"] = list(map(len, self.blobs))
        self.rows["crc"] = list(map(zlib.crc32, self.blobs))


class StagedRows:
    """Some messages that are being filed. Each step but the last raises OSError if the disk refuses; then nothing of it
    counts, and the same messages may be filed again.

        1. note_ids   their ids go to the log of ids
        2. write      rows and bytes go behind the ends of the files of their spans,
        3.            and the journal says that they are pending
        4. count      all of it counts: the files are longer, the messages are pending, and are found by their ids
    """

    def __init__(self, table: SpanTable, ledger: OriginLedger, ids: Ids) -> None:
        self._table = table
        self._ledger = ledger
        self._ids = ids
        self._entries: Array | None = None  # ENTRY, one for each id; None if no message has one
        self._written: list[StagedSpan] = []  # one for each span
        self._pending: tuple[Array, Array] | None = None  # origins (i8), and the slot (u2, origins.py) of each

    def note_ids(self, batch: RowBatch) -> None:
        """Step 1. The rows get the lower half of the hash of their id."""
        ids = ids_of(batch.blobs)
        which = [n for n, id in enumerate(ids) if id]
        if which:
            found = hashes([ids[n] for n in which])
            batch.rows["id"][which] = np.maximum(found["hash"] & 0xFFFFFFFF, 1)  # 0: there is no id
            self._entries = self._ids.write(found, batch.rows[which])

    def write(self, rows: Array, blobs: Sequence[bytes], past_ms: int) -> None:
        """Steps 2 and 3, of rows (ROW) and the bytes of each. The rows get `pos`, where those lie. What is due before
        `past_ms` goes to the span of the past."""
        spans, self._written = self._table.write(rows, blobs, past_ms)  # 2
        self._pending = rows["origin"], self._ledger.note_pending(spans, rows["origin"], rows["target"])  # 3

    def count(self) -> None:
        """Step 4."""
        for written in self._written:
            written.span.grow(written)
        if self._pending is not None:
            self._ledger.origins.place(*self._pending)
        if self._entries is not None:
            self._ids.keep(self._entries)
