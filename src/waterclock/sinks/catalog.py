"""format = "table": a table in a catalog of Spark's session, which has the jars. The reference is made of this.

table   the table as Spark's SQL names it, such as "lake.shop.orders"; it and its schema are made.
        TABLE_dead_letters and TABLE_batches stand beside it. Letters, digits, _ and -
using   what the tables are made as; needed if the catalog makes both; left out, what it makes
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module

import pyarrow as pa

from waterclock.errors import UsageError
from waterclock.sinks.base import Sink
from waterclock.sinks.destination import Destination, Findings, SinkTable

_LAKES = ("delta", "iceberg")


@dataclass(frozen=True, slots=True)
class SparkCatalogTable(Destination):
    """A table in a catalog of Spark's session; `using`: what it is made as, None if its catalog says it."""

    kind = "a table of Spark's catalog"
    keys = ("table", "using")
    needs_session = True

    table: str
    using: str | None = None

    @classmethod
    def from_table(cls, given: SinkTable) -> SparkCatalogTable:
        """See `Destination`."""
        using = given.one_of("using", _LAKES, "") or None
        return cls(spark_table(given.text("table")), using)

    @property
    def place(self) -> str:
        """See `Destination`."""
        return f"the table {self.table!r} in Spark's catalog"

    def sink(self) -> Sink:
        """See `Destination`; it is in the session that runs by then."""
        made = import_module("waterclock.spark.tables.sink")  # above this floor: by name
        sink: Sink = made.SparkTable(self.table, using=self.using)
        return sink

    def look(self, results: pa.Schema | None, found: Findings) -> None:
        """See `Destination`."""
        found.unchecked.append(f"{self.place}: whether it is there, and its columns: Spark knows them")


def spark_table(name: str) -> str:
    """`name` of a table in one of Spark's catalogs, as SQL has it; UsageError if not every catalog takes it.

    >>> spark_table("lake.shop.orders")
    'lake.shop.orders'
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", name):
        raise UsageError(
            f"sink table {name!r} must be named as in Spark's SQL, with its catalog and schema, as lake.shop.orders: "
            "letters, digits, _ and -, with points"
        )
    return name
