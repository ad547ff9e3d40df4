"""format = "sqlite": a file of SQLite, the default sink, nothing to install. The reference is made of this.

path     the file; it and its folder are made
table    the table of results; TABLE_dead_letters and TABLE_batches stand beside it. Letters, digits and _;
         not sqlite_...
schemas  for changes of tables: see format = "postgres". A column gets no type here
on_drop  as format = "postgres" has it

Times are UTC texts. What the sink does stands in sql_sink.py.

Rule 1: one connection, one transaction a batch, synchronous=FULL: a commit that returned survives a power cut.
Rule 2: rows of a batch are written in the order they come in, so that a re-run gives the same table byte for byte.
Rule 3: what is wrong with the place is reported before anything is written, by its path; SQLite's own words stand behind.
        What goes wrong later, too.
Rule 4: a mirrored table shop.item of the source is the table "shop.item" of the file. Its columns have no type, so that
        every value stays as it is: whole numbers of 64 bits as integers, texts, JSON and numbers with a point as texts with
        all their digits, bytes as blobs.
Rule 5: SQLite does not tell names apart that differ by the case of A to Z only. Two tables, or two columns, of a source
        that does are refused before a row of the second one is written: it would go to the first one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from waterclock.errors import EnvironmentMissing, UsageError, unstopped
from waterclock.sinks.base import Sink
from waterclock.sinks.destination import Destination, Findings, SinkTable, unwritable
from waterclock.sinks.mirrors import STAGED, Form, ReducedRow, Replica, literal
from waterclock.sinks.sql.dialect import Columns, SqlDialect, text_times
from waterclock.sinks.sql.sql_sink import SqlSink
from waterclock.sinks.sqlite.rows import connect
from waterclock.sinks.tables import Table, alike, constrained, folded, quoted

_WAIT_S = 30  # for another one's lock
_STAGED = "temp.waterclock_staged"


@dataclass(frozen=True, slots=True)
class SQLiteFile(Destination):
    """A file of SQLite."""

    kind = "a file of SQLite"
    keys = ("path", "table", "schemas", "on_drop")
    records_inputs = True
    takes_changes = True

    path: Path
    table: str
    mirror: Replica | None = None

    @classmethod
    def from_table(cls, given: SinkTable) -> SQLiteFile:
        """See `Destination`."""
        table = given.text("table", "changes" if given.changes else "results")
        path = given.place("path", given.text("path"))
        return cls(path, table, Replica.from_table(given) if given.changes else None)

    @property
    def place(self) -> str:
        """See `Destination`.

        >>> SQLiteFile(Path("/out/orders.db"), "results").place
        "the table 'results' in /out/orders.db"
        """
        return f"the table {self.table!r} in {self.path}"

    @property
    def alone(self) -> str:
        """See `Destination`."""
        return f"the source's tables in {self.path}" if self.mirror else self.place

    def sink(self) -> Sink:
        """See `Destination`; what is missing of the file and its folder is made."""
        return SQLiteSink(self.path, self.table, mirror=self.mirror)

    def look(self, results: pa.Schema | None, found: Findings) -> None:
        """See `Destination`: a sink would make the file."""
        if results is None:
            found.unchecked.append(f"{self.place}: its columns")
        else:
            found.faults.extend(look(self.path, self.table, self.mirror, results))

    def is_there(self) -> bool:
        """See `Destination`."""
        return self.path.exists()


def sqlite_table(name: str) -> str:
    """`name`, which is written into SQL; UsageError if it is no plain one.

    >>> sqlite_table("results")
    'results'
    """
    if not name.isidentifier() or name.lower().startswith("sqlite_"):
        raise UsageError(
            f"sink table {name!r} must be a plain name: letters, digits and _ (sqlite_... is SQLite's own)"
        )
    return name


# The sink ------------------------------------------------------------------------------------------------------


class SQLiteSink(SqlSink):
    """A `Sink` on a file; with `mirror`, of changes of tables. The folder of `path` is made."""

    def __init__(self, path: str | Path, table: str = "results", *, mirror: Replica | None = None) -> None:
        self.path = Path(path)
        super().__init__(SQLiteDialect(self.path, _opened(self.path)), sqlite_table(table), mirror)


class SQLiteDialect(SqlDialect):
    """SQLite, by a connection to the file at `path`."""

    numbers = (("batch_id", "INTEGER"),)
    dead = ("TEXT", "INTEGER", "TEXT", "TEXT")
    batch = ("TEXT", "INTEGER", "TEXT", "TEXT", "TEXT", "REAL")
    owner = ("TEXT", "INTEGER")
    positions = ("TEXT", "TEXT", "TEXT", "INTEGER")

    def __init__(self, path: Path, db: Any) -> None:
        self.place = str(path)
        self._path = path
        self.db = db

    def columns_of(self, schema: pa.Schema) -> Columns:
        """See `SqlDialect`."""
        return tuple((field.name, _type_of(field)) for field in schema)

    def found(self, table: str) -> Table:
        """See `SqlDialect`."""
        rows = self.run(f"PRAGMA table_info({self.name(table)})")
        key = sorted((row[5], row[1]) for row in rows if row[5])
        return Table("", tuple((row[1], row[2]) for row in rows), tuple(name for _, name in key))

    def begin(self, lock: str, may_be_taken_over: bool) -> None:
        """See `SqlDialect`: the file is locked, whole."""
        with _at_work(self._path):
            self.db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """See `SqlDialect`."""
        with _at_work(self._path):
            self.db.execute("COMMIT")

    def rollback(self) -> None:
        """See `SqlDialect`."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def run(self, statement: str, *parameters: object) -> list[Any]:
        """See `SqlDialect`."""
        with _at_work(self._path):
            rows: list[Any] = self.db.execute(statement, parameters).fetchall()
        return rows

    def insert(self, table: str, rows: pa.Table) -> None:
        """See `SqlDialect`."""
        plain = [text_times(each) if pa.types.is_timestamp(each.type) else each for each in rows.columns]
        with _at_work(self._path):
            self.db.insert(table, pa.Table.from_arrays(plain, names=rows.column_names))

    def time(self, us: int) -> object:
        """See `SqlDialect`."""
        return text_times(pa.array([us]))[0].as_py()

    def mirrored(self) -> SQLiteTables:
        """See `SqlDialect`."""
        return SQLiteTables(self.run, self.db.executemany)

    def errors(self) -> AbstractContextManager[None]:
        """See `SqlDialect`."""
        return _errors_of(self._path)

    def close(self) -> None:
        """See `SqlDialect`."""
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
        raise _unusable(path, why) from error


