"""What only PostgreSQL's catalog and its tables know, which are as they are NOW: primary keys, and large values by key.

Rule 1: a column that got another name has the place that it had. Where none was dropped the places are those of the
        messages, for certain; if one was, only the names say it, and if they do not, nothing is guessed.
Rule 2: a row is looked for in the table that has the number now, whatever it is called.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from psycopg import sql

from waterclock.cdc.postgres.rows import Relation
from waterclock.errors import Unreadable

log = logging.getLogger("waterclock.cdc")
_KEY = (
    "select a.attname, a.attnum from pg_index i "
    "join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey) "
    "where i.indrelid = %s and i.indisprimary and array_position(i.indkey::int2[], a.attnum) < i.indnkeyatts "
    "order by array_position(i.indkey::int2[], a.attnum)"  # counted from 0; INCLUDE's columns are behind the key's
)
_COLUMNS = (
    "select attname, attisdropped or attgenerated <> '' from pg_attribute "
    "where attrelid = %s and attnum > 0 order by attnum"
)
_TABLE = (  # a partitioned table has no rows but those of its partitions; of another one, heirs are other tables
    "select n.nspname, c.relname, c.relkind <> 'p', array(select attname::text from pg_attribute "
    "where attrelid = c.oid and attnum > 0 and not attisdropped) "
    "from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = %s"
)
_CHANGED = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.DataError,
)  # meanwhile, or a key's type


class TableCatalog:
    """Asks by a connection of its own."""

    def __init__(self, asking: psycopg.Connection[Any]) -> None:
        self._asking = asking
        self._said: set[tuple[object, ...]] = set()

    def key_of(self, number: int, names: Sequence[str]) -> tuple[str, ...]:
        """The primary key of the table `number`, in the names that its columns had; none if it has none now."""
        key = self._asking.execute(_KEY, (number,)).fetchall()
        if self._keep_places(number, names) and all(place <= len(names) for _, place in key):
            return tuple(names[place - 1] for _, place in key)
        if all(name in names for name, _ in key):
            return tuple(name for name, _ in key)
        raise Unreadable(
            f"the primary key is ({', '.join(name for name, _ in key)}) now, and was another one when these rows were "
            "written, which REPLICA IDENTITY FULL does not say."
        )

    def _keep_places(self, number: int, names: Sequence[str]) -> bool:
        """Whether the columns that had these names have their places still; a publication may bring some columns only."""
        columns = self._asking.execute(_COLUMNS, (number,)).fetchall()
        now = [name for name, _ in columns]
        same = all(name not in now or now.index(name) == place for place, name in enumerate(names))
        return not any(gone for _, gone in columns) and (same or sorted(now) == sorted(names))

    def rows_of(
        self, relation: Relation, keys: Sequence[tuple[str, ...]], names: Sequence[str]
    ) -> list[dict[str, str | None]]:
        """Of the rows that have these keys, key and columns as PostgreSQL prints them; without the columns that are gone.

        None if the table, or a column of its key, is gone. Unreadable if this role may not look.
        """
        found = self._asking.execute(_TABLE, (relation.number,)).fetchone()
        if found is None or not set(relation.key) <= set(found[3]):
            self._gone(relation, relation.key)
            return []
        schema, table, alone, columns = found
        there = [name for name in names if name in columns]
        if len(there) < len(names):
            self._gone(relation, [name for name in names if name not in columns])
        asked = [*relation.key, *there]
        query = sql.SQL("select {} from {}{} where {} in ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, asked)),
            sql.SQL("only " if alone else ""),
            sql.Identifier(schema, table),
            _together(map(sql.Identifier, relation.key)),
            sql.SQL(", ").join([_together(sql.Placeholder() for _ in relation.key)] * len(keys)),
        )
        try:
            return self._printed(query, [text for key in keys for text in key], asked)
        except _CHANGED:
            self._gone(relation, asked)
            return []

    def _printed(self, query: sql.Composed, keys: list[str], names: Sequence[str]) -> list[dict[str, str | None]]:
        try:
            result = self._asking.execute(query, keys).pgresult
        except psycopg.errors.InsufficientPrivilege as error:
            raise Unreadable(
                f"The values of {', '.join(names)} were not sent, and this role may not look them up "
                f"({str(error).strip()}): GRANT SELECT on the table, and start again."
            ) from None
        assert result is not None
        return [
            {
                name: None if (text := result.get_value(row, place)) is None else text.decode()
                for place, name in enumerate(names)
            }
            for row in range(result.ntuples)
        ]

    def _gone(self, relation: Relation, names: Sequence[str]) -> None:
        """Said once for each table as it was: what no later change says is lost to a reader."""
        if (said := (relation.number, *names)) not in self._said:
            self._said.add(said)
            log.warning(
                "%s.%s was dropped, or its columns %s were changed, since updates were written that left out large "
                "values: what cannot be looked up by that is left out.",
                relation.schema,
                relation.table,
                ", ".join(names),
            )


def _together(parts: Iterable[sql.Composable]) -> sql.Composable:
    """A key's columns, or its values, as one value if they are several."""
    return sql.SQL("({})").format(sql.SQL(", ").join(parts))
