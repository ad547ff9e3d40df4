"""Results in a SQLite file: the default sink, nothing to install. Its tables stand in tables.py; times are UTC texts.

Rule 1: one connection, one transaction a batch, synchronous=FULL: a commit that returned survives a power cut.
Rule 2: rows of a batch are written in the order they come in, so that a re-run gives the same table byte for byte.
Rule 3: what is wrong with the place is reported before anything is written, by its path; SQLite's own words stand behind.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.errors import UsageError
from waterclock.sinks.base import Batch, LastBatch
from waterclock.sinks.epochs import OWNER, OWNER_NAMES, Epoch, definition, judge, store_in, stored_in
from waterclock.sinks.mirrors.replica import Replica, apply, empty_all, positions_table
from waterclock.sinks.results import flat, flat_schema
from waterclock.sinks.sqlite.destination import sqlite_table
from waterclock.sinks.sqlite.replica import POSITION_TYPES, SQLiteTables
from waterclock.sinks.sqlite.rows import connect
from waterclock.sinks.strangers import needed_names, refuse_to_drop
from waterclock.sinks.tables import (
    BATCH_KEY,
    BATCH_NAMES,
    BATCHES,
    DEAD_LETTERS,
    DEAD_NAMES,
    POSITIONS,
    Table,
    refuse_lost,
    refuse_unlike,
)

_DEAD_TYPES = ("INTEGER", "TEXT", "INTEGER", "TEXT", "TEXT")
_BATCH_TYPES = ("TEXT", "INTEGER", "TEXT", "TEXT", "TEXT", "REAL")
_WAIT_S = 30  # for another one's lock


class SQLiteSink:
    """A `Sink` on a file; with `mirror`, of changes of tables. The folder of `path` is made."""

    def __init__(self, path: str | Path, table: str = "results", *, mirror: Replica | None = None) -> None:
        self._path = Path(path)
        self._table = sqlite_table(table)
        self._mirror = mirror
        self._epoch: Epoch | None = None
        with _errors_of(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._db = connect(self._path, _WAIT_S)
        try:
            with _errors_of(self._path):
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=FULL")
        except UsageError:
            self._db.close()
            raise

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def mirror(self) -> Replica | None:
        """That it is given changes of tables; None if it is given results."""
        return self._mirror

    def open(self, results: pa.Schema) -> None:
        """See `Sink`."""
        with _errors_of(self._path), self._transaction():
            tables = _tables(self._mirror, results)
            rows = {table.part: self._holds_rows(table.part) for table in tables}
            for table in tables:
                self._make_or_check(table)
            refuse_lost(self._table, str(self._path), rows)

    def remove(self) -> None:
        """Drop the sink's tables in one transaction; the file, and what else is in it, stays.

        Raises UsageError, and drops nothing, where a table has the name of one of ours and is none.
        """
        with _errors_of(self._path), self._transaction():
            refuse_to_drop(self._mirror, self._table, str(self._path), self._found)
            if self._mirror is not None and self._found(POSITIONS).columns:
                empty_all(self._replicated(), f'"{self._table}{POSITIONS}"')
            is_ours = tuple(name for name, _ in self._found(OWNER).columns) == OWNER_NAMES
            for part in (*needed_names(self._mirror), *((OWNER,) if is_ours else ())):
                self._db.execute(f'DROP TABLE IF EXISTS "{self._table}{part}"')

    def last_applied(self) -> LastBatch | None:
        """See `Sink`."""
        query = f'SELECT query_id, batch_id FROM "{self._table}_batches" ORDER BY batch_id DESC LIMIT 1'
        with _errors_of(self._path):
            row = self._db.execute(query).fetchone()
        return LastBatch(*row) if row else None

    def fence(self, epoch: Epoch) -> None:
        """Let nobody of an earlier epoch write any more; see epochs.py."""
        with _errors_of(self._path), self._transaction():
            self._db.execute(f'CREATE TABLE IF NOT EXISTS "{self._table}{OWNER}" ({definition("TEXT", "INTEGER")})')
            store_in(self._rows, f'"{self._table}{OWNER}"', epoch, self.describe())
        self._epoch = epoch

    def begin(self) -> None:
        """See `Sink`."""
        self._db.execute("BEGIN IMMEDIATE")
        if self._epoch is not None:
            there = self._found(OWNER).columns
            judge(stored_in(self._rows, f'"{self._table}{OWNER}"') if there else None, self._epoch, self.describe())

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        """See `Sink`."""
        query = f'SELECT 1 FROM "{self._table}_batches" WHERE query_id = ? AND batch_id = ?'
        return self._db.execute(query, (query_id, batch_id)).fetchone() is not None

    def write(self, batch: Batch) -> Batch:
        """See `Sink`."""
        if self._mirror is None:
            self._append("", batch.batch_id, flat(batch.results))
        else:
            apply(self._replicated(), f'"{self._table}{POSITIONS}"', batch.results)
        self._append(DEAD_LETTERS, batch.batch_id, batch.dead_letters)
        watermark = None if batch.watermark_us is None else _text_time(pa.array([batch.watermark_us]))[0].as_py()
        counters = json.dumps(dict(batch.counters), sort_keys=True)
        row = (batch.query_id, batch.batch_id, batch.offsets, counters, watermark, batch.seconds)
        self._db.execute(f'INSERT INTO "{self._table}_batches" VALUES (?, ?, ?, ?, ?, ?)', row)
        return batch

    def commit(self) -> None:
        """See `Sink`."""
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        """See `Sink`."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def totals(self) -> dict[str, int]:
        """See `Sink`."""
        total: dict[str, int] = {}
        with _errors_of(self._path):
            texts = self._db.execute(f'SELECT counters FROM "{self._table}_batches"').fetchall()
        for (text,) in texts:
            for name, value in json.loads(text).items():
                total[name] = total.get(name, 0) + value
        return total

    def close(self) -> None:
        """See `Sink`."""
        with suppress(sqlite3.Error):  # a tidy file is welcome; one that is damaged was reported before
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()

    def describe(self) -> str:
        """See `Sink`."""
        return f"the table {self._table!r} in {self._path}"

    # Tables ----------------------------------------------------------------------------------------------------

    def _make_or_check(self, wanted: Table) -> None:
        name = self._table + wanted.part
        self._db.execute(f'CREATE TABLE IF NOT EXISTS "{name}" ({wanted.definition()})')
        refuse_unlike(f"the table {name!r} in {self._path}", self._found(wanted.part), wanted)

    def _found(self, part: str) -> Table:
        return _found(self._db, self._table, part)

    def _holds_rows(self, part: str) -> bool | None:
        return _holds_rows(self._db, self._table, part)

    def _rows(self, statement: str) -> list[tuple[object, ...]]:
        return self._db.execute(statement).fetchall()

    # Rows ------------------------------------------------------------------------------------------------------

    def _append(self, part: str, batch_id: int, rows: pa.Table) -> None:
        self._insert(f'"{self._table}{part}"', rows.add_column(0, "batch_id", pa.array([batch_id] * rows.num_rows)))

    def _replicated(self) -> SQLiteTables:
        return SQLiteTables(lambda statement: self._db.execute(statement).fetchall(), self._db.executemany)

    def _insert(self, table: str, rows: pa.Table) -> None:
        if rows.num_rows:
            plain = pa.Table.from_arrays([_plain(column) for column in rows.columns], names=rows.column_names)
            self._db.insert(table, plain)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise


