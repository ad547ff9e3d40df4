"""The state of a bucket taken apart by the buckets that its keys will have, and put together again. No Spark in this file.

    stored bucket -> its keys' states, its deadlines -> parts, a few thousand keys each -> stored bucket of another count

A key's bucket is a hash of it modulo the count (streaming/buckets.py), so 16 to 64 only splits and 64 to 8 only joins; any
other pair of counts does both, and all go the same way.

Rule 1: nothing is worked out anew: a key's state, its deadlines and the rows that they hold move as they are stored.
Rule 2: the bucket that is put together stands at the furthest watermark of all. None of its deadlines lies before that:
        Spark calls a bucket in the batch in which one is due. Where one does, the bucket stands just before it.
Rule 3: counters move as sums: a batch reports by how much they changed, so it is all the same in which bucket they stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from waterclock.rules.engine import NO_WATERMARK
from waterclock.rules.events import Counters
from waterclock.rules.model import Rules
from waterclock.streaming.buckets import places
from waterclock.streaming.state import bucket, states
from waterclock.streaming.state.blobs import Blobs, BlobStore
from waterclock.streaming.state.bucket import Bucket, StoredBucket, Watermarks, read_state
from waterclock.streaming.state.held import fullest
from waterclock.streaming.state.pages import Pages, most_by
from waterclock.streaming.state.plain import PlainEngine
from waterclock.streaming.state.rows import Rows
from waterclock.streaming.state.states import States

KEYS_A_PART = 20_000  # a part is a row of Spark's: a few megabytes


@dataclass(frozen=True, slots=True)
class StateClock:
    """How far all buckets have come: the watermark of the furthest one, and of each partition of a topic."""

    watermark_us: int = NO_WATERMARK
    partitions: Mapping[str, int | None] = field(default_factory=dict)

    def furthest(self, other: StateClock) -> StateClock:
        """The further one of the two, each partition by itself."""
        places = sorted({*self.partitions, *other.partitions})
        both = [(place, self.partitions.get(place), other.partitions.get(place)) for place in places]
        known = {place: max((us for us in two if us is not None), default=None) for place, *two in both}
        return StateClock(max(self.watermark_us, other.watermark_us), known)


@dataclass(frozen=True, slots=True)
class StoredSeen:
    """What a stored bucket says of itself without being unpacked."""

    clock: StateClock
    keys: int


@dataclass(frozen=True, slots=True)
class BucketSeen:
    """One bucket as it is stored: its place among all, what it holds, what that takes, and the partition it lies in."""

    place: int
    keys: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StateSeen:
    """The state of a checkpoint after batch `batch_id`; a bucket that holds nothing yet is not among `stored`."""

    batch_id: int
    buckets: int
    partitions: int
    clock: StateClock
    stored: tuple[BucketSeen, ...]

    @property
    def keys(self) -> int:
        return sum(each.keys for each in self.stored)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.stored)


@dataclass(frozen=True, slots=True)
class StatePart:
    """Some keys' states, or some deadlines, of one bucket, for one place of the new count."""

    schema: bytes | None
    states: tuple[bytes, bytes] = (b"", b"")
    chunk: bytes = b""
    counters: Mapping[str, int] = field(default_factory=dict)
    keys: int = 0
    deadlines: int = 0

    def to_bytes(self) -> bytes:
        """What `part_of` takes."""
        return msgpack.packb(  # type: ignore[no-any-return]
            [self.schema, self.states, self.chunk, dict(self.counters), self.keys, self.deadlines]
        )


def part_of(packed: bytes) -> StatePart:
    """The part that `to_bytes` packed."""
    schema, columns, *rest = msgpack.unpackb(packed)
    return StatePart(schema, tuple(columns), *rest)


def seen(engine: bytes) -> StoredSeen:
    """What every batch reads of a bucket, looked at: its watermarks, and how many keys it holds."""
    state = read_state(engine)
    awake = len(states.from_blobs(state["awake"], b"")) if state["awake"] else 0
    clock = StateClock(state["engine"]["watermark"], state["watermarks"])
    return StoredSeen(clock, awake + sum(map(len, Pages(BlobStore({}), state["pages"]).all())))


def state_seen(
    batch_id: int, count: int, found: Iterable[tuple[int, bytes, int]], clock: StateClock | None = None
) -> StateSeen:
    """The state that is not in Spark's parts: of each bucket its place, what every batch reads, and its bytes. Without a
    `clock`, it is that of the furthest bucket."""
    known = [(place, seen(engine), size) for place, engine, size in found]
    furthest = clock or reduce(StateClock.furthest, (each.clock for _, each, _ in known), StateClock())
    return StateSeen(batch_id, count, 1, furthest, tuple(BucketSeen(n, each.keys, size) for n, each, size in known))


