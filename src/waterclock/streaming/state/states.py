"""The states of some keys, packed: what a page holds, and what the keys that are awake are stored as.

Rule 1: a state counts the rows that it holds from 0, so that it can move from page to page as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from zlib import crc32

import msgpack
import numpy as np
import pyarrow as pa

from waterclock.rules.engine import Engine
from waterclock.rules.events import Key
from waterclock.streaming import frames
from waterclock.streaming.state.blobs import whole
from waterclock.streaming.state.rows import Rows


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
