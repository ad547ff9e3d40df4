"""Mirrored tables in Delta Lake: the table shop.item of the source is the folder shop/item beside the sink's own tables.

Rule 1: a column's type is what its values need: boolean, long, string, binary; numbers with a point and JSON are strings
        with all their digits. What a column's values are stands in its metadata, and grows with them. A column without
        that word was made beforehand: it keeps its type, and values are cast to it.
Rule 2: what a batch does is planned from what stands before it, and done table by table, the positions last. So a batch
        that was killed between two tables is planned again from the same positions, and comes to the same.
        The positions have an id of their own, which the mark of a mirrored table bears: with new ones all begins anew.
Rule 3: a column that a change does not bring is read before, and written again with the rest of its row.
Rule 4: a commit carries the query's id and the batch's number as application transaction, and is left out if its table
        has that number. A merge that changes nothing is no commit, and leaves no mark: done again, it changes nothing.
Rule 5: rows of which no key is there yet are added, without a look at what is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake

from waterclock.errors import UsageError
from waterclock.sinks.delta.destination import fitting_delta_column, fitting_delta_folder
from waterclock.sinks.mirrors import (
    Form,
    ReducedRow,
    TableChanges,
    as_values,
    newer_rows,
    reduced,
    shown,
    since,
    widened,
)
from waterclock.sinks.tables import POSITION_COLUMNS, POSITION_KEY, rows_gone, rows_of_somebody_else
from waterclock.sinks.takeover import is_others, refuse_others, turned_back

POSITIONS_SCHEMA = pa.schema(zip(POSITION_COLUMNS, (pa.string(), pa.string(), pa.string(), pa.bool_()), strict=True))
PARTITIONED = ("table_name",)  # a batch reads and writes the positions of its own tables alone
_KIND = "waterclock.kind"
_TYPES: Mapping[str, pa.DataType] = {
    "b": pa.bool_(), "i": pa.int64(), "n": pa.string(), "t": pa.string(), "x": pa.binary(), "j": pa.string()
}  # fmt: skip
_DELTA = {"b": "boolean", "i": "long", "x": "binary"}  # any other kind is a string
_REMEDY = "rename it there, or choose the tables without it with 'tables' in [source]"
_TRUNCATE = ""  # stands in the place of a key
Known = dict[str, tuple[str, bool]]  # key -> position, and whether its row is deleted


class DeltaReplica:
    """The mirrored tables in the folder in which the sink's own, `location`, lie."""

    def __init__(self, location: str) -> None:
        self._folder, _, self._own = location.rpartition("/")

    def changes(self, query_id: str, packed: pa.Table, positions: DeltaTable) -> list[Change]:
        """What a batch of packed changes does to each table, and to the positions; UsageError if it cannot."""
        made: list[Change] = []
        noted: list[tuple[str, str, str, bool]] = []
        is_new = True
        for changed in reduced(packed):
            known = _known(positions, changed)
            planned = _Plan(changed.table, self._path(changed.table), f"{query_id} {positions.metadata().id}")
            planned.refuse_gone(positions)
            change, after = planned.change(changed, known, _some(positions, changed.table, known))
            made += [change] if change is not None else []
            noted += [(changed.table, key, *place) for key, place in after.items()]
            is_new = is_new and not known.keys() & after.keys()
        rows = pa.Table.from_arrays(
            [pa.array([row[n] for row in noted], field.type) for n, field in enumerate(POSITIONS_SCHEMA)],
            schema=POSITIONS_SCHEMA,
        ).append_column(GONE, pa.array([False] * len(noted), pa.bool_()))
        return [*made, Change(query_id, lambda: positions, lambda: positions, rows, POSITION_KEY, is_new)]

    def empty_all(self, positions: DeltaTable) -> None:
        """Take all rows out of the tables that were written to; the tables stay, with the columns that they have."""
        for table in pc.unique(positions.to_pyarrow_table(columns=["table_name"])["table_name"]).to_pylist():
            if (found := _found(self._path(table))) is not None:
                found.delete()

    def _path(self, table: str) -> str:
        for part in table.split(".", 1):
            fitting_delta_folder(part, f"the table {table!r} of the source", _REMEDY)
        database, _, own = table.partition(".")
        if database.startswith(self._own + "_"):
            raise UsageError(f"the table {table!r} of the source has the place of the sink's own: {_REMEDY}")
        return f"{self._folder}/{database}/{own}"


