"""Where a pipeline writes: the table [sink] of its file as a record, which makes the sink.

format = "sqlite"      path, table
format = "postgres"    url, schema, table
format = "delta"       path of the table: a folder, or a URL of an object store; written_by
format = "iceberg"     table with its namespace, written_by; [sink.catalog] has pyiceberg's settings of a catalog
format = "table"       table as Spark's SQL names it, using; Spark's session has its catalog and the jars
format = "kafka"       servers, topic, partitions; [sink.client] has settings of librdkafka
mode = "results"       the default: a row a result
mode = "apply"         the table mirrors a source (sinks/mirrors/mirror.py): key, position, columns, operation, only
                       if the source brings changes of tables, each has its own (sinks/mirrors/replica.py): nothing to
                       name
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from waterclock.errors import UsageError
from waterclock.kafka.settings import WHY_SENDING, from_environment
from waterclock.postgres.url import postgres_url
from waterclock.rules.model import Rules
from waterclock.rules.toml import check_names
from waterclock.sinks import Mirror, Replica, Sink, SQLiteSink
from waterclock.sinks.files.files import DRIVER, WRITERS, checked_writer
from waterclock.sinks.names import (
    iceberg_table,
    kafka_topic,
    postgres_name,
    spark_table,
    table_location,
)
from waterclock.sinks.tables import BATCHES, DEAD_LETTERS
from waterclock.streaming.toml.clients import client_from, servers_from
from waterclock.streaming.toml.paths import place
from waterclock.streaming.toml.values import flat, get, one_of

_WHERE, _CLIENT, _CATALOG = "[sink]", "[sink.client]", "[sink.catalog]"
_OWN: Mapping[str, str] = {**WHY_SENDING, "bootstrap.servers": "servers in [sink] says it"}
_MOST_PARTITIONS = 10_000
_NAMES: Mapping[str, tuple[str, ...]] = {
    "sqlite": ("path", "table"),
    "postgres": ("url", "schema", "table"),
    "delta": ("path", "written_by"),
    "iceberg": ("table", "catalog", "written_by"),
    "table": ("table", "using"),
    "kafka": ("servers", "topic", "partitions", "client"),
}
FORMATS = tuple(_NAMES)
_LAKES = ("delta", "iceberg")
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
    mirror: Mirror | Replica | None = None
    written_by: str = DRIVER

    def sink(self) -> Sink:
        """The sink on it; what is missing is made when it is opened."""
        from waterclock.sinks import DeltaSink  # its package is that of the extra `delta`

        return DeltaSink(self.location, mirror=self.mirror, written_by=self.written_by)

    def remove(self) -> None:
        """Remove the table and those beside it."""
        self.sink().remove()


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """A table in a catalog of Apache Iceberg; `settings` are pyiceberg's for that catalog."""

    table: str
    catalog: str
    settings: Mapping[str, str] = field(repr=False)  # may hold secrets
    written_by: str = DRIVER
    mirror: None = None

    def sink(self) -> Sink:
        """The sink on it, not connected yet."""
        from waterclock.sinks import IcebergSink  # its package is that of the extra `iceberg`

        return IcebergSink(self.table, self.settings, catalog=self.catalog, written_by=self.written_by)

    def remove(self) -> None:
        """Drop the tables of the sink."""
        with closing(self.sink()) as sink:
            sink.remove()


@dataclass(frozen=True, slots=True)
class SparkCatalogTable:
    """A table in a catalog of Spark's session; `using`: what it is made as, None where its catalog says it."""

    table: str
    using: str | None = None
    mirror: None = None

    def sink(self) -> Any:
        """The sink on it, in the session that runs by then."""
        return self._sink()

    def remove(self) -> None:
        """Drop the tables of the sink."""
        self._sink().remove()

    def _sink(self) -> Any:
        made = import_module("waterclock.spark.tables.sink")  # above this floor: by name
        return made.SparkTable(self.table, using=self.using)


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic of Kafka, and those beside it; `partitions`: how many it gets where it is made, -1: the broker says it."""

    servers: str
    topic: str
    partitions: int
    client: Mapping[str, str] = field(repr=False)  # may hold secrets
    mirror: None = None

    def sink(self) -> Sink:
        """The sink on it, not connected yet."""
        from waterclock.sinks import TopicSink  # its package is that of the extra `kafka`

        return TopicSink(self.servers, self.topic, partitions=self.partitions, settings=self.client)

    def remove(self) -> None:
        """Delete the topics of the sink."""
        with closing(self.sink()) as sink:
            sink.remove()


Destination = SQLiteFile | PostgresDatabase | DeltaLakeTable | IcebergTable | SparkCatalogTable | KafkaTopic


def place_of(sink: Destination) -> str:
    """Where the results are, in words that are the same from run to run.

    >>> place_of(SQLiteFile(Path("/out/orders.db"), "results"))
    "the table 'results' in /out/orders.db"
    """
    if isinstance(sink, DeltaLakeTable):
        return f"the table {sink.location}"
    if isinstance(sink, IcebergTable):
        return f"the table {sink.table!r} in the catalog {sink.catalog!r}"
    if isinstance(sink, SparkCatalogTable):
        return f"the table {sink.table!r} in Spark's catalog"
    if isinstance(sink, KafkaTopic):
        return f"the topic {sink.topic!r} at {sink.servers}"
    where = sink.path if isinstance(sink, SQLiteFile) else f"the schema {sink.schema!r} of {sink.url}"
    return f"the table {sink.table!r} in {where}"


def refuse_one_place(places: Sequence[str]) -> None:
    """Raise UsageError where two sinks write to one place."""
    if twice := [each for number, each in enumerate(places) if each in places[:number]]:
        raise UsageError(f"two of the pipeline's sinks write to {twice[0]}: name another place for one of them")


def destination_from(sink: Mapping[str, Any], folder: Path, changes: bool) -> Destination:
    """The parsed table [sink], whose paths are relative to `folder`; UsageError says what is wrong and where.

    `changes`: the source brings changes of tables.
    """
    format_ = one_of(_WHERE, "format", get(sink, _WHERE, "format", str, "sqlite"), FORMATS)
    usual, modes = ("apply", ("apply",)) if changes else ("results", tuple(_MODES))
    mode = one_of(_WHERE, "mode", get(sink, _WHERE, "mode", str, usual), modes)
    known = {"format", "mode", *_NAMES[format_], *(() if changes else _MODES[mode])}
    check_names(_WHERE, sink, known | ({"table"} if changes and format_ == "delta" else set()), ())
    if format_ == "delta":
        return _delta(sink, mode, folder, changes)
    if format_ == "iceberg":
        return _iceberg(sink, mode, folder)
    if format_ == "table":
        return _of_spark(sink, mode)
    if format_ == "kafka":
        return _topic(sink, mode)
    table = get(sink, _WHERE, "table", str, "changes" if changes else "results")
    mirror = Replica() if changes else _mirror(sink) if mode == "apply" else None
    if format_ == "sqlite":
        return SQLiteFile(place(_WHERE, "path", get(sink, _WHERE, "path", str), folder), table, mirror)
    url, schema = get(sink, _WHERE, "url", str), get(sink, _WHERE, "schema", str, "public")
    return PostgresDatabase(postgres_url(url), postgres_name("schema", schema), postgres_name("table", table), mirror)


def _delta(sink: Mapping[str, Any], mode: str, folder: Path, changes: bool) -> DeltaLakeTable:
    """Of changes, `path` is the folder in which the mirrored tables stand, and `table` names the sink's own in it."""
    mirror = Replica() if changes else _mirror(sink) if mode == "apply" else None
    given, by = get(sink, _WHERE, "path", str), _written_by(sink, mirror)
    own = f"/{postgres_name('table', get(sink, _WHERE, 'table', str, 'changes'))}" if changes else ""
    if "://" in given:
        return DeltaLakeTable(table_location(given.rstrip("/") + own), None, mirror, by)
    location = table_location(f"{place(_WHERE, 'path', given, folder)}{own}")
    return DeltaLakeTable(location, Path(location), mirror, by)


