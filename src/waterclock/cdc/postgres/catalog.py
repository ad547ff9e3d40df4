"""What only PostgreSQL's catalog and its tables know, which are as they are NOW: primary keys, and large values by key.

Rule 1: a column that got another name has the place that it had. Where none was dropped the places are those of the
        messages, for certain; where one was, only the names tell, and if they do not, nothing is guessed.
Rule 2: a row is looked for in the table that has the number now, whatever it is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from waterclock.errors import Unreadable

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
_NAME = "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = %s"


class TableCatalog:
    """Asks by a connection of its own."""

    def __init__(self, asking: psycopg.Connection[Any]) -> None:
        self._asking = asking

    def key_of(self, number: int, names: Sequence[str]) -> tuple[str, ...]:
        """The primary key of the table `number`, in the names that its columns had; none where it has none now."""
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

    def values_of(self, number: int, key: Mapping[str, str], names: Sequence[str]) -> dict[str, str | None]:
        """Columns of the row that has that key, as PostgreSQL prints them; empty where table, column or row are gone."""
        found = self._asking.execute(_NAME, (number,)).fetchone()
        if found is None:
            return {}
        asked = sql.SQL("select {} from {} where {}").format(
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.Identifier(*found),
            sql.SQL(" and ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in key),
        )
        with suppress(psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
            return self._printed(asked, list(key.values()), names)
        return {}

    def _printed(self, asked: sql.Composed, key: list[str], names: Sequence[str]) -> dict[str, str | None]:
        try:
            result = self._asking.execute(asked, key).pgresult
        except psycopg.errors.InsufficientPrivilege as error:
            raise Unreadable(
                f"A row got another key, its {', '.join(names)} were not sent, and this role may not look them up "
                f"({str(error).strip()}): GRANT SELECT on the table, and start again."
            ) from None
        if result is None or not result.ntuples:
            return {}
        values = [result.get_value(0, place) for place in range(len(names))]
        return {name: None if value is None else value.decode() for name, value in zip(names, values, strict=True)}
