"""What only the server's catalog knows: collations, and of a table what its table map leaves out.

Rule 1: the catalog says how a table is NOW. It is believed for rows that were written before only if the table has
        not been changed since (its CREATE_TIME lies before them) and its columns are those of the map.
Rule 2: if that does not hold, the rows are refused, with what would make them readable. Nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from waterclock.cdc.mysql import columns as types
from waterclock.cdc.mysql.alterations import unescaped
from waterclock.cdc.mysql.columns import BINARY, BinlogColumn
from waterclock.cdc.mysql.tablemap import TableMap
from waterclock.changes.table_schema import TableSchema
from waterclock.errors import Unreadable

KINDS = {
    "tinyint": {types.TINY}, "smallint": {types.SHORT}, "mediumint": {types.INT24}, "int": {types.LONG},
    "bigint": {types.LONGLONG}, "float": {types.FLOAT}, "double": {types.DOUBLE}, "decimal": {types.NEWDECIMAL},
    "bit": {types.BIT}, "year": {types.YEAR}, "date": {types.DATE, types.NEWDATE},
    "time": {types.TIME, types.TIME2}, "datetime": {types.DATETIME, types.DATETIME2},
    "timestamp": {types.TIMESTAMP, types.TIMESTAMP2}, "enum": {types.ENUM}, "set": {types.SET},
    "json": {types.JSON, types.BLOB},
    "char": {types.STRING}, "binary": {types.STRING}, "uuid": {types.STRING}, "inet6": {types.STRING},
    "inet4": {types.STRING},
    "varchar": {types.VARCHAR, types.VAR_STRING}, "varbinary": {types.VARCHAR, types.VAR_STRING},
}  # fmt: skip
_TEXTS = ("tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob")
SHAPES = ("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
          "geometrycollection", "geomcollection")  # fmt: skip
KINDS |= {name: {types.BLOB} for name in _TEXTS}
KINDS |= {name: {types.GEOMETRY} for name in SHAPES}
_JSON_COLLATION = 46  # utf8mb4_bin: MariaDB gives it to every JSON column
_OWN = re.compile(r"DB_ROW_HASH_\d+")
_DECLARED = ("uuid", "inet6", "inet4", "json")

_COLUMNS = (
    "select column_name, data_type, column_type, character_set_name, extra from information_schema.columns "
    "where table_schema = %s and table_name = %s order by ordinal_position"
)
_KEY = (
    "select column_name from information_schema.statistics where table_schema = %s and table_name = %s "
    "and index_name = 'PRIMARY' order by seq_in_index"
)
_CREATED = (
    "select unix_timestamp(create_time) from information_schema.tables where table_schema = %s and table_name = %s "
    "and engine = 'InnoDB'"  # elsewhere a column or the table gets another name, and this time does not move
)
_CHECKS = (
    "select check_clause from information_schema.check_constraints where constraint_schema = %s and table_name = %s"
)
_MORE = (  # the third one: as `doubtful` has it
    "select column_name, is_nullable = 'YES', data_type in ('uuid', 'inet6', 'inet4') or column_type in ('binary(16)', "
    "'binary(4)') or (data_type = 'longtext' and collation_name = 'utf8mb4_bin'), concat_ws(' ', column_name, "
    "column_type, collation_name) from information_schema.columns "
    "where table_schema = %s and table_name = %s"
)
_LABEL = re.compile(r"'((?:[^'\\]|\\.|'')*)'", re.DOTALL)


_VIEW = "select 1 from information_schema.views where table_schema = %s and table_name = %s"
_TRIGGER = (
    "select 1 from information_schema.triggers where event_object_schema = %s and event_object_table = %s limit 1"
)
_FUNCTIONS = "select lower(routine_name) from information_schema.routines where routine_type = 'FUNCTION'"


class Cursor(Protocol):
    """What the catalog needs of a connection to the server."""

    def execute(self, query: str, arguments: tuple[Any, ...] = ()) -> Any: ...

    def fetchall(self) -> Any: ...


class TableDefinition(NamedTuple):
    """A table as the catalog has it: its columns, which are empty if it is not there, and its primary key. `unsure`: the
    columns of which the log does not say what they are; `nullable`: those that may be null; `order`:
    what the key's columns are, whose values are ordered by that."""

    columns: list[tuple[str, str, str, str | None, str]]
    key: tuple[str, ...]
    created: int
    json: frozenset[str]
    unsure: frozenset[str] = frozenset()
    nullable: frozenset[str] = frozenset()
    order: str = ""