def look(path: Path, table: str, mirror: Replica | None, results: pa.Schema) -> None:
    """UsageError where a sink could not be opened, as far as its file shows; nothing is made, and nothing is changed."""
    wanted = _tables(mirror, results)
    _refuse_unwritable(path)
    if not path.exists():
        return
    # a reader of a file that nobody has open would leave a log and its index beside it
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    with _errors_of(path), closing(sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)) as db:
        for each in wanted:
            if (found := _found(db, table, each.part)).columns:
                refuse_unlike(f"the table {table + each.part!r} in {path}", found, each)
        refuse_lost(table, str(path), {each.part: _holds_rows(db, table, each.part) for each in wanted})


def _refuse_unwritable(path: Path) -> None:
    """UsageError where this user may not write a file, or make it."""
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if (there == path) == there.is_dir() or not os.access(there, os.W_OK):
        raise UsageError(
            f"the sink's file {str(path)!r} cannot be written: see to {there}, or name another path in [sink]"
        )


def _tables(mirror: Replica | None, results: pa.Schema) -> list[Table]:
    """The tables of a sink."""
    dead = tuple(zip(DEAD_NAMES, _DEAD_TYPES, strict=True))
    batches = tuple(zip(BATCH_NAMES, _BATCH_TYPES, strict=True))
    ours = [Table(DEAD_LETTERS, dead), Table(BATCHES, batches, BATCH_KEY)]
    if mirror is None:
        return [Table("", (("batch_id", "INTEGER"), *_columns(flat_schema(results)))), *ours]
    return [positions_table(POSITION_TYPES), *ours]


def _found(db: sqlite3.Connection, table: str, part: str) -> Table:
    """One of the tables as it is there; without columns where it is not."""
    rows = db.execute(f'PRAGMA table_info("{table}{part}")').fetchall()
    key = sorted((row[5], row[1]) for row in rows if row[5])
    return Table(part, tuple((row[1], row[2]) for row in rows), tuple(name for _, name in key))


def _holds_rows(db: sqlite3.Connection, table: str, part: str) -> bool | None:
    there = _found(db, table, part).columns
    return bool(db.execute(f'SELECT 1 FROM "{table}{part}" LIMIT 1').fetchall()) if there else None


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """What the system or SQLite says of a path, as an error of ours that names it."""
    try:
        yield
    except (sqlite3.Error, OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            f"the sink's file {str(path)!r} cannot be used: {why}. As path in [sink], name a SQLite database or a file "
            "that is not there yet; a damaged one must be restored, or removed together with the checkpoint."
        ) from error


def _columns(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, _type_of(field)) for field in schema)


def _type_of(field: pa.Field) -> str:
    found = _sqlite_type(field.type)
    if found is None:
        raise UsageError(
            f"the column {field.name!r} is of the type {field.type}, which is not kept in SQLite: cast it, or leave it out"
        )
    return found


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        return _text_time(column.cast(pa.int64()))
    return column


def _text_time(us: pa.Array) -> pa.Array:
    """Microseconds since 1970 as "2007-10-01 00:00:00.000000", in UTC: sortable, and SQLite's functions read it."""
    texts = pc.cast(pc.cast(us, pa.timestamp("us")), pa.string())
    if pc.any(pc.starts_with(texts, "<")).as_py():  # Arrow's "<value out of range: ...>"
        raise ValueError("a time lies too far from the years 1 to 9999 to be written: shorten the rules' durations")
    return texts


def _sqlite_type(kind: pa.DataType) -> str | None:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_string(kind) or pa.types.is_timestamp(kind):
        return "TEXT"
    return "REAL" if pa.types.is_floating(kind) else None
