"""Columns that the compiled engine takes and gives as lists of plain values (lists.h), each of a kind that is a letter.

w   whole numbers, and times as microseconds, dates as days
r   real numbers
o   true or false
t   texts, and decimals as their digits
b   bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import waterclock.streaming.state.compiled._engine as compiled
from waterclock.streaming.state.rows import CarriedColumn, plain

_ARROW = {"w": pa.int64(), "r": pa.float64(), "o": pa.int64(), "t": pa.string(), "b": pa.binary()}


def kind_of(column: pa.DataType) -> str:
    """The letter of a column of this type."""
    if pa.types.is_boolean(column):
        return "o"
    if pa.types.is_floating(column):
        return "r"
    if pa.types.is_binary(column) or pa.types.is_large_binary(column):
        return "b"
    is_text = pa.types.is_string(column) or pa.types.is_large_string(column) or pa.types.is_decimal(column)
    return "t" if is_text else "w"


def lists(table: pa.Table, names: Sequence[str], *, each_in_a_list: bool = False) -> compiled.Lists:
    """A list for each row with the values of the columns `names`."""
    return compiled.Lists([_values(table.column(name)) for name in names], table.num_rows, each_in_a_list)


def carried(columns: Sequence[tuple[bytes, bytes, Any]], fields: Sequence[pa.Field]) -> dict[str, CarriedColumn]:
    """What the compiled engine found that results carry, as columns of the types of `fields`."""
    return {f.name: _carried(column, f.type) for column, f in zip(columns, fields, strict=True)}


def _values(column: pa.ChunkedArray) -> tuple[str, Any, Any]:
    kind = kind_of(column.type)
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    if pa.types.is_decimal(column.type):
        column = pa.chunked_array([pa.array(plain(column), pa.string())])
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    one = column.cast(_ARROW[kind]).combine_chunks()
    if kind in "tb":
        return kind, compiled.TextColumn(one), None
    if not one.null_count:
        return kind, one, None
    return kind, pc.fill_null(one, 0), one.is_valid().cast(pa.uint8())


def _carried(column: tuple[bytes, bytes, Any], kind: pa.DataType) -> CarriedColumn:
    has, valid, values = column
    empty = np.frombuffer(valid, np.uint8) == 0
    letter = kind_of(kind)
    if letter in "tb":
        ends, all_of_them = values
        bits = pa.py_buffer(np.packbits(~empty, bitorder="little"))
        buffers = [bits, pa.py_buffer(ends), pa.py_buffer(all_of_them)]
        found = pa.Array.from_buffers(_ARROW[letter], len(empty), buffers)
    else:
        found = pa.array(np.frombuffer(values, np.float64 if letter == "r" else np.int64), mask=empty)
    return CarriedColumn(pa.array(np.frombuffer(has, bool)), _as(found, kind))


def _as(found: pa.Array, kind: pa.DataType) -> pa.Array:
    """Plain values in the type of their column."""
    if pa.types.is_date32(kind):
        return found.cast(pa.int32()).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array([None if text is None else Decimal(text) for text in found.to_pylist()], kind)
    return found.cast(kind)
