"""A pipeline as a TOML file: parsed once, checked whole, before Spark is started.

    [pipeline]        name, checkpoint
    [source]          format = "jsonl" | "parquet", path (a folder), files_per_batch
                      format = "kafka", servers, topics, ...: see kafka/table.py
    [source.columns]  name = "string" | "long" | "double" | "boolean" | "timestamp"
    [time]            watermark_delay, close = true (a --once run ends by closing: nothing stays held)
    [rules] ...       see rules/toml.py; with changes of tables (kafka/table.py) there are neither [rules] nor [time]
    [sink]            format = "sqlite" | "postgres", table, ...: see destination.py
    [spark]           cores, and [spark.conf] with Spark's own settings

Paths are relative to the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from waterclock.errors import UsageError
from waterclock.rules.model import Rules
from waterclock.rules.toml import check_names, rules_from
from waterclock.rules.truth import Kind, Unfit
from waterclock.sinks import Mirror
from waterclock.spark.layout import TYPES
from waterclock.spark.toml.paths import check_places, place, plain_name
from waterclock.spark.toml.sink import Destination, check_mirror, destination_from
from waterclock.spark.toml.topics import NAMES as TOPIC_NAMES
from waterclock.spark.toml.topics import VALUES, Topics, topics_from
from waterclock.spark.toml.values import LONGEST_US, flat
from waterclock.spark.toml.values import count as _count
from waterclock.spark.toml.values import duration as _duration
from waterclock.spark.toml.values import get as _get
from waterclock.spark.toml.values import one_of as _one_of
from waterclock.spark.toml.values import part as _part

FORMATS = ("jsonl", "parquet", "kafka")
COLUMN_TYPES = ("string", "long", "int", "double", "boolean", "timestamp")
_KINDS: Mapping[str, Kind] = {  # what a condition takes a column for
    "string": "text",
    "long": "number",
    "int": "number",
    "double": "number",
    "boolean": "boolean",
    "timestamp": "time",
}
_FILE_NAMES = ("format", "path", "files_per_batch", "columns")
_TABLES = ("pipeline", "source", "time", "rules", "sink", "spark")


@dataclass(frozen=True, slots=True)
class Source:
    """A folder of files; new files are taken `files_per_batch` at a time, the oldest first."""

    format: str
    path: Path
    files_per_batch: int
    columns: Mapping[str, str]

    def all_columns(self) -> Mapping[str, str]:
        """Every column that rows have, with its type."""
        return self.columns


@dataclass(frozen=True, slots=True)
class Config:
    """A checked pipeline."""

    name: str
    checkpoint: Path
    source: Source | Topics
    watermark_delay_us: int
    close: bool
    rules: Rules | None  # None: records are changes of tables, which are put into tables like them
    sink: Destination
    cores: int | None
    spark_conf: Mapping[str, str]


def load(path: str | Path) -> Config:
    """The pipeline in the file at `path`; UsageError says what is wrong and where."""
    file = Path(path)
    try:
        content = file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: NUL in the path
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read the pipeline {file}: {why}") from error
    table = _parsed(content, file)
    try:
        return _config(table, file.resolve())
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error


def _parsed(content: bytes, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except ValueError as error:  # no UTF-8, no TOML, or a number of thousands of digits
        raise UsageError(f"{file} is not a TOML file: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{file} is not a TOML file that can be read: it is nested too deeply") from error


def _config(table: Mapping[str, Any], file: Path) -> Config:
    check_names("the file", table, _TABLES, ())
    changes = _brings_changes(table)
    for needed in ("sink", "source") if changes else ("rules", "sink", "source"):
        if needed not in table:
            raise UsageError(f"the file: {needed!r} is missing: write a table [{needed}]")
    folder = file.parent
    pipeline = _part(table, "pipeline", ("name", "checkpoint"))
    time = _part(table, "time", ("watermark_delay", "close"))
    spark = _part(table, "spark", ("cores", "conf"))
    name = plain_name("[pipeline]", _get(pipeline, "[pipeline]", "name", str, "pipeline"))
    checkpoint = _get(pipeline, "[pipeline]", "checkpoint", str, f"{name}-checkpoint")
    config = Config(
        name=name,
        checkpoint=place("[pipeline]", "checkpoint", checkpoint, folder),
        source=_source(table, folder),
        watermark_delay_us=_duration(time, "[time]", "watermark_delay", 0),
        close=not changes and _get(time, "[time]", "close", bool, True),
        rules=None if changes else rules_from(_part(table, "rules", None)),
        sink=destination_from(_part(table, "sink", None), folder, changes),
        cores=None if "cores" not in spark else _count(spark, "[spark]", "cores", 1),
        spark_conf=dict(flat("[spark.conf]", _get(spark, "[spark]", "conf", dict, {}))),
    )
    if config.rules is not None:
        _check_columns(config, config.rules)
        _check_durations(config.rules)
        _check_sink(config, config.rules)
    check_places(file, getattr(config.source, "path", None), config.checkpoint, getattr(config.sink, "path", None))
    return config


def _brings_changes(table: Mapping[str, Any]) -> bool:
    """Whether the source's records are changes of tables; then nothing else may be asked of them than to be applied."""
    source = _part(table, "source", None)
    if source.get("format") != "kafka" or source.get("value") not in VALUES[1:]:
        return False
    for name in ("rules", "time"):
        if name in table:
            raise UsageError(
                f"the file: changes (value = {source['value']!r} in [source]) are put into tables by their positions, and "
                f"[{name}] would do nothing: leave it out"
            )
    return True