class ServerCatalog:
    """Asks the server: once for each table map, and again once a statement has changed a table."""

    def __init__(self, cursor: Cursor, maria: bool, overrides: Mapping[str, str] | None = None) -> None:
        self._cursor, self._maria = cursor, maria
        self._overrides = overrides or {}  # database.table.column -> what the user says that it is
        # MariaDB 10.10 and later have collations without a number of their own, one for each character set
        source = "collation_character_set_applicability" if maria else "collations"
        cursor.execute(f"select * from information_schema.{source} limit 0")
        has_number = any(name[0].lower() == "id" for name in getattr(cursor, "description", None) or ())
        source = source if has_number else "collations"
        cursor.execute(f"select id, character_set_name from information_schema.{source} where id is not null")
        self._charsets = {int(number): str(charset) for number, charset in cursor.fetchall() if charset}

    def charset_of(self, collation: int) -> str:
        """The character set of a collation's number; Unreadable for a number that the server does not have."""
        if collation not in self._charsets:
            raise Unreadable(f"The binlog names the collation {collation}, which this server does not have.")
        return self._charsets[collation]

    def complete(self, table: TableMap, written: int) -> tuple[list[BinlogColumn], tuple[str, ...]]:
        """Columns and key for a map without names, written at `written` seconds; Unreadable if they may have changed."""
        if not self._maria:
            raise Unreadable(
                f"The binlog does not name the columns of {table.name}, and MySQL's catalog does not say whether they were "
                "changed since (MariaDB's does). SET GLOBAL binlog_row_metadata=FULL on the server, and start after it "
                "(--from now)."
            )
        declared = self.declared(table.database, table.table)
        fits = len(declared.columns) == len(table.types) and all(
            kind in KINDS.get(found[1], ()) for kind, found in zip(table.types, declared.columns, strict=True)
        )
        if not fits or declared.created > written:
            raise Unreadable(
                f"The binlog does not name the columns of {table.name}, and the table has been changed or dropped since "
                "these rows were written (or may have been: of InnoDB alone that is known), so the catalog cannot name "
                "them either. Set binlog_row_metadata=FULL on the server, leave the table out (--tables), or start after "
                "the change (--from)."
            )
        pairs = zip(declared.columns, table.types, table.sizes, strict=True)
        return [_column(found, kind, size, declared.json) for found, kind, size in pairs], declared.key

    def settle(
        self, table: TableMap, columns: list[BinlogColumn], written: int, recalled: Callable[[], TableSchema | None]
    ) -> list[BinlogColumn]:
        """`columns` with what is one and the same in MariaDB's binlog: UUID, INET6, INET4 and BINARY; JSON and text. What
        the catalog does not say is `recalled`: the schema that the table had there, as far as that is known."""
        unsure = [column.name for column in columns if self._maria and doubtful(column)]
        words = {name: word for name in unsure if (word := self._overrides.get(f"{table.name}.{name}"))}
        open_ones = sorted(set(unsure) - set(words))
        if open_ones:
            declared = self.declared(table.database, table.table)
            now = {found[0]: found[1] for found in declared.columns}
            if is_changed := declared.created > written or not set(open_ones) <= set(now):
                words |= known_of(recalled(), columns)
                open_ones = sorted(set(open_ones) - set(words))
            if is_changed and open_ones:
                raise Unreadable(
                    f"{table.name}: the binlog does not say whether {', '.join(open_ones)} is BINARY, UUID, INET6 or "
                    "INET4, text or JSON, and the table has been changed or dropped since these rows were written (or may "
                    "have been: of InnoDB alone that is known), so the catalog does not say either. Leave the table out "
                    "(--tables), start after the change (--from) or say it: --type DATABASE.TABLE.COLUMN=uuid."
                )
            if not is_changed:
                words |= {name: declared_as(name, now[name], declared.json) for name in open_ones}
        return [column._replace(declared=words.get(column.name, "")) for column in columns]

    def virtual(self, table: TableMap) -> set[str]:
        """The names of the columns that are computed when they are read: MariaDB leaves them out of a row image."""
        found = self.declared(table.database, table.table).columns
        return {column[0] for column in found if "VIRTUAL" in column[4].upper()}

    def hidden(self, table: TableMap, columns: list[BinlogColumn]) -> set[str]:
        """The names of the columns that MariaDB made for itself (of UNIQUE over a BLOB): no SELECT shows them."""
        names = {column.name for column in columns if self._maria and _OWN.fullmatch(column.name)}
        shown = self.declared(table.database, table.table).columns if names else []
        return names - {column[0] for column in shown}

    def reaches_further(self, table: tuple[str, str], called: set[str]) -> bool:
        """Whether writing to a table, calling these functions, may write elsewhere: as far as the catalog shows it now."""
        if self._asked(_VIEW, *table) or self._asked(_TRIGGER, *table):
            return True
        return bool(called) and not called.isdisjoint({row[0] for row in self._asked(_FUNCTIONS)})

    def declared(self, database: str, table: str) -> TableDefinition:
        """The table as it is now."""
        columns = [tuple(row) for row in self._asked(_COLUMNS, database, table)]
        created = self._asked(_CREATED, database, table)
        checks = self._asked(_CHECKS, database, table) if self._maria else []
        found = (re.fullmatch(r"\s*json_valid\(`(.*)`\)\s*", row[0]) for row in checks)
        json = {match[1].replace("``", "`") for match in found if match}
        more = self._asked(_MORE, database, table)
        unsure = frozenset(name for name, _, is_unsure, _ in more if is_unsure and self._maria)
        key, told = tuple(row[0] for row in self._asked(_KEY, database, table)), {row[0]: row[3] for row in more}
        return TableDefinition(
            columns,
            key,
            int(created[0][0]) if created and created[0][0] is not None else 1 << 62,  # what is gone has changed
            unsure & json,
            unsure,
            frozenset(name for name, may_be_null, _, _ in more if may_be_null),
            ", ".join(told[name] for name in key if name in told),
        )

    def _asked(self, query: str, *arguments: str) -> list[Any]:
        self._cursor.execute(query, arguments)
        return list(self._cursor.fetchall())