class _Plan:
    """One table and what a batch does to it: its form is made when the batch is committed, not before."""

    def __init__(self, name: str, path: str, mark: str) -> None:
        self._name, self._path, self._mark = name, path, mark
        self._before = _found(path)
        self._steps: list[Any] = []

    def change(self, changed: TableChanges, known: Known, some: str) -> tuple[Change | None, Known]:
        """The change, None if there is none, and the positions that it comes to; `some` is one of the table's."""
        before = known.get(_TRUNCATE, ("", True))[0]
        form = self._form([*(row.key for row in changed.rows), *known])
        rows = since(self._newer(changed, known, form, some), before)
        refuse_others(changed.table, changed.positions, some, before)
        met = [(at, row.position) for row in changed.rows if (at := known.get(row.key, ("", True))[0])]
        met += [(at, changed.truncated) for at, _ in known.values() if is_others(changed.truncated)]
        if any(at > later and len(at) != len(later) for at, later in met):
            raise turned_back(changed.table)
        gone, after = _truncated(changed, known, before)
        form = widened(self, changed.table, rows, form)
        last = {**known, **after}
        later = [row for row in rows if row.position > last.get(row.key, ("", True))[0]]
        there = {key for key, (_, deleted) in known.items() if not deleted} - gone.keys()
        gone |= {row.key: row for row in later if row.gone and row.key in there}
        staying = self._whole([row for row in later if not row.gone], form, there)
        after |= {row.key: (row.position, row.gone) for row in later}
        is_new = not any(row.key in there or row.key in gone for row in staying)
        return self._made(staying, gone, form, is_new), after

    def refuse_gone(self, positions: DeltaTable) -> None:
        """UsageError if the table is not there, and held rows."""
        if self._before is None and _of(positions, self._name).head(1, filter=~pc.field("deleted")).num_rows:
            raise rows_gone(repr(self._path))

    def _newer(self, changed: TableChanges, known: Known, form: Form | None, some: str) -> list[ReducedRow]:
        """The rows that are newer than what is known of their keys; UsageError for a table that somebody else wrote to."""
        if form is None:
            return changed.rows
        before = known.get(_TRUNCATE, ("", True))[0]
        rows = newer_rows(changed, {key: at for key, (at, _) in known.items()}, form, before)
        if not some:
            table = self._before
            assert table is not None
            if table.transaction_version(self._mark) is None and table.to_pyarrow_dataset().head(1).num_rows:
                raise rows_of_somebody_else(repr(self._path))
        return rows

    def _made(self, staying: list[ReducedRow], gone: dict[str, ReducedRow], form: Form, is_new: bool) -> Change | None:
        """The change that brings the rows that stay, and takes those that are `gone` and do not; `is_new`: no key of the
        former is in the table."""
        kept = {row.key for row in staying}
        leaving = [row for key, row in gone.items() if key not in kept]
        if not staying and not leaving:
            return None
        table = self._rows(staying, leaving, form)
        return Change(self._mark, partial(_found, self._path), self._formed, table, form.key, is_new and not leaving)

    # Its form --------------------------------------------------------------------------------------------------

    def make(self, table: str, columns: dict[str, str], key: Sequence[str]) -> None:
        """See `TableMaker`."""
        fields = [_field(name, kind, name in key) for name, kind in self._fitting(columns).items()]
        self._steps.append(lambda: DeltaTable.create(self._path, Schema(fields)))

    def add(self, table: str, column: str, kind: str) -> None:
        """See `TableMaker`."""
        self._fitting({column: kind})
        field = _field(column, kind, False)
        self._steps.append(lambda: DeltaTable(self._path).alter.add_columns([field]))

    def widen(self, table: str, column: str, kind: str) -> None:
        """See `TableMaker`: the table is written anew, in a commit of its own."""
        self._steps.append(lambda: _widen(DeltaTable(self._path), column, kind))

    def _formed(self) -> DeltaTable:
        for step in self._steps:
            step()
        self._steps = []
        return DeltaTable(self._path)

    def _form(self, keys: Sequence[str]) -> Form | None:
        """How it stands; `keys` are some of its rows', and may hold the truncate's."""
        if self._before is None:
            return None
        fields = self._before.schema().fields
        key = tuple(field.name for field in fields if KEY.decode() in field.metadata)
        if not key and (some := next(filter(None, keys), "")):  # made beforehand
            key = tuple(sorted(json.loads(some)))
        return Form({field.name: field.metadata.get(_KIND, "") for field in fields}, key)

    def _fitting(self, columns: dict[str, str]) -> dict[str, str]:
        there = [] if self._before is None else [field.name for field in self._before.schema().fields]
        seen = {name.casefold(): name for name in there}
        for name in columns:
            fitting_delta_column(name, f"the column {name!r} of {self._name} in the source", _REMEDY)
            if seen.setdefault(name.casefold(), name) != name:
                raise UsageError(
                    f"the columns {seen[name.casefold()]!r} and {name!r} of {self._name} in the source differ by case "
                    f"only, which Delta Lake does not tell apart: {_REMEDY}"
                )
        return columns

    # Its rows --------------------------------------------------------------------------------------------------

    def _whole(self, rows: list[ReducedRow], form: Form, there: set[str]) -> list[ReducedRow]:
        """The rows with the values that they keep (rule 3)."""
        partly = [r for r in rows if not r.whole and r.key in there and not form.columns.keys() <= r.values.keys()]
        old = self._old(partly, form) if partly and self._before is not None else {}
        kept = {}
        for row in partly:
            texts = tuple(shown(form.columns[name], row.values.get(name)) for name in form.key)
            kept[row.key] = old.get(texts, {})
        return [row._replace(values={**kept.get(row.key, {}), **row.values}) for row in rows]

    def _old(self, rows: list[ReducedRow], form: Form) -> dict[tuple[Any, ...], dict[str, tuple[str, str | None]]]:
        """What stands in the rows of these keys, by the texts of the key."""
        assert self._before is not None
        first = form.key[0]
        found = having(self._before, first, self._column(rows, first, form.columns[first]), None)
        texts = {name: _texts(found[name]).to_pylist() for name in found.schema.names}
        kinds = {field.name: field.metadata.get(_KIND, "t") for field in self._before.schema().fields}
        keys = zip(*(texts[name] for name in form.key), strict=True)
        return {
            key: {name: (kinds[name], texts[name][n]) for name in texts if name not in form.key}
            for n, key in enumerate(keys)
        }

    def _rows(self, staying: list[ReducedRow], leaving: list[ReducedRow], form: Form) -> pa.Table:
        rows = [*staying, *(row._replace(values=as_values(row.key)) for row in leaving)]
        columns = {name: self._column(rows, name, kind) for name, kind in form.columns.items()}
        gone = pa.array([False] * len(staying) + [True] * len(leaving), pa.bool_())
        return pa.table({**columns, GONE: gone})

    def _column(self, rows: list[ReducedRow], name: str, kind: str) -> pa.Array:
        texts = [shown(kind, row.values.get(name)) for row in rows]
        if kind:
            return pa.array([None if text is None else _value(kind, text) for text in texts], _TYPES[kind])
        assert self._before is not None  # it was made beforehand
        of = pa.schema(self._before.schema().to_arrow()).field(name).type
        if pa.types.is_binary(of) or pa.types.is_large_binary(of):
            return pa.array([None if text is None else _value("x", text) for text in texts], of)
        try:
            return pa.array(texts, pa.string()).cast(of)
        except pa.ArrowInvalid as error:
            raise UsageError(
                f"the column {name!r} of {self._name} is {of} in the target, which does not take a value of the source: "
                f"{str(error).partition(chr(10))[0]}"
            ) from error