def _source(table: Mapping[str, Any], folder: Path) -> Source | Topics:
    where, source = "[source]", _part(table, "source", None)
    format_ = _one_of(where, "format", _get(source, where, "format", str, "jsonl"), FORMATS)
    check_names(where, source, TOPIC_NAMES if format_ == "kafka" else _FILE_NAMES, ())
    columns = {} if _brings_changes(table) else _get(source, where, "columns", dict)
    for column, kind in columns.items():
        _one_of("[source.columns]", column, kind, COLUMN_TYPES)
    made = topics_from(source) if format_ == "kafka" else _files(source, format_, folder)
    _check_names_of(made.all_columns())
    return made


def _files(source: Mapping[str, Any], format_: str, folder: Path) -> Source:
    path = place("[source]", "path", _get(source, "[source]", "path", str), folder)
    return Source(format_, path, _count(source, "[source]", "files_per_batch", 16), source["columns"])


# What fits together --------------------------------------------------------------------------------------------


def _check_names_of(columns: Mapping[str, Any]) -> None:
    """Columns become columns of SQL, which does not tell case apart, and travel beside one of ours."""
    where, seen = "[source.columns]", dict[str, str]()
    for name in columns:
        if not name.strip() or not name.isprintable() or set(name) & set("\"'`"):
            raise UsageError(f"{where}: a column's name must be printable and without quotes, got {name!r}")
        if name.casefold().startswith("_row_id"):
            raise UsageError(f"{where}: {name!r} cannot be used: names that start with _row_id are waterclock's own")
        same = seen.setdefault(name.casefold(), name)
        if same != name:
            raise UsageError(f"{where}: {same!r} and {name!r} differ by case only, which SQL does not tell apart")


def _check_durations(rules: Rules) -> None:
    """A deadline far outside of the calendar could not be written, by this batch or any re-run of it."""
    wait_us = rules.ordering.wait_us if rules.ordering else 0
    named = [("order(wait=)", wait_us), ("deduplicate(within=)", rules.within_us or 0)]
    named += [(f"delay {rule.emit!r}", rule.by_us) for rule in rules.delays]
    named += [(f"expect {rule.otherwise!r}", rule.within_us or 0) for rule in rules.expects]
    named += [(f"quiet {rule.emit!r}", rule.after_us) for rule in rules.quiets]
    for name, us in named:
        if us > LONGEST_US:
            raise UsageError(f"[rules]: {name} waits for more than 10,000 years: shorten it")


def _check_sink(config: Config, rules: Rules) -> None:
    if isinstance(config.sink.mirror, Mirror):
        event = pa.schema([(name, TYPES[kind]) for name, kind in config.source.all_columns().items()])
        check_mirror(config.sink.mirror, event, rules)


def _check_columns(config: Config, rules: Rules) -> None:
    columns = config.source.all_columns()
    if rules.key == rules.time:
        raise UsageError(f"[rules]: 'key' and 'time' both name the column {rules.key!r}: they must be two")
    for name in rules.columns():
        if name not in columns:
            raise UsageError(f"[rules] names the column {name!r}; [source.columns] has {', '.join(columns)}")
    needs = {rules.key: ("string", "long", "int"), rules.time: ("timestamp",)}
    if rules.sequence:
        needs[rules.sequence] = ("long", "int")
    moments = [name for name in (rules.deliver_column, *rules.questions().dues) if name is not None]
    needs |= dict.fromkeys(rules.questions().ties, ("string", "long", "int", "boolean", "timestamp")) | needs
    needs |= dict.fromkeys(moments, ("timestamp",))
    for name, kinds in needs.items():
        _one_of("[source.columns]", name, columns[name], kinds)
    try:
        rules.questions().check({name: _KINDS[kind] for name, kind in columns.items()})
    except Unfit as error:
        raise UsageError(f"[rules]: {error}") from None
