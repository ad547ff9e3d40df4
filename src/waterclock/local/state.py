"""The rules over all buckets, in memory: state is a cache of the log.

Rule 1: a bucket's state is what its rules make of the batches up to its snapshot, in their order, and of nothing else:
        the engine has no clock, no chance, no order of hashes. When it was stored and loaded again does not matter.
Rule 2: buckets are written one by one, each with the number of the batch that it has taken, after that batch is in the
        sink: no snapshot is ever ahead of the sink, and no pause is as long as the whole state.
Rule 3: a bucket that has nothing to do is not touched: its watermark is told to it with its next event or deadline. Where a
        new partition takes that of all back, each is told before what it was: for each it never goes back.
Rule 4: what rests of a bucket lies in the file of the snapshots, and is read when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from waterclock.local.snapshots import Snapshots, Written
from waterclock.local.sources import Input
from waterclock.rules.model import Rules
from waterclock.streaming import frames
from waterclock.streaming.buckets import labels, split
from waterclock.streaming.state.bucket import Bucket, StoredBucket, Watermarks

_MOST_TABLES = 64  # that a bucket keeps in memory; a step looks through all of them
_MOST_ROWS = 300_000


class Shelf:
    """A bucket's blobs: those since its last snapshot in memory, the others in the file."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._put: dict[int, bytes] = {}
        self._gone: set[int] = set()
        self._on_the_way: dict[int, bytes] = {}  # to the file

    def __getitem__(self, number: int, /) -> bytes:
        for known in (self._put, self._on_the_way):
            if (blob := known.get(number)) is not None:
                return blob
        return self._read(number)

    def __setitem__(self, number: int, blob: bytes, /) -> None:
        self._put[number] = blob

    def __delitem__(self, number: int, /) -> None:
        if self._put.pop(number, None) is None:
            self._gone.add(number)

    def changes(self) -> tuple[Mapping[int, bytes], frozenset[int]]:
        """What changed since the last call: what was put, and what is gone; `written` says that it lies in the file."""
        put, gone = self._put, frozenset(self._gone)
        self._put, self._gone = {}, set()
        self._on_the_way.update(put)
        return put, gone

    def written(self, put: Mapping[int, bytes]) -> None:
        for number in put:
            self._on_the_way.pop(number, None)


@dataclass(slots=True)
class Held:
    """A bucket in memory. `at` is the last batch that it has taken."""

    bucket: Bucket
    shelf: Shelf
    at: int
    tables: int = 0
    rows: int = 0

    def took(self, tables: Sequence[pa.Table]) -> None:
        self.tables += len(tables) + 1
        self.rows += sum(table.num_rows for table in tables)

    @property
    def is_full(self) -> bool:
        return self.tables > _MOST_TABLES or self.rows > _MOST_ROWS


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the rules made of a batch: result frames, the changes of the counters, and what is to be written behind it."""

    results: list[pa.Table]
    counters: dict[str, int]
    written: list[Written]


class Buckets:
    """All buckets. One thread applies batches."""

    def __init__(
        self, rules: Rules, count: int, snapshots: Snapshots, stored: Mapping[int, tuple[int, StoredBucket]]
    ) -> None:
        self._rules, self._count, self._snapshots = rules, count, snapshots
        self.watermarks = Watermarks()
        self._place = {label: place for place, label in enumerate(labels(count))}
        self._all = [self._made(place, *stored.get(place, (-1, None))) for place in range(count)]
        self._next = 0

    def at(self) -> int:
        """The last batch that all buckets have taken."""
        return min(held.at for held in self._all)

    def watermark_us(self) -> int:
        """That of all partitions, or a later one that buckets were told."""
        return max(self.watermarks.lowest(), *(held.bucket.watermark_us for held in self._all))

    def apply(self, batch_id: int, given: Input) -> Outcome:
        """The results of a batch. A bucket whose snapshot has it passes it over; one that holds too much is written."""
        before = self.watermarks.lowest()
        self.watermarks.take([frames.clock(given.clock)])
        after = self.watermarks.lowest()
        parts: dict[int, list[pa.Table]] = {}
        for table in given.rows:
            for batch in table.combine_chunks().to_batches():
                for label, rows in split(batch, batch.column(self._rules.key), self._count):
                    parts.setdefault(self._place[label], []).append(pa.Table.from_batches([rows]))
        found: list[pa.Table] = []
        for place, held in enumerate(self._all):
            if batch_id > held.at:
                found += _step(held, parts.get(place, []), before, after)
                held.at = batch_id
        full = [place for place, held in enumerate(self._all) if held.is_full]
        counters = frames.sum_counters(map(frames.counters_of, found))
        return Outcome([frame for frame in found if frame.num_rows], counters, [self._write(place) for place in full])

    def next_written(self, turns: int) -> list[Written]:
        """So many buckets whose turn it is, as they are to be written."""
        places = [(self._next + turn) % self._count for turn in range(turns)]
        self._next = (self._next + turns) % self._count
        return [self._write(place) for place in places]

    def all_written(self) -> list[Written]:
        return [self._write(place) for place in range(self._count)]

    def wrote(self, written: Sequence[Written]) -> None:
        """These lie in the file."""
        for each in written:
            self._all[each.bucket].shelf.written(each.put)

    def _write(self, place: int) -> Written:
        held = self._all[place]
        stored = held.bucket.store()
        grown = held.bucket.grown
        held.bucket.close()
        put, gone = held.shelf.changes()
        self._all[place] = Held(Bucket(self._rules, stored, held.shelf), held.shelf, held.at)
        return Written(place, held.at, stored, put, gone, grown)

    def _made(self, place: int, at: int, stored: StoredBucket | None) -> Held:
        shelf = Shelf(lambda number: self._snapshots.blob(place, number))
        return Held(Bucket(self._rules, stored, shelf), shelf, at)


def _step(held: Held, tables: list[pa.Table], before: int, after: int) -> list[pa.Table]:
    found = []
    if tables or after < before:
        found.append(held.bucket.step(tables, before))
        held.took(tables)
    due = held.bucket.next_due_us()
    if due is not None and due <= after:
        found.append(held.bucket.step((), after))
        held.took(())
    return found
