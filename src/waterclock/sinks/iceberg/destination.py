"""format = "iceberg": a table of Apache Iceberg. The reference is made of this.

table        the table with its namespace, such as "lake.orders"; both are made. TABLE_dead_letters and TABLE_batches
             stand beside it. Letters, digits, _ and -
catalog      [sink.catalog]: its name ("default" if left out), and pyiceberg's settings of it; {env = "NAME"} takes a
             value from the environment
written_by   who writes the files of results; "executors" is for one sink, without query, transform and takes
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from waterclock.errors import UsageError
from waterclock.sinks.base import Sink
from waterclock.sinks.destination import Destination, SinkTable
from waterclock.sinks.files import DRIVER, writer_of


@dataclass(frozen=True, slots=True)
class IcebergTable(Destination):
    """A table in a catalog of Apache Iceberg; `settings` are pyiceberg's for that catalog."""

    kind = "a table of Iceberg"
    keys = ("table", "catalog", "written_by")

    table: str
    catalog: str
    settings: Mapping[str, str] = field(repr=False)  # may hold secrets
    written_by: str = DRIVER

    @classmethod
    def from_table(cls, given: SinkTable) -> IcebergTable:
        """See `Destination`."""
        settings = {name: _in_folder(name, value, given.folder) for name, value in given.settings("catalog").items()}
        table, name = iceberg_table(given.text("table")), settings.pop("name", "default")
        return cls(table, name, settings, writer_of(given))

    @property
    def place(self) -> str:
        """See `Destination`."""
        return f"the table {self.table!r} in the catalog {self.catalog!r}"

    def sink(self) -> Sink:
        """See `Destination`."""
        from waterclock.sinks.iceberg.iceberg import IcebergSink  # its package is that of the extra `iceberg`

        return IcebergSink(self.table, self.settings, catalog=self.catalog, written_by=self.written_by)


def iceberg_table(name: str) -> str:
    """`name` of a table with its namespace; UsageError if it has none, or one that not every catalog takes.

    >>> iceberg_table("lake.orders")
    'lake.orders'
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+", name):
        raise UsageError(
            f"sink table {name!r} must be named with its namespace, as lake.orders: letters, digits, _ and -, with points"
        )
    return name


def _in_folder(name: str, value: str, folder: Path) -> str:
    """Of a catalog's settings, what is a path is relative to the pipeline's file.

    >>> _in_folder("uri", "sqlite:///lake.db", Path("/in")), _in_folder("warehouse", "lake", Path("/in"))
    ('sqlite:////in/lake.db', 'file:///in/lake')
    >>> _in_folder("uri", "https://catalog", Path("/in")), _in_folder("warehouse", "s3://lake", Path("/in"))
    ('https://catalog', 's3://lake')
    """
    file = value.removeprefix("sqlite:///")
    if name == "uri" and file not in (value, "", ":memory:"):
        return f"sqlite:///{folder / file}"
    return f"file://{folder / value}" if name == "warehouse" and "://" not in value else value
