"""Where a pipeline writes: the table [sink] of its file as a record, which makes the sink.

Rule 1: a format is a line in FORMATS. What it reads of [sink] stands in its record, beside its sink.
Rule 2: if the source brings changes of tables, each goes to the table that it names (sinks/mirrors/replica.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waterclock.errors import UsageError
from waterclock.kafka.settings import from_environment
from waterclock.rules.toml import check_names
from waterclock.sinks.catalog.destination import SparkCatalogTable
from waterclock.sinks.delta.destination import DeltaLakeTable
from waterclock.sinks.destination import Destination
from waterclock.sinks.duckdb.destination import DuckDBFile
from waterclock.sinks.iceberg.destination import IcebergTable
from waterclock.sinks.mysql.destination import MySQLDatabase
from waterclock.sinks.postgres.destination import PostgresDatabase
from waterclock.sinks.sqlite.destination import SQLiteFile
from waterclock.sinks.topic.destination import KafkaTopic
from waterclock.streaming.toml.clients import client_from, servers_from
from waterclock.streaming.toml.paths import place
from waterclock.streaming.toml.values import flat, get, one_of

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
_WHERE = "[sink]"
_NO_MODE = (
    "{}: mode = 'apply' is gone. Read the changes with value = 'maxwell' or 'debezium' in [source]: each then goes to the "
    "table that it names. Leave 'mode', 'key', 'position', 'columns', 'operation' and 'only' out (docs/cdc.md)"
)


@dataclass(slots=True)
class SinkReader:
    """A `sinks.destination.SinkTable`: the parsed table [sink] of the file in `folder`."""

    table: Mapping[str, Any]
    folder: Path
    changes: bool

    def text(self, name: str, default: str | None = None) -> str:
        """See `sinks.destination.SinkTable`."""
        defaults = () if default is None else (default,)
        return str(get(self.table, _WHERE, name, str, *defaults))

    def number(self, name: str, default: int, largest: int) -> int:
        """See `sinks.destination.SinkTable`."""
        number = int(get(self.table, _WHERE, name, int, default))
        if number != default and not 0 < number <= largest:
            raise UsageError(f"{_WHERE}: {name!r} must be 1 to {largest}, got {number}")
        return number

    def one_of(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """See `sinks.destination.SinkTable`."""
        given = self.text(name, default)
        return given if given == default else str(one_of(_WHERE, name, given, allowed))

    def place(self, name: str, given: str) -> Path:
        """See `sinks.destination.SinkTable`."""
        return place(_WHERE, name, given, self.folder)

    def settings(self, name: str) -> dict[str, str]:
        """See `sinks.destination.SinkTable`."""
        where = f"[sink.{name}]"
        return dict(flat(where, from_environment(where, get(self.table, _WHERE, name, dict, {}))))

    def client(self, own: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """See `sinks.destination.SinkTable`."""
        client = client_from(get(self.table, _WHERE, "client", dict, {}), "[sink.client]", own)
        return servers_from(self.table, _WHERE), client


def destination_from(sink: Mapping[str, Any], folder: Path, changes: bool) -> Destination:
    """The parsed table [sink], whose paths are relative to `folder`; UsageError says what is wrong and where.

    `changes`: the source brings changes of tables.
    """
    given = SinkReader(sink, folder, changes)
    format_ = FORMATS[one_of(_WHERE, "format", given.text("format", "sqlite"), tuple(FORMATS))]
    if (mode := given.text("mode", "results")) == "apply":
        raise UsageError(_NO_MODE.format(_WHERE))
    one_of(_WHERE, "mode", mode, ("results",))
    check_names(_WHERE, sink, {"format", "table" if changes else "mode", *format_.keys}, ())
    if changes and not format_.takes_changes:
        *others, last = (repr(name) for name, each in FORMATS.items() if each.takes_changes)
        raise UsageError(
            f"{_WHERE}: {format_.kind} cannot be a mirror: what was written to it stays. Take format = "
            f"{', '.join(others)} or {last} for changes of tables"
        )
    return format_.from_table(given)


def refuse_one_place(places: Sequence[str]) -> None:
    """Raise UsageError if two sinks write to one place."""
    if twice := [each for number, each in enumerate(places) if each in places[:number]]:
        raise UsageError(f"two of the pipeline's sinks write to {twice[0]}: name another place for one of them")


def check_no_loop(sink: Destination, source: object) -> None:
    """Raise UsageError if what is written would be read again."""
    if topic := sink.topic_of(getattr(source, "servers", ""), getattr(source, "topics", ())):
        raise UsageError(f"{_WHERE}: the topic {topic!r} is read by [source]: what is written would be read again")
