"""Deadlines that rest, as bytes: a chunk is what one step adds to one slot of the wheel of deadlines.

Most of what rests is deliveries. Their due time, key and id stand in their rows, so a chunk keeps those as one Arrow
batch and packs and unpacks it by columns; the other deadlines lie beside it with their places, to keep the order.

The chunks of a slot that are large together go to the blob store as one blob; in their place stands its number. Those of
the lowest level do so when they have rested through a step: much of what it takes is due in the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

import msgpack
import numpy as np
import pyarrow as pa

from waterclock.rules.deadlines import Deadline
from waterclock.rules.engine import DELIVER
from waterclock.rules.model import Rules
from waterclock.streaming.state.blobs import BlobStore, whole
from waterclock.streaming.state.rows import Rows, ids, times

LARGE = 8192  # bytes; less than this stays with what every batch reads

Chunk = bytes | int  # packed deadlines, or the number of a blob with such


def pack(slots: list[list[Deadline]], rows: Rows) -> list[bytes]:
    """A chunk for each list of deadlines; their rows are taken in one go."""
    others = [[(place, d) for place, d in enumerate(slot) if d[1] != DELIVER] for slot in slots]
    numbers = [[d[4] for d in slot if d[1] == DELIVER] for slot in slots]
    ends = np.cumsum([len(part) for part in numbers]).tolist()
    taken = rows.take(pa.array([n for part in numbers for n in part], pa.int64())) if ends and ends[-1] else None
    return [
        msgpack.packb((other, b"" if taken is None else _bytes(taken.slice(end - len(part), len(part)))))
        for other, part, end in zip(others, numbers, ends, strict=True)
    ]


def unpack(chunk: bytes, rules: Rules, rows: Rows) -> list[Deadline]:
    """The deadlines of a chunk in the order in which they were made; the rows of its deliveries join `rows`."""
    others, packed = msgpack.unpackb(chunk, use_list=False, strict_map_key=False)
    deadlines: list[Deadline] = []
    if packed:
        batch = whole(pa.ipc.read_record_batch(pa.py_buffer(packed), rows.schema()))
        first = rows.add(pa.Table.from_batches([batch]))
        deadlines = _deliveries(batch, rules, first)
    return list(_merged(others, deadlines))


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


def _merged(others: Iterable[tuple[int, Deadline]], deliveries: list[Deadline]) -> Iterator[Deadline]:
    """Each of `others` at its place among all; in one pass, for there may be as many as deliveries."""
    first = 0
    for before, (place, deadline) in enumerate(others):
        yield from deliveries[first : place - before]
        first = place - before
        yield deadline
    yield from deliveries[first:]


def _deliveries(batch: pa.RecordBatch, rules: Rules, first: int) -> list[Deadline]:
    assert rules.deliver_column is not None
    columns = (
        times(batch, rules.deliver_column),
        repeat(DELIVER),
        batch.column(rules.key).to_pylist(),
        ids(batch, rules),
        range(first, first + batch.num_rows),
    )
    return list(zip(*columns, strict=False))  # type: ignore[arg-type]


def _bytes(batch: pa.RecordBatch) -> bytes:
    return batch.serialize().to_pybytes() if batch.num_rows else b""
