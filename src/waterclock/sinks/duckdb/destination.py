"""format = "duckdb": a file of DuckDB. The reference is made of this.

path     the file; it and its folder are made. No other process can open it while the pipeline runs
table    the table of results; TABLE_dead_letters and TABLE_batches stand beside it. Letters, digits and _
schemas  for changes of tables: as format = "postgres" has it
on_drop  as format = "postgres" has it
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from waterclock.errors import UsageError
from waterclock.sinks.base import Sink
from waterclock.sinks.destination import Destination, Findings, SinkTable
from waterclock.sinks.mirrors import Replica


@dataclass(frozen=True, slots=True)
class DuckDBFile(Destination):
    """A file of DuckDB."""

    kind = "a file of DuckDB"
    keys = ("path", "table", "schemas", "on_drop")
    records_inputs = True
    takes_changes = True

    path: Path
    table: str
    mirror: Replica | None = None

    @classmethod
    def from_table(cls, given: SinkTable) -> DuckDBFile:
        """See `Destination`."""
        table = duckdb_table(given.text("table", "changes" if given.changes else "results"))
        path = given.place("path", given.text("path"))
        return cls(path, table, Replica.from_table(given) if given.changes else None)

    @property
    def place(self) -> str:
        """See `Destination`."""
        return f"the table {self.table!r} in {self.path}"

    @property
    def alone(self) -> str:
        """See `Destination`."""
        return f"the source's tables in {self.path}" if self.mirror else self.place

    def sink(self) -> Sink:
        """See `Destination`; what is missing of the file and its folder is made when it is opened."""
        from waterclock.sinks.duckdb.duckdb import DuckDBSink  # its package is that of the extra `duckdb`

        return DuckDBSink(self.path, self.table, mirror=self.mirror)

    def look(self, results: pa.Schema | None, found: Findings) -> None:
        """See `Destination`: a sink would make the file, and another process may have it open."""
        from waterclock.sinks.duckdb.duckdb import OpenElsewhere, look

        try:
            faults = None if results is None else look(self.path, self.table, self.mirror, results)
        except OpenElsewhere:
            faults = None
        if faults is None:
            found.unchecked.append(f"{self.place}: its columns")
        else:
            found.faults.extend(faults)

    def is_there(self) -> bool:
        """See `Destination`."""
        return self.path.exists()


def duckdb_table(name: str) -> str:
    """`name` of a table; UsageError if it is no plain one.

    >>> duckdb_table("results")
    'results'
    """
    if not name.isidentifier():
        raise UsageError(f"sink table {name!r} must be a plain name: letters, digits and _")
    return name
