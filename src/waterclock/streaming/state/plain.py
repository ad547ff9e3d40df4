"""The engine of `waterclock.rules` over columns: what runs if nothing is compiled, and the measure for what is.

An engine over columns takes tables and gives a table, keeps what of its state is awake, and wakes what rests:

    wanted(tables)       the keys of a step's events, which are woken before it
    wake(states)         states that rested
    step(tables, W)      one step of the rules: their results as a table
    frame(), load(frame) what is not of one key, in plain values
    at_rest()            the states of all keys that it has, and what pages need of them

Rule 1: whichever engine wrote a state, each of them reads it, and goes on with the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from waterclock.rules.deadlines import Deadline
from waterclock.rules.engine import CLOSED, Engine
from waterclock.rules.events import Key, Outcome, result_id
from waterclock.rules.model import Rules
from waterclock.rules.watching import Carried
from waterclock.streaming import frames
from waterclock.streaming.layout import EARLIEST_US
from waterclock.streaming.state import states
from waterclock.streaming.state.blobs import BlobStore
from waterclock.streaming.state.pages import KeySet, Search
from waterclock.streaming.state.rows import Rows, events_of
from waterclock.streaming.state.rows import carried as columns_of
from waterclock.streaming.state.states import States


@dataclass(frozen=True, slots=True)
class AtRest:
    """The states of keys, their hashes, and the watermarks at which each gets smaller by itself, None if it does not."""

    states: States
    hashes: np.ndarray
    wake_by: Sequence[int | None]


class ColumnEngine(Protocol):
    """The rules on one bucket of keys, over columns; see above."""

    @property
    def watermark(self) -> int: ...
    def wanted(self, tables: Sequence[pa.Table]) -> Search: ...
    def wake(self, awoken: States) -> None: ...
    def step(self, tables: Sequence[pa.Table], watermark: int) -> pa.Table: ...
    def frame(self) -> Any: ...
    def load(self, frame: Any) -> None: ...
    def at_rest(self) -> AtRest: ...
    def counters(self) -> dict[str, int]: ...
    def next_due(self) -> int | None: ...
    def close(self) -> None: ...


class PlainEngine:
    """`waterclock.rules.engine.Engine`, event by event."""

    def __init__(self, rules: Rules, rows: Rows, store: BlobStore, find: Callable[[Search], None]) -> None:
        """`find` wakes those of the keys looked for that rest."""
        self._rules = rules
        self._rows = rows
        self._store = store
        self._find = find
        self._carries = rules.carries()
        self.engine = Engine(rules, self._unpack, self._wake)

    @property
    def watermark(self) -> int:
        return self.engine.watermark

    def wanted(self, tables: Sequence[pa.Table]) -> Search:
        return KeySet(key for table in tables for key in pc.unique(table.column(self._rules.key)).to_pylist())

    def wake(self, awoken: States) -> None:
        states.wake(self.engine, awoken, self._rows)

    def step(self, tables: Sequence[pa.Table], watermark: int) -> pa.Table:
        events = chain.from_iterable([events_of(self._rules, t, self._rows.add(t)) for t in tables])
        return self._results(self.engine.step(events, watermark))

    def frame(self) -> Any:
        return self.engine.frame(self._pack, lambda rested: states.stored_apart(rested, self._store))

    def load(self, frame: Any) -> None:
        self.engine.load(frame)

    def at_rest(self) -> AtRest:
        keys = self.engine.keys()
        resting = states.states_of(self.engine, keys, self._rows)
        return AtRest(resting, states.hashes(keys), [*map(self.engine.wake_by, keys)])

    def wait_for(self, deadlines: Iterable[Deadline]) -> None:
        """Deadlines of keys that it has, as `states.unpack_deadlines` gives them."""
        for due, kind, key, a, b in deadlines:
            self.engine.when_due(kind, key, due, a, b)

    def counters(self) -> dict[str, int]:
        return self.engine.counters.to_dict()

    def next_due(self) -> int | None:
        return self.engine.next_due()

    def close(self) -> None:
        """The engine and its parts hold each other: taken apart, their memory is free at once."""
        self.engine.close()

    def _wake(self, keys: Iterable[Key]) -> None:
        self._find(KeySet(keys))

    def _pack(self, slots: list[list[Deadline]]) -> list[bytes]:
        return states.pack_deadlines(slots, self._rows)

    def _unpack(self, chunk: bytes | int) -> list[Deadline]:
        packed = states.opened(chunk, self._store)
        return [deadline for each in packed for deadline in states.unpack_deadlines(each, self._rules, self._rows)]

    def _results(self, found: list[Outcome]) -> pa.Table:
        if not found:
            return pa.table({})
        kinds, keys, rules, dues, sources, refs, carried = zip(*found, strict=True)
        columns = {
            "kind": pa.array(kinds, pa.string()),
            "key": pa.array(keys),
            "rule": pa.array(rules, pa.string()),
            "due": pa.array(dues, pa.int64()).cast(frames.TIMESTAMP),
            "emitted_at": emitted_at(self.engine.watermark, len(found)),
            "source_id": pa.array(sources, pa.string()),
            "result_id": pa.array(map(result_id, kinds, keys, rules, sources), pa.string()),
        }
        events = self._events(pa.array(refs, pa.int64()), rules, carried)
        return pa.table(columns if events is None else {**columns, "event": events})

    def _events(self, refs: pa.Array, rules: Sequence[str], carried: Sequence[Carried]) -> pa.Array | None:
        """The events of results, or the columns that they carry of one."""
        if not any(carried):
            return self._rows.structs(refs)
        schema, named = self._rows.need_one_table(), zip(map(self._carries.get, rules), carried, strict=True)
        each = [dict(zip(n, c, strict=True)) if n and c else None for n, c in named]
        return self._rows.structs(refs, columns_of(schema, each))


def emitted_at(watermark: int, count: int) -> pa.Array:
    """The watermark as a column of results; null if no calendar holds it."""
    known = EARLIEST_US <= watermark < CLOSED
    return pa.repeat(pa.scalar(watermark if known else None, pa.int64()), count).cast(frames.TIMESTAMP)
