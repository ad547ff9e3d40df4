"""format = "sqlite": a file of SQLite. The reference is made of this.

path    the file; it and its folder are made
table   the table of results; TABLE_dead_letters and TABLE_batches stand beside it. Letters, digits and _
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from waterclock.errors import UsageError
from waterclock.sinks.base import Sink
from waterclock.sinks.destination import Destination, Findings, SinkTable
from waterclock.sinks.mirrors.replica import Replica


@dataclass(frozen=True, slots=True)
class SQLiteFile(Destination):
    """A file of SQLite."""

    kind = "a file of SQLite"
    keys = ("path", "table")
    takes_changes = True

    path: Path
    table: str
    mirror: Replica | None = None

    @classmethod
    def from_table(cls, given: SinkTable) -> SQLiteFile:
        """See `Destination`."""
        table = given.text("table", "changes" if given.changes else "results")
        path = given.place("path", given.text("path"))
        return cls(path, table, Replica() if given.changes else None)

    @property
    def place(self) -> str:
        """See `Destination`.

        >>> SQLiteFile(Path("/out/orders.db"), "results").place
        "the table 'results' in /out/orders.db"
        """
        return f"the table {self.table!r} in {self.path}"

    def sink(self) -> Sink:
        """See `Destination`; what is missing of the file and its folder is made."""
        from waterclock.sinks.sqlite.sqlite import SQLiteSink

        return SQLiteSink(self.path, self.table, mirror=self.mirror)

    def look(self, results: pa.Schema | None, found: Findings) -> None:
        """See `Destination`: a sink would make the file."""
        from waterclock.sinks.sqlite.sqlite import look

        if results is None:
            found.unchecked.append(f"{self.place}: its columns")
        else:
            found.faults.extend(look(self.path, self.table, self.mirror, results))

    def remove(self) -> None:
        """See `Destination`; without a file there is nothing to drop."""
        if self.path.exists():
            Destination.remove(self)


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
