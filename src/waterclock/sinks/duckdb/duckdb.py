"""Results in a file of DuckDB: Arrow in one insert, offsets in the same transaction. What it does stands in sql_sink.py.

Rule 1: DuckDB lets one process open a file to write. A second one is refused; in one process, sinks on a file take turns.
Rule 2: between two batches the file is open, so that no other process comes in between. Who wants to read it meanwhile does
        so in this process, or reads a copy.
Rule 3: rows of a batch stand in no order in DuckDB; `batch_row` counts them, from 0, as they came.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from waterclock.errors import UsageError
from waterclock.sinks.base import first_line
from waterclock.sinks.destination import unwritable
from waterclock.sinks.duckdb.destination import duckdb_table
from waterclock.sinks.duckdb.mirrored import DuckDBTables
from waterclock.sinks.mirrors import Replica
from waterclock.sinks.sql.dialect import Columns, SqlDialect
from waterclock.sinks.sql.sql_sink import SqlSink
from waterclock.sinks.tables import Table, constrained

_WAIT_S = 30  # for another sink of this process
_TYPES = {
    pa.string(): "VARCHAR",
    pa.bool_(): "BOOLEAN",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
}
_COLUMNS = """
    SELECT column_name, data_type FROM duckdb_columns()
    WHERE database_name = current_database() AND schema_name = current_schema() AND table_name = ? ORDER BY column_index
"""
_KEY = """
    SELECT unnest(constraint_column_names) FROM duckdb_constraints()
    WHERE database_name = current_database() AND schema_name = current_schema() AND table_name = ?
    AND constraint_type = 'PRIMARY KEY'
"""
_turns: dict[Path, threading.Lock] = defaultdict(threading.Lock)  # of the files that this process has open


class DuckDBSink(SqlSink):
    """A `Sink` on a file of DuckDB; with `mirror`, of changes of tables. The folder of `path` is made."""

    def __init__(self, path: str | Path, table: str = "results", *, mirror: Replica | None = None) -> None:
        self.path = Path(path)
        super().__init__(DuckDBDialect(self.path), duckdb_table(table), mirror)


class DuckDBDialect(SqlDialect):
    """DuckDB, by a connection to the file at `path`, which is made when it is first needed."""

    numbers = (("batch_id", "BIGINT"), ("batch_row", "INTEGER"))
    dead = ("VARCHAR", "BIGINT", "VARCHAR", "VARCHAR")
    batch = ("VARCHAR", "BIGINT", "VARCHAR", "VARCHAR", "TIMESTAMP WITH TIME ZONE", "DOUBLE")
    owner = ("VARCHAR", "BIGINT")
    positions = ("VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN")
    schema = "main"

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self.place = str(path)
        self._path = path
        self._read_only = read_only
        self._made: Any = None
        self._turn: threading.Lock | None = None  # held, with a transaction that was begun

    def columns_of(self, schema: pa.Schema) -> Columns:
        """See `SqlDialect`."""
        return tuple((field.name, _type_of(field)) for field in schema)

    def found(self, table: str) -> Table:
        """See `SqlDialect`."""
        columns, key = self.run(_COLUMNS, table), self.run(_KEY, table)
        return Table("", tuple(columns), tuple(name for (name,) in key))

    def begin(self, lock: str, may_be_taken_over: bool) -> None:
        """See `SqlDialect`."""
        turn = _turns[self._path.resolve()]
        if not turn.acquire(timeout=_WAIT_S):
            raise UsageError(
                f"another sink of this process has held {self._path} for {_WAIT_S} s: name another path for one of the two"
            )
        self._turn = turn
        self.run("BEGIN")

    def commit(self) -> None:
        """See `SqlDialect`."""
        self.run("COMMIT")
        self._next()

    def rollback(self) -> None:
        """See `SqlDialect`."""
        if self._turn is not None:
            with suppress(UsageError):  # it failed before it had begun
                self.run("ROLLBACK")
            self._next()

    def _next(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.release()

    def run(self, statement: str, *parameters: object) -> list[Any]:
        """See `SqlDialect`."""
        with self.errors():
            rows: list[Any] = self._connected().execute(statement, parameters).fetchall()
        return rows

    def insert(self, table: str, rows: pa.Table) -> None:
        """See `SqlDialect`."""
        self._load(f"INSERT INTO {table} SELECT * FROM waterclock_rows", rows)

    def _load(self, statement: str, rows: pa.Table) -> None:
        """Run a statement that reads `rows` as waterclock_rows."""
        with self.errors():
            self._connected().register("waterclock_rows", rows)
            try:
                self._connected().execute(statement)
            finally:
                with suppress(duckdb.Error):  # in a transaction that failed nothing runs
                    self._connected().unregister("waterclock_rows")

    def mirrored(self) -> DuckDBTables:
        """See `SqlDialect`."""
        return DuckDBTables(self.run, self._load)

    def errors(self) -> AbstractContextManager[None]:
        """See `SqlDialect`."""
        return _errors_of(self._path)

    def close(self) -> None:
        """See `SqlDialect`."""
        if self._made is not None:
            self._made.close()
            self._made = None

    def _connected(self) -> Any:
        if self._made is None:
            if not self._read_only:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._made = duckdb.connect(str(self._path), read_only=self._read_only)
            except duckdb.ConnectionException:  # this process has it open to write
                self._made = duckdb.connect(str(self._path))
        return self._made


class OpenElsewhere(UsageError):
    """Another process has the file open."""


def look(path: Path, table: str, mirror: Replica | None, results: pa.Schema) -> list[str]:
    """Why a sink could not be opened, as far as its file shows; nothing is made, and nothing is changed."""
    faults = unwritable(path, f"the sink's file {str(path)!r}", is_file=True)
    if faults or not path.exists():
        return faults
    with closing(SqlSink(DuckDBDialect(path, read_only=True), table, mirror)) as sink:
        return sink.look(results)


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """What the system or DuckDB says of a path, as an error of ours that names it."""
    try:
        yield
    except (duckdb.Error, OSError) as error:
        if "Conflicting lock" in str(error):
            raise OpenElsewhere(
                f"the sink's file {str(path)!r} is open in another process: DuckDB lets one write, and nobody read beside "
                "it. Close it there, or name another path in [sink]"
            ) from error
        if isinstance(error, duckdb.ConstraintException):
            raise constrained(path, first_line(error)) from error
        if isinstance(error, duckdb.ConversionException):
            raise UsageError(
                f"a value does not fit the type of its column in {str(path)!r}: {first_line(error)}. Give the column the "
                "type VARCHAR there (ALTER TABLE ... ALTER COLUMN ... TYPE VARCHAR), and start again. What was committed "
                "stays"
            ) from error
        raise UsageError(
            f"the sink's file {str(path)!r} cannot be used: {first_line(error)}. As path in [sink], name a file of DuckDB "
            "or one that is not there yet. What was committed stays"
        ) from error


def _type_of(field: pa.Field) -> str:
    if pa.types.is_timestamp(field.type) and field.type.unit == "us":
        return "TIMESTAMP WITH TIME ZONE" if field.type.tz else "TIMESTAMP"
    if field.type not in _TYPES:
        raise UsageError(f"the column {field.name!r} is of the type {field.type}, which is not kept in DuckDB")
    return _TYPES[field.type]
