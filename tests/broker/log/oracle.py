"""What a partition ought to hold: a list of batches, and a list for every question. Nothing here is quick."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.broker.record_batches import Rec


@dataclass
class Kept:
    """A batch that was taken: its offsets, its bytes as they stand in the log, its records by offset."""

    base: int
    last: int
    raw: bytes
    recs: dict[int, Rec]
    producer: tuple[int, int, int] = (-1, -1, -1)
    transactional: bool = False
    commit: bool | None = None  # of a marker: what it says
    marker_ms: int | None = None  # and when; Kafka counts it with the records where a moment is looked up

    def moments(self) -> dict[int, int]:
        """The timestamp of each offset."""
        if self.marker_ms is not None:
            return {self.base: self.marker_ms}
        return {o: rec.ms for o, rec in self.recs.items()}


@dataclass
class Oracle:
    """`batches` in the order of the log, up to `end`; readers see those from `start` to before `high`."""

    batches: list[Kept] = field(default_factory=list)
    start: int = 0
    end: int = 0
    high: int = 0
    deletions: dict[int, int] = field(default_factory=dict)  # offset of a deletion -> when a compaction first met it

    def add(self, kept: Kept) -> None:
        self.batches.append(kept)
        self.end = kept.last + 1

    def lose_after(self, end: int) -> None:
        """A crash: what came from offset `end` on is gone."""
        self.batches = [b for b in self.batches if b.last < end]
        self.end = self.high = end

    def open_since(self) -> dict[int, int]:
        """The first offset of each producer's undecided transaction."""
        since: dict[int, int] = {}
        for b in self.batches:
            if b.commit is not None:
                since.pop(b.producer[0], None)
            elif b.transactional:
                since.setdefault(b.producer[0], b.base)
        return since

    def stable(self) -> int:
        return max(self.start, min([self.high, *self.open_since().values()]))

    def aborted(self) -> list[tuple[int, int, int]]:
        """Producer, first offset and marker of each aborted transaction."""
        since: dict[int, int] = {}
        rows = []
        for b in self.batches:
            if b.commit is None and b.transactional:
                since.setdefault(b.producer[0], b.base)
            elif b.commit is not None and (first := since.pop(b.producer[0], None)) is not None and not b.commit:
                rows.append((b.producer[0], first, b.last))
        return rows

    def visible(self) -> dict[int, Rec]:
        """The records that a reader of committed ones gets, by offset."""
        stable, aborted = self.stable(), self.aborted()
        seen = [b for b in self.batches if b.commit is None and not (b.transactional and among(b, aborted))]
        return {o: rec for b in seen for o, rec in b.recs.items() if self.start <= o < stable}

    def first_at(self, ms: int, upto: int) -> tuple[int, int]:
        found = [(t, o) for b in self.batches for o, t in b.moments().items() if t >= ms and self.start <= o < upto]
        return min(found, key=lambda row: row[1], default=(-1, -1))

    def latest(self) -> tuple[int, int]:
        found = [(t, o) for b in self.batches for o, t in b.moments().items() if self.start <= o]
        return max(found, key=lambda row: (row[0], -row[1]), default=(-1, -1))

    def compacted(self, upto: int, now_ms: int, keep_ms: int) -> dict[int, Rec]:
        """What readers of committed records get after a compaction up to `upto`; those after it are not touched."""
        kept, visible = {}, self.visible()
        last = {rec.key: offset for offset, rec in visible.items() if offset < upto}
        for offset, rec in visible.items():
            if offset >= upto or (rec.key is not None and last[rec.key] == offset and self._stays(offset, rec, now_ms)):
                kept[offset] = rec
            if offset < upto and rec.value is None:
                self.deletions.setdefault(offset, now_ms + keep_ms)
        return kept

    def _stays(self, offset: int, rec: Rec, now_ms: int) -> bool:
        return rec.value is not None or now_ms < self.deletions.get(offset, now_ms + 1)


def among(b: Kept, aborted: list[tuple[int, int, int]]) -> bool:
    return any(b.producer[0] == pid and first <= b.base < marker for pid, first, marker in aborted)
