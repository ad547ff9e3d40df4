"""Places that sinks write to, seen from outside, with batches to write and ways to die while writing.

A `Store` makes sinks, looks with a connection of its own, and tells a child process how to make a sink. A new sink
joins the contract suites, `test_contract*.py`, with one more class here and in the fixture `any_store` of
conftest.py.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tests.processes import Done, in_a_fork
from waterclock import sinks
from waterclock.sinks import Batch, Replica, Sink, SQLiteSink
from waterclock.streaming import frames

if TYPE_CHECKING:
    from tests.postgres_server import PostgresServer

EVENT = pa.schema([("case", pa.string()), ("n", pa.int64()), ("d", pa.float64()), ("b", pa.bool_())])
SCHEMA = frames.result_schema(pa.string(), EVENT)
COUNTERS = {"events": 2, "late": 1}


class Store(Protocol):
    """A place for results, seen from outside of the sink."""

    impossible_tables: Sequence[str]

    def sink(self, table: str = "results") -> Sink: ...

    def source(self) -> str:
        """An expression that makes the sink in another process, where `sinks` is waterclock.sinks."""

    def look(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        """Rows as another connection sees them, ordered by the first two columns."""

    def in_order(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        """Rows of a table in the order in which a sink added them."""

    def make_table_of_others(self, table: str) -> None:
        """A table of somebody else, with two columns: batch_id and mine."""

    def tables(self) -> list[str]:
        """The names of all tables."""


class MirroringStore(Store, Protocol):
    """A place that takes changes of tables too."""

    def sink(self, table: str = "results", mirror: Replica | None = None) -> Sink: ...

    def mirroring(self, table: str) -> str:
        """`source` of a sink of changes."""

    def mirrored(self, table: str) -> str:
        """The name of a mirrored table in a question."""


class Database(Store, Protocol):
    """A place that speaks SQL."""

    def run(self, statement: str) -> None:
        """Change something there, as somebody else does."""


class SqlStore:
    """What all databases are asked alike; `ask` is the store's own."""

    order = "batch_id, batch_row"
    apart = '"."'  # between schema and table

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def mirrored(self, table: str) -> str:
        return f'"{table}"'.replace(".", self.apart)

    def look(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        return self.ask(f"SELECT {columns} FROM {table} ORDER BY 1, 2")

    def in_order(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        return self.ask(f"SELECT {columns} FROM {table} ORDER BY {self.order}")

    def make_table_of_others(self, table: str) -> None:
        self.run(f"CREATE TABLE {table} (batch_id int, mine int)")

    def run(self, statement: str) -> None:
        self.ask(statement)


class SQLiteStore(SqlStore):
    order, apart = "rowid", "."
    impossible_tables = ("", "a b", "1st", 'x"; DROP TABLE results; --', "a\x00b", "sqlite_results")

    def __init__(self, folder: Path) -> None:
        self.path = folder / "deep" / "results.db"

    def sink(self, table: str = "results", mirror: Replica | None = None) -> SQLiteSink:
        return SQLiteSink(self.path, table, mirror=mirror)

    def source(self) -> str:
        return f"sinks.SQLiteSink({str(self.path)!r})"

    def mirroring(self, table: str) -> str:
        return f"sinks.SQLiteSink({str(self.path)!r}, {table!r}, mirror=sinks.Replica())"

    def tables(self) -> list[str]:
        return [name for (name,) in self.ask("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        self.path.parent.mkdir(exist_ok=True)
        with closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as other:
            return other.execute(statement).fetchall()


class PostgresStore(SqlStore):
    impossible_tables = ("", "a b", "1st", 'x"; DROP TABLE results; --', "a\x00b", "a" * 51, "\u00e9" * 26)
    _count = itertools.count(1)

    def __init__(self, server: PostgresServer) -> None:
        self.server, self.schema = server, f"s{next(self._count)}"
        self.run(f"CREATE SCHEMA {self.schema}")

    def sink(self, table: str = "results", mirror: Replica | None = None) -> sinks.PostgresSink:
        return sinks.PostgresSink(self.server.url(), table, schema=self.schema, mirror=mirror)

    def source(self) -> str:
        return f"sinks.PostgresSink({self.server.url()!r}, schema={self.schema!r})"

    def mirroring(self, table: str) -> str:
        return f"sinks.PostgresSink({self.server.url()!r}, {table!r}, schema={self.schema!r}, mirror=sinks.Replica())"

    def tables(self) -> list[str]:
        rows = self.ask(f"SELECT tablename FROM pg_tables WHERE schemaname = '{self.schema}' ORDER BY 1")
        return [name for (name,) in rows]

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg  # a child that writes to SQLite can do without

        options = f"-c search_path={self.schema} -c timezone=UTC"
        with closing(psycopg.connect(self.server.url(), autocommit=True, options=options)) as other:
            cursor = other.execute(statement)
            return cursor.fetchall() if cursor.description else []


class DeltaStore:
    impossible_tables = (".", "..", "a\x00b", "a?b", "%61", "a*")

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "deep" / "lake"

    def sink(self, table: str = "results", mirror: Replica | None = None) -> sinks.DeltaSink:
        return sinks.DeltaSink(f"{self.folder}/{table}", mirror=mirror)

    def source(self) -> str:
        return f"sinks.DeltaSink({str(self.folder / 'results')!r})"

    def mirroring(self, table: str) -> str:
        return f"sinks.DeltaSink({str(self.folder / table)!r}, mirror=sinks.Replica())"

    def mirrored(self, table: str) -> str:
        return f'"{table}"'

    def look(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        return self._ask(columns, table, "1, 2")

    def in_order(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        return self._ask(columns, table, "batch_id" if table.endswith("_dead_letters") else "batch_id, batch_row")

    def make_table_of_others(self, table: str) -> None:
        from deltalake import DeltaTable

        DeltaTable.create(self.folder / table, pa.schema([("batch_id", pa.int64()), ("mine", pa.int64())]))

    def tables(self) -> list[str]:
        return sorted(path.parent.name for path in self.folder.glob("*/_delta_log"))

    def _ask(self, columns: str, table: str, order: str) -> list[tuple[Any, ...]]:
        from deltalake import DeltaTable, QueryBuilder  # a child that writes to SQLite can do without

        found = QueryBuilder().register("t", DeltaTable(self.folder / table.strip('"').replace(".", "/")))
        rows = pa.table(found.execute(f"SELECT {columns} FROM t ORDER BY {order}")).to_pylist()
        return [tuple(row.values()) for row in rows]


class IcebergStore:
    """A catalog of SQLite in a folder, and its warehouse beside it."""

    impossible_tables = ("", "a b", ".a", "lake.", 'a"b', "a\x00b", "é", "lake")

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "deep"
        self.settings = {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/warehouse",
        }

    def sink(self, table: str = "results") -> sinks.IcebergSink:
        return sinks.IcebergSink(self.named(table), self.settings)

    def named(self, table: str) -> str:
        return table if table in self.impossible_tables else f"lake.{table}"

    def source(self) -> str:
        return f"sinks.IcebergSink('lake.results', {self.settings!r})"

    def look(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        return sorted(self._rows(columns, table), key=lambda row: row[:2])

    def in_order(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        return [row[2:] for row in sorted(self._rows(f"batch_id, batch_row, {columns}", table))]

    def make_table_of_others(self, table: str) -> None:
        self.folder.mkdir(exist_ok=True)
        with closing(self.catalog()) as catalog:
            catalog.create_namespace_if_not_exists("lake")
            catalog.create_table(f"lake.{table}", pa.schema([("batch_id", pa.int64()), ("mine", pa.int64())]))

    def tables(self) -> list[str]:
        with closing(self.catalog()) as catalog:
            return sorted(name for _, name in catalog.list_tables("lake"))

    def catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog  # a child that writes to SQLite can do without

        return load_catalog("default", **self.settings)

    def table(self, table: str = "results") -> Any:
        with closing(self.catalog()) as catalog:
            return catalog.load_table(f"lake.{table}")

    def _rows(self, columns: str, table: str) -> list[tuple[Any, ...]]:
        names = columns_in(columns)
        return [tuple(row[name] for name in names) for row in self.table(table).scan().to_arrow().to_pylist()]


class TopicStore:
    """Topics of a broker; each test has names of its own."""

    impossible_tables = ("", ".", "..", "a b", 'a"b', "a\x00b", "é", "a" * 238)
    _count = itertools.count(1)

    def __init__(self, servers: str) -> None:
        self.servers, self._prefix = servers, f"t{next(self._count)}."

    def sink(self, table: str = "results") -> sinks.TopicSink:
        return sinks.TopicSink(self.servers, self.named(table), partitions=1)

    def named(self, table: str) -> str:
        return table if table in self.impossible_tables else self._prefix + table

    def source(self) -> str:
        return f"sinks.TopicSink({self.servers!r}, {self.named('results')!r}, partitions=1)"

    def look(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        return sorted(self.in_order(columns, table), key=lambda row: row[:2])

    def in_order(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        names = columns_in(columns)
        return [tuple(row[name] for name in names) for _, row in self.records(table) if "batch_id" in row]

    def records(self, table: str = "results") -> list[tuple[bytes | None, dict[str, Any]]]:
        """Keys and values of what is committed."""
        from waterclock.clock import SystemClock
        from waterclock.kafka.client import Client, Remedies, committed
        from waterclock.kafka.settings import READING, base_settings

        settings = {**base_settings(self.servers, {}), **READING, "group.id": "unused"}
        name, found = self.named(table), list[tuple[bytes | None, dict[str, Any]]]()
        with closing(Client(settings, 10, Remedies("settings", "servers"))) as client:
            ends = client.ends(client.partitions([name]))
            for partition, end in ends.items():
                for message in committed(settings, partition, 0, end, SystemClock()):
                    row = json.loads(message.value() or b"null")
                    found.append((message.key(), row if isinstance(row, dict) else {}))
        return found

    def make_table_of_others(self, table: str) -> None:
        self.admin().make(self.named(table), 1)
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers})
        producer.produce(self.named(table), b"mine", b"mine")
        assert not producer.flush(10)

    def tables(self) -> list[str]:
        return sorted(
            name.removeprefix(self._prefix) for name in self.admin().topics() if name.startswith(self._prefix)
        )

    def admin(self) -> Any:
        from waterclock.kafka.admin import Admin
        from waterclock.kafka.settings import base_settings

        return Admin(base_settings(self.servers, {}))


def columns_in(columns: str) -> list[str]:
    """The names in a list of SQL's: a name is quoted where a database needs it."""
    return [name.strip('"') for name in columns.split(", ")]


def results(batch_id: int, count: int = 2) -> pa.Table:
    rows = [
        {
            "kind": "event",
            "key": "a",
            "rule": "order",
            "due": n,
            "emitted_at": None,
            "source_id": f"{batch_id}-{n}",
            "result_id": f"r{batch_id}-{n}",
            "event": {"case": "a" * (1 + n % 500), "n": n, "d": 0.5, "b": True},
        }
        for n in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def batch(batch_id: int, query_id: str = "q", count: int = 2, counters: Mapping[str, int] = COUNTERS) -> Batch:
    dead = pa.Table.from_pylist(
        [{"file": "f", "line": batch_id, "reason": "bad", "text": "{"}], schema=frames.DEAD_SCHEMA
    )
    return Batch(query_id, batch_id, f"offsets {batch_id}", results(batch_id, count), dead, counters, 1_000_000, 0.25)


def everything(store: Store) -> list[Any]:
    return [
        store.look("batch_id, source_id, result_id, kind, rule"),
        store.look("batch_id, line, file, reason, text", "results_dead_letters"),
        store.look("batch_id, query_id, offsets", "results_batches"),
    ]


def of_batches(*batch_ids: int) -> list[Any]:
    """What another connection sees of these batches, and of no others."""
    return [
        [(i, f"{i}-{n}", f"r{i}-{n}", "event", "order") for i in batch_ids for n in range(2)],
        [(i, i, "f", "bad", "{") for i in batch_ids],
        [(i, "q", f"offsets {i}") for i in batch_ids],
    ]


class Dying:
    """A sink that kills its process with SIGKILL right before or after one of its calls."""

    def __init__(self, sink: Sink, before: str | None, after: str | None) -> None:
        self._sink, self._before, self._after = sink, before, after

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if name == self._before:
                os.kill(os.getpid(), signal.SIGKILL)
            result = getattr(self._sink, name)(*arguments)
            if name == self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call


class Deadly(Mapping[str, int]):
    """Counters that kill the process that reads them: somewhere inside `write`."""

    def __getitem__(self, name: str) -> int:
        return os.kill(os.getpid(), signal.SIGKILL) or 0

    def __iter__(self) -> Iterator[str]:
        return iter(["events"] if self["events"] == 0 else [])

    def __len__(self) -> int:
        return 1


CHILD = """
from tests.sinks.stores import Deadly, Dying, SCHEMA, batch
from waterclock import sinks
from waterclock.sinks import apply_once
sink = {sink}
sink.open(SCHEMA)
{body}
"""


def in_a_child(store: Store, body: str) -> Done:
    """Run it with a sink of this store, in a process of its own."""
    return in_a_fork(CHILD.format(sink=store.source(), body=body))