def _refuse_mirror(mode: str, what: str) -> None:
    if mode != "results":
        raise UsageError(
            f"{_WHERE}: {what} cannot be a mirror: what was written to it stays. Take format = 'sqlite', 'postgres' or "
            "'delta' for mode = 'apply'"
        )


def _written_by(sink: Mapping[str, Any], mirror: Mirror | Replica | None = None) -> str:
    """Who writes the files of results."""
    try:
        given = get(sink, _WHERE, "written_by", str, DRIVER)
        return checked_writer(one_of(_WHERE, "written_by", given, WRITERS), mirror)
    except UsageError as error:
        raise UsageError(f"{_WHERE}: {str(error).removeprefix(f'{_WHERE}: ')}") from error


def _iceberg(sink: Mapping[str, Any], mode: str, folder: Path) -> IcebergTable:
    _refuse_mirror(mode, "a table of Iceberg")
    given = from_environment(_CATALOG, get(sink, _WHERE, "catalog", dict, {}))
    settings = {name: _in_folder(name, value, folder) for name, value in flat(_CATALOG, given)}
    table, name = iceberg_table(get(sink, _WHERE, "table", str)), settings.pop("name", "default")
    return IcebergTable(table, name, settings, _written_by(sink))


def _of_spark(sink: Mapping[str, Any], mode: str) -> SparkCatalogTable:
    _refuse_mirror(mode, "a table of Spark's catalog")
    using = get(sink, _WHERE, "using", str, "")
    made = one_of(_WHERE, "using", using, _LAKES) if using else None
    return SparkCatalogTable(spark_table(get(sink, _WHERE, "table", str)), made)


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


def _topic(sink: Mapping[str, Any], mode: str) -> KafkaTopic:
    _refuse_mirror(mode, "a topic")
    partitions = get(sink, _WHERE, "partitions", int, -1)
    if partitions != -1 and not 0 < partitions <= _MOST_PARTITIONS:
        raise UsageError(f"{_WHERE}: 'partitions' must be 1 to {_MOST_PARTITIONS}, got {partitions}")
    client = client_from(get(sink, _WHERE, "client", dict, {}), _CLIENT, _OWN)
    return KafkaTopic(servers_from(sink, _WHERE), kafka_topic(get(sink, _WHERE, "topic", str)), partitions, client)


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


def check_no_loop(sink: Destination, source: object) -> None:
    """Raise UsageError where what is written would be read again."""
    servers, topics = getattr(source, "servers", ""), getattr(source, "topics", ())
    if not isinstance(sink, KafkaTopic) or not set(_addresses(servers)) & set(_addresses(sink.servers)):
        return
    if both := sorted(set(topics) & {sink.topic + end for end in ("", DEAD_LETTERS, BATCHES)}):
        raise UsageError(f"{_WHERE}: the topic {both[0]!r} is read by [source]: what is written would be read again")


def _addresses(servers: str) -> list[str]:
    return [address.strip() for address in servers.split(",")]


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
    if not rules.events:
        raise UsageError(f"{_WHERE}: mode 'apply' keeps change events, and events = false in [rules] leaves them out")
    if found := [name for name, rule in made.items() if rule]:
        raise UsageError(
            f"{_WHERE}: mode 'apply' keeps change events and nothing else, so {found[0]} in [rules] would do nothing "
            "that could be seen: leave it out, or write its results with a pipeline of its own"
        )