def _found(path: str) -> DeltaTable | None:
    return DeltaTable(path) if DeltaTable.is_deltatable(path) else None


def _known(positions: DeltaTable, changed: TableChanges) -> Known:
    """What is known of the keys of a batch, and of the table's last truncate; of all its keys, if it is truncated."""
    keys = None if changed.truncated else pa.array([_TRUNCATE, *(row.key for row in changed.rows)])
    columns = [name for name in POSITION_COLUMNS if name != "table_name"]
    found = having(positions, "key", keys, columns, table_name=changed.table)
    rows = zip(*(found[name].to_pylist() for name in columns), strict=True)
    return {key: (position, deleted) for key, position, deleted in rows}


def _some(positions: DeltaTable, table: str, known: Known) -> str:
    """One of the table's positions so far; "" if there is none, so the table is not ours."""
    for position, _ in known.values():
        return position
    some = _of(positions, table).head(1, columns=["position"])
    return str(some["position"][0].as_py()) if some.num_rows else ""


def _of(positions: DeltaTable, table: str) -> Any:
    """The positions of a table."""
    return positions.to_pyarrow_dataset(file_pruning_predicate=[("table_name", "=", table)])


def _truncated(changed: TableChanges, known: Known, before: str) -> tuple[dict[str, ReducedRow], Known]:
    """The rows that a truncate takes away, and the positions that it leaves."""
    at = changed.truncated
    if at <= before:
        return {}, {}
    newer = {_TRUNCATE, *(row.key for row in changed.rows if row.position > at)}  # their changes may keep columns
    keys = [key for key, (position, deleted) in known.items() if key not in newer and not deleted and position < at]
    gone = {key: ReducedRow(key, at, True, True, as_values(key)) for key in keys}
    return gone, {_TRUNCATE: (at, True), **dict.fromkeys(keys, (at, True))}


def _field(name: str, kind: str, in_key: bool) -> Field:
    metadata = {_KIND: kind, **({KEY.decode(): "true"} if in_key else {})}
    return Field(name, _DELTA.get(kind, "string"), metadata=metadata)


