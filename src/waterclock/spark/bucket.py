"""One bucket of keys on Spark: the engine over Arrow rows, its state as bytes. No Spark in this file.

The engine moves row numbers, never rows: rows of the held events come first, the batch's rows after them, and results
take theirs out of that one table by number.

State is two blobs: the engine's (a version byte, then msgpack) and the held rows (an Arrow frame).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.compute as pc

from waterclock.errors import StateMismatch
from waterclock.rules.deadlines import Deadline
from waterclock.rules.engine import CLOSED, DELIVER, NO_WATERMARK, Engine
from waterclock.rules.events import Event, Found
from waterclock.rules.model import Rules
from waterclock.rules.results import result_id
from waterclock.spark import frames

VERSION = 1
ROW_ID = "_row_id"  # the column that a packer adds where the rules name no id


@dataclass(frozen=True, slots=True)
class Stored:
    """A bucket's state between batches."""

    engine: bytes
    rows: bytes


class Bucket:
    """Rules applied to one bucket, from stored state to stored state."""

    def __init__(self, rules: Rules, stored: Stored | None) -> None:
        self._rules = rules
        self._engine = Engine(rules, self._unpack)
        self._tables: list[pa.Table] = []  # every row that a number can mean: held ones, the batch's, due ones
        self._row_count = 0
        if stored is not None:
            self._engine.load(_read_state(stored.engine))
            if stored.rows:
                self._append(frames.from_bytes(stored.rows))
        self._before = self._engine.counters.to_dict()

    def step(self, tables: Sequence[pa.Table], watermark_us: int) -> pa.Table:
        """The results of one batch, with the change of the counters beside them."""
        events = chain.from_iterable([_events(self._rules, table, self._append(table)) for table in tables])
        found = self._engine.step(events, watermark_us)
        return frames.with_counters(self._results(found), self._counted())

    def store(self) -> Stored:
        """The state after `step`."""
        live = _Kept()
        engine = msgpack.packb(self._engine.dump(live.keep, self._pack))
        return Stored(bytes([VERSION]) + engine, self._rows_as_bytes(live.rows))

    def next_due_us(self) -> int | None:
        return self._engine.next_due()

    def _append(self, rows: pa.Table) -> int:
        """Add rows; the number of the first of them."""
        self._tables.append(rows)
        self._row_count += rows.num_rows
        return self._row_count - rows.num_rows

    def _rows(self) -> pa.Table | None:
        if len(self._tables) > 1:
            self._tables = [pa.concat_tables(self._tables).combine_chunks()]
        return self._tables[0] if self._tables else None

    def _rows_as_bytes(self, numbers: list[int]) -> bytes:
        rows = self._rows()
        return frames.to_bytes(rows.take(pa.array(numbers)).combine_chunks()) if rows is not None and numbers else b""

    def _pack(self, deadlines: list[Deadline]) -> bytes:
        """A chunk that rests: its deadlines, and the rows of those that deliver one."""
        live = _Kept()
        stored = [(*d[:4], live.keep(d[4])) if d[1] == DELIVER else d for d in deadlines]
        return msgpack.packb((stored, self._rows_as_bytes(live.rows)))  # type: ignore[no-any-return]

    def _unpack(self, chunk: bytes) -> list[Deadline]:
        stored, rows = msgpack.unpackb(chunk, use_list=False, strict_map_key=False)
        first = self._append(frames.from_bytes(rows)) if rows else 0
        return [(*d[:4], d[4] + first) if d[1] == DELIVER else d for d in stored]

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
        rows = self._rows()
        if rows is not None:
            columns["event"] = _structs(rows, pa.array(refs, pa.int64()))
        return pa.table(columns)


class _Kept:
    """Row numbers that are still needed, renumbered from 0 in the order of asking."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def keep(self, row: int) -> int:
        self.rows.append(row)
        return len(self.rows) - 1


def _structs(rows: pa.Table, numbers: pa.Array) -> pa.Array:
    """The rows with these numbers as structs; null where the number is null."""
    names = [name for name in rows.column_names if name != ROW_ID]
    taken = rows.select(names).take(numbers).combine_chunks()
    columns = [taken.column(name).combine_chunks() for name in names]
    return pa.StructArray.from_arrays(columns, fields=[rows.schema.field(n) for n in names], mask=pc.is_null(numbers))


def _events(rules: Rules, rows: pa.Table, first: int) -> Iterator[tuple[Any, Event]]:
    """The rows as the engine's events, numbered from `first`."""
    nothing = [None] * rows.num_rows
    numbers = range(first, first + rows.num_rows)
    columns = (
        _times(rows, rules.time),
        _texts(rows, rules.id or ROW_ID),
        rows.column(rules.sequence).to_pylist() if rules.sequence and rules.ordering else nothing,
        _texts(rows, rules.type) if rules.type else nothing,
        _times(rows, rules.deliver_column) if rules.deliver_column else nothing,
        numbers,
    )
    return zip(rows.column(rules.key).to_pylist(), map(Event, *columns), strict=True)


def _times(rows: pa.Table, name: str) -> list[int | None]:
    return rows.column(name).cast(frames.TIMESTAMP).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _texts(rows: pa.Table, name: str) -> list[str]:
    return rows.column(name).cast(pa.string()).to_pylist()  # type: ignore[no-any-return]


def _read_state(blob: bytes) -> Any:
    if blob[0] != VERSION:
        raise StateMismatch(
            f"the stored state has version {blob[0]}, this waterclock reads {VERSION}: "
            "use the version that wrote it, or start with a new checkpoint and sink"
        )
    return msgpack.unpackb(memoryview(blob)[1:], strict_map_key=False)