def _unusable(path: Path, why: object) -> UsageError:
    return UsageError(
        f"the sink's file {str(path)!r} cannot be used: {why}. As path in [sink], name a SQLite database or a file "
        "that is not there yet; a damaged one must be restored, or removed together with the checkpoint."
    )


@contextmanager
def _at_work(path: Path) -> Iterator[None]:
    """No room, another one's lock, a damage, in a file that was opened: an error of ours. A wrong statement is none."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_ERROR:
            raise
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise _unusable(path, error) from error
        if code == sqlite3.SQLITE_CONSTRAINT:
            raise constrained(path, str(error)) from error
        raise EnvironmentMissing(
            f"the sink's file {str(path)!r} cannot be written or read: {unstopped(error)}. See to its disk and rights, and "
            "to who else has it open, and start again: what was committed stays"
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


# Mirrored tables -----------------------------------------------------------------------------------------------


Run = Callable[..., list[tuple[Any, ...]]]


class SQLiteTables:
    """A `MirroringDatabase` in a transaction that has begun; `run_many` is executemany."""

    def __init__(self, run: Run, run_many: Callable[..., object]) -> None:
        self._run, self._run_many = run, run_many

    def form(self, table: str) -> Form | None:
        """See `MirroringDatabase`."""
        others = self._run("SELECT name FROM sqlite_master WHERE name = ? COLLATE NOCASE AND name <> ?", table, table)
        if others:
            raise alike(f"the tables {others[0][0]} and {table}", "SQLite")
        found = self.run(f"PRAGMA table_info({self.name(table)})")
        key = tuple(name for _, name in sorted((row[5], row[1]) for row in found if row[5]))
        return Form({row[1]: "" for row in found}, key) if found else None

    def name(self, table: str) -> str:
        """See `MirroringDatabase`."""
        return quoted(table)

    def make(self, table: str, columns: dict[str, str], key: Sequence[str]) -> None:
        """See `MirroringDatabase`."""
        self.create(table, dict.fromkeys(columns, ""), key)

    def create(self, table: str, columns: dict[str, str], key: Sequence[str]) -> None:
        """See `FollowingDatabase`."""
        seen: dict[str, str] = {}
        for name in columns:
            if (other := seen.setdefault(folded(name), name)) != name:
                raise alike(f"the columns {other} and {name} of {table}", "SQLite")
        self.run(f"CREATE TABLE {self.name(table)} ({Table('', tuple(columns.items()), tuple(key)).definition()})")

    def type_of(self, source: str, declared: str) -> str:
        """See `FollowingDatabase`, and rule 4: a column that is widened later could not lose an affinity to numbers."""
        return ""

    def value(self, word: str, value: tuple[str, str]) -> str:
        """See `FollowingDatabase`: a whole number is one, as it is in rows that come."""
        made = _value(value)
        return str(made) if isinstance(made, int) else literal(value[1])

    def retype(self, table: str, column: str, word: str) -> None:
        """See `FollowingDatabase`: a column takes every value."""

    def add(self, table: str, column: str, kind: str) -> None:
        """See `MirroringDatabase`."""
        there = [row[1] for row in self.run(f"PRAGMA table_info({self.name(table)})")]
        if others := [name for name in there if folded(name) == folded(column)]:
            raise alike(f"the columns {others[0]} and {column} of {table}", "SQLite")
        self.run(f"ALTER TABLE {self.name(table)} ADD COLUMN {quoted(column)}")

    def widen(self, table: str, column: str, kind: str) -> None:
        """See `MirroringDatabase`: a column without a type takes everything."""

    def stage(self, table: str, kinds: Mapping[str, str], rows: Sequence[ReducedRow]) -> str:
        """See `MirroringDatabase`."""
        columns = ", ".join(map(quoted, [*STAGED, *kinds]))
        self.run(f"CREATE TABLE {_STAGED} ({columns})")
        places = ", ".join("?" * (len(STAGED) + len(kinds)))
        made = [
            [row.key, row.position, row.gone, row.whole, *(_value(row.values.get(name)) for name in kinds)]
            for row in rows
        ]
        self._run_many(f"INSERT INTO {_STAGED} VALUES ({places})", made)
        return _STAGED

    def drop(self, staged: str) -> None:
        """See `MirroringDatabase`."""
        self.run(f"DROP TABLE {staged}")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """See `MirroringDatabase`."""
        return list(self._run(statement))


def _value(value: tuple[str, str | None] | None) -> Any:
    """
    >>> _value(("i", "4")), _value(("n", "1.50")), _value(("b", "true")), _value(("x", chr(92) + "x00ff")), _value(None)
    (4, '1.50', 1, b'\\x00\\xff', None)
    """
    kind, text = value or ("", None)
    if text is None:
        return None
    if kind == "i":
        return int(text)
    if kind == "b":
        return int(text == "true")
    return bytes.fromhex(text[2:]) if kind == "x" else text
