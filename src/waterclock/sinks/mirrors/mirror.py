"""A table that mirrors one of a source: change events, of which the last one of each key counts.

What an event must carry, in columns of the pipeline's choice:

    operation   "insert", "update" or "delete"; an insert and an update are the same here
    key         the columns that tell rows of the source apart; none of them null
    position    integers that order the changes of a key, the first counting most; none of them null
    columns     the columns of the table, its key among them: a change brings the whole row

Promises, in whatever order and however often changes and batches come:

    for every key the table holds the row of the change at the largest position, and nothing where that is a delete
    the table has the source's columns and no others: positions, of deleted keys too, stand in <table>_positions

Rule 1: two changes of a key at one position are the same change. A key that changes comes as a delete and an insert.
Rule 2: a batch is reduced to the last change of each key before it is written.
Rule 3: what cannot be applied is a dead letter: an unknown operation, a key or a position that is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from waterclock.errors import UsageError
from waterclock.sinks import letters
from waterclock.sinks.results import events
from waterclock.sinks.tables import listed, quoted

OPERATIONS = ("insert", "update", "delete")
DELETED = "_deleted"
_POSITION = "_position_"
_ROW = "_row"  # in passing, while a batch is reduced


@dataclass(frozen=True, slots=True)
class Mirror:
    """How change events become a table; the names are those of the event's columns.

    `only` maps columns to texts: events that have others there are of another table, and are passed over.

    >>> Mirror(("id", "name"), key=("id",), position=("tx", "xoffset"), only={"table": "customers"}).operation
    'type'
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    position: tuple[str, ...]
    operation: str = "type"
    only: Mapping[str, str] = field(default_factory=dict)

    # What it needs and what it makes ---------------------------------------------------------------------------

    def check(self, event: pa.Schema) -> None:
        """Raise UsageError where events of schema `event` cannot be mirrored so."""
        for what, names in (("columns", self.columns), ("key", self.key), ("position", self.position)):
            if not names or len(set(names)) < len(names):
                raise UsageError(f"the mirror's {what!r} must name columns, each once, got {list(names)}")
        for name in (*self.columns, *self.position, self.operation, *self.only):
            if name not in event.names:
                raise UsageError(f"the mirror names the column {name!r}; events have {', '.join(event.names)}")
        for name in self.columns:
            if name.casefold() in (DELETED, _ROW) or name.casefold().startswith(_POSITION):
                raise UsageError(f"the mirror's column {name!r} has a name of waterclock's own: rename it")
        for name in self.key:
            if name not in self.columns:
                raise UsageError(f"the mirror's key {name!r} must be one of its columns, {', '.join(self.columns)}")
        self._check_types(event)

    def _check_types(self, event: pa.Schema) -> None:
        for name in self.key:
            if pa.types.is_floating(event.field(name).type):
                raise UsageError(f"the mirror's key {name!r} is a double, which is no key: NaN equals nothing")
        for name in self.position:
            if not pa.types.is_integer(event.field(name).type):
                raise UsageError(f"the mirror's position {name!r} must be a long or an int: texts order otherwise")
        for name in (self.operation, *self.only):
            if not pa.types.is_string(event.field(name).type):
                raise UsageError(f"the mirror looks at the text in {name!r}, which must be a string")

    def kept(self, event: pa.Schema) -> pa.Schema:
        """The columns of the table."""
        return pa.schema([event.field(name) for name in self.columns])

    def positions(self, event: pa.Schema) -> pa.Schema:
        """The columns of the table of positions."""
        return pa.schema([*(event.field(name) for name in self.key), *self._more()])

    def staged(self, event: pa.Schema) -> pa.Schema:
        """The columns of the changes of a batch, on their way into both."""
        return pa.schema([*self.kept(event), *self._more()])

    def _more(self) -> list[pa.Field]:
        return [*(pa.field(name, pa.int64()) for name in self._position_names()), pa.field(DELETED, pa.bool_())]

    def _position_names(self) -> list[str]:
        return [f"{_POSITION}{place}" for place in range(1, len(self.position) + 1)]

    # A batch ---------------------------------------------------------------------------------------------------

    def of_its_table(self, results: pa.Table) -> pa.Table:
        """The results whose events are of the mirrored table."""
        for name, text in self.only.items():
            same = pc.equal(pc.struct_field(results.column("event"), [name]), text)
            results = results.filter(pc.fill_null(same, False))
        return results

    def changes(self, results: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The last change of each key, in columns as `staged` says, and dead letters for what is none."""
        rows = events(self.of_its_table(results))
        reasons = pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])
        for wrong, reason in self._faults(rows):
            reasons = pc.if_else(wrong, pa.scalar(reason), reasons)
        good = rows.filter(pc.is_null(reasons))
        return self._last(self._staged(good)), letters.refused(rows, reasons)

    def _faults(self, rows: pa.Table) -> Iterator[tuple[pa.ChunkedArray, str]]:
        known = pc.is_in(rows.column(self.operation), value_set=pa.array(OPERATIONS))
        yield pc.invert(known), f"{self.operation!r} must be one of {', '.join(OPERATIONS)}"
        for name in self.position:
            yield pc.is_null(rows.column(name)), f"{name!r}, a part of the change's position, is missing"
        for name in self.key:
            yield pc.is_null(rows.column(name)), f"{name!r}, a part of the row's key, is missing"

    def _staged(self, rows: pa.Table) -> pa.Table:
        columns = [rows.column(name) for name in self.columns]
        columns += [rows.column(name).cast(pa.int64()) for name in self.position]
        columns.append(pc.equal(rows.column(self.operation), "delete"))
        return pa.Table.from_arrays(columns, schema=self.staged(rows.schema))

    def _last(self, changes: pa.Table) -> pa.Table:
        """Of each key the change at the largest position; in the order of keys, in which an index is gone through once."""
        order = pc.sort_indices(changes, sort_keys=[(name, "ascending") for name in self._position_names()])
        ordered = changes.take(order)
        places = [f"c{place}" for place in range(len(self.key))]  # Arrow reads a key's name as a path: .order is order
        keys = ordered.select(list(self.key)).rename_columns(places)
        numbered = keys.append_column(_ROW, pa.array(np.arange(ordered.num_rows)))
        last = numbered.group_by(places).aggregate([(_ROW, "max")]).column(f"{_ROW}_max")
        rows, keys = ordered.take(last), keys.take(last)
        return rows.take(pc.sort_indices(keys, sort_keys=[(place, "ascending") for place in places]))

    # Into the tables -------------------------------------------------------------------------------------------

    def statements(self, table: str, positions: str, changes: str) -> list[str]:
        """How the rows of `changes` get into the tables, in SQL; all three names are quoted already.

        1. forget changes that are not newer than what is known of their key
        2. remember the position of the others, deletes too
        3. delete the rows of deleted keys
        4. insert the other rows, or put them in the place of older ones
        """
        key, at = listed(self.key), listed(self._position_names())
        same = " AND ".join(f"p.{quoted(name)} = c.{quoted(name)}" for name in self.key)
        known = ", ".join(f"p.{quoted(name)}" for name in self._position_names())
        new = ", ".join(f"c.{quoted(name)}" for name in self._position_names())
        rest = [name for name in self.columns if name not in self.key]
        return [
            f"DELETE FROM {changes} AS c "
            f"WHERE EXISTS (SELECT 1 FROM {positions} AS p WHERE {same} AND ({known}) >= ({new}))",
            f"INSERT INTO {positions} ({key}, {at}, {DELETED}) SELECT {key}, {at}, {DELETED} FROM {changes} WHERE true "
            f"ON CONFLICT ({key}) DO {_replace([*self._position_names(), DELETED])}",
            f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {changes} WHERE {DELETED})",
            f"INSERT INTO {table} ({listed(self.columns)}) SELECT {listed(self.columns)} FROM {changes} "
            f"WHERE NOT {DELETED} ON CONFLICT ({key}) DO {_replace(rest)}",
        ]


def _replace(names: list[str]) -> str:
    if not names:
        return "NOTHING"
    return "UPDATE SET " + ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in names)
