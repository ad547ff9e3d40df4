"""Rows out of row images: a plan for every table, made once and used for each of its rows.

Rule 1: a plan belongs to the bytes of a table map: the same bytes, the same plan. A plan that needed the catalog is
        thrown away by the next statement that changes a table: its map may stay the same while its names do not.
Rule 2: rows that do not end where their event ends were read with a wrong type: all of the event is refused. A row with a
        value that cannot be read is refused alone, for the next one begins where it ends.
Rule 3: what is wrong with a table is said when the first of its rows comes, and not before.
Rule 4: the rows of an event are read by compiled code where there is such. What that cannot, the readers here do, and they
        alone say what is wrong.
Rule 5: rows come whole (binlog_row_image=FULL). A column may be missing only if it is computed when it is read. With
        `partial` an update brings its key and what it changed, a delete its key; an insert, and a row that gets another
        key, must be whole all the same: what they lack, a column's DEFAULT among it, nobody has.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import NamedTuple

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
from waterclock.cdc.mysql.catalog import ServerCatalog, doubtful
from waterclock.cdc.mysql.columns import BINARY, BinlogColumn, raw_reader, reader
from waterclock.cdc.mysql.sql_types import mapped_type
from waterclock.cdc.mysql.tablemap import BinlogDialect, TableMap, described, key_of, table_id, table_map
from waterclock.cdc.mysql.values import Reader
from waterclock.changes.maxwell import DELETE, INSERT, UPDATE
from waterclock.changes.sql_types import ColumnTypes
from waterclock.changes.table_schema import ColumnSchema, TableSchema
from waterclock.changes.written import Written
from waterclock.errors import Unreadable

Row = Mapping[str, str]
try:
    from waterclock.cdc.mysql._images import ImagePlan
except ImportError:
    ImagePlan = None  # type: ignore[assignment,misc]

_LACKING = (
    "binlog_row_image is not FULL. Set it to FULL on the server and in every session that sets its own, and leave out what "
    "was written before (--from, --skip)."
)
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
Image = tuple[list[str], list[Reader]]  # names and readers of the columns that a row image has
Images = tuple[Image | None, Image | None]  # before and after; an insert has nothing before, a delete nothing after


class TablePlan:
    """How the rows of one table map are read."""

    def __init__(
        self, described_by: TableMap, columns: list[BinlogColumn], key: tuple[str, ...], hidden: Collection[str] = ()
    ) -> None:
        self.map = described_by
        self.database = described_by.database
        self.table = described_by.table
        self.key = key
        self.hidden = hidden
        self.names = [column.name for column in columns]
        self.types = ColumnTypes({each.name: mapped_type(each) for each in columns if each.name not in hidden})
        self.columns = columns
        try:
            self.readers = [reader(column) for column in columns]
        except Unreadable as refusal:
            raise Unreadable(f"{described_by.name}: {refusal}") from None
        self.compiled = None
        if ImagePlan is not None and sys.byteorder == "little":
            where = self.database, self.table, key, self.types.kinds
            self.compiled = ImagePlan(*where, columns, self.readers, hidden)

    def schema(self, since: tuple[int, int]) -> TableSchema:
        """The schema that holds from `since` on; its columns are not numbered."""
        nulls = int.from_bytes(self.map.nulls, "little")
        found = [
            ColumnSchema(
                column.name,
                self.types[column.name].text,
                bool(nulls >> place & 1),
                charset="" if column.charset == BINARY else column.charset,
            )
            for place, column in enumerate(self.columns)
            if column.name not in self.hidden
        ]
        return TableSchema("mysql", self.database, self.table, since, tuple(found), self.key)

    @cached_property
    def lenient_readers(self) -> list[Reader]:
        """The same for rows with a value that cannot be read: it comes as base64."""
        return [raw_reader(column) for column in self.columns]


class Tables:
    """The tables that the binlog has introduced, and their rows. `wanted` says whose rows the capture wants."""

    def __init__(
        self,
        catalog: ServerCatalog,
        dialect: BinlogDialect,
        wanted: Callable[[str, str], bool],
        partial: bool = False,
    ) -> None:
        self._catalog, self._partial = catalog, partial
        self._dialect = dialect
        self._wanted = wanted
        self._by_id: dict[int, TablePlan | RefusedTable | None] = {}
        self._plans: dict[bytes, TablePlan | RefusedTable | None] = {}
        self._lent: set[bytes] = set()  # the maps whose plans needed the catalog
        self._virtual: dict[int, set[str]] = {}
        self.recalled: Callable[[str], TableSchema | None] = lambda table: None  # the schema that it had here
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
        """The table and its rows as (before, after); None if nobody wants them, Unreadable if all are."""
        number = table_id(event.body)
        if number not in self._by_id:
            raise Unreadable(f"The rows before {event.end} belong to a table that the binlog has not introduced.")
        table = self._by_id[number]
        if isinstance(table, RefusedTable):
            raise Unreadable(table.reason)
        return None if table is None else (table, self._read(table, event))

    def name_of(self, event: BinlogEvent) -> tuple[str, str]:
        """Database and table of an event with rows; empty if it is none, or cannot be read at all."""
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
        hidden = set[str]()
        if found.is_full():
            columns = described(found, self._dialect, self._catalog.charset_of)
            if any(doubtful(column) for column in columns):  # a BINARY may be made a UUID, and its map stays the same
                self._lent.add(content)
            key = key_of(found, columns)
            hidden = self._catalog.hidden(found, columns)
            columns = self._catalog.settle(found, columns, written, lambda: self.recalled(found.name))
        else:
            self._lent.add(content)
            columns, key = self._catalog.complete(found, written)
        return None if [column.name for column in columns] == _SEQUENCE else TablePlan(found, columns, key, hidden)

    def _read(self, table: TablePlan, event: BinlogEvent) -> Rows:
        kind = event.kind
        if table.compiled is not None and kind not in _COMPRESSED:
            whole = table.compiled.rows_of(event.body, kind in _VERSION_2, kind not in WRITES, kind not in DELETES)
            if whole is not None:
                return [*whole]
        data, at, bitmaps = _opened(event)
        images = self._images(table, table.readers, event.kind, bitmaps)
        found: Rows = []
        if table.compiled is not None and not any(image and image[1] is not table.readers for image in images):
            rows = table.compiled.rows(data, at, images[0] is not None, images[1] is not None)
            if rows is not None:
                found += rows
                return found
        while at < len(data):
            try:
                old, new, end = _pair(images, data, at)
                found.append((_shown(table, old), _shown(table, self._whole(table, old, new))))
            except _WRONG as wrong:
                try:
                    old, new, end = _pair(self._images(table, table.lenient_readers, event.kind, bitmaps), data, at)
                except _WRONG:  # where the next row begins is not known
                    end = len(data) + 1
                else:
                    said = f"A value cannot be read ({type(wrong).__name__}: {wrong})."
                    said = str(wrong) if isinstance(wrong, Unreadable) else said
                    shown = _shown(table, new or old) or {}
                    found.append(BadRow(f"{table.map.name}: {said}", data[at:end], shown))
            at = end
            if at > len(data):
                raise Unreadable(
                    f"Rows of {table.map.name} before {event.end} do not fit its columns, so a type was misread. Leave the "
                    "table out (--tables), and say so to the authors: with its CREATE TABLE it can be mended."
                )
        return found

    def _computed(self, table: TablePlan) -> set[str]:
        if id(table) not in self._virtual:
            self._virtual[id(table)] = self._catalog.virtual(table.map)
        return self._virtual[id(table)]

    def _whole(self, table: TablePlan, old: dict[str, str] | None, new: dict[str, str] | None) -> dict[str, str] | None:
        """Rule 5, of a row after an update: with what it was known to have before."""
        if old is None or new is None or old.keys() == new.keys() == set(table.names):
            return new
        known = old | new
        if any(old[name] != known[name] for name in table.key) and known.keys() | self._computed(table) < set(
            table.names
        ):
            raise Unreadable(f"The row got another key, and {_LACKING}")
        return {name: known[name] for name in table.names if name in known}

    def _images(self, table: TablePlan, readers: list[Reader], kind: int, bitmaps: list[bytes]) -> Images:
        """What each row of an event has before and after; Unreadable if a column is missing that is not computed."""
        images: list[Image] = []
        for bitmap in bitmaps:
            every = (1 << len(readers)) - 1
            bits = int.from_bytes(bitmap, "little") & every  # MySQL 5.5 sets the bits behind the last column too
            if bits == every:
                images.append((table.names, readers))
                continue
            here = [place for place in range(len(readers)) if bits >> place & 1]
            names = {table.names[place] for place in here}
            missing = set(table.names) - names - self._computed(table)
            has_key = bool(table.key) and (names.issuperset(table.key) or bool(images))
            if missing and not (self._partial and has_key and kind not in WRITES):
                option = "" if self._partial or kind in WRITES else " Or take such updates and deletes: --partial-rows."
                raise Unreadable(f"Rows of {table.map.name} lack {', '.join(sorted(missing))}: {_LACKING}{option}")
            images.append(([table.names[place] for place in here], [readers[place] for place in here]))
        if kind in UPDATES:
            return images[0], images[1]
        return (None, images[0]) if kind in WRITES else (images[0], None)


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


def _pair(images: Images, data: bytes, at: int) -> tuple[dict[str, str] | None, dict[str, str] | None, int]:
    """A row before and after, and where the next one begins."""
    before, after = images
    old = new = None
    if before is not None:
        old, at = _row(before, data, at)
    if after is not None:
        new, at = _row(after, data, at)
    return old, new, at


def _row(image: Image, data: bytes, at: int) -> tuple[dict[str, str], int]:
    names, readers = image
    size = (len(readers) + 7) // 8
    nulls = int.from_bytes(data[at : at + size], "little")
    at += size
    texts = []
    for read in readers:
        text = "null"
        if not nulls & 1:
            text, at = read(data, at)
        texts.append(text)
        nulls >>= 1
    return dict(zip(names, texts, strict=True)), at


def _shown(table: TablePlan, row: dict[str, str] | None) -> Row | None:
    """The row without the columns that the server made for itself."""
    if row is not None:
        for name in table.hidden:
            del row[name]
    return row


def changes_of(key: tuple[str, ...], before: Row | None, after: Row | None) -> list[tuple[str, Row, Row | None]]:
    """(what it is, the row, former values) of what became of a row."""
    if before is None or after is None:
        return [(INSERT, after, None)] if after is not None else [(DELETE, before or {}, None)]
    if isinstance(before, Written) and isinstance(after, Written):
        same = before.same_key(after)
        return [(UPDATE, after, before.former(after))] if same else [(DELETE, before, None), (INSERT, after, None)]
    for name in key:
        if before.get(name) != after.get(name):  # the same row no longer
            return [(DELETE, before, None), (INSERT, after, None)]
    is_known = after.keys() <= before.keys()
    return [(UPDATE, after, {n: text for n, text in before.items() if after.get(n) != text} if is_known else None)]