def doubtful(column: BinlogColumn) -> bool:
    """Whether MariaDB's binlog does not say what the column is: BINARY, UUID or INET, text or JSON."""
    if column.type == types.STRING:
        return column.charset == BINARY and column.size in (4, 16)
    return column.type == types.BLOB and column.size == 4 and column.collation == _JSON_COLLATION


def known_of(schema: TableSchema | None, columns: list[BinlogColumn]) -> dict[str, str]:
    """What a schema of the table says of columns that the binlog leaves in doubt; "" for BINARY and text."""
    types_of = {each.name: each.type for each in schema.columns if each.name not in schema.doubtful} if schema else {}
    pairs = [(column, types_of.get(column.name, "")) for column in columns if doubtful(column)]
    words = {(types.STRING, 16): ("uuid", "inet6", "binary(16)"), (types.STRING, 4): ("inet4", "binary(4)")}
    may_be = {column.name: words.get((column.type, column.size), ("json", "longtext")) for column, _ in pairs}
    return {column.name: text if text in _DECLARED else "" for column, text in pairs if text in may_be[column.name]}


def declared_as(name: str, data_type: str, json: frozenset[str]) -> str:
    """What the catalog says that a column is and no table map does; "" for nothing."""
    if name in json or data_type == "json":
        return "json" if data_type in ("json", "longtext") else ""
    return data_type if data_type in _DECLARED else ""


def labels_of(column_type: str) -> tuple[str, ...]:
    """Those of an ENUM or a SET as the catalog writes it.

    >>> labels_of("enum('a','it''s')")
    ('a', "it's")
    """
    return tuple(map(unescaped, _LABEL.findall(column_type)))


def _column(found: tuple[str, str, str, str | None, str], kind: int, size: int, json: frozenset[str]) -> BinlogColumn:
    name, data_type, column_type, charset, _ = found
    labels: tuple[str, ...] = ()
    if kind in (types.ENUM, types.SET):  # enum('a','it''s')
        labels = labels_of(column_type)
    declared = declared_as(name, data_type, json) if kind in (types.STRING, types.BLOB) else ""
    return BinlogColumn(
        name, kind, size, "unsigned" in column_type.lower(), charset or BINARY, labels, declared=declared
    )
