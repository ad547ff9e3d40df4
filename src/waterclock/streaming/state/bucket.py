"""One bucket of keys on Spark: the engine over Arrow rows, its state as bytes, a topic's watermark. No Spark in this file.

    every batch reads and writes     the version byte, and whether the rest is compressed; what is not of one key; the
                                     states of keys that are awake, and rows that they hold for their order; the lists of
                                     what lies in the blob store
    in the blob store, till it is needed  pages of keys that rest, chunks of deadlines that rest

So a batch costs what it touches, a hash for each key that rests, and the small chunks: those stay with what every batch
reads, for a call to the state store costs more. Beyond AWAKE keys all go to rest, on a page; a key is woken by its next
event or deadline.

Of a topic, the partition that is furthest behind decides the watermark. Spark takes its own from the largest time of all
rows. Of partitions A and B, where A is read up to June and B up to March, that would be June: all that B still holds of
April and May would be late, though B is in perfect order. So the rows of a topic have no time for Spark. Beside them, clock
frames say to every bucket how far each partition is.

Rule 1: the watermark is the least one of all known partitions; one that nothing was read of yet holds it back.
Rule 2: a batch is judged against the watermark that the batches before it made; what it brings moves it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, Final

import msgpack
import pyarrow as pa
import pyarrow.compute as pc

from waterclock.errors import StateMismatch
from waterclock.rules.engine import NO_WATERMARK
from waterclock.rules.model import Rules
from waterclock.streaming import frames
from waterclock.streaming.state import states
from waterclock.streaming.state.blobs import Blobs, BlobStore, compressed, expanded
from waterclock.streaming.state.compiled import engine_for
from waterclock.streaming.state.held import HeldKey, fullest, without
from waterclock.streaming.state.pages import Pages, Search, most_by
from waterclock.streaming.state.rows import Rows
from waterclock.streaming.state.states import States

SHOWN: Final = 20


class Watermarks:
    """The watermark of each partition, and of all; empty for a source without partitions, which Spark takes care of."""

    def __init__(self, stored: Mapping[str, int | None] | None = None) -> None:
        self._of = dict(stored or {})

    def __bool__(self) -> bool:
        return bool(self._of)

    def take(self, clocks: Iterable[pa.Table]) -> None:
        """Move on by what clock frames say; the watermark of a partition never goes back."""
        for frame in clocks:
            for place, us in zip(*(column.to_pylist() for column in frame.columns), strict=True):
                before = self._of.get(place)
                self._of[place] = before if us is None else us if before is None else max(before, us)

    def lowest(self) -> int:
        """The watermark of the topic in microseconds; NO_WATERMARK while a partition has none, or if there are none."""
        known = self._of.values()
        return NO_WATERMARK if None in known else min((us for us in known if us is not None), default=NO_WATERMARK)

    def slowest(self) -> dict[str, int | None]:
        """The partitions that are furthest behind, `SHOWN` at most; those of which nothing was read come first."""
        return dict(nsmallest(SHOWN, self._of.items(), lambda one: (one[1] is not None, one[1] or 0, one[0])))

    def dump(self) -> dict[str, int | None]:
        """What `Watermarks(stored)` takes, in an order of its own, so that the same state is the same bytes."""
        return dict(sorted(self._of.items()))


VERSION = 4
_READS = (3, 4)  # 3 had no pages in segments
_IS_COMPRESSED = 0x80  # beside it, if the rest is compressed
_MUCH_BYTES = 64 << 10
AWAKE = 512  # keys


@dataclass(frozen=True, slots=True)
class StoredBucket:
    """What every batch reads of a bucket's state."""

    engine: bytes
    rows: bytes

    def __len__(self) -> int:
        """Its bytes."""
        return len(self.engine) + len(self.rows)


