"""Values that results carry of the event that opened them: from a column to plain ones, which state can hold, and back.

Rule 1: a value comes back as it was, in its column's own type; other types are refused before anything runs (transform.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def plain(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as numbers, texts, bytes and nulls."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_decimal(kind):
        return [None if value is None else str(value) for value in column.to_pylist()]
    return column.to_pylist()  # type: ignore[no-any-return]


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """What `plain` took from a column of this kind."""
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else Decimal(value) for value in values], kind)
    return pa.array(values, kind)


def filled(taken: pa.RecordBatch, carried: Sequence[Mapping[str, Any] | None]) -> pa.RecordBatch:
    """`taken` with the values that some of its rows carry in the place of nulls."""
    names = {name for values in carried if values for name in values}
    columns = [
        _filled(taken.column(f.name), f, carried) if f.name in names else taken.column(f.name) for f in taken.schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=taken.schema)


def _filled(column: pa.Array, field: pa.Field, carried: Sequence[Mapping[str, Any] | None]) -> pa.Array:
    has = [values is not None and field.name in values for values in carried]
    made = [values[field.name] if values is not None and field.name in values else None for values in carried]
    return pc.if_else(pa.array(has), array(made, field.type), column)
