"""All spans of a partition: which there are, and where a row is filed.

Rule 1: of each level and start there is one span that rows are filed in. One that is coarser than the edges want it gets no
    more rows, and waits to be split.
Rule 2: a row that is due before `loaded_until` lies in a span that begins before it. Others do not, but for one case: what
    was filed in the span of the past, before the clock was set back, comes with the first load, however late it is due.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from waterclock.relay.store.files import StoreFiles
from waterclock.relay.store.rows import ROW, Array
from waterclock.relay.store.slots import OTHER
from waterclock.relay.store.spanfiles import SpanFiles, StagedSpan
from waterclock.relay.store.spans import DAY_MS, HOUR_MS, Edges, Span, SpanLevel


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
        """Have them where the clock wants them."""
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
            span = self._places.get((level, start_ms)) or self._add(
                SpanFiles.create(self._files, self._number(), level, start_ms)
            )
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
        found = {n: Span(span.level, span.start_ms, span.end_ms) for n, span in self.by_number.items()}
        for number, target, count in counts:
            if count:
                name = "(other topics)" if target == OTHER else targets[target]
                found[number].pending[name] = count
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
