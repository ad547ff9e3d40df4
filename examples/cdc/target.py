"""Where the changes end up: PostgreSQL, a file of SQLite or DuckDB, or tables of Delta Lake. Each tells what it holds, as
texts, once the pipeline has ended."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from waterclock.examples.processes import Process

from .servers import Postgres
from .shop import DATABASE

if TYPE_CHECKING:
    import pyarrow as pa

WAREHOUSE = "warehouse"
Row = dict[str, Any]
Told = tuple[str, str, str, bool]


class Target(Protocol):
    """Where the pipeline of the demo writes to."""

    name: str  # as people call it
    processes: list[Process]

    def start(self) -> None: ...

    def sink(self) -> str:
        """The lines of [sink] in the pipeline's file."""

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


class SqlTarget:
    """Tables in a database that speaks SQL."""

    # a query for database, table and column of all that stands there but the sink's own tables
    all_columns = """
        select table_schema, table_name, column_name from information_schema.columns
        where table_schema not in ('pg_catalog', 'information_schema') and table_name not like 'changes\\_%' escape '\\'
        order by 1, 2, 3
    """

    def __init__(self, name: str, *processes: Process) -> None:
        self.name, self.processes = name, [*processes]

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def mirrored(self, table: str) -> str:
        """The name in a query of a table of the shop."""
        return f"{DATABASE}.{table}"

    def start(self) -> None:
        """There is no server."""

    def counted(self, counter: str) -> int:
        texts = self.ask("select cast(counters as text) from changes_batches")
        return sum(int(json.loads(text).get(counter, 0)) for (text,) in texts)

    def letters(self) -> int:
        return int(self.ask("select count(*) from changes_dead_letters")[0][0])

    def columns(self) -> list[tuple[str, str, str]]:
        return [(database, table, column) for database, table, column in self.ask(self.all_columns)]

    def rows(self, table: str) -> list[Row]:
        names = [column for database, name, column in self.columns() if (database, name) == (DATABASE, table)]
        if not names:
            return []
        columns = ", ".join(f'cast("{name}" as text)' for name in names)
        rows = self.ask(f"select {columns} from {self.mirrored(table)}")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def positions(self) -> list[Told]:
        found = self.ask("select table_name, key, position, deleted from changes_positions")
        return [(table, key, position, bool(deleted)) for table, key, position, deleted in found]


class PostgresTarget(SqlTarget):
    """A database of a PostgreSQL server."""

    def __init__(self, server: Postgres) -> None:
        super().__init__("PostgreSQL", server.process)
        self._server = server

    def start(self) -> None:
        self._server.start(WAREHOUSE)

    def sink(self) -> str:
        return f'format = "postgres"\nurl = "{self._server.url(WAREHOUSE)}"\n'

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self._server.ask(WAREHOUSE, query)


class SQLiteTarget(SqlTarget):
    """A file of SQLite."""

    all_columns = """
        select substr(m.name, 1, instr(m.name, '.') - 1), substr(m.name, instr(m.name, '.') + 1), c.name
        from sqlite_master m, pragma_table_info(m.name) c
        where m.type = 'table' and m.name not like 'changes\\_%' escape '\\' order by 1, 2, 3
    """

    def __init__(self, path: Path) -> None:
        super().__init__("SQLite")
        self._path = path

    def mirrored(self, table: str) -> str:
        return f'"{DATABASE}.{table}"'

    def sink(self) -> str:
        return f'format = "sqlite"\npath = "{self._path.name}"\n'

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path, timeout=30)) as db:
            return db.execute(query).fetchall()


class DuckDBTarget(SqlTarget):
    """A file of DuckDB, which answers nobody while the pipeline has it open."""

    def __init__(self, path: Path) -> None:
        super().__init__("DuckDB")
        self._path = path

    def mirrored(self, table: str) -> str:
        return f"{self._path.stem}.{DATABASE}.{table}"

    def sink(self) -> str:
        return f'format = "duckdb"\npath = "{self._path.name}"\n'

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        import duckdb

        with closing(duckdb.connect(str(self._path), read_only=True)) as db:
            return [*db.execute(query).fetchall()]


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

        return DeltaTable(self._folder / table).to_pyarrow_table()
