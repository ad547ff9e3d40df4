"""What rests, as bytes: the states of keys, segments of a page of them, chunks of deadlines.

    state      of one key, as msgpack; a page holds many, and so does what the keys that are awake are stored as
    segment    [whether keys are numbers, the states as one Arrow batch, the rows that they hold as another]: some states of
               a large page, a blob of their own. A batch reads those in which its keys lie
    chunk      what one step adds to one slot of the wheel of deadlines. Most of what rests is deliveries. Their due time,
               key and id stand in their rows, so a chunk keeps those as one Arrow batch and packs and unpacks it by
               columns; the other deadlines lie beside it with their places, to keep the order

The chunks of a slot that are large together go to the blob store as one blob; in their place stands its number. Those of
the lowest level do so when they have rested through a step: much of what it takes is due in the next one.

Rule 1: a state counts the rows that it holds from 0, so that it can move from page to page as it is.
Rule 2: a segment says nothing of the columns of its rows: their schema stands once for a page, behind its index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from typing import Any
from zlib import crc32

import msgpack
import numpy as np
import pyarrow as pa

from waterclock.rules.deadlines import Deadline
from waterclock.rules.engine import DELIVER, Engine
from waterclock.rules.events import Key
from waterclock.rules.model import Rules
from waterclock.streaming import frames
from waterclock.streaming.state.blobs import BlobStore, damaged, whole
from waterclock.streaming.state.rows import Rows, ids, times


@dataclass(frozen=True, slots=True)
class States:
    """States of some keys, all columns of one length; the rows that they hold lie one after the other in `rows`."""

    keys: pa.Array
    packed: pa.Array  # binary: msgpack
    held: np.ndarray  # int32: how many of the rows are each one's
    rows: pa.RecordBatch | None  # None if nobody holds any

    def __len__(self) -> int:
        return len(self.held)

    def take(self, places: np.ndarray) -> States:
        """Those at `places`, in that order."""
        return chosen([self], places)


@dataclass(slots=True)
class _RowNumbers:
    """The numbers of the rows that states hold; `keep` counts those of one state from 0."""

    numbers: list[int] = field(default_factory=list)
    first: int = 0

    def keep(self, row: int) -> int:
        self.numbers.append(row)
        return len(self.numbers) - 1 - self.first

    def turn(self) -> int:
        """How many the state held that ends here."""
        count, self.first = len(self.numbers) - self.first, len(self.numbers)
        return count


def states_of(engine: Engine, keys: Sequence[Key], rows: Rows) -> States:
    """The states of `keys`, and those of `rows` that they hold."""
    holding, packed, held, pack = _RowNumbers(), [], [], msgpack.Packer().pack
    for key in keys:
        packed.append(pack(engine.state_of(key, holding.keep)))
        held.append(holding.turn())
    taken = rows.take(pa.array(holding.numbers, pa.int64())) if holding.numbers else None
    return States(pa.array(keys), pa.array(packed, pa.binary()), np.array(held, np.int32), taken)


def wake(engine: Engine, states: States, rows: Rows) -> None:
    """Give the engine back the states of keys; the rows that they hold join `rows`."""
    first = 0 if states.rows is None else rows.add(pa.Table.from_batches([states.rows]))
    columns = states.keys.to_pylist(), states.packed.to_pylist(), states.held.tolist()
    for key, packed, held in zip(*columns, strict=True):
        engine.wake(key, msgpack.unpackb(packed, use_list=False), first.__add__)
        first += held


def joined(parts: Sequence[States]) -> States:
    """All states of the parts, one part after the other."""
    return chosen(parts, np.arange(sum(map(len, parts))))


def chosen(parts: Sequence[States], places: np.ndarray) -> States:
    """Those states at `places` among all of the parts, in that order; nothing else of them is copied."""
    at, all_held = pa.array(places, pa.int64()), np.concatenate([part.held for part in parts])
    keys, packed = _taken([part.keys for part in parts], at), _taken([part.packed for part in parts], at)
    starts, held = np.cumsum(all_held) - all_held, all_held[places]
    before = np.cumsum(held) - held  # of each one, the rows of those that are taken before it
    rows = np.repeat(starts[places] - before, held) + np.arange(held.sum())
    return States(keys, packed, held, _rows([part.rows for part in parts if part.rows is not None], rows))


def keys_at(parts: Sequence[States], places: np.ndarray) -> pa.Array:
    """The keys of those at `places` among all of the parts."""
    return _taken([part.keys for part in parts], pa.array(places, pa.int64()))


def _taken(arrays: Sequence[pa.Array], at: pa.Array) -> pa.Array:
    return arrays[0].take(at) if len(arrays) == 1 else pa.chunked_array(arrays).take(at).combine_chunks()


def _rows(batches: Sequence[pa.RecordBatch], numbers: np.ndarray) -> pa.RecordBatch | None:
    if not len(numbers):
        return None
    at = pa.array(numbers)
    if len(batches) == 1:
        return batches[0].take(at)
    taken: pa.RecordBatch = pa.Table.from_batches(batches).take(at).combine_chunks().to_batches()[0]
    return taken


def to_blobs(states: States) -> tuple[bytes, bytes]:
    """The states, and the rows that they hold, empty if there are none."""
    columns = [states.keys, states.packed, pa.array(states.held)]
    table = pa.RecordBatch.from_arrays(columns, ["keys", "packed", "held"])
    return frames.to_bytes(table), b"" if states.rows is None else frames.to_bytes(states.rows)


def from_blobs(columns: bytes, rows: bytes) -> States:
    keys, packed, held = _one(columns).columns
    return States(keys, packed, held.to_numpy(), _one(rows) if rows else None)


def _one(blob: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(blob) as reader:
        return whole(reader.read_next_batch())


def hashes(keys: Collection[Key]) -> np.ndarray:
    """32 bits of each key, the same in every process, unlike Python's own hash."""
    return np.fromiter((crc32(str(key).encode()) for key in keys), np.uint32, len(keys))


