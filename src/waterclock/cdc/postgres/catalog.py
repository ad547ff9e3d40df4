"""What only PostgreSQL's catalog and its tables know, which are as they are NOW: primary keys, and the large values that a
message left out (TOAST), read by the row's key if no reader may have them.

PostgreSQL sends of an update only the large values that it touched: whoever has the row has the others. But a row that is
older than the slot never came, nor did one whose insert was left out, or is of another publication. No message says
which rows these are, so it is turned round: the capture remembers which rows it sent whole.

Rule 1: a column that got another name has the place that it had. If none was dropped the places are those of the
        messages, for certain; if one was, only the names say it, and if they do not, nothing is guessed.
Rule 2: a row is looked for in the table that has the number now, whatever it is called.
Rule 3: the values of a row that was not sent whole since this start are read, once; then it is remembered. The LATEST
        rows are: what was forgotten is read again, which is right too, and costs a look.
Rule 4: a table's rows of one transaction are read together, by one SELECT, up to AT_ONCE of them.
Rule 5: what is read is as it is then. It may be younger than the change: then the change that made it so comes later, and
        brings it again. A row that is not there any more goes, or gets another key, with a later change.
Rule 6: columns that were not found are left out of the row, never made up; if it is not a row's own end (the role may
        not look, the table was changed), that is said with the number of rows.
Rule 7: a key's columns stand in the order of the table's, whatever their order in the primary key: so PostgreSQL names them
        unless the identity is FULL, and a message's key must not hang on that: its partition would be another one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import psycopg
from psycopg import sql

from waterclock.cdc.postgres.rows import UNTOUCHED, Relation, Row
from waterclock.cdc.postgres.shape import shape
from waterclock.cdc.postgres.sql_types import types_of
from waterclock.changes.sql_types import ColumnTypes
from waterclock.changes.table_schema import TableSchema
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


AT_ONCE = 500
LOCKED_S = 10.0  # so long a lock on a table is waited for without a word
LATEST = 100_000  # of 16 bytes each: some 15 MB
SMALL = 1000  # bytes of a message; a row of fewer has hardly a value apart, and is read if it has


class TableCatalog:
    """Asks by a connection of its own."""

    def __init__(self, asking: psycopg.Connection[Any]) -> None:
        self._asking = asking
        asking.execute(f"set lock_timeout = {LOCKED_S * 1000:.0f}")
        self._said: set[tuple[object, ...]] = set()

    def shape(self, relation: Relation, since: tuple[int, int]) -> TableSchema:
        """See shape.py."""
        return shape(self._asking, relation, since)

    def types_of(self, relation: Relation) -> ColumnTypes:
        """See sql_types.py."""
        return types_of(self._asking, zip(relation.names, relation.oids, relation.brackets, strict=True))

    def key_of(self, number: int, names: Sequence[str]) -> tuple[str, ...]:
        """The primary key of the table `number`, in the names that its columns had; none if it has none now. Rule 7."""
        key = self._asking.execute(_KEY, (number,)).fetchall()
        if self._keep_places(number, names) and all(place <= len(names) for _, place in key):
            return tuple(names[place - 1] for place in sorted(place for _, place in key))
        if all(name in names for name, _ in key):
            return tuple(name for name in names if name in dict(key))
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
        chosen = [*relation.key, *there]
        query = sql.SQL("select {} from {}{} where {} in ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, chosen)),
            sql.SQL("only " if alone else ""),
            sql.Identifier(schema, table),
            _together(map(sql.Identifier, relation.key)),
            sql.SQL(", ").join([_together(sql.Placeholder() for _ in relation.key)] * len(keys)),
        )
        try:
            return self._printed(relation, query, [text for key in keys for text in key], chosen)
        except _CHANGED:
            self._gone(relation, chosen)
            return []

    def _printed(
        self, relation: Relation, query: sql.Composed, keys: list[str], names: Sequence[str]
    ) -> list[dict[str, str | None]]:
        try:
            result = self._asked(relation, query, keys)
        except psycopg.errors.InsufficientPrivilege as error:
            raise Unreadable(
                f"The values of {', '.join(names)} were not sent, and this role may not look them up "
                f"({str(error).strip()}): GRANT SELECT on the table, and start again. If a policy of row-level "
                "security hides its rows: ALTER ROLE ... BYPASSRLS."
            ) from None
        assert result is not None
        return [
            {
                name: None if (text := result.get_value(row, place)) is None else text.decode()
                for place, name in enumerate(names)
            }
            for row in range(result.ntuples)
        ]

    def _asked(self, relation: Relation, query: sql.Composed, keys: list[str]) -> psycopg.pq.abc.PGresult | None:
        """What it finds. A lock on the table is waited for: nothing that was committed later may come before."""
        while True:
            try:
                return self._asking.execute(query, keys).pgresult
            except psycopg.errors.LockNotAvailable:
                if (said := (relation.number, LOCKED_S)) not in self._said:
                    self._said.add(said)
                    log.warning(
                        "%s is locked by somebody. Large values of its rows are waited for, and with them all that was "
                        "committed later, of every table.",
                        relation.title,
                    )

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


class LargeValues:
    """Which rows were sent whole, and the values of those that were not."""

    def __init__(self, table: TableCatalog) -> None:
        self._table = table
        self._sent: dict[bytes, None] = {}  # the latest last
        self._said: set[tuple[str, str]] = set()

    def sent(self, relation: Relation, row: Row) -> None:
        """This row goes out whole."""
        known = _known(relation, row)
        self._sent.pop(known, None)
        self._sent[known] = None
        if len(self._sent) > LATEST:
            del self._sent[next(iter(self._sent))]

    def has(self, relation: Relation, row: Row) -> bool:
        """Whether this row went out whole before."""
        return _known(relation, row) in self._sent

    def forget_all(self) -> None:
        """Something was left out, and nobody knows what."""
        self._sent.clear()

    def fill(self, rows: Iterable[tuple[Relation, Row]]) -> None:
        """Put what can be read into these rows, in their places; what was not found leaves its row."""
        tables: dict[tuple[int, tuple[str, ...]], tuple[Relation, list[Row]]] = {}
        for relation, row in rows:
            tables.setdefault((relation.number, relation.names), (relation, []))[1].append(row)
        for relation, lacking in tables.values():
            try:
                self.fill_table(relation, lacking)
            except Unreadable as reason:
                self._say(relation, len(lacking), reason)
                self._take_out(relation, lacking)

    def fill_table(self, relation: Relation, rows: Sequence[Row]) -> None:
        """The same for rows of one table; Unreadable if they cannot be looked up."""
        names = [name for name in relation.names if any(row.get(name) == UNTOUCHED for row in rows)]
        keys = list(dict.fromkeys(relation.key_of(row) for row in rows))
        found: dict[tuple[str, ...], dict[str, str]] = {}
        for printed in self._table.rows_of(relation, keys, names):
            read = {name: relation.as_json(name, text) for name, text in printed.items()}
            found[tuple(read[name] for name in relation.key)] = read
        for row in rows:
            now = found.get(tuple(row[name] for name in relation.key), {})
            lacked = {name: text for name, text in now.items() if row[name] == UNTOUCHED}
            row.update(lacked)  # type: ignore[attr-defined]  # a row that lacks values is a dict
        self._take_out(relation, rows)

    def _take_out(self, relation: Relation, rows: Iterable[Row]) -> None:
        """Rule 6."""
        for row in rows:
            absent = [name for name, text in row.items() if text == UNTOUCHED]
            for name in absent:
                del row[name]  # type: ignore[attr-defined]
            if absent:
                self._sent.pop(_known(relation, row), None)

    def _say(self, relation: Relation, count: int, reason: Unreadable) -> None:
        """Once for each table: a warning for each transaction would hide the others."""
        if (relation.schema, relation.table) not in self._said:
            self._said.add((relation.schema, relation.table))
            log.warning(
                "%s.%s: %d updated rows, and those to come, are sent without the large values that were not touched, "
                "which a reader of this capture may never have had. %s",
                relation.schema,
                relation.table,
                count,
                reason,
            )


def _known(relation: Relation, row: Row) -> bytes:
    """A row in few bytes. Columns are part of it: one that got another name has not come under that one yet."""
    said = (relation.number, relation.names, [row[name] for name in relation.key])
    return blake2b(repr(said).encode(), digest_size=16).digest()
