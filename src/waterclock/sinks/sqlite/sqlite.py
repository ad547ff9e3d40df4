"""Results in a SQLite file: the default sink, nothing to install; times are UTC texts. What it does stands in sql_sink.py.

Rule 1: one connection, one transaction a batch, synchronous=FULL: a commit that returned survives a power cut.
Rule 2: rows of a batch are written in the order they come in, so that a re-run gives the same table byte for byte.
Rule 3: what is wrong with the place is reported before anything is written, by its path; SQLite's own words stand behind.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from waterclock.errors import UsageError
from waterclock.sinks.destination import unwritable
from waterclock.sinks.mirrors.replica import Replica
from waterclock.sinks.sql.dialect import Columns, Dialect, text_times
from waterclock.sinks.sql.sql_sink import SqlSink
from waterclock.sinks.sqlite.destination import sqlite_table
from waterclock.sinks.sqlite.replica import POSITION_TYPES, SQLiteTables
from waterclock.sinks.sqlite.rows import connect
from waterclock.sinks.tables.tables import Table

_WAIT_S = 30  # for another one's lock


class SQLiteSink(SqlSink):
    """A `Sink` on a file; with `mirror`, of changes of tables. The folder of `path` is made."""

    def __init__(self, path: str | Path, table: str = "results", *, mirror: Replica | None = None) -> None:
        self.path = Path(path)
        super().__init__(SQLiteDialect(self.path, _opened(self.path)), sqlite_table(table), mirror)


class SQLiteDialect(Dialect):
    """SQLite, by a connection to the file at `path`."""

    numbers = (("batch_id", "INTEGER"),)
    dead = ("TEXT", "INTEGER", "TEXT", "TEXT")
    batch = ("TEXT", "INTEGER", "TEXT", "TEXT", "TEXT", "REAL")
    owner = ("TEXT", "INTEGER")
    positions = POSITION_TYPES

    def __init__(self, path: Path, db: Any) -> None:
        self.place = str(path)
        self._path = path
        self.db = db

    def columns_of(self, schema: pa.Schema) -> Columns:
        """See `Dialect`."""
        return tuple((field.name, _type_of(field)) for field in schema)

    def found(self, table: str) -> Table:
        """See `Dialect`."""
        rows = self.run(f"PRAGMA table_info({self.name(table)})")
        key = sorted((row[5], row[1]) for row in rows if row[5])
        return Table("", tuple((row[1], row[2]) for row in rows), tuple(name for _, name in key))

    def begin(self, lock: str, may_be_taken_over: bool) -> None:
        """See `Dialect`: the file is locked, whole."""
        self.db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """See `Dialect`."""
        self.db.execute("COMMIT")

    def rollback(self) -> None:
        """See `Dialect`."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def run(self, statement: str, *parameters: object) -> list[Any]:
        """See `Dialect`."""
        rows: list[Any] = self.db.execute(statement, parameters).fetchall()
        return rows

    def insert(self, table: str, rows: pa.Table) -> None:
        """See `Dialect`."""
        plain = [text_times(each) if pa.types.is_timestamp(each.type) else each for each in rows.columns]
        self.db.insert(table, pa.Table.from_arrays(plain, names=rows.column_names))

    def time(self, us: int) -> object:
        """See `Dialect`."""
        return text_times(pa.array([us]))[0].as_py()

    def mirrored(self) -> SQLiteTables:
        """See `Dialect`."""
        return SQLiteTables(self.run, self.db.executemany)

    def errors(self) -> AbstractContextManager[None]:
        """See `Dialect`."""
        return _errors_of(self._path)

    def close(self) -> None:
        """See `Dialect`."""
        with suppress(sqlite3.Error):  # a tidy file is welcome; one that is damaged was reported before
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.db.close()


def look(path: Path, table: str, mirror: Replica | None, results: pa.Schema) -> list[str]:
    """Why a sink could not be opened, as far as its file shows; nothing is made, and nothing is changed."""
    faults = unwritable(path, f"the sink's file {str(path)!r}", is_file=True)
    if faults or not path.exists():
        return faults
    # a reader of a file that nobody has open would leave a log and its index beside it
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    with _errors_of(path), closing(sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)) as db:
        return SqlSink(SQLiteDialect(path, db), table, mirror).look(results)


def _opened(path: Path) -> Any:
    with _errors_of(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        db = connect(path, _WAIT_S)
    try:
        with _errors_of(path):
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
    except UsageError:
        db.close()
        raise
    return db


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


def _type_of(field: pa.Field) -> str:
    kind = field.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_string(kind) or pa.types.is_timestamp(kind):
        return "TEXT"
    if pa.types.is_floating(kind):
        return "REAL"
    raise UsageError(
        f"the column {field.name!r} is of the type {kind}, which is not kept in SQLite: cast it, or leave it out"
    )