_KEYS = {False: pa.string(), True: pa.int64()}  # by whether they are numbers
_STATES = {
    is_number: pa.schema([("keys", kind), ("packed", pa.binary()), ("held", pa.int32())])
    for is_number, kind in _KEYS.items()
}


def to_segments(states: States, size: int) -> Iterator[bytes]:
    """The states as segments of `size`, the last one of what is left."""
    ends = np.cumsum(states.held)
    is_number = pa.types.is_integer(states.keys.type)
    columns = [states.keys.cast(_KEYS[is_number]), states.packed, pa.array(states.held, pa.int32())]
    batch = pa.RecordBatch.from_arrays(columns, schema=_STATES[is_number])
    for first in range(0, len(states), size):
        last = min(first + size, len(states)) - 1
        before = int(ends[first - 1]) if first else 0
        rows = b"" if states.rows is None else _bytes(states.rows.slice(before, int(ends[last]) - before))
        yield msgpack.packb((is_number, _bytes(batch.slice(first, size)), rows))


def from_segment(segment: bytes, schema: pa.Schema | None, count: int) -> States:
    """The `count` states of a segment; `schema` is that of their rows. StateMismatch if it is damaged."""
    is_number, states, rows = _parts(segment)
    keys, packed, held = _batch(states, _STATES[bool(is_number)]).columns
    found = States(keys, packed, held.to_numpy(), _batch(rows, schema) if rows else None)
    if len(found) != count:
        raise damaged(f"a segment of {len(found)} states where {count} should be")
    return found


@lru_cache(maxsize=64)
def schema_of(schema: bytes) -> pa.Schema | None:
    """The schema of rows that stands behind an index; None if there are no rows, StateMismatch if it is damaged."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(schema)) if schema else None
    except (pa.ArrowException, OSError) as error:
        raise damaged(error) from None


def _parts(segment: bytes) -> tuple[Any, bytes, bytes]:
    try:
        is_number, states, rows = msgpack.unpackb(segment)
    except (ValueError, TypeError) as error:  # msgpack's are ValueErrors
        raise damaged(error) from None
    return is_number, states, rows


def _batch(message: bytes, schema: pa.Schema | None) -> pa.RecordBatch:
    if schema is None:
        raise damaged("rows without a schema")
    try:
        return whole(pa.ipc.read_record_batch(pa.py_buffer(message), schema))
    except (pa.ArrowException, OSError) as error:
        raise damaged(error) from None


LARGE = 8192  # bytes; less than this stays with what every batch reads

Chunk = bytes | int  # packed deadlines, or the number of a blob with such


def pack_deadlines(slots: list[list[Deadline]], rows: Rows) -> list[bytes]:
    """A chunk for each list of deadlines; their rows are taken in one go."""
    others = [[(place, d) for place, d in enumerate(slot) if d[1] != DELIVER] for slot in slots]
    numbers = [[d[4] for d in slot if d[1] == DELIVER] for slot in slots]
    ends = np.cumsum([len(part) for part in numbers]).tolist()
    taken = rows.take(pa.array([n for part in numbers for n in part], pa.int64())) if ends and ends[-1] else None
    return [
        msgpack.packb((other, b"" if taken is None else _bytes(taken.slice(end - len(part), len(part)))))
        for other, part, end in zip(others, numbers, ends, strict=True)
    ]


def unpack_deadlines(chunk: bytes, rules: Rules, rows: Rows) -> list[Deadline]:
    """The deadlines of a chunk in the order in which they were made; the rows of its deliveries join `rows`."""
    others, packed = msgpack.unpackb(chunk, use_list=False, strict_map_key=False)
    deadlines: list[Deadline] = []
    if packed:
        batch = whole(pa.ipc.read_record_batch(pa.py_buffer(packed), rows.schema()))
        first = rows.add(pa.Table.from_batches([batch]))
        assert rules.deliver_column is not None
        columns = (
            times(batch, rules.deliver_column),
            repeat(DELIVER),
            batch.column(rules.key).to_pylist(),
            ids(batch, rules),
            range(first, first + batch.num_rows),
        )
        deadlines = list(zip(*columns, strict=False))  # type: ignore[arg-type]
    # each of the others at its place among all; in one pass, for there may be as many as deliveries
    merged: list[Deadline] = []
    first = 0
    for before, (place, deadline) in enumerate(others):
        merged += deadlines[first : place - before]
        first = place - before
        merged.append(deadline)
    return merged + deadlines[first:]


def stored_apart(rested: list[Chunk], store: BlobStore) -> list[Chunk]:
    """The chunks of a slot, where those that lie open are large together: in the blob store."""
    lying = [chunk for chunk in rested if isinstance(chunk, bytes)]
    if sum(map(len, lying)) < LARGE:
        return rested
    return [*(chunk for chunk in rested if isinstance(chunk, int)), store.put(msgpack.packb(lying))]


def from_store(number: int, store: BlobStore) -> list[bytes]:
    """The chunks of a blob, which is taken from the blob store."""
    return msgpack.unpackb(store.pop(number))  # type: ignore[no-any-return]


def opened(chunk: Chunk, store: BlobStore) -> list[bytes]:
    """The packed deadlines of a chunk, wherever they lie."""
    return [chunk] if isinstance(chunk, bytes) else from_store(chunk, store)


def _bytes(batch: pa.RecordBatch) -> bytes:
    return batch.serialize().to_pybytes() if batch.num_rows else b""
