"""Which schema of a table is a new one, and which of its columns is which of the former schema's.

A source says what its log and its catalog say: a table's columns before the first change that has them (a `TableSchema`),
and the columns that a statement renamed or made (`ColumnsAltered`). What stands in NAME.schema already is compared with it
here.

Rule 1: a schema is new if anything of it but its position is. It goes out in the Kafka transaction of its first change.
Rule 2: PostgreSQL numbers its columns for good (attnum). A table map does not: a column has the number of the one with its
        name, after the renames and drops that statements told of; and if there is none, a number that none had before.
Rule 3: a rename goes out when its statement is passed, not with the next change: the position moves beyond the statement.
Rule 4: if a column went, another one came, and the source did not say which is which, the schema says so (`unsure`).
Rule 5: what a new column has in older rows a table map does not say: it is known from the statement, or not at all.
Rule 6: MariaDB's table map does not say of a UUID that it is no BINARY, nor of JSON that it is no text. The last schema
        does, while no statement has passed that names the column, or may change any: then the schema says it (`doubtful`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from waterclock.changes.table_schema import ColumnSchema, SchemaHistory, TableSchema

UNTOLD = {"uuid", "inet6", "inet4", "json", "longtext", "binary(16)", "binary(4)"}
SchemaAt = Callable[[str, tuple[int, int]], TableSchema | None]  # a table's at a position, as far as it is known


class ColumnsAltered(NamedTuple):
    """A statement at `since` gave columns of a table other names (former name -> new one), made new ones, may have given
    another type to those that it names (`doubted`, in small letters; None: to any), or dropped some (in small letters)."""

    database: str
    table: str
    since: tuple[int, int]
    renamed: Mapping[str, str]
    added: tuple[ColumnSchema, ...] = ()
    doubted: frozenset[str] | None = frozenset()
    dropped: frozenset[str] = frozenset()


class SchemaKeeper:
    """The history that Kafka holds, and what of a source is new against it."""

    def __init__(self, history: SchemaHistory) -> None:
        self._history = history

    def at(self, table: str, position: tuple[int, int]) -> TableSchema | None:
        """See SchemaHistory."""
        return self._history.at(table, position)

    def new(self, said: TableSchema | ColumnsAltered) -> TableSchema | None:
        """The schema that is to be stored, its columns numbered; None if all of it is known."""
        last = self._history.last(f"{said.database}.{said.table}")
        if last is not None and said.since < last.since:  # read a second time, after a break
            return None
        if isinstance(said, ColumnsAltered):
            made = self._altered(last, said) if last is not None else None
        else:
            made = self._numbered(said, last)
        if made is None or (last is not None and made._replace(since=last.since) == last):
            return None
        self._history.add(made)
        return made

    def _numbered(self, said: TableSchema, last: TableSchema | None) -> TableSchema:
        """Rules 2, 4 and 5."""
        former = {column.name: column for column in last.columns} if last is not None else {}
        highest = max((column.number for each in self._history.of(said.name) for column in each.columns), default=0)
        columns = []
        for column in said.columns:
            was = former.get(column.name)
            if said.source == "mysql" and was is not None:
                column = column._replace(older=was.older, older_known=was.older_known)
            elif said.source == "mysql":
                column = column._replace(older_known=last is None)
            if not column.number or (said.unsure and was is not None):
                highest += was is None
                column = column._replace(number=highest if was is None else was.number)
            columns.append(column)
        gone = former.keys() - {column.name for column in columns}
        came = {column.name for column in columns} - former.keys()
        return said._replace(columns=tuple(columns), unsure=said.unsure and bool(gone and came))

    def _altered(self, last: TableSchema, said: ColumnsAltered) -> TableSchema:
        """The former schema after the statement, which may write names with other capitals; a column's place, its type and
        another key stand in the next table map."""
        renamed = {former.casefold(): name for former, name in said.renamed.items()}
        gone = said.dropped - {name.casefold() for name in last.key}

        def called(name: str) -> str:
            return renamed.get(name.casefold(), name)

        stay = [column for column in last.columns if column.name.casefold() not in gone]
        there = tuple(column._replace(name=called(column.name)) for column in stay)
        names = {column.name.casefold() for column in there}
        highest = max(column.number for each in self._history.of(last.name) for column in each.columns)
        came = [column for column in said.added if column.name.casefold() not in names]
        added = tuple(column._replace(number=highest + 1 + place) for place, column in enumerate(came))
        key, columns = tuple(map(called, last.key)), there + added
        doubtful = {called(name) for name in last.doubtful if name.casefold() not in gone}
        for column in columns:
            if column.type in UNTOLD and (said.doubted is None or column.name.casefold() in said.doubted):
                doubtful.add(column.name)
        return last._replace(since=said.since, columns=columns, key=key, unsure=False, doubtful=tuple(sorted(doubtful)))
