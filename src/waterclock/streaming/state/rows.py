"""The rows of one bucket, by number: what the engine moves is a row's number, never the row; and values that results carry.

Held rows come first, the batch's after them, rows of deliveries that fell due after those; a number lives for one step.
Every table has the column ROW_ID behind the user's columns, so that tables of any batch fit together.

What results carry of the event that opened them goes from a column to plain values, which state can hold, and back.

Rule 1: a carried value comes back as it was, in its column's own type; other types are refused before anything runs
        (spark/packing/transform.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.rules.events import Answers, Event, Key, tie
from waterclock.rules.model import Rules
from waterclock.rules.truth import Day, Moment
from waterclock.streaming.frames import TIMESTAMP
from waterclock.streaming.layout import ROW_ID


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
    columns = {}
    for field in schema:
        if field.name in names:
            has = [values is not None and field.name in values for values in found]
            made = [values[field.name] if values is not None and field.name in values else None for values in found]
            columns[field.name] = CarriedColumn(pa.array(has), array(made, field.type))
    return columns


def filled(taken: pa.RecordBatch, columns: Mapping[str, CarriedColumn]) -> pa.RecordBatch:
    """`taken` with the values that some of its rows carry in the place of nulls."""
    made = []
    for name, own in zip(taken.schema.names, taken.columns, strict=True):
        column = columns.get(name)
        made.append(own if column is None else pc.if_else(column.has, column.values, own))
    return pa.RecordBatch.from_arrays(made, schema=taken.schema)


def any_of(columns: Mapping[str, CarriedColumn], count: int) -> pa.Array:
    """Of so many results, which carry anything."""
    return reduce(pc.or_, [column.has for column in columns.values()], pa.repeat(pa.scalar(False), count))


_COMPARABLE = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


class Rows:
    """Rows in, rows out by number."""

    def __init__(self, stored: pa.Schema | None = None) -> None:
        """`stored` is the schema of the rows of earlier batches, where there were any."""
        self._stored = stored
        self._tables: list[pa.Table] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: pa.Table) -> int:
        """Take rows; the number of the first of them."""
        first = self._count
        if ROW_ID not in rows.column_names:
            rows = rows.append_column(ROW_ID, pa.nulls(rows.num_rows, pa.string()))
        self._tables.append(rows)
        self._count += rows.num_rows
        return first

    def schema(self) -> pa.Schema | None:
        return self._tables[0].schema if self._tables and self._stored is None else self._stored

    def need_one_table(self) -> pa.Schema:
        """What an event carried needs columns to stand in, also if no row is there."""
        if not self._tables:
            assert self._stored is not None  # what carries was opened by an earlier batch
            self.add(self._stored.empty_table())
        return self._tables[0].schema

    def take(self, numbers: pa.Array) -> pa.RecordBatch:
        """The rows with these numbers, in that order; a null gives a row of nulls."""
        if len(self._tables) > 1:
            self._tables = [pa.concat_tables(self._tables)]
        batches = self._tables[0].take(numbers).combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], self._tables[0].schema)

    def structs(self, numbers: pa.Array, carried: Mapping[str, CarriedColumn] | None = None) -> pa.Array | None:
        """The user's columns of these rows as structs, null if the number is null; None if there are no rows.

        Where something is `carried` there is a struct too: that in its columns, and null in the others.
        """
        if not self._tables:
            return None
        taken, empty = self.take(numbers), pc.is_null(numbers)
        if carried:
            taken = filled(taken, carried)
            empty = pc.and_not(empty, any_of(carried, len(numbers)))
        fields = [field for field in taken.schema if field.name != ROW_ID]
        columns = [taken.column(field.name) for field in fields]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=empty)


def events_of(rules: Rules, rows: pa.Table, first: int) -> Iterator[tuple[Key, Event]]:
    """(key, event) of each row, numbered from `first`."""
    nothing = [None] * rows.num_rows
    columns = (
        times(rows, rules.time),
        ids(rows, rules),
        rows.column(rules.sequence).to_pylist() if rules.sequence and rules.ordering else nothing,
        rows.column(rules.type).cast(pa.string()).to_pylist() if rules.type else nothing,
        times(rows, rules.deliver_column) if rules.deliver_column else nothing,
        range(first, first + rows.num_rows),
        _answers(rules, rows) if rules.questions() else nothing,
    )
    return zip(rows.column(rules.key).to_pylist(), map(Event, *columns), strict=True)


def _answers(rules: Rules, rows: pa.Table) -> list[Answers]:
    """What each row answers to the rules' questions."""
    questions, nothing = rules.questions(), [()] * rows.num_rows
    dues = zip(*(times(rows, name) for name in questions.dues), strict=True) if questions.dues else nothing
    holds = conditions(rules, rows) if questions.conditions else nothing
    carried = (
        zip(*(plain(rows.column(name)) for name in questions.carried), strict=True) if questions.carried else nothing
    )
    ties = (
        zip(*(map(tie, plain(rows.column(name))) for name in questions.ties), strict=True)
        if questions.ties
        else nothing
    )
    return list(map(Answers, dues, holds, carried, ties))


def conditions(rules: Rules, rows: pa.Table) -> Iterator[tuple[bool, ...]]:
    """Which conditions of the rules hold of each row."""
    questions = rules.questions()
    names = questions.condition_columns()
    columns = [_comparable(rows.column(name)) for name in names]
    return (questions.holds(dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True))


def _comparable(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return [None if us is None else Moment(us) for us in column.cast(TIMESTAMP).cast(pa.int64()).to_pylist()]
    if pa.types.is_date32(column.type):  # Spark's calendar goes further than Python's
        return [None if day is None else Day(day) for day in column.cast(pa.int32()).to_pylist()]
    if any(is_such(column.type) for is_such in _COMPARABLE):
        return column.to_pylist()  # type: ignore[no-any-return]
    return [Ellipsis if valid else None for valid in column.is_valid().to_pylist()]  # no rule needs more of it


def times(rows: pa.Table | pa.RecordBatch, name: str) -> list[int | None]:
    """A column of times in microseconds."""
    return rows.column(name).cast(TIMESTAMP).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def ids(rows: pa.Table | pa.RecordBatch, rules: Rules) -> list[str]:
    """The id of each row: its own, else the one that was made for it."""
    return id_column(rows, rules).to_pylist()  # type: ignore[no-any-return]


def id_column(rows: pa.Table | pa.RecordBatch, rules: Rules) -> pa.Array | pa.ChunkedArray:
    """`ids` as a column of texts."""
    own = None if rules.id is None else rows.column(rules.id).cast(pa.string())
    if own is not None and not own.null_count:
        return own
    made = rows.column(ROW_ID)
    return made if own is None else pc.coalesce(own, made)
