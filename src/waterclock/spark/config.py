"""A pipeline as a TOML file: parsed once, checked whole, before Spark is started.

    [pipeline]        name, checkpoint
    [source]          format = "jsonl" | "parquet", path (a folder), files_per_batch
    [source.columns]  name = "string" | "long" | "double" | "boolean" | "timestamp"
    [time]            watermark_delay, close = true (a --once run ends by closing: nothing stays held)
    [rules] ...       see rules/toml.py
    [sink]            format = "sqlite", path, table
    [spark]           cores, and [spark.conf] with Spark's own settings

Paths are relative to the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waterclock.errors import UsageError
from waterclock.rules.durations import duration_us
from waterclock.rules.model import Rules
from waterclock.rules.toml import check_names, rules_from

FORMATS = ("jsonl", "parquet")
COLUMN_TYPES = ("string", "long", "int", "double", "boolean", "timestamp")


@dataclass(frozen=True, slots=True)
class Source:
    """A folder of files; new files are taken `files_per_batch` at a time, the oldest first."""

    format: str
    path: Path
    files_per_batch: int
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Config:
    """A checked pipeline."""

    name: str
    checkpoint: Path
    source: Source
    watermark_delay_us: int
    close: bool
    rules: Rules
    sink_path: Path
    sink_table: str
    cores: int | None
    spark_conf: Mapping[str, str]


def load(path: str | Path) -> Config:
    """The pipeline in the file at `path`; UsageError says what is wrong and where."""
    file = Path(path)
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the pipeline {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not a TOML file: {error}") from error
    try:
        return _config(table, file.resolve().parent)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error


def _config(table: Mapping[str, Any], folder: Path) -> Config:
    check_names(
        "the file",
        table,
        ("pipeline", "source", "time", "rules", "sink", "spark"),
        ("source", "rules", "sink"),
    )
    pipeline, time = (
        _part(table, "pipeline", ("name", "checkpoint")),
        _part(table, "time", ("watermark_delay", "close")),
    )
    sink, spark = _part(table, "sink", ("format", "path", "table")), _part(table, "spark", ("cores", "conf"))
    name = _get(pipeline, "[pipeline]", "name", str, "pipeline")
    config = Config(
        name=name,
        checkpoint=folder / _get(pipeline, "[pipeline]", "checkpoint", str, f"{name}-checkpoint"),
        source=_source(table, folder),
        watermark_delay_us=_duration(time, "[time]", "watermark_delay", 0),
        close=_get(time, "[time]", "close", bool, True),
        rules=rules_from(_part(table, "rules", None)),
        sink_path=folder / _get(sink, "[sink]", "path", str),
        sink_table=_get(sink, "[sink]", "table", str, "results"),
        cores=_get(spark, "[spark]", "cores", int, None),
        spark_conf={k: str(v) for k, v in _get(spark, "[spark]", "conf", dict, {}).items()},
    )
    _one_of("[sink]", "format", _get(sink, "[sink]", "format", str, "sqlite"), ("sqlite",))
    _check_columns(config)
    return config


def _source(table: Mapping[str, Any], folder: Path) -> Source:
    where = "[source]"
    source = _part(table, "source", ("format", "path", "files_per_batch", "columns"))
    columns = _get(source, where, "columns", dict)
    for column, kind in columns.items():
        _one_of("[source.columns]", column, kind, COLUMN_TYPES)
    files = _get(source, where, "files_per_batch", int, 16)
    if files < 1:
        raise UsageError(f"{where}: 'files_per_batch' must be at least 1, got {files}")
    format_ = _one_of(where, "format", _get(source, where, "format", str, "jsonl"), FORMATS)
    return Source(format_, folder / _get(source, where, "path", str), files, columns)


def _check_columns(config: Config) -> None:
    rules, columns = config.rules, config.source.columns
    for name in rules.columns():
        if name not in columns:
            raise UsageError(f"[rules] names the column {name!r}; [source.columns] has {', '.join(columns)}")
    needs = {rules.key: ("string", "long", "int"), rules.time: ("timestamp",)}
    if rules.sequence:
        needs[rules.sequence] = ("long", "int")
    if rules.deliver_column:
        needs[rules.deliver_column] = ("timestamp",)
    for name, kinds in needs.items():
        _one_of("[source.columns]", name, columns[name], kinds)


def _part(table: Mapping[str, Any], name: str, known: tuple[str, ...] | None) -> Mapping[str, Any]:
    part = table.get(name, {})
    if not isinstance(part, Mapping):
        raise UsageError(f"[{name}] must be a table, got {part!r}")
    if known is not None:
        check_names(f"[{name}]", part, known, ())
    return part


_REQUIRED: Any = object()


def _get(part: Mapping[str, Any], where: str, name: str, kind: type, default: Any = _REQUIRED) -> Any:
    if name not in part:
        if default is _REQUIRED:
            raise UsageError(f"{where}: {name!r} is missing")
        return default
    value = part[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UsageError(f"{where}: {name!r} must be {_NAMES[kind]}, got {value!r}")
    return value


_NAMES: Mapping[type, str] = {str: "a text", int: "an integer", bool: "true or false", dict: "a table"}


def _duration(part: Mapping[str, Any], where: str, name: str, default: int) -> int:
    try:
        return duration_us(part.get(name, default), name)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from error


def _one_of(where: str, name: str, value: Any, allowed: tuple[str, ...]) -> Any:
    if value not in allowed:
        raise UsageError(f"{where}: {name!r} must be one of {', '.join(allowed)}, got {value!r}")
    return value
