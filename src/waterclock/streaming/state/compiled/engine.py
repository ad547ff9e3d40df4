"""Who drives the compiled engine: columns in and out, what rests, and the order of a step.

Rule 1: rows have the numbers that `Rows` gives them, in here and in the compiled engine.
Rule 2: what the compiled engine finds damaged is a StateMismatch that names it and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import waterclock.streaming.state.compiled._engine as compiled
from waterclock.errors import StateMismatch
from waterclock.rules.deadlines import LEVEL_BITS, Slots
from waterclock.rules.engine import NO_WATERMARK
from waterclock.rules.events import KINDS, Counters, result_id
from waterclock.rules.model import Rules
from waterclock.streaming import frames
from waterclock.streaming.state import states
from waterclock.streaming.state.blobs import BlobStore, whole
from waterclock.streaming.state.compiled.lists import carried, kind_of, lists
from waterclock.streaming.state.compiled.numbered import NONE, names_of, numbered
from waterclock.streaming.state.pages import Search
from waterclock.streaming.state.plain import AtRest, emitted_at
from waterclock.streaming.state.rows import Rows, conditions, id_column
from waterclock.streaming.state.states import States

_TWO_PARTS = b"\x92"  # of MessagePack: a list of two


class CompiledSearch:
    """Keys that are looked for on pages; they come as texts, numbers as their digits."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._count = sum(map(len, columns))
        self._wanted = compiled.Wanted()
        for column in columns:
            self._wanted.add(compiled.TextColumn(column))

    def __len__(self) -> int:
        return self._count

    def places(self, index: np.ndarray) -> np.ndarray:
        return np.frombuffer(self._wanted.places(index), np.int64)

    def among(self, keys: pa.Array) -> np.ndarray:
        return np.frombuffer(self._wanted.among(compiled.TextColumn(_texts(keys))), bool)


