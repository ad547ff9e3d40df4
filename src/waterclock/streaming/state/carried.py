"""Values that results carry of the event that opened them: from a column to plain ones, which state can hold, and back.

Rule 1: a value comes back as it was, in its column's own type; other types are refused before anything runs
    (spark/packing/transform.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
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


@dataclass(frozen=True, slots=True)
class CarriedColumn:
    """A column of what results carry: which of them have a value, which may be null, and the values."""

    has: pa.Array
    values: pa.Array


def carried(schema: pa.Schema, found: Sequence[Mapping[str, Any] | None]) -> dict[str, CarriedColumn]:
    """What each result carries, by name, as columns of the schema."""
    names = {name for values in found if values for name in values}
    return {field.name: _column(field, found) for field in schema if field.name in names}


def filled(taken: pa.RecordBatch, columns: Mapping[str, CarriedColumn]) -> pa.RecordBatch:
    """`taken` with the values that some of its rows carry in the place of nulls."""
    both = [_filled(taken.column(name), columns.get(name)) for name in taken.schema.names]
    return pa.RecordBatch.from_arrays(both, schema=taken.schema)


def any_of(columns: Mapping[str, CarriedColumn], count: int) -> pa.Array:
    """Of so many results, which carry anything."""
    return reduce(pc.or_, [column.has for column in columns.values()], pa.repeat(pa.scalar(False), count))


def _filled(own: pa.Array, column: CarriedColumn | None) -> pa.Array:
    return own if column is None else pc.if_else(column.has, column.values, own)


def _column(field: pa.Field, found: Sequence[Mapping[str, Any] | None]) -> CarriedColumn:
    has = [values is not None and field.name in values for values in found]
    made = [values[field.name] if values is not None and field.name in values else None for values in found]
    return CarriedColumn(pa.array(has), array(made, field.type))
