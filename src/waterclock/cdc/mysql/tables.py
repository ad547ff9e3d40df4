"""Rows out of row images: a plan for every table, made once and used for each of its rows.

Rule 1: a plan belongs to the bytes of a table map: the same bytes, the same plan. A plan that needed the catalog is
        thrown away by the next statement that changes a table: its map may stay the same while its names do not.
Rule 2: rows that do not end where their event ends were read with a wrong type: all of the event is refused. A row with a
        value that cannot be read is refused alone, for the next one begins where it ends.
Rule 3: what is wrong with a table is said where the first of its rows comes, and not before.
Rule 4: rows come whole (binlog_row_image=FULL). A column may be missing only where it is computed when it is read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from waterclock.cdc.mysql import columns as types
from waterclock.cdc.mysql.binlog import (
    DELETE_V1,
    DELETE_V2,
    MARIA_DELETE_COMPRESSED,
    MARIA_UPDATE_COMPRESSED,
    MARIA_WRITE_COMPRESSED,
    UPDATE_V1,
    UPDATE_V2,
    WRITE_V1,
    WRITE_V2,
    BinlogEvent,
    length_encoded,
    uncompressed,
)
from waterclock.cdc.mysql.catalog import doubtful
from waterclock.cdc.mysql.columns import BinlogColumn, raw_reader, reader
from waterclock.cdc.mysql.tablemap import Dialect, TableMap, described, key_of, table_id, table_map
from waterclock.changes.maxwell_message import JSON
from waterclock.errors import Unreadable

Row = dict[str, str]
_WRONG = (Unreadable, LookupError, ValueError, ArithmeticError, struct.error)
WRITES = {WRITE_V1, WRITE_V2, MARIA_WRITE_COMPRESSED}
UPDATES = {UPDATE_V1, UPDATE_V2, MARIA_UPDATE_COMPRESSED}
DELETES = {DELETE_V1, DELETE_V2, MARIA_DELETE_COMPRESSED}
ROWS = WRITES | UPDATES | DELETES
_COMPRESSED = {MARIA_WRITE_COMPRESSED, MARIA_UPDATE_COMPRESSED, MARIA_DELETE_COMPRESSED}
# what the server keeps of a sequence, as if it were a row: it is written as an insert whenever it moves on
_SEQUENCE = ["next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size",
             "cycle_option", "cycle_count"]  # fmt: skip
_VERSION_2 = {WRITE_V2, UPDATE_V2, DELETE_V2}


class CatalogLookup(Protocol):
    """What a catalog answers; see catalog.py."""

    def charset_of(self, collation: int) -> str: ...

    def complete(self, table: TableMap, written: int) -> tuple[list[BinlogColumn], tuple[str, ...]]: ...

    def settle(self, table: TableMap, columns: list[BinlogColumn], written: int) -> list[BinlogColumn]: ...

    def virtual(self, table: TableMap) -> set[str]: ...

    def hidden(self, table: TableMap, columns: list[BinlogColumn]) -> set[str]: ...

    def reaches_further(self, table: tuple[str, str], called: set[str]) -> bool: ...


class RefusedTable(NamedTuple):
    """A table whose rows cannot be read, and why."""

    database: str
    table: str
    reason: str


class BadRow(NamedTuple):
    """A row with a value that cannot be read: why, its bytes, and what of it is known."""

    reason: str
    raw: bytes
    data: Row


Rows = list[tuple[Row | None, Row | None] | BadRow]


class TablePlan:
    """How the rows of one table map are read."""

    def __init__(
        self, described_by: TableMap, columns: list[BinlogColumn], key: tuple[str, ...], hidden: Collection[str] = ()
    ) -> None:
        self.map = described_by
        self.key = key
        self.hidden = hidden
        self.database, self.table = described_by.database, described_by.table
        self.names, self._columns = [column.name for column in columns], columns
        self.kinds = {column.name: JSON for column in columns if column.type == types.JSON or column.declared == JSON}
        try:
            self._readers = [reader(column) for column in columns]
        except Unreadable as refusal:
            raise Unreadable(f"{described_by.name}: {refusal}") from None
        self._lenient: TablePlan | None = None

    def lenient(self) -> TablePlan:
        """The same for rows with a value that cannot be read: it comes as base64."""
        if self._lenient is None:
            self._lenient = TablePlan(self.map, self._columns, self.key, self.hidden)
            self._lenient._readers = [raw_reader(column) for column in self._columns]
        return self._lenient

    def row(self, data: bytes, at: int, present: list[int] | None) -> tuple[Row, int]:
        """The row that begins at `at`, and where the next one does; `present` are the columns it has, None for all."""
        if present is not None:
            return self._part(data, at, present)
        size = (len(self._readers) + 7) // 8
        nulls = int.from_bytes(data[at : at + size], "little")
        at += size
        texts = []
        for read in self._readers:
            text = "null"
            if not nulls & 1:
                text, at = read(data, at)
            texts.append(text)
            nulls >>= 1
        return dict(zip(self.names, texts, strict=True)), at

    def _part(self, data: bytes, at: int, present: list[int]) -> tuple[Row, int]:
        size = (len(present) + 7) // 8
        nulls = int.from_bytes(data[at : at + size], "little")
        at += size
        row: Row = {}
        for bit, place in enumerate(present):
            text = "null"
            if not nulls >> bit & 1:
                text, at = self._readers[place](data, at)
            row[self.names[place]] = text
        return row, at


class Tables:
    """The tables that the binlog has introduced, and their rows. `wanted` says whose rows are asked for."""

    def __init__(self, catalog: CatalogLookup, dialect: Dialect, wanted: Callable[[str, str], bool]) -> None:
        self._catalog = catalog
        self._dialect = dialect
        self._wanted = wanted
        self._by_id: dict[int, TablePlan | RefusedTable | None] = {}
        self._plans: dict[bytes, TablePlan | RefusedTable | None] = {}
        self._lent: set[bytes] = set()  # the maps whose plans needed the catalog
        self._virtual: dict[int, set[str]] = {}
        self._altered: dict[tuple[str, str], int] = {}  # table -> when the last ALTER of it that was passed ended

    def introduce(self, event: BinlogEvent) -> None:
        """A table map: from here on its number stands for this table."""
        content = event.body[8:]
        if content not in self._plans:
            found = table_map(event.body)
            # a statement that waited for ALTER TABLE to end has the time at which it began to wait
            written = max(event.ts, self._altered.get((found.database, found.table), 0))
            try:
                self._plans[content] = self._plan(found, content, written)
            except Unreadable as refusal:  # for whoever writes rows to it
                self._plans[content] = RefusedTable(found.database, found.table, str(refusal))
                self._lent.add(content)
        self._by_id[table_id(event.body)] = self._plans[content]

    def rows(self, event: BinlogEvent) -> tuple[TablePlan, Rows] | None:
        """The table and its rows as (before, after); None where nobody asked for them, Unreadable where all are."""
        number = table_id(event.body)
        if number not in self._by_id:
            raise Unreadable(f"The rows before {event.end} belong to a table that the binlog has not introduced.")
        table = self._by_id[number]
        if isinstance(table, RefusedTable):
            raise Unreadable(table.reason)
        return None if table is None else (table, self._read(table, event))

    def name_of(self, event: BinlogEvent) -> tuple[str, str]:
        """Database and table of an event with rows; empty where it is none, or cannot be read at all."""
        table = self._by_id.get(table_id(event.body)) if event.kind in ROWS else None
        return (table.database, table.table) if table is not None else ("", "")

    def reaches_further(self, table: tuple[str, str], called: set[str]) -> bool:
        """See the catalog."""
        return self._catalog.reaches_further(table, called)

    def changed(self, altered: tuple[str, str] | None, ended: int) -> None:
        """A statement that ended at `ended` seconds changed a table: what the catalog said no longer holds."""
        if altered is not None:
            self._altered[altered] = ended
        for content in self._lent:
            self._plans.pop(content, None)
        self._lent.clear()
        self._virtual.clear()

    def forget(self) -> None:
        """Another binlog begins, or another server speaks: numbers mean nothing any more."""
        self._by_id.clear()

    def _plan(self, found: TableMap, content: bytes, written: int) -> TablePlan | None:
        if not self._wanted(found.database, found.table):
            return None
        if not found.is_full():
            self._lent.add(content)
            columns, key = self._catalog.complete(found, written)
            return None if _is_sequence(columns) else TablePlan(found, columns, key)
        columns = described(found, self._dialect, self._catalog.charset_of)
        settled = self._catalog.settle(found, columns, written)
        if _is_sequence(columns):
            return None
        if any(doubtful(column) for column in columns):  # a BINARY may be made a UUID, and its map stays the same
            self._lent.add(content)
        return TablePlan(found, settled, key_of(found, columns), self._catalog.hidden(found, columns))

    def _read(self, table: TablePlan, event: BinlogEvent) -> Rows:
        data, at, bitmaps = self._opened(event)
        present = self._present(table, bitmaps[0]), self._present(table, bitmaps[-1])
        found: Rows = []
        while at < len(data):
            try:
                old, new, end = self._pair(table, event.kind, data, at, present)
                found.append((_shown(table, old), _shown(table, new)))
            except _WRONG as wrong:
                bad, end = self._bad(table, event.kind, data, at, present, wrong)
                found.append(bad)
            at = end
            if at > len(data):
                raise Unreadable(
                    f"Rows of {table.map.name} before {event.end} do not fit its columns, so a type was misread. Leave the "
                    "table out (--tables), and say so to the authors: with its CREATE TABLE it can be mended."
                )
        return found

    def _bad(
        self,
        table: TablePlan,
        kind: int,
        data: bytes,
        at: int,
        present: tuple[list[int] | None, list[int] | None],
        wrong: Exception,
    ) -> tuple[BadRow, int]:
        """A row that `wrong` is said of, and where the next one begins; behind the end where that is not known."""
        try:
            old, new, end = self._pair(table.lenient(), kind, data, at, present)
        except _WRONG:
            return BadRow("", b"", {}), len(data) + 1
        said = (
            str(wrong)
            if isinstance(wrong, Unreadable)
            else f"A value cannot be read ({type(wrong).__name__}: {wrong})."
        )
        return BadRow(f"{table.map.name}: {said}", data[at:end], _shown(table, new or old) or {}), end

    @staticmethod
    def _pair(
        table: TablePlan, kind: int, data: bytes, at: int, present: tuple[list[int] | None, list[int] | None]
    ) -> tuple[Row | None, Row | None, int]:
        if kind in WRITES:
            new, at = table.row(data, at, present[0])
            return None, new, at
        old, at = table.row(data, at, present[0])
        if kind in DELETES:
            return old, None, at
        new, at = table.row(data, at, present[1])
        return old, new, at

    @staticmethod
    def _opened(event: BinlogEvent) -> tuple[bytes, int, list[bytes]]:
        """The bytes of the rows, where the first begins, and which columns there are: before and after for an update."""
        body, at = event.body, 8
        if event.kind in _VERSION_2:
            at += int.from_bytes(body[8:10], "little")
        count, at = length_encoded(body, at)
        size = (count + 7) // 8
        bitmaps = [body[at : at + size]]
        if event.kind in UPDATES:
            bitmaps.append(body[at + size : at + 2 * size])
        at += size * len(bitmaps)
        return (uncompressed(body[at:]), 0, bitmaps) if event.kind in _COMPRESSED else (body, at, bitmaps)

    def _present(self, table: TablePlan, bitmap: bytes) -> list[int] | None:
        bits = int.from_bytes(bitmap, "little")
        if bits == (1 << len(table.names)) - 1:
            return None
        missing = {name for place, name in enumerate(table.names) if not bits >> place & 1}
        if id(table) not in self._virtual:
            self._virtual[id(table)] = self._catalog.virtual(table.map)
        if missing - self._virtual[id(table)]:
            raise Unreadable(
                f"Rows of {table.map.name} lack {', '.join(sorted(missing))}: binlog_row_image is not FULL. "
                "Set it to FULL on "
                "the server and in every session that sets its own, and leave out what was written before (--from, --skip)."
            )
        return [place for place in range(len(table.names)) if bits >> place & 1]


def _is_sequence(columns: list[BinlogColumn]) -> bool:
    return [column.name for column in columns] == _SEQUENCE


def _shown(table: TablePlan, row: Row | None) -> Row | None:
    """The row without the columns that the server made for itself."""
    if row is not None:
        for name in table.hidden:
            del row[name]
    return row
