"""Databases beside SQLite and PostgreSQL, seen from outside of their sinks; DuckDB takes changes of tables too."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.sinks.stores import SqlStore, Store, batch
from waterclock import sinks
from waterclock.sinks import Replica, apply_once
from waterclock.streaming import frames

if TYPE_CHECKING:
    from tests.cdc.mariadb import MariaServer


class MySQLStore(SqlStore):
    """A database of a server; each test has one of its own."""

    impossible_tables = ("", "a b", "1st", 'x"; DROP TABLE results; --', "a\x00b", "a" * 52, "\U00010400")
    _count = itertools.count(1)

    def __init__(self, server: MariaServer) -> None:
        self.server, self.name = server, f"sink{next(self._count)}"
        flushed = "SET GLOBAL innodb_flush_log_at_trx_commit = 1"  # else a sink warns
        server.run(flushed, f"CREATE DATABASE {self.name} CHARACTER SET latin1")  # whatever it is, texts are kept
        self.url = f"mysql://root@127.0.0.1:{server.port}/{self.name}"

    def sink(self, table: str = "results") -> sinks.MySQLSink:
        return sinks.MySQLSink(self.url, table)

    def source(self) -> str:
        return f"sinks.MySQLSink({self.url!r})"

    def tables(self) -> list[str]:
        return [name for (name,) in self.ask("SHOW TABLES")]

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.run(statement, database=self.name, sql_mode="ANSI_QUOTES")


class DuckDBStore(SqlStore):
    impossible_tables = ("", "a b", "1st", 'x"; DROP TABLE results; --', "a\x00b")

    def __init__(self, folder: Path) -> None:
        self.path = folder / "deep" / "results.duckdb"

    def sink(self, table: str = "results", mirror: Replica | None = None) -> sinks.DuckDBSink:
        return sinks.DuckDBSink(self.path, table, mirror=mirror)

    def source(self) -> str:
        return f"sinks.DuckDBSink({str(self.path)!r})"

    def mirroring(self, table: str) -> str:
        return f"sinks.DuckDBSink({str(self.path)!r}, {table!r}, mirror=sinks.Replica())"

    def run(self, statement: str) -> None:
        self.path.parent.mkdir(exist_ok=True)
        self.ask(statement)

    def tables(self) -> list[str]:
        return [name for (name,) in self.ask("SELECT table_name FROM duckdb_tables() ORDER BY 1")]

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        import duckdb  # a child that writes to SQLite can do without

        with closing(duckdb.connect(str(self.path))) as other:
            return other.execute(statement).fetchall()  # type: ignore[no-any-return]


def kept(store: Store, kind: pa.DataType, values: list[Any], seen: str = "event_v") -> list[Any]:
    """What a reader finds by `seen` after events with `values` were written."""
    schema = frames.result_schema(pa.string(), pa.schema([("v", kind)]))
    rows = [{"kind": "event", "key": "a", "event": {"v": value}} for value in values]
    with closing(store.sink()) as sink:
        sink.open(schema)
        apply_once(sink, replace(batch(0), results=pa.Table.from_pylist(rows, schema=schema)))
    return [row[0] for row in store.in_order(seen)]
