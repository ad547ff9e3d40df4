"""Results in a SQLite file: the default sink, nothing to install.

    <table>                 the results; the event's columns stand behind them as event_<name>; times are UTC texts
    <table>_dead_letters    lines that could not be read: batch_id, file, line, reason, text
    <table>_batches         a row a batch: query_id, batch_id, offsets, counters (JSON), watermark, seconds

Rule 1: one connection, one transaction a batch, synchronous=FULL: a commit that returned survives a power cut.
Rule 2: rows of a batch are written in the order they come in, so that a re-run gives the same table byte for byte.
Rule 3: what is wrong with the place is told before anything is written, by its path; SQLite's own words stand behind.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.errors import UsageError
from waterclock.sinks.base import Applied, Batch

_COMMON = ("kind", "key", "rule", "due", "emitted_at", "source_id", "result_id")
_DEAD_COLUMNS = [("batch_id", "INTEGER"), ("file", "TEXT"), ("line", "INTEGER"), ("reason", "TEXT"), ("text", "TEXT")]
_BATCH_COLUMNS = [
    ("query_id", "TEXT"),
    ("batch_id", "INTEGER"),
    ("offsets", "TEXT"),
    ("counters", "TEXT"),
    ("watermark", "TEXT"),
    ("seconds", "REAL"),
]
_ONE_ROW_A_BATCH = ", PRIMARY KEY (query_id, batch_id)"
_PARTS = ("", "_dead_letters", "_batches")  # of a sink: the ends of its tables' names


class SQLiteSink:
    """A `Sink` on a file; see the table of tables above. The folder of `path` is made."""

    def __init__(self, path: str | Path, table: str = "results") -> None:
        if not table.isidentifier() or table.lower().startswith("sqlite_"):
            raise UsageError(
                f"sink table {table!r} must be a plain name: letters, digits and _ (sqlite_... is SQLite's own)"
            )
        self._path = Path(path)
        self._table = table
        with _told_by(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30)
        try:
            with _told_by(self._path):
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=FULL")
        except UsageError:
            self._db.close()
            raise

    def open(self, results: pa.Schema) -> None:
        wanted = [("batch_id", "INTEGER"), *columns_of(results)]
        with _told_by(self._path):
            self.begin()
            try:
                self._make_or_check(self._table, wanted)
                self._make_or_check(f"{self._table}_dead_letters", _DEAD_COLUMNS)
                self._make_or_check(f"{self._table}_batches", _BATCH_COLUMNS, _ONE_ROW_A_BATCH)
                self.commit()
            except BaseException:
                self.rollback()
                raise

    def remove(self) -> None:
        """Drop the sink's tables in one transaction; the file, and what else is in it, stays.

        Raises UsageError, and drops nothing, where a table has the name of one of ours and is none.
        """
        with _told_by(self._path):
            self.begin()
            try:
                self._refuse_to_drop()
                for part in _PARTS:
                    self._db.execute(f'DROP TABLE IF EXISTS "{self._table}{part}"')
                self.commit()
            except BaseException:
                self.rollback()
                raise

    def last_applied(self) -> Applied | None:
        query = f'SELECT query_id, batch_id FROM "{self._table}_batches" ORDER BY batch_id DESC LIMIT 1'
        with _told_by(self._path):
            row = self._db.execute(query).fetchone()
        return Applied(*row) if row else None

    def begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        query = f'SELECT 1 FROM "{self._table}_batches" WHERE query_id = ? AND batch_id = ?'
        return self._db.execute(query, (query_id, batch_id)).fetchone() is not None

    def write(self, batch: Batch) -> None:
        self._insert(self._table, batch.batch_id, flat(batch.results))
        self._insert(f"{self._table}_dead_letters", batch.batch_id, batch.dead_letters)
        watermark = None if batch.watermark_us is None else _text_time(pa.array([batch.watermark_us]))[0].as_py()
        counters = json.dumps(dict(batch.counters), sort_keys=True)
        row = (batch.query_id, batch.batch_id, batch.offsets, counters, watermark, batch.seconds)
        self._db.execute(f'INSERT INTO "{self._table}_batches" VALUES (?, ?, ?, ?, ?, ?)', row)

    def commit(self) -> None:
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def totals(self) -> dict[str, int]:
        total: dict[str, int] = {}
        with _told_by(self._path):
            texts = self._db.execute(f'SELECT counters FROM "{self._table}_batches"').fetchall()
        for (text,) in texts:
            for name, value in json.loads(text).items():
                total[name] = total.get(name, 0) + value
        return total

    def close(self) -> None:
        with suppress(sqlite3.Error):  # a tidy file is welcome; one that is damaged was told of before
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()

    def describe(self) -> str:
        return f"the table {self._table!r} in {self._path}"

    def _make_or_check(self, table: str, wanted: list[tuple[str, str]], more: str = "") -> None:
        columns = ", ".join(f"{_quoted(name)} {kind}" for name, kind in wanted)
        self._db.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({columns}{more})')
        found = self._columns(table)
        if found != wanted:
            raise UsageError(_schema_changed(f"the table {table!r} in {self._path}", found, wanted))

    def _refuse_to_drop(self) -> None:
        ours = ({"batch_id", *_COMMON}, {name for name, _ in _DEAD_COLUMNS}, {name for name, _ in _BATCH_COLUMNS})
        for part, needed in zip(_PARTS, ours, strict=True):
            found = {name for name, _ in self._columns(self._table + part)}
            if found and not found >= needed:
                raise UsageError(
                    f"the table {self._table + part!r} in {self._path} is none that waterclock made, so it is not "
                    "removed: name another table or file in [sink]"
                )

    def _columns(self, table: str) -> list[tuple[str, str]]:
        return [(row[1], row[2]) for row in self._db.execute(f'PRAGMA table_info("{table}")')]

    def _insert(self, table: str, batch_id: int, rows: pa.Table) -> None:
        if rows.num_rows:
            places = ", ".join("?" * (rows.num_columns + 1))
            self._db.executemany(f'INSERT INTO "{table}" VALUES ({places})', _tuples(batch_id, rows))


@contextmanager
def _told_by(path: Path) -> Iterator[None]:
    """What the system or SQLite says of a path, as an error of ours that names it."""
    try:
        yield
    except (sqlite3.Error, OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            f"the sink's file {str(path)!r} cannot be used: {why}. As path in [sink], name a SQLite database or a file "
            "that is not there yet; a damaged one must be restored, or removed together with the checkpoint."
        ) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def columns_of(results: pa.Schema) -> list[tuple[str, str]]:
    """(name, SQLite type) of the flattened results."""
    event = results.field("event").type
    fields = [results.field(name) for name in _COMMON] + [event.field(i) for i in range(event.num_fields)]
    names = [*_COMMON, *(f"event_{event.field(i).name}" for i in range(event.num_fields))]
    return [(name, _sqlite_type(field.type)) for name, field in zip(names, fields, strict=True)]


def flat(results: pa.Table) -> pa.Table:
    """Results with the event's struct taken apart."""
    common = [results.column(name) for name in _COMMON]
    event = results.column("event").combine_chunks()
    if isinstance(event, pa.ChunkedArray):
        event = pa.concat_arrays(event.chunks) if event.num_chunks else pa.array([], event.type)
    parts = event.flatten()
    names = [*_COMMON, *(f"event_{event.type.field(i).name}" for i in range(len(parts)))]
    return pa.Table.from_arrays([*common, *parts], names=names)


def _tuples(batch_id: int, rows: pa.Table) -> Iterable[tuple[object, ...]]:
    columns = [_plain(column).to_pylist() for column in rows.columns]
    return zip([batch_id] * rows.num_rows, *columns, strict=True)


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


def _sqlite_type(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    return "REAL" if pa.types.is_floating(kind) else "TEXT"


def _schema_changed(where: str, found: list[tuple[str, str]], wanted: list[tuple[str, str]]) -> str:
    gone, new = sorted(set(found) - set(wanted)), sorted(set(wanted) - set(found))
    return (
        f"{where} has other columns than this pipeline writes (only there: {gone}, only here: {new}). "
        "Name another table in [sink], or start over with --fresh."
    )