def split(rules: Rules, stored: StoredBucket, blobs: Blobs, count: int, place: int) -> Iterator[tuple[int, StatePart]]:
    """(place, part) for all that the bucket holds, which stood at `place`; places are those of `count` buckets."""
    state, store = read_state(stored.engine), BlobStore(blobs)
    counters = state["engine"]["counters"]
    if any(counters.values()):
        yield place % count, StatePart(state["schema"], counters=counters)
    # The states of all keys, those that rest and those that are awake.
    found = [page.take(page.alive()) for page in Pages(store, state["pages"]).all() if len(page)]
    if state["awake"]:
        found.append(states.from_blobs(state["awake"], stored.rows))
    kept = states.joined(found) if found else None
    if kept is not None:
        for at, numbers in _by_place(kept.keys, count):
            yield at, StatePart(state["schema"], states.to_blobs(kept.take(numbers)), keys=len(numbers))
    yield from _deadlines(rules, state, store, count)


def _deadlines(rules: Rules, state: Any, store: BlobStore, count: int) -> Iterator[tuple[int, StatePart]]:
    """The deadlines of all levels and slots, in the order in which they would fire if they are due together."""
    packed = state["schema"]
    rows = Rows(_schema(packed))
    stored = [chunk for level in state["engine"]["deadlines"] for _, slot in level for chunk in slot]
    lying = [
        each
        for chunk in stored
        for each in ([chunk] if isinstance(chunk, bytes) else msgpack.unpackb(store.get(chunk)))
    ]
    found = [deadline for chunk in lying for deadline in states.unpack_deadlines(chunk, rules, rows)]
    if not found:
        return
    for at, numbers in _by_place(pa.array([deadline[2] for deadline in found]), count):
        (chunk,) = states.pack_deadlines([[found[number] for number in numbers.tolist()]], rows)
        yield at, StatePart(packed, chunk=chunk, deadlines=len(numbers))


def _by_place(keys: pa.Array, count: int) -> Iterator[tuple[int, np.ndarray]]:
    """(place, numbers of its keys in their order), not too many at a time."""
    of = places(keys, count)
    order = np.argsort(of, kind="stable")
    for run in np.split(order, np.flatnonzero(np.diff(of[order])) + 1):
        for start in range(0, len(run), KEYS_A_PART):
            yield int(of[run[0]]), run[start : start + KEYS_A_PART]


def _schema(packed: bytes | None) -> pa.Schema | None:
    return None if packed is None else pa.ipc.read_schema(pa.py_buffer(packed))


class JoinedBucket(Bucket):
    """A bucket that is put together of parts; `store` gives its state as after any step. Of keys that are to rest, those of
    one part at a time are awake."""

    def __init__(self, rules: Rules, clock: StateClock, parts: Iterable[StatePart], blobs: Blobs | None = None) -> None:
        super().__init__(rules, None, blobs)
        self._watermarks = Watermarks(clock.partitions)
        taken, counters = list(parts), Counters().to_dict()
        self._rows = Rows(next((_schema(part.schema) for part in taken if part.schema is not None), None))
        self._engine = plain = PlainEngine(rules, self._rows, self._store, self._find)
        deadlines = [
            deadline
            for part in taken
            if part.deadlines
            for deadline in states.unpack_deadlines(part.chunk, rules, self._rows)
        ]
        for part in taken:
            counters = {name: value + part.counters.get(name, 0) for name, value in counters.items()}
        first = min((deadline[0] for deadline in deadlines), default=None)
        at = clock.watermark_us if first is None else min(clock.watermark_us, first - 1)
        plain.load({**plain.frame(), "watermark": at, "counters": counters})
        are_many = sum(part.keys for part in taken) > bucket.AWAKE
        for part in taken:
            if part.keys:
                woken = states.from_blobs(*part.states)
                self._rest(woken, part.schema, at) if are_many else plain.wake(woken)
        plain.wait_for(deadlines)

    def _rest(self, woken: States, schema: bytes | None, watermark_us: int) -> None:
        engine = self.engine_for(self._rules, Rows(_schema(schema)), self._store, self._find)
        with closing(engine):
            engine.load({**engine.frame(), "watermark": watermark_us})
            engine.wake(woken)
            at_rest = engine.at_rest()
        self.held_keys = fullest(self.held_keys, at_rest.states, self._rules)
        self._pages.add(at_rest.states, at_rest.hashes, most_by(at_rest.wake_by))
