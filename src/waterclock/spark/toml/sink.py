"""Where a pipeline writes: the table [sink] of its file as a record, which makes the sink.

format = "sqlite"      path, table
format = "postgres"    url, schema, table
format = "delta"       path of the table: a folder, or a URL of an object store
mode = "results"       the default: a row a result
mode = "apply"         the table mirrors a source (sinks/mirror.py): key, position, columns, operation, only
                       where the source brings changes of tables, each has its own (sinks/replica.py): nothing to name
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from waterclock.errors import UsageError
from waterclock.rules.model import Rules
from waterclock.rules.toml import check_names
from waterclock.sinks import Mirror, Replica, Sink, SQLiteSink
from waterclock.sinks.names import delta_location, postgres_name, postgres_url
from waterclock.spark.toml.paths import place
from waterclock.spark.toml.values import get, one_of

_WHERE = "[sink]"
_NAMES: Mapping[str, tuple[str, ...]] = {
    "sqlite": ("path", "table"),
    "postgres": ("url", "schema", "table"),
    "delta": ("path",),
}
_MODES: Mapping[str, tuple[str, ...]] = {"results": (), "apply": ("key", "position", "columns", "operation", "only")}


@dataclass(frozen=True, slots=True)
class SQLiteFile:
    """A file of SQLite."""

    path: Path
    table: str
    mirror: Mirror | Replica | None = None

    def sink(self) -> Sink:
        """The sink on it; what is missing of the file and its folder is made."""
        return SQLiteSink(self.path, self.table, mirror=self.mirror)

    def remove(self) -> None:
        """Drop the sink's tables, where there is a file."""
        if self.path.exists():
            with closing(SQLiteSink(self.path, self.table, mirror=self.mirror)) as sink:
                sink.remove()


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """A database of a PostgreSQL server."""

    url: str
    schema: str
    table: str
    mirror: Mirror | Replica | None = None

    def sink(self) -> Sink:
        """The sink in it, not connected yet."""
        from waterclock.sinks import PostgresSink  # its packages are those of the extra `postgres`

        return PostgresSink(self.url, self.table, schema=self.schema, mirror=self.mirror)

    def remove(self) -> None:
        """Drop the sink's tables."""
        from waterclock.sinks import PostgresSink

        with closing(PostgresSink(self.url, self.table, schema=self.schema, mirror=self.mirror)) as sink:
            sink.remove()


@dataclass(frozen=True, slots=True)
class DeltaLakeTable:
    """A table of Delta Lake; `path` is None where it lies behind a URL."""

    location: str
    path: Path | None
    mirror: None = None

    def sink(self) -> Sink:
        """The sink on it; what is missing is made when it is opened."""
        from waterclock.sinks import DeltaSink  # its package is that of the extra `delta`

        return DeltaSink(self.location)

    def remove(self) -> None:
        """Remove the table and those beside it."""
        self.sink().remove()


Destination = SQLiteFile | PostgresDatabase | DeltaLakeTable


def place_of(sink: Destination) -> str:
    """Where the results are, in words that are the same from run to run.

    >>> place_of(SQLiteFile(Path("/out/orders.db"), "results"))
    "the table 'results' in /out/orders.db"
    """
    if isinstance(sink, DeltaLakeTable):
        return f"the table {sink.location}"
    where = sink.path if isinstance(sink, SQLiteFile) else f"the schema {sink.schema!r} of {sink.url}"
    return f"the table {sink.table!r} in {where}"


def destination_from(sink: Mapping[str, Any], folder: Path, changes: bool) -> Destination:
    """The parsed table [sink], whose paths are relative to `folder`; UsageError says what is wrong and where.

    `changes`: the source brings changes of tables.
    """
    format_ = one_of(_WHERE, "format", get(sink, _WHERE, "format", str, "sqlite"), tuple(_NAMES))
    usual, modes = ("apply", ("apply",)) if changes else ("results", tuple(_MODES))
    mode = one_of(_WHERE, "mode", get(sink, _WHERE, "mode", str, usual), modes)
    check_names(_WHERE, sink, {"format", "mode", *_NAMES[format_], *(() if changes else _MODES[mode])}, ())
    if format_ == "delta":
        return _delta(sink, mode, folder)
    table = get(sink, _WHERE, "table", str, "changes" if changes else "results")
    mirror = Replica() if changes else _mirror(sink) if mode == "apply" else None
    if format_ == "sqlite":
        return SQLiteFile(place(_WHERE, "path", get(sink, _WHERE, "path", str), folder), table, mirror)
    url, schema = get(sink, _WHERE, "url", str), get(sink, _WHERE, "schema", str, "public")
    return PostgresDatabase(postgres_url(url), postgres_name("schema", schema), postgres_name("table", table), mirror)


def _delta(sink: Mapping[str, Any], mode: str, folder: Path) -> DeltaLakeTable:
    if mode != "results":
        raise UsageError(
            f"{_WHERE}: a table of Delta Lake cannot be a mirror: it and its positions could not be changed in one "
            "transaction. Take format = 'sqlite' or 'postgres' for mode = 'apply'"
        )
    given = get(sink, _WHERE, "path", str)
    if "://" in given:
        return DeltaLakeTable(delta_location(given), None)
    path = place(_WHERE, "path", given, folder)
    return DeltaLakeTable(delta_location(str(path)), path)


def _mirror(sink: Mapping[str, Any]) -> Mirror:
    only = get(sink, _WHERE, "only", dict, {})
    for column, value in only.items():
        if not isinstance(value, str):
            raise UsageError(f"{_WHERE}: 'only' must give a text for {column!r}, got {value!r}")
    return Mirror(
        columns=_texts(sink, "columns"),
        key=_texts(sink, "key"),
        position=_texts(sink, "position"),
        operation=get(sink, _WHERE, "operation", str, "type"),
        only=only,
    )


def _texts(sink: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = get(sink, _WHERE, name, list)
    if not values or not all(isinstance(value, str) for value in values):
        raise UsageError(f"{_WHERE}: {name!r} must be a list of columns' names, got {values!r}")
    return tuple(values)


def check_mirror(mirror: Mirror, event: pa.Schema, rules: Rules) -> None:
    """Raise UsageError where a mirror does not fit the events, or where rules make results that it has no place for."""
    try:
        mirror.check(event)
    except UsageError as error:
        raise UsageError(f"{_WHERE}: {error}") from error
    check_mirror_rules(rules)


def check_mirror_rules(rules: Rules) -> None:
    """Raise UsageError where rules make results that a mirror has no place for."""
    made = {
        "order": rules.ordering,
        "deliver_at": rules.deliver_column,
        "delay": rules.delays,
        "expect": rules.expects,
        "quiet or session": rules.quiets,
    }
    if found := [name for name, rule in made.items() if rule]:
        raise UsageError(
            f"{_WHERE}: mode 'apply' keeps change events and nothing else, so {found[0]} in [rules] would do nothing "
            "that could be seen: leave it out, or write its results with a pipeline of its own"
        )