def _value(kind: str, text: str) -> Any:
    """
    >>> _value("i", "4"), _value("b", "true"), _value("x", chr(92) + "x00ff"), _value("n", "1.50")
    (4, True, b'\\x00\\xff', '1.50')
    """
    if kind == "i":
        return int(text)
    if kind == "b":
        return text == "true"
    return bytes.fromhex(text[2:]) if kind == "x" else text


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as the texts that changes bring; the reverse of `_value`."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        texts = [None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    return column.cast(pa.string())


def _widen(table: DeltaTable, column: str, kind: str) -> None:
    """Write the table anew, with that column as texts: whole numbers become numbers, anything becomes JSON."""
    rows = table.to_pyarrow_table()
    place = rows.schema.names.index(column)
    field = table.schema().fields[place]
    before = field.metadata.get(_KIND, "")
    texts = [shown(kind, (before, text)) for text in _texts(rows[column]).to_pylist()]
    metadata = {**field.metadata, _KIND: kind}
    fields = [
        each if n != place else Field(column, "string", metadata=metadata)
        for n, each in enumerate(table.schema().fields)
    ]
    schema = pa.schema(Schema(fields).to_arrow())
    columns = [pa.array(texts, pa.string()) if n == place else each for n, each in enumerate(rows.columns)]
    arrays = [each.cast(of.type) for each, of in zip(columns, schema, strict=True)]
    write_deltalake(table, pa.Table.from_arrays(arrays, schema=schema), mode="overwrite", schema_mode="overwrite")


# One commit ----------------------------------------------------------------------------------------------------


GONE = "_waterclock_gone"  # beside the columns of a table: the row is to go
KEY = b"waterclock.key"  # metadata of a column


@dataclass(frozen=True, slots=True)
class Change:
    """What a batch does to a table: `rows` with GONE take the place of those with the same `key`, if not all are new.

    `table` gives the table as it is, None if it is not there; `formed` gives it with the columns that the rows need.
    `mark` is the application transaction's id, whose number is the batch's.
    """

    mark: str
    table: Callable[[], DeltaTable | None]
    formed: Callable[[], DeltaTable]
    rows: pa.Table
    key: tuple[str, ...]
    is_new: bool

    def commit(self, batch_id: int, own: Sequence[Transaction] = ()) -> None:
        """Do it, if it is not done yet; the commit carries `own` transactions of the writer too."""
        if not self.rows.num_rows or self._is_done(self.table(), batch_id):
            return
        table = self.formed()
        if self._is_done(table, batch_id):  # by another writer, meanwhile
            return
        once = CommitProperties(app_transactions=[Transaction(self.mark, batch_id), *own])
        _add(table, self.rows, once) if self.is_new else _merge(table, self.rows, self.key, once)

    def _is_done(self, table: DeltaTable | None, batch_id: int) -> bool:
        version = None if table is None else table.transaction_version(self.mark)
        return version is not None and version >= batch_id


def having(
    table: DeltaTable, column: str, values: pa.Array | None, columns: list[str] | None, **partition: str
) -> pa.Table:
    """The rows of which `column` is one of `values` (None: all), read file by file; of one `partition`, if it is named.

    Arrow's own filters do not compare the least and largest texts that Delta's log has of a file.
    """
    chosen = [(name, "=", value) for name, value in partition.items()] or None
    data = table.to_pyarrow_dataset(file_pruning_predicate=chosen)
    found = [data.schema.empty_table().select(columns or data.schema.names)]
    for batch in data.to_batches(columns=columns):
        if values is not None:
            batch = batch.filter(pc.is_in(batch.column(column).cast(values.type), value_set=values))
        found.append(pa.Table.from_batches([batch]))
    return pa.concat_tables(found, promote_options="permissive")


def _add(table: DeltaTable, rows: pa.Table, once: CommitProperties) -> None:
    staying = rows.filter(pc.invert(rows[GONE])).drop_columns([GONE])
    if staying.num_rows:
        write_deltalake(table, staying, mode="append", commit_properties=once)


def _merge(table: DeltaTable, rows: pa.Table, key: tuple[str, ...], once: CommitProperties) -> None:
    same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key)
    columns: Mapping[str, str] = {_quoted(n): f"s.{_quoted(n)}" for n in rows.schema.names if n != GONE}
    merger = table.merge(  # not streamed: what the rows' least and largest keys rule out is not read
        rows, same, source_alias="s", target_alias="t", streamed_exec=False, commit_properties=once
    )
    merger = merger.when_matched_delete(f"s.{GONE}").when_matched_update(dict(columns), f"NOT s.{GONE}")
    merger.when_not_matched_insert(dict(columns), f"NOT s.{GONE}").execute()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
