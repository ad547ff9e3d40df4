"""One bucket of keys on Spark: the engine over Arrow rows, its state as bytes. No Spark in this file.

    every batch reads and writes     the version byte; what is not of one key; the states of keys that are awake, and rows
                                     that they hold for their order; the lists of what lies in the blob store
    in the blob store, till it is needed  pages of keys that rest, chunks of deadlines that rest

So a batch costs what it touches, a hash for each key that rests, and the small chunks: those stay with what every batch
reads, for a call to the state store costs more. Beyond AWAKE keys all go to rest, on a page; a key is woken by its next
event or deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.compute as pc

from waterclock.errors import StateMismatch
from waterclock.rules.deadlines import Deadline
from waterclock.rules.engine import CLOSED, Engine
from waterclock.rules.events import Outcome
from waterclock.rules.model import Rules
from waterclock.rules.results import Key, result_id
from waterclock.rules.watching import Carried
from waterclock.spark import frames
from waterclock.spark.layout import EARLIEST_US
from waterclock.spark.state import chunks, states
from waterclock.spark.state.blobs import Blobs, BlobStore
from waterclock.spark.state.pages import Pages, most_by
from waterclock.spark.state.rows import Rows, events_of
from waterclock.spark.state.states import States
from waterclock.spark.state.watermarks import Watermarks

VERSION = 3
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

    def __init__(self, rules: Rules, stored: StoredBucket | None, blobs: Blobs | None = None) -> None:
        """`blobs` is where the rest of the state lies; without it the bucket lives for one life only."""
        self._rules = rules
        self._carries = rules.carries()
        self._rows = Rows(rules)
        self._schema: pa.Schema | None = None
        self._engine = Engine(rules, self._unpack, self._wake)
        self._watermarks = Watermarks()
        self._store = BlobStore({} if blobs is None else blobs)
        self._pages = Pages(self._store, ())
        if stored is not None:
            self._load(stored)
        self._before = self._engine.counters.to_dict()
        self._stored_bytes = len(stored or b"")
        self.grown = 0  # by how many bytes `store` made the state larger, all of it

    def step(self, tables: Sequence[pa.Table], watermark_us: int, clocks: Sequence[pa.Table] = ()) -> pa.Table:
        """The results of one batch, with the change of the counters beside them.

        Events are judged against `watermark_us`, or the watermark that clock frames made before where that is later. Then
        `clocks` move it, and what is due by then comes out too.
        """
        watermark = max(watermark_us, self._watermarks.lowest())
        self._wake_for(tables, watermark)
        events = chain.from_iterable([events_of(self._rules, t, self._rows.add(t)) for t in tables])
        found = self._engine.step(events, watermark)
        results = frames.with_counters(self._results(found), self._counted())
        results = self._move(results, clocks) if clocks else results
        newest = newest_us(tables, self._rules.time)
        return results if newest is None else frames.with_newest(results, newest)

    def store(self) -> StoredBucket:
        """The state after `step`; what goes to rest, goes to the blob store."""
        frame = self._engine.frame(self._pack, lambda rested: chunks.stored_apart(rested, self._store))
        awake, rows = self._put_to_rest()
        schema = self._schema or self._rows.schema()
        state = {
            "schema": None if schema is None else schema.serialize().to_pybytes(),
            "engine": frame,
            "awake": awake,
            "pages": self._pages.dump(),
            "free": self._store.free,
            "watermarks": self._watermarks.dump(),
        }
        stored = StoredBucket(bytes([VERSION]) + msgpack.packb(state), rows)
        self.grown = self._store.grown + len(stored) - self._stored_bytes
        return stored

    def close(self) -> None:
        """End of use. The engine and its parts hold each other: taken apart, their memory is free at once."""
        self._engine.close()

    @property
    def has_partitions(self) -> bool:
        """True where clock frames move the watermark, not Spark."""
        return bool(self._watermarks)

    def next_due_us(self) -> int | None:
        return self._engine.next_due()

    def _move(self, results: pa.Table, clocks: Sequence[pa.Table]) -> pa.Table:
        """`results`, and behind them what is due once the clock frames have moved the watermark."""
        self._watermarks.take(clocks)
        due = self._results(self._engine.step((), self._watermarks.lowest()))
        both = pa.concat_tables([results, due], promote_options="default") if due.num_rows else results
        counted = frames.sum_counters([frames.counters_of(results), self._counted()])
        return frames.with_watermark(frames.with_counters(both, counted), self._engine.watermark)

    def _load(self, stored: StoredBucket) -> None:
        state = read_state(stored.engine)
        schema = state["schema"]
        self._schema = None if schema is None else pa.ipc.read_schema(pa.py_buffer(schema))
        self._watermarks = Watermarks(state["watermarks"])
        self._store.free = state["free"]
        self._pages = Pages(self._store, state["pages"])
        self._engine.load(state["engine"])
        if state["awake"]:
            self._join(states.from_blobs(state["awake"], stored.rows))

    def _wake_for(self, tables: Sequence[pa.Table], watermark: int) -> None:
        """Wake the keys that have events, and those whose state gets smaller by `watermark`."""
        self._wake(key for table in tables for key in pc.unique(table.column(self._rules.key)).to_pylist())
        for awoken in self._pages.take_due(watermark):
            self._join(awoken)

    def _wake(self, keys: Iterable[Key]) -> None:
        for awoken in self._pages.take(keys):
            self._join(awoken)

    def _join(self, awoken: States) -> None:
        states.wake(self._engine, awoken, self._rows)

    def _put_to_rest(self) -> tuple[bytes, bytes]:
        """The states that stay awake as blobs: all, or none where they are on a page now."""
        keys = self._engine.keys()
        all_awake = states.states_of(self._engine, keys, self._rows)
        if len(keys) > AWAKE:
            self._pages.add(all_awake, most_by(map(self._engine.wake_by, keys)))
        self._pages.tidy()
        return states.to_blobs(all_awake) if 0 < len(keys) <= AWAKE else (b"", b"")

    def _pack(self, slots: list[list[Deadline]]) -> list[bytes]:
        return chunks.pack(slots, self._rows)

    def _unpack(self, chunk: bytes | int) -> list[Deadline]:
        packed = [chunk] if isinstance(chunk, bytes) else chunks.from_store(chunk, self._store)
        return [deadline for each in packed for deadline in chunks.unpack(each, self._schema, self._rules, self._rows)]

    def _counted(self) -> dict[str, int]:
        before, self._before = self._before, self._engine.counters.to_dict()
        return {name: value - before[name] for name, value in self._before.items()}

    def _results(self, found: list[Outcome]) -> pa.Table:
        if not found:
            return pa.table({})
        kinds, keys, rules, dues, sources, refs, carried = zip(*found, strict=True)
        at = self._engine.watermark
        known = EARLIEST_US <= at < CLOSED  # before, no calendar holds it
        columns = {
            "kind": pa.array(kinds, pa.string()),
            "key": pa.array(keys),
            "rule": pa.array(rules, pa.string()),
            "due": pa.array(dues, pa.int64()).cast(frames.TIMESTAMP),
            "emitted_at": pa.repeat(pa.scalar(at if known else None, pa.int64()), len(found)).cast(frames.TIMESTAMP),
            "source_id": pa.array(sources, pa.string()),
            "result_id": pa.array(map(result_id, kinds, keys, rules, sources), pa.string()),
        }
        events = self._events(pa.array(refs, pa.int64()), rules, carried)
        return pa.table(columns if events is None else {**columns, "event": events})

    def _events(self, refs: pa.Array, rules: Sequence[str], carried: Sequence[Carried]) -> pa.Array | None:
        """The events of results, or the columns that they carry of one."""
        if not any(carried):
            return self._rows.structs(refs)
        if self._rows.schema() is None:
            assert self._schema is not None  # what carries was opened by an earlier batch
            self._rows.add(self._schema.empty_table())
        named = zip(map(self._carries.get, rules), carried, strict=True)
        return self._rows.structs(refs, [dict(zip(n, c, strict=True)) if n and c else None for n, c in named])


def newest_us(tables: Sequence[pa.Table], time: str) -> int | None:
    """The largest time in microseconds; None where there is no row."""
    largest = [pc.max(table.column(time).cast(frames.TIMESTAMP).cast(pa.int64())).as_py() for table in tables]
    return max((us for us in largest if us is not None), default=None)


def read_state(blob: bytes) -> Any:
    """What `Bucket.store` packed as `engine`; StateMismatch where another version of waterclock did."""
    if blob[0] != VERSION:
        raise StateMismatch(
            f"the stored state has version {blob[0]}, this waterclock reads {VERSION}: "
            "use the version that wrote it, or start with a new checkpoint and sink"
        )
    return msgpack.unpackb(memoryview(blob)[1:], strict_map_key=False)