class CompiledEngine:
    """The rules on one bucket, compiled; the verbs of plain.py's `ColumnEngine`."""

    def __init__(self, rules: Rules, rows: Rows, store: BlobStore, find: Callable[[Search], None]) -> None:
        """`find` wakes those of the keys looked for that rest."""
        self._rules = rules
        self._rows = rows
        self._store = store
        self._find = find
        self._names = names_of(rules)
        self._engine = compiled.Engine(numbered(rules), self._names, KINDS)
        self._engine.load(NO_WATERMARK, Counters().to_dict())
        self._levels = [Slots(bits) for bits in LEVEL_BITS]
        self._has_numbers = False
        self._has_lists = bool(rules.questions().carried or rules.questions().ties)
        self._look_at(rows.schema())

    @property
    def watermark(self) -> int:
        return self._engine.watermark

    def load(self, frame: Any) -> None:
        with _as_mismatch():
            self._engine.load(frame["watermark"], {**Counters().to_dict(), **frame["counters"]})
            for level, slots in zip(self._levels, frame["deadlines"], strict=True):
                level.packed = {slot: list(packed) for slot, packed in slots}

    def wanted(self, tables: Sequence[pa.Table]) -> Search:
        return CompiledSearch([_texts(table.column(self._rules.key)) for table in tables])

    def wake(self, awoken: States) -> None:
        first = len(self._rows) if awoken.rows is None else self._rows.add(pa.Table.from_batches([awoken.rows]))
        self._engine.room(len(self._rows))
        with _as_mismatch():
            keys, packed = compiled.TextColumn(_texts(awoken.keys)), compiled.TextColumn(awoken.packed)
            self._engine.wake(keys, packed, pa.array(awoken.held), first, len(self._rows) - first)

    def step(self, tables: Sequence[pa.Table], watermark: int) -> pa.Table:
        with _as_mismatch():
            self._advance(watermark)
        for table in tables:
            self._take(table)
        self._engine.fire()
        return self._results()

    def frame(self) -> Any:
        *far, near = self._levels
        near.rest(self._rested)  # before it has what is fresh: much of that is due at the next step
        for level, slot, chunk in self._fresh():
            self._levels[level].packed.setdefault(slot, []).append(chunk)
        for each in far:
            each.rest(self._rested)
        return {
            "watermark": self._engine.watermark,
            "counters": self.counters(),
            "deadlines": [level.dump() for level in self._levels],
        }

    def at_rest(self) -> AtRest:
        count, keys, packed, held, rows, hashes, gone_by = self._engine.states()
        numbers = np.frombuffer(rows, np.int64)
        texts = _column(pa.string(), count, keys)
        taken = self._rows.take(pa.array(numbers)) if len(numbers) else None
        states = States(
            texts.cast(pa.int64()) if self._has_numbers else texts,
            _column(pa.binary(), count, packed),
            np.frombuffer(held, np.int32),
            taken,
        )
        return AtRest(states, np.frombuffer(hashes, np.uint32), self._wake_by(gone_by))

    def counters(self) -> dict[str, int]:
        return self._engine.counters

    def next_due(self) -> int | None:
        for number in reversed(range(len(self._levels))):
            packed = min(self._levels[number].packed, default=None)
            fresh = self._engine.first_fresh(number)
            if packed is not None and (fresh is None or packed <= fresh[0]):
                return max(packed << LEVEL_BITS[number], self._engine.watermark + 1)
            if fresh is not None:
                return fresh[1]
        return None

    def close(self) -> None:
        self.__dict__.clear()

    # a step --------------------------------------------------------------------------------------------------

    def _advance(self, watermark: int) -> None:
        """Move the watermark; what it passed fires, its keys woken before."""
        if not self._engine.move(watermark):
            self._engine.fire()
            return
        for number, level in enumerate(self._levels):
            last = self._engine.watermark >> LEVEL_BITS[number]
            opened = {slot: level.packed.pop(slot) for slot in level.up_to(last)}
            for slot, packed in self._read(opened, self._engine.fresh_up_to(number, last)):
                self._engine.open(number, slot)
                for chunk in packed:
                    self._engine.pass_chunk(*chunk)
                self._engine.pass_fresh()
        ends, keys = self._engine.due_keys()
        if count := len(ends) // 4 - 1:  # not by their bytes: a key may be an empty text
            self._find(CompiledSearch([_column(pa.string(), count, (ends, keys))]))
        self._engine.fire()

    def _take(self, table: pa.Table) -> None:
        rules, first = self._rules, self._rows.add(table)
        self._look_at(table.schema)
        self._engine.room(len(self._rows))
        sequence = rules.sequence if rules.ordering else None
        questions = rules.questions()
        self._engine.take(
            compiled.TextColumn(_texts(table.column(rules.key))),
            compiled.TextColumn(_texts(id_column(table, rules))),
            compiled.TextColumn(_texts(table.column(rules.type))) if rules.type else None,
            _times(table, rules.time),
            _whole(table.column(sequence)) if sequence else None,
            _times(table, rules.deliver_column) if rules.deliver_column else None,
            self._holds(table) if questions.conditions else None,
            self._promised(table) if questions.dues else None,
            lists(table, questions.carried) if self._has_lists else None,
            lists(table, questions.ties, each_in_a_list=True) if self._has_lists else None,
            first,
        )

    def _holds(self, table: pa.Table) -> pa.Array:
        """A bit for each condition, of each row, in as many words as it takes."""
        count = len(self._rules.questions().conditions)
        answers = np.zeros((table.num_rows, -(-count // 64) * 64), bool)
        answers[:, :count] = np.array(list(conditions(self._rules, table)), bool).reshape(-1, count)
        return pa.array(np.packbits(answers, bitorder="little").view("<u8"))

    def _promised(self, table: pa.Table) -> pa.Array:
        columns = [_times(table, name).to_numpy() for name in self._rules.questions().dues]
        return pa.array(np.stack(columns, axis=1).reshape(-1))

    def _look_at(self, schema: pa.Schema | None) -> None:
        """Keys are texts until a schema says that they are numbers."""
        if schema is not None and not self._has_numbers and pa.types.is_integer(schema.field(self._rules.key).type):
            self._has_numbers = True
            self._engine.numbered(True)

    # what rests ----------------------------------------------------------------------------------------------

    def _rested(self, packed: list[Any]) -> list[Any]:
        return states.stored_apart(packed, self._store)

    def _read(self, opened: dict[int, list[Any]], fresh: list[int]) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
        """(slot, its chunks for `pass_chunk`) of slots in order; the rows of all deliveries are read in one go."""
        of_slot = {
            slot: [c for each in packed for c in states.opened(each, self._store)] for slot, packed in opened.items()
        }
        places = {slot: [(chunk, *self._engine.rows_in(chunk)) for chunk in of_slot[slot]] for slot in of_slot}
        batches = [self._batch(*place) for slot in places for place in places[slot]]
        first, start, number = self._delivered([batch for batch in batches if batch is not None]), 0, 0
        for slot in sorted({*opened, *fresh}):
            passing = []
            for chunk, _, _ in places.get(slot, ()):
                batch, number = batches[number], number + 1
                count = 0 if batch is None else batch.num_rows
                passing.append((chunk, start, count, first + start))
                start += count
            yield slot, passing

    def _batch(self, chunk: bytes, start: int, size: int) -> pa.RecordBatch | None:
        rows = pa.py_buffer(chunk[start : start + size])  # bytes of their own: numbers lie where numbers may lie
        return whole(pa.ipc.read_record_batch(rows, self._rows.schema())) if size else None

    def _delivered(self, batches: list[pa.RecordBatch]) -> int:
        """Take the rows of deliveries; the number of the first of them."""
        if not batches:
            return 0
        table = pa.Table.from_batches(batches)
        first = self._rows.add(table)
        self._engine.room(len(self._rows))
        self._engine.deliveries(
            compiled.TextColumn(_texts(table.column(self._rules.key))),
            compiled.TextColumn(_texts(id_column(table, self._rules))),
            _times(table, self._rules.deliver_column or self._rules.time),
        )
        return first

    def _fresh(self) -> Iterator[tuple[int, int, bytes]]:
        """What is fresh as states, with level and slot."""
        slots, numbers = self._engine.fresh()
        rows = np.frombuffer(numbers, np.int64)
        taken = self._rows.take(pa.array(rows)) if len(rows) else None
        start = 0
        for level, slot, count, others in slots:
            held = b"" if taken is None or not count else taken.slice(start, count).serialize().to_pybytes()
            yield level, slot, _TWO_PARTS + others + msgpack.packb(held)
            start += count

    def _wake_by(self, gone_by: bytes) -> list[int | None]:
        if self._rules.within_us is None:
            return []
        return [None if us == NONE else us for us in np.frombuffer(gone_by, np.int64).tolist()]

    # results -------------------------------------------------------------------------------------------------

    def _results(self) -> pa.Table:
        count, kind, rule, due, row, key, source, ids, others, carries = self._engine.results(
            "".join(kind_of(f.type) for f in self._carried()).encode()
        )
        if not count:
            return pa.table({})
        kinds, rules = np.frombuffer(kind, np.int8), np.frombuffer(rule, np.int32)
        keys, sources = _column(pa.string(), count, key), _column(pa.string(), count, source)
        refs = np.frombuffer(row, np.int64)
        columns = {
            "kind": _named(kinds, KINDS),
            "key": keys.cast(pa.int64()) if self._has_numbers else keys,
            "rule": _named(rules, self._names),
            "due": pa.array(np.frombuffer(due, np.int64)).cast(frames.TIMESTAMP),
            "emitted_at": emitted_at(self._engine.watermark, count),
            "source_id": sources,
        }
        made = {
            place: result_id(
                KINDS[kinds[place]], keys[place].as_py(), self._names[rules[place]], sources[place].as_py()
            )
            for place in others
        }
        columns["result_id"] = _ids(count, ids, made)
        if carries is not None:
            self._rows.need_one_table()
        filling = None if carries is None else carried(carries, self._carried())
        events = self._rows.structs(pa.array(refs, mask=refs < 0), filling)
        return pa.table(columns if events is None else {**columns, "event": events})

    def _carried(self) -> list[pa.Field]:
        """The columns that results carry."""
        schema = self._rows.schema()
        return [] if schema is None else [schema.field(name) for name in self._rules.questions().carried]


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _texts(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as texts: what the compiled engine takes keys, ids and types for."""
    one = _one(column)
    return one if pa.types.is_string(one.type) else one.cast(pa.string())


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column of whole numbers, NONE if it is null."""
    one = _one(column).cast(pa.int64())
    return pc.fill_null(one, NONE) if one.null_count else one


def _times(table: pa.Table, name: str) -> pa.Array:
    return _whole(table.column(name).cast(frames.TIMESTAMP))


def _column(kind: pa.DataType, count: int, texts: tuple[bytes, bytes]) -> pa.Array:
    """A column of texts or bytes from where each ends, and all of them."""
    ends, all_of_them = texts
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(ends), pa.py_buffer(all_of_them)])


def _named(numbers: np.ndarray, names: Sequence[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(names, pa.string())).cast(pa.string())


def _ids(count: int, digits: bytes, made: dict[int, str]) -> pa.Array:
    """32 digits each; those of `made` in their places."""
    if made:
        changed = bytearray(digits)
        for place, text in made.items():
            changed[32 * place : 32 * place + 32] = text.encode()
        digits = bytes(changed)
    ends = np.arange(0, 32 * count + 1, 32, dtype=np.int32).tobytes()
    return _column(pa.string(), count, (ends, digits))


@contextmanager
def _as_mismatch() -> Iterator[None]:
    """ValueErrors of the compiled engine as what they mean."""
    try:
        yield
    except ValueError as error:
        raise StateMismatch(
            f"the stored state is damaged ({error}): restore the checkpoint and the sink from a copy of both, or start "
            "with a new checkpoint and sink"
        ) from None