class Bucket:
    """Rules applied to one bucket, from stored state to stored state."""

    engine_for = staticmethod(engine_for)  # which engine applies them

    def __init__(self, rules: Rules, stored: StoredBucket | None, blobs: Blobs | None = None) -> None:
        """`blobs` is where the rest of the state lies; without it the bucket lives for one life only."""
        self._rules = rules
        state = None if stored is None else read_state(stored.engine)
        schema = None if state is None else state["schema"]
        self._rows = Rows(None if schema is None else pa.ipc.read_schema(pa.py_buffer(schema)))
        self._watermarks = Watermarks(state and state["watermarks"])
        self._store = BlobStore({} if blobs is None else blobs, 0 if state is None else state["free"])
        self._pages = Pages(self._store, () if state is None else state["pages"])
        self._engine = self.engine_for(rules, self._rows, self._store, self._find)
        self.held_keys = [] if state is None else [HeldKey(*each) for each in state.get("held_keys", ())]
        if state is not None and stored is not None:
            self._engine.load(state["engine"])
            if state["awake"]:
                self._wake(states.from_blobs(state["awake"], stored.rows))
        self._before = self._engine.counters()
        self._stored_bytes = len(stored or b"")
        self.grown = 0  # by how many bytes `store` made the state larger, all of it

    def step(self, tables: Sequence[pa.Table], watermark_us: int, clocks: Sequence[pa.Table] = ()) -> pa.Table:
        """The results of one batch, with the change of the counters beside them.

        Events are judged against `watermark_us`, or the watermark that clock frames made before if that is later. Then
        `clocks` move it, and what is due by then comes out too.
        """
        watermark = max(watermark_us, self._watermarks.lowest())
        if self._pages:  # wake the keys that have events, and those whose state gets smaller by `watermark`
            self._find(self._engine.wanted(tables))
            for awoken in self._pages.take_due(watermark):
                self._wake(awoken)
        results = frames.with_counters(self._engine.step(tables, watermark), self._counted())
        results = self._move(results, clocks) if clocks else results
        newest = newest_us(tables, self._rules.time)
        return results if newest is None else frames.noted(results, newest=newest)

    def store(self) -> StoredBucket:
        """The state after `step`; what goes to rest, goes to the blob store."""
        frame = self._engine.frame()
        # all stay awake, or none: they are on a page then
        all_awake = self._engine.at_rest()
        count = len(all_awake.states)
        self.held_keys = fullest(self.held_keys, all_awake.states, self._rules) if count else self.held_keys
        if count > AWAKE:
            self._pages.add(all_awake.states, all_awake.hashes, most_by(all_awake.wake_by))
        self._pages.tidy()
        awake, rows = states.to_blobs(all_awake.states) if 0 < count <= AWAKE else (b"", b"")
        schema = self._rows.schema()
        state = {
            "schema": None if schema is None else schema.serialize().to_pybytes(),
            "engine": frame,
            "awake": awake,
            "pages": self._pages.dump(),
            "free": self._store.free,
            "watermarks": self._watermarks.dump(),
            "held_keys": self.held_keys,
        }
        stored = StoredBucket(_written(msgpack.packb(state)), rows)
        self.grown = self._store.grown + len(stored) - self._stored_bytes
        return stored

    def close(self) -> None:
        """End of use: what the engine holds is free at once."""
        self._engine.close()

    @property
    def has_partitions(self) -> bool:
        """True if clock frames move the watermark, not Spark."""
        return bool(self._watermarks)

    @property
    def watermark_us(self) -> int:
        """The latest one that it was told."""
        return self._engine.watermark

    def next_due_us(self) -> int | None:
        return self._engine.next_due()

    def _move(self, results: pa.Table, clocks: Sequence[pa.Table]) -> pa.Table:
        """`results`, and behind them what is due once the clock frames have moved the watermark."""
        self._watermarks.take(clocks)
        due = self._engine.step((), self._watermarks.lowest())
        both = pa.concat_tables([results, due], promote_options="default") if due.num_rows else results
        counted = frames.sum_counters([frames.counters_of(results), self._counted()])
        slowest = self._watermarks.slowest()
        return frames.noted(frames.with_counters(both, counted), watermark=self._engine.watermark, watermarks=slowest)

    def _find(self, wanted: Search) -> None:
        for awoken in self._pages.take(wanted):
            self._wake(awoken)

    def _wake(self, awoken: States) -> None:
        self._engine.wake(awoken)
        self.held_keys = without(self.held_keys, awoken.keys)

    def _counted(self) -> dict[str, int]:
        before, self._before = self._before, self._engine.counters()
        return {name: value - before[name] for name, value in self._before.items()}


def newest_us(tables: Sequence[pa.Table], time: str) -> int | None:
    """The largest time in microseconds; None if there is no row."""
    largest = [pc.max(table.column(time).cast(frames.TIMESTAMP).cast(pa.int64())).as_py() for table in tables]
    return max((us for us in largest if us is not None), default=None)


def read_state(blob: bytes) -> Any:
    """What `Bucket.store` packed as `engine`; StateMismatch if another version of waterclock did."""
    is_compressed, version = blob[0] & _IS_COMPRESSED, blob[0] & ~_IS_COMPRESSED
    if version not in _READS:
        raise StateMismatch(
            f"the stored state has version {version}, this waterclock reads {', '.join(map(str, _READS))}: "
            "use the version that wrote it, or start with a new checkpoint and sink"
        )
    state = memoryview(blob)[1:]
    return msgpack.unpackb(expanded(state) if is_compressed else state, strict_map_key=False)


def _written(state: bytes) -> bytes:
    """`state` as `read_state` takes it. Spark copies it several times a batch, and writes it twice."""
    return (
        bytes([VERSION]) + state if len(state) < _MUCH_BYTES else bytes([VERSION | _IS_COMPRESSED]) + compressed(state)
    )
