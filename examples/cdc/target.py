"""Where the changes end up: PostgreSQL, a file of SQLite, or tables of Delta Lake. Each tells what it holds, as texts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

from waterclock.errors import EnvironmentMissing
from waterclock.examples.processes import Process

from .servers import Postgres
from .shop import DATABASE

if TYPE_CHECKING:
    import pyarrow as pa

WAREHOUSE = "warehouse"
Row = dict[str, Any]
Told = tuple[str, str, str, bool]


class Target(Protocol):
    """Where the pipeline of the demo writes to. A question may fail while it is busy or down: then it is asked again."""

    name: str  # as people call it
    processes: list[Process]

    def start(self) -> None: ...

    def sink(self) -> str:
        """The lines of [sink] in the pipeline's file."""

    def offsets(self) -> str | None:
        """Up to where the topic is applied, in Spark's words; None where nothing is."""

    def counted(self, counter: str) -> int:
        """The sum of a counter over all batches."""

    def letters(self) -> int:
        """How many dead letters there are."""

    def columns(self) -> list[tuple[str, str, str]]:
        """Database, table and column of what is mirrored, and of what else stands there."""

    def rows(self, table: str) -> list[Row]:
        """The rows of a table of the shop."""

    def positions(self) -> list[Told]:
        """Table, key, position, and whether the row is deleted."""


class PostgresTarget:
    """A database of a PostgreSQL server."""

    name = "PostgreSQL"

    def __init__(self, server: Postgres) -> None:
        self._server, self.processes = server, [server.process]

    def start(self) -> None:
        self._server.start(WAREHOUSE)

    def sink(self) -> str:
        return f'format = "postgres"\nurl = "{self._server.url(WAREHOUSE)}"\n'

    def offsets(self) -> str | None:
        rows = self._ask("select offsets from changes_batches order by batch_id desc limit 1")
        return rows[0][0] if rows else None

    def counted(self, counter: str) -> int:
        query = f"select coalesce(sum((counters->>'{counter}')::bigint), 0) from changes_batches"
        return int(self._ask(query)[0][0])

    def letters(self) -> int:
        return int(self._ask("select count(*) from changes_dead_letters")[0][0])

    def columns(self) -> list[tuple[str, str, str]]:
        of_ours = "table_schema not in ('pg_catalog', 'information_schema') and table_name not like 'changes\\_%'"
        what = "table_schema, table_name, column_name"
        return [*self._ask(f"select {what} from information_schema.columns where {of_ours} order by 1, 2, 3")]

    def rows(self, table: str) -> list[Row]:
        with psycopg.connect(self._server.url(WAREHOUSE)) as connection:
            where = f"table_schema = '{DATABASE}' and table_name = '{table}'"
            there = connection.execute(f"select column_name from information_schema.columns where {where}").fetchall()
            names = [name for (name,) in there]
            if not names:
                return []
            columns = ", ".join(f'"{name}"::text' for name in names)
            rows = connection.execute(f"select {columns} from {DATABASE}.{table}")
            return [dict(zip(names, row, strict=True)) for row in rows]

    def positions(self) -> list[Told]:
        return [*self._ask("select table_name, key, position, deleted from changes_positions")]

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        return self._server.ask(WAREHOUSE, query)


class SQLiteTarget:
    """Tables in a file of SQLite."""

    name = "SQLite"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.processes: list[Process] = []

    def start(self) -> None:
        """There is no server."""

    def sink(self) -> str:
        return f'format = "sqlite"\npath = "{self._path.name}"\n'

    def offsets(self) -> str | None:
        rows = self._ask("select offsets from changes_batches order by batch_id desc limit 1")
        return rows[0][0] if rows else None

    def counted(self, counter: str) -> int:
        return sum(
            int(json.loads(text).get(counter, 0)) for (text,) in self._ask("select counters from changes_batches")
        )

    def letters(self) -> int:
        return int(self._ask("select count(*) from changes_dead_letters")[0][0])

    def columns(self) -> list[tuple[str, str, str]]:
        query = (
            "select m.name, c.name from sqlite_master m, pragma_table_info(m.name) c where m.type = 'table' "
            "and m.name not like 'changes\\_%' escape '\\' order by 1, 2"
        )
        return [(*table.partition(".")[::2], column) for table, column in self._ask(query)]

    def rows(self, table: str) -> list[Row]:
        names = [column for _, name, column in self.columns() if name == table]
        if not names:
            return []
        columns = ", ".join(f'"{name}"' for name in names)
        rows = self._ask(f'select {columns} from "{DATABASE}.{table}"')
        return [{n: None if v is None else str(v) for n, v in zip(names, row, strict=True)} for row in rows]

    def positions(self) -> list[Told]:
        found = self._ask("select table_name, key, position, deleted from changes_positions")
        return [(*told, bool(deleted)) for *told, deleted in found]

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        if not self._path.exists():
            raise EnvironmentMissing(f"{self._path} is not there yet")
        with closing(sqlite3.connect(self._path, timeout=30)) as db:
            return db.execute(query).fetchall()


class DeltaTarget:
    """Tables of Delta Lake in `folder`."""

    name = "Delta Lake"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.processes: list[Process] = []

    def start(self) -> None:
        """There is no server."""

    def sink(self) -> str:
        return f'format = "delta"\npath = "{self._folder.name}"\n'

    def offsets(self) -> str | None:
        rows = self._read("changes_batches").select(["batch_id", "offsets"]).sort_by("batch_id").to_pylist()
        return rows[-1]["offsets"] if rows else None

    def counted(self, counter: str) -> int:
        counters = self._read("changes_batches")["counters"].to_pylist()
        return sum(int(json.loads(text).get(counter, 0)) for text in counters)

    def letters(self) -> int:
        return int(self._read("changes_dead_letters").num_rows)

    def columns(self) -> list[tuple[str, str, str]]:
        found = sorted(self._folder.glob("*/*/_delta_log"))
        of_tables = [(log.parts[-3], log.parts[-2]) for log in found]
        return [
            (base, name, column) for base, name in of_tables for column in self._read(f"{base}/{name}").column_names
        ]

    def rows(self, table: str) -> list[Row]:
        if not (self._folder / DATABASE / table / "_delta_log").is_dir():
            return []
        found = self._read(f"{DATABASE}/{table}")
        texts = [column.cast("string").to_pylist() for column in found.columns]
        return [dict(zip(found.column_names, row, strict=True)) for row in zip(*texts, strict=True)]

    def positions(self) -> list[Told]:
        names = ["table_name", "key", "position", "deleted"]
        columns = [column.to_pylist() for column in self._read("changes_positions").select(names).columns]
        return [*zip(*columns, strict=True)]

    def _read(self, table: str) -> pa.Table:
        from deltalake import DeltaTable

        with _as_missing():
            return DeltaTable(self._folder / table).to_pyarrow_table()


@contextmanager
def _as_missing() -> Iterator[None]:
    """A table that is not there yet, or changes while it is read, is asked again."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        raise EnvironmentMissing(str(error)) from error
