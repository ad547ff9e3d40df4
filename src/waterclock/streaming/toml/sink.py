"""Where a pipeline writes: the table [sink] of its file as a record, which makes the sink. The reference is made of this.

    [sink]
    format   the kind of sink; each has further keys
    mode     "results": a row for each result. There is no other mode

Rule 1: a format is a line in FORMATS. What else it reads of [sink] stands in its record, beside its sink.
Rule 2: if the source brings changes of tables, each goes to the table that it names (sinks/mirrors.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from waterclock.errors import UsageError
from waterclock.sinks.catalog import SparkCatalogTable
from waterclock.sinks.delta.destination import DeltaLakeTable
from waterclock.sinks.destination import Destination
from waterclock.sinks.duckdb.destination import DuckDBFile
from waterclock.sinks.iceberg.destination import IcebergTable
from waterclock.sinks.mysql.destination import MySQLDatabase
from waterclock.sinks.postgres.destination import PostgresDatabase
from waterclock.sinks.sqlite.sqlite import SQLiteFile
from waterclock.sinks.topic.destination import KafkaTopic
from waterclock.streaming.toml.table import FileTable

FORMATS: Mapping[str, type[Destination]] = {
    "sqlite": SQLiteFile,
    "postgres": PostgresDatabase,
    "mysql": MySQLDatabase,
    "duckdb": DuckDBFile,
    "delta": DeltaLakeTable,
    "iceberg": IcebergTable,
    "table": SparkCatalogTable,
    "kafka": KafkaTopic,
}
_NO_MODE = (
    "{}: mode = 'apply' is gone. Read the changes with value = 'maxwell' or 'debezium' in [source]: each then goes to the "
    "table that it names. Leave 'mode', 'key', 'position', 'columns', 'operation' and 'only' out (docs/cdc.md)"
)


def destination_from(sink: FileTable) -> Destination:
    """The record that the table [sink] means; UsageError says what is wrong and where."""
    format_ = FORMATS[sink.one_of("format", tuple(FORMATS), "sqlite")]
    if sink.text("mode", "results") == "apply":
        raise UsageError(_NO_MODE.format(sink.where))
    sink.one_of("mode", ("results",), "results")
    sink.check({"format", "table" if sink.changes else "mode", *format_.keys})
    if sink.changes and not format_.takes_changes:
        *others, last = (repr(name) for name, each in FORMATS.items() if each.takes_changes)
        raise UsageError(
            f"{sink.where}: {format_.kind} cannot be a mirror: what was written to it stays. Take format = "
            f"{', '.join(others)} or {last} for changes of tables"
        )
    return format_.from_table(sink)


def refuse_one_place(places: Sequence[str]) -> None:
    """Raise UsageError if two sinks write to one place."""
    if twice := [each for number, each in enumerate(places) if each in places[:number]]:
        raise UsageError(f"two of the pipeline's sinks write to {twice[0]}: name another place for one of them")


def check_no_loop(sink: Destination, source: object) -> None:
    """Raise UsageError if what is written would be read again."""
    if topic := sink.topic_of(getattr(source, "servers", ""), getattr(source, "topics", ())):
        raise UsageError(f"[sink]: the topic {topic!r} is read by [source]: what is written would be read again")
