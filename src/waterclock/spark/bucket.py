"""One bucket of keys on Spark: the engine over Arrow rows, its state as bytes. No Spark in this file.

State is bytes with a version byte, in two blobs: the engine's (msgpack; what rests in it are chunks, carried over unread)
and the rows of events that are held for their order (Arrow). The second version keeps the watermarks of a topic's
partitions beside the engine; the first is read, and written where there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgpack
import pyarrow as pa

from waterclock.errors import StateMismatch
from waterclock.rules.deadlines import Deadline
from waterclock.rules.engine import CLOSED, NO_WATERMARK, Engine
from waterclock.rules.events import Found
from waterclock.rules.model import Rules
from waterclock.rules.results import result_id
from waterclock.spark import chunks, frames
from waterclock.spark.rows import Rows, events_of
from waterclock.spark.watermarks import Watermarks

VERSIONS = (1, 2)


@dataclass(frozen=True, slots=True)
class Stored:
    """A bucket's state between batches."""

    engine: bytes
    rows: bytes


class Bucket:
    """Rules applied to one bucket, from stored state to stored state."""

    def __init__(self, rules: Rules, stored: Stored | None) -> None:
        self._rules = rules
        self._rows = Rows(rules)
        self._schema: pa.Schema | None = None
        self._engine = Engine(rules, self._unpack)
        self._watermarks = Watermarks()
        if stored is not None:
            self._load(stored)
        self._before = self._engine.counters.to_dict()

    def step(self, tables: Sequence[pa.Table], watermark_us: int, clocks: Sequence[pa.Table] = ()) -> pa.Table:
        """The results of one batch, with the change of the counters beside them.

        Events are judged against `watermark_us`, or the watermark that clock frames made before where that is later. Then
        `clocks` move it, and what is due by then comes out too.
        """
        events = chain.from_iterable([events_of(self._rules, t, self._rows.add(t)) for t in tables])
        found = self._engine.step(events, max(watermark_us, self._watermarks.lowest()))
        results = frames.with_counters(self._results(found), self._counted())
        return self._move(results, clocks) if clocks else results

    def store(self) -> Stored:
        """The state after `step`."""
        held: list[int] = []

        def keep(row: int) -> int:
            held.append(row)
            return len(held) - 1

        engine = self._engine.dump(keep, self._pack)
        schema = self._schema or self._rows.schema()
        state = [None if schema is None else schema.serialize().to_pybytes(), engine]
        rows = frames.to_bytes(self._rows.take(pa.array(held, pa.int64()))) if held else b""
        version, more = (2, [self._watermarks.dump()]) if self._watermarks else (1, [])
        return Stored(bytes([version]) + msgpack.packb([*state, *more]), rows)

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

    def _load(self, stored: Stored) -> None:
        schema, engine, *more = _read_state(stored.engine)
        self._watermarks = Watermarks(*more)
        self._schema = None if schema is None else pa.ipc.read_schema(pa.py_buffer(schema))
        self._engine.load(engine)
        if stored.rows:
            self._rows.add(frames.from_bytes(stored.rows))

    def _pack(self, slots: list[list[Deadline]]) -> list[bytes]:
        return chunks.pack(slots, self._rows)

    def _unpack(self, chunk: bytes) -> list[Deadline]:
        return chunks.unpack(chunk, self._schema, self._rules, self._rows)

    def _counted(self) -> dict[str, int]:
        before, self._before = self._before, self._engine.counters.to_dict()
        return {name: value - before[name] for name, value in self._before.items()}

    def _results(self, found: list[Found]) -> pa.Table:
        if not found:
            return pa.table({})
        kinds, keys, rules, dues, sources, refs = zip(*found, strict=True)
        at = self._engine.watermark
        known = NO_WATERMARK < at < CLOSED
        columns = {
            "kind": pa.array(kinds, pa.string()),
            "key": pa.array(keys),
            "rule": pa.array(rules, pa.string()),
            "due": pa.array(dues, pa.int64()).cast(frames.TIMESTAMP),
            "emitted_at": pa.repeat(pa.scalar(at if known else None, pa.int64()), len(found)).cast(frames.TIMESTAMP),
            "source_id": pa.array(sources, pa.string()),
            "result_id": pa.array(map(result_id, kinds, keys, rules, sources), pa.string()),
        }
        events = self._rows.structs(pa.array(refs, pa.int64()))
        return pa.table(columns if events is None else {**columns, "event": events})


def _read_state(blob: bytes) -> Any:
    if blob[0] not in VERSIONS:
        raise StateMismatch(
            f"the stored state has version {blob[0]}, this waterclock reads {' and '.join(map(str, VERSIONS))}: "
            "use the version that wrote it, or start with a new checkpoint and sink"
        )
    return msgpack.unpackb(memoryview(blob)[1:], strict_map_key=False)
