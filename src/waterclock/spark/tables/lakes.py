"""How a batch's rows come into one table of Spark's once: by what the table's provider gives those who write by Spark.

    Delta Lake    an append with `txnAppId` and `txnVersion`, the query and the number of the batch. Delta leaves out what
                  has a number that the table has, and refuses the second of two that write at the same time
    Iceberg       an overwrite of the batch's rows, of which there are none: it is validated from the snapshot that was
                  looked at, so it is refused if such rows came in between

Rule 1: a commit bears a note, the query and the number of the batch, which the history of the table shows: Delta's
        `userMetadata`, a property of Iceberg's snapshot. A history may be cut, so the rows themselves are looked at first.
Rule 2: never by `insertInto` or SQL's INSERT: with both options Delta wrote the rows of a batch twice (Delta Lake 4.4.0).
Rule 3: Delta's files have their times in microseconds. What Spark writes by itself, INT96, is read by others as
        nanoseconds, which end in the year 2262: the close of a pipeline is later.
Rule 4: of Iceberg, the rows to overwrite are looked for after the snapshot was read. Where there are some they stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
from pyspark.sql import functions as F

from waterclock.sinks.delta.destination import delta_column
from waterclock.spark.tables.catalog import Catalog, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ROWS_A_FILE: Final = 1_000_000
_QUERY, _BATCH = "waterclock.query", "waterclock.batch"
_TIMES: Final = "spark.sql.parquet.outputTimestampType"
_HISTORY: Final = 1_000  # commits in which a note is looked for


@dataclass(frozen=True, slots=True)
class Once:
    """What is to be in a table once: the query and the number of the batch."""

    query_id: str
    batch_id: int

    def note(self) -> dict[str, str]:
        """What a commit says of itself."""
        return {_QUERY: self.query_id, _BATCH: str(self.batch_id)}


class Lake(Protocol):
    """A kind of table that takes a batch once."""

    provider: str
    with_files: str  # what DROP TABLE needs to take the files too

    def check(self, schema: pa.Schema) -> None:
        """UsageError if such a table has no column of that name."""

    def kept_as(self, kind: str) -> str:
        """The type that a column has there which was made as `kind`."""

    def append(self, catalog: Catalog, table: str, rows: pa.Table, once: Once) -> bool:
        """Write `rows`, all of them in one commit, or nothing if the table has had them; False if it has rows of a
        batch of that number, whosever it is."""

    def has_note(self, catalog: Catalog, table: str, once: Once) -> bool:
        """Whether the history of the table, as far as it goes back, has a commit of that batch."""


class DeltaLake:
    """Delta Lake's own library for Spark."""

    provider, with_files = "delta", ""

    def check(self, schema: pa.Schema) -> None:
        for name in schema.names:
            delta_column(name)

    def kept_as(self, kind: str) -> str:
        return kind

    def append(self, catalog: Catalog, table: str, rows: pa.Table, once: Once) -> bool:
        writer = _frame(catalog, rows).writeTo(quoted(table))
        writer = writer.option("txnAppId", once.query_id).option("txnVersion", once.batch_id)
        with _microseconds(catalog.session):
            writer.option("userMetadata", _text(once)).append()
        return True

    def has_note(self, catalog: Catalog, table: str, once: Once) -> bool:
        commits = catalog.session.sql(f"DESCRIBE HISTORY {quoted(table)} LIMIT {_HISTORY}")
        return not commits.where(F.col("userMetadata") == _text(once)).limit(1).isEmpty()


class Iceberg:
    """Apache Iceberg's own library for Spark."""

    provider, with_files = "iceberg", "PURGE"
    _wider: Final = {"tinyint": "int", "smallint": "int"}  # it has no smaller ones

    def check(self, schema: pa.Schema) -> None:
        """See `Lake`: it takes every name."""

    def kept_as(self, kind: str) -> str:
        return self._wider.get(kind, kind)

    def append(self, catalog: Catalog, table: str, rows: pa.Table, once: Once) -> bool:
        head = catalog.session.sql(f"SELECT snapshot_id FROM {quoted(table)}.refs WHERE name = 'main'").collect()
        of_batch = _of_batch(rows.schema, once)
        if not catalog.rows(table).where(of_batch).isEmpty():
            return False
        writer = _frame(catalog, rows).writeTo(quoted(table)).option("isolation-level", "serializable")
        for name, value in once.note().items():
            writer = writer.option(f"snapshot-property.{name}", value)
        if head:  # without one, all of the table is new
            writer = writer.option("validate-from-snapshot-id", head[0][0])
        writer.overwrite(of_batch)
        return True

    def has_note(self, catalog: Catalog, table: str, once: Once) -> bool:
        snapshots = catalog.session.sql(f"SELECT summary FROM {quoted(table)}.snapshots")
        has_all = [F.col("summary")[name] == value for name, value in once.note().items()]
        return not snapshots.where(has_all[0] & has_all[1]).isEmpty()


LAKES: Final[dict[str, Lake]] = {"delta": DeltaLake(), "iceberg": Iceberg()}


@contextmanager
def _microseconds(session: SparkSession) -> Iterator[None]:
    """A context; the files that are written in it have times in microseconds, where the user set nothing else (rule 3)."""
    ours = session.conf.get(_TIMES, None) is None
    if ours:
        session.conf.set(_TIMES, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        if ours:
            session.conf.unset(_TIMES)


def _frame(catalog: Catalog, rows: pa.Table) -> DataFrame:
    """`rows` in as few files as will do: a table of many small ones is slow to read."""
    return catalog.frame(rows).coalesce(1 + rows.num_rows // _ROWS_A_FILE)


def _of_batch(schema: pa.Schema, once: Once) -> Column:
    batch = F.col("batch_id") == once.batch_id
    return batch & (F.col("query_id") == once.query_id) if "query_id" in schema.names else batch


def _text(once: Once) -> str:
    return json.dumps(once.note(), sort_keys=True)
