"""A Parquet file into rows, a batch at a time. No Spark in this file.

Rule 1: nothing is guessed: a column of another kind than the declared one is one dead letter for the file. Of the same
        kind are integers of any width, floats of up to 64 bits, texts, times of any unit or zone (none is UTC), dates.
Rule 2: a value that does not fit (too large, finer than a microsecond, not UTF-8) costs its row, not the file.
Rule 3: a column that the rules name must be there; any other declared one is null where the file has none, as in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waterclock.streaming.frames import TIMESTAMP
from waterclock.streaming.layout import (
    Block,
    Layout,
    Letter,
    all_good,
    check_row,
    dead_file,
    dead_letters,
    in_calendar,
    with_row_id,
)

_ROWS_AT_ONCE = 65_536


def parquet_blocks(file: Any, path: str, layout: Layout) -> Iterator[Block]:
    """The blocks of one opened file; ArrowException where it is no Parquet."""
    parquet = pq.ParquetFile(file)
    wrong = _unfit_file(parquet.schema_arrow, layout)
    if wrong:
        yield dead_file(path, layout, wrong)
        return
    present = [name for name in layout.columns if name in parquet.schema_arrow.names]
    first = 1
    for batch in parquet.iter_batches(batch_size=_ROWS_AT_ONCE, columns=present):
        yield _block(batch, layout, path, first)
        first += batch.num_rows


def _unfit_file(found: pa.Schema, layout: Layout) -> str | None:
    """Why no row of the file can be read; None where there is no reason."""
    for name in layout.columns:
        if found.names.count(name) > 1:
            return f"the file has the column {name!r} {found.names.count(name)} times"
        if name not in found.names and name in layout.rules.columns():
            return f"the file has no column {name!r}, which the rules name; it has {', '.join(found.names)}"
    for field in layout.schema():
        if field.name in found.names and not _same_kind(found.field(field.name).type, field.type):
            return f"the column {field.name!r} is {found.field(field.name).type} in the file, not {field.type}: cast it"
    return None


def _same_kind(found: pa.DataType, declared: pa.DataType) -> bool:
    if pa.types.is_dictionary(found):
        return _same_kind(found.value_type, declared)
    return pa.types.is_null(found) or any(of_kind(found) for of_kind in _KINDS[declared])


_KINDS: dict[pa.DataType, tuple[Callable[[pa.DataType], bool], ...]] = {
    pa.string(): (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    pa.int64(): (pa.types.is_integer,),
    pa.float64(): (pa.types.is_floating,),
    pa.bool_(): (pa.types.is_boolean,),
    TIMESTAMP: (pa.types.is_timestamp, pa.types.is_date),
}


# Values --------------------------------------------------------------------------------------------------------


def _block(batch: pa.RecordBatch, layout: Layout, path: str, first: int) -> Block:
    columns: list[pa.Array] = []
    unfit: dict[str, list[bool]] = {}
    for field in layout.schema():
        column = _plain(batch, field)
        fitting = _cast(column, field.type)
        if fitting is None:
            unfit[field.name] = _unfit(column, field.type)
            kept = pc.if_else(pa.array(unfit[field.name]), pa.scalar(None, column.type), column)
            fitting = _cast(kept, field.type)
        columns.append(fitting)
    rows = pa.Table.from_arrays(columns, schema=layout.schema())
    if not unfit and all_good(rows, layout.rules):
        return Block(with_row_id(rows, layout.rules), dead_letters([]))
    return _judged(rows, unfit, layout, path, first)


def _plain(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(field.name)
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    # Arrow multiplies days to microseconds without looking whether they fit, seconds it looks at.
    return column.cast(pa.timestamp("s")) if pa.types.is_date(column.type) else column


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The column in the declared kind, or None where a value does not fit."""
    try:
        made = column.cast(kind)
        made.validate(full=True)
    except pa.ArrowException:
        return None
    return made if kind != TIMESTAMP or in_calendar(made.cast(pa.int64())) else None


def _unfit(column: pa.Array, kind: pa.DataType) -> list[bool]:
    """True for each value that does not fit, found by halving: most files have none, others have few."""
    if _cast(column, kind) is not None:
        return [False] * len(column)
    if len(column) == 1:
        return [True]
    half = len(column) // 2
    return _unfit(column[:half], kind) + _unfit(column[half:], kind)


def _judged(rows: pa.Table, unfit: dict[str, list[bool]], layout: Layout, path: str, first: int) -> Block:
    good: list[int] = []
    dead: list[Letter] = []
    for number, row in enumerate(rows.to_pylist()):
        try:
            for name in (name for name, bad in unfit.items() if bad[number]):
                raise ValueError(f"column {name!r}: needs {_NEEDS[rows.schema.field(name).type]}")
            check_row(row, layout.rules)
            good.append(number)
        except ValueError as error:
            dead.append((path, first + number, str(error), str(row)))
    return Block(with_row_id(rows.take(pa.array(good, pa.int64())), layout.rules), dead_letters(dead))


_NEEDS: dict[pa.DataType, str] = {
    pa.string(): "a text in UTF-8",
    pa.int64(): "an integer of 64 bits",
    pa.float64(): "a number that a double can hold",
    pa.bool_(): "true or false",
    TIMESTAMP: "a time in the years 1 to 9999, no finer than a microsecond",
}
