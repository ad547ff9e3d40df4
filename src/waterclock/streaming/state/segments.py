"""A page's states as segments, each a blob of its own: of a page among many, a batch reads those in which its keys lie.

    segment    [whether keys are numbers, the states as one Arrow batch, the rows that they hold as another]

Rule 1: a segment says nothing of the columns of its rows: their schema stands once for a page, behind its index.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from waterclock.streaming.state.blobs import damaged, whole
from waterclock.streaming.state.states import States

_KEYS = {False: pa.string(), True: pa.int64()}  # by whether they are numbers
_STATES = {
    is_number: pa.schema([("keys", kind), ("packed", pa.binary()), ("held", pa.int32())])
    for is_number, kind in _KEYS.items()
}


def packed(states: States, size: int) -> Iterator[bytes]:
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


def unpacked(segment: bytes, schema: pa.Schema | None, count: int) -> States:
    """The `count` states of a segment; `schema` is that of their rows. StateMismatch where it is damaged."""
    is_number, states, rows = _parts(segment)
    keys, packed, held = _batch(states, _STATES[bool(is_number)]).columns
    found = States(keys, packed, held.to_numpy(), _batch(rows, schema) if rows else None)
    if len(found) != count:
        raise damaged(f"a segment of {len(found)} states where {count} should be")
    return found


@lru_cache(maxsize=64)
def schema_of(schema: bytes) -> pa.Schema | None:
    """The schema of rows that stands behind an index; None where there are no rows, StateMismatch where it is damaged."""
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


def _bytes(batch: pa.RecordBatch) -> bytes:
    return batch.serialize().to_pybytes() if batch.num_rows else b""
