"""Which schema of a table is a new one, and which of its columns is which of the former schema's.

A source says what its log and its catalog say: a table's columns before the first change that has them (a `TableSchema`),
and the columns that a statement renamed (`RenamedColumn`). What stands in NAME.schema already is compared with it here.

Rule 1: a schema is new if anything of it but its position is. It goes out in the Kafka transaction of its first change.
Rule 2: PostgreSQL numbers its columns for good (attnum). A table map does not: a column has the number of the one with its
        name, after the renames that statements told of; and if there is none, a number that no column had before.
Rule 3: a rename goes out when its statement is passed, not with the next change: the position moves beyond the statement.
Rule 4: if a column went, another one came, and the source did not say which is which, the schema says so (`unsure`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from waterclock.changes.table_schema import ColumnSchema, SchemaHistory, TableSchema


class RenamedColumn(NamedTuple):
    """A statement at `since` gave columns of a table other names: former name -> new one."""

    database: str
    table: str
    since: tuple[int, int]
    names: Mapping[str, str]


class SchemaKeeper:
    """The history that Kafka holds, and what of a source is new against it."""

    def __init__(self, history: SchemaHistory) -> None:
        self._history = history

    def new(self, said: TableSchema | RenamedColumn) -> TableSchema | None:
        """The schema that is to be stored, its columns numbered; None if all of it is known."""
        last = self._history.last(f"{said.database}.{said.table}")
        if last is not None and said.since < last.since:  # read a second time, after a break
            return None
        if isinstance(said, RenamedColumn):
            made = _renamed(last, said) if last is not None else None
        else:
            made = self._numbered(said, last)
        if made is None or (last is not None and made._replace(since=last.since) == last):
            return None
        self._history.add(made)
        return made

    def _numbered(self, said: TableSchema, last: TableSchema | None) -> TableSchema:
        """Rules 2 and 4."""
        if all(column.number for column in said.columns):
            return said
        former = {column.name: column.number for column in last.columns} if last is not None else {}
        highest = max((column.number for each in self._history.of(said.name) for column in each.columns), default=0)
        columns = []
        for column in said.columns:
            number = former.get(column.name)
            if number is None:
                highest = number = highest + 1
            columns.append(column._replace(number=number))
        gone = former.keys() - {column.name for column in columns}
        came = {column.name for column in columns} - former.keys()
        return said._replace(columns=tuple(columns), unsure=said.unsure and bool(gone and came))


def _renamed(last: TableSchema, said: RenamedColumn) -> TableSchema:
    def called(column: ColumnSchema) -> ColumnSchema:
        return column._replace(name=said.names.get(column.name, column.name))

    key = tuple(said.names.get(name, name) for name in last.key)
    return last._replace(since=said.since, columns=tuple(map(called, last.columns)), key=key, unsure=False)
