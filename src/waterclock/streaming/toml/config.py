"""A pipeline as a TOML file: parsed once, checked whole, before Spark is started.

    [pipeline]        name, checkpoint
    [source]          format = "jsonl" | "parquet", path (a folder), files_per_batch
                      format = "kafka", servers, topics, ...: see topics.py
                      format = "csv", "json", ...: one of Spark's own readers, see readers.py
    [source.columns]  name = "string" | "long" | "double" | "boolean" | "timestamp"
    [time]            watermark_delay, close = true (a --once run ends by closing: nothing stays held)
    [rules] ...       see rules/toml.py; with changes of tables (toml/topics.py) there are neither [rules] nor [time]
    [sink]            format, path or table, ...: see sink.py; query, transform, columns, takes: see steps.py
    [[sink]]          the same, for a pipeline with several
    [spark]           cores, buckets, and [spark.conf] with Spark's own settings

Paths are relative to the file. The checkpoint and a source's path may be a URI that Spark knows, such as hdfs://host/folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from waterclock.errors import UsageError
from waterclock.rules.model import Rules
from waterclock.rules.toml import check_names, rules_from
from waterclock.sinks.destination import Destination
from waterclock.streaming.buckets import checked
from waterclock.streaming.places.place import Place, is_remote
from waterclock.streaming.toml.fitting import check_fits, check_names_of
from waterclock.streaming.toml.paths import any_place, check_places, plain_name
from waterclock.streaming.toml.readers import READERS, Reader, reader_from, reads_by_spark
from waterclock.streaming.toml.sink import check_no_loop, destination_from, refuse_one_place
from waterclock.streaming.toml.steps import NAMES as STEPS
from waterclock.streaming.toml.steps import Outlet, check_takes, columns_from, step_from, takes_from
from waterclock.streaming.toml.topics import NAMES as TOPIC_NAMES
from waterclock.streaming.toml.topics import VALUES, Topics, topics_from
from waterclock.streaming.toml.values import count as _count
from waterclock.streaming.toml.values import duration as _duration
from waterclock.streaming.toml.values import flat
from waterclock.streaming.toml.values import get as _get
from waterclock.streaming.toml.values import one_of as _one_of
from waterclock.streaming.toml.values import part as _part

Made = TypeVar("Made")
FORMATS = ("jsonl", "parquet", "kafka", *READERS)
COLUMN_TYPES = ("string", "long", "int", "double", "boolean", "timestamp")
_FILE_NAMES = ("format", "path", "files_per_batch", "columns")
_TABLES = ("pipeline", "source", "time", "rules", "sink", "spark")


@dataclass(frozen=True, slots=True)
class Files:
    """A folder of files; new files are taken `files_per_batch` at a time, the oldest first."""

    format: str
    path: Place
    files_per_batch: int
    columns: Mapping[str, str]

    def all_columns(self) -> Mapping[str, str]:
        """Every column that rows have, with its type."""
        return self.columns


@dataclass(frozen=True, slots=True)
class Config:
    """A checked pipeline."""

    name: str
    checkpoint: Place
    source: Files | Topics | Reader
    watermark_delay_us: int
    close: bool
    rules: Rules | None  # None: records are changes of tables, which are put into tables like them
    outlets: tuple[Outlet[Destination], ...]
    cores: int | None
    spark_conf: Mapping[str, str]
    buckets: int | None = None  # None: as the checkpoint has them, or by the cores

    @property
    def sink(self) -> Destination:
        """The first sink, whose totals are those that are shown."""
        return self.outlets[0].sink

    def modules(self) -> Path | None:
        """The folder in which a `transform` may have modules beside it; None where there is none."""
        steps = (getattr(self.source, "step", None), *(outlet.step for outlet in self.outlets))
        return next((step.folder for step in steps if step is not None and step.transform is not None), None)

    def is_remote(self) -> bool:
        """Whether a place that it names is reached through Spark alone."""
        places = (self.checkpoint, getattr(self.source, "path", None))
        return any(map(is_remote, places)) or any(each.sink.needs_session for each in self.outlets)


def log_of(config: Config, file: str | Path) -> Path:
    """Where Spark's log goes: into the checkpoint's folder; beside the pipeline's `file` where that lies behind a URI."""
    if isinstance(config.checkpoint, Path):
        return config.checkpoint / "spark.log"
    return Path(file).resolve().with_name(f"{config.name}-spark.log")


def load(path: str | Path) -> Config:
    """The pipeline in the file at `path`; UsageError says what is wrong and where."""
    config, faults = read(path)
    if config is None:
        raise faults[0]
    return config


def read(path: str | Path) -> tuple[Config | None, list[UsageError]]:
    """The pipeline in the file at `path`, or what is wrong with it and where: the first fault of each of its parts."""
    file, faults = Path(path), Faults()
    if (table := faults.of(partial(_parsed, file))) is None:
        return None, faults.found
    config = _config(table, file.resolve(), faults)
    found = [UsageError(f"{file}: {fault}") for fault in faults.found]
    return None if found else config, found


class Faults:
    """What is wrong, in the order in which it was found."""

    def __init__(self) -> None:
        self.found: list[UsageError] = []

    def of(self, make: Callable[[], Made], otherwise: Any = None) -> Made | Any:
        """What `make` makes; `otherwise` where that is wrong, which is kept."""
        try:
            return make()
        except UsageError as error:
            self.found.append(error)
            return otherwise


def _parsed(file: Path) -> dict[str, Any]:
    try:
        content = file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: NUL in the path
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read the pipeline {file}: {why}") from error
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except ValueError as error:  # no UTF-8, no TOML, or a number of thousands of digits
        raise UsageError(f"{file} is not a TOML file: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{file} is not a TOML file that can be read: it is nested too deeply") from error


def _config(table: Mapping[str, Any], file: Path, faults: Faults) -> Config:
    """A pipeline of which what is in `faults` afterwards is wrong."""
    of, folder, missing = faults.of, file.parent, cast("Any", None)
    of(lambda: check_names("the file", table, _TABLES, ()))
    changes = of(lambda: _brings_changes(table), otherwise=True)
    for needed in ("sink", "source") if changes else ("rules", "sink", "source"):
        of(partial(_refuse_missing, table, needed))
    pipeline = of(lambda: _part(table, "pipeline", ("name", "checkpoint")), {})
    time = of(lambda: _part(table, "time", ("watermark_delay", "close")), {})
    spark = of(lambda: _part(table, "spark", ("buckets", "cores", "conf")), {})
    name = of(lambda: plain_name("[pipeline]", _get(pipeline, "[pipeline]", "name", str, "pipeline")), "pipeline")
    config = Config(
        name=name,
        checkpoint=of(lambda: _checkpoint(pipeline, name, folder)),
        source=of(lambda: source_from(_part(table, "source", None), folder)) if "source" in table else missing,
        watermark_delay_us=of(lambda: _duration(time, "[time]", "watermark_delay", 0)),
        close=of(lambda: not changes and _get(time, "[time]", "close", bool, True)),
        rules=of(lambda: rules_from(_part(table, "rules", None))) if "rules" in table and not changes else None,
        outlets=_outlets(table, folder, changes, faults) if "sink" in table else (),
        cores=of(lambda: None if "cores" not in spark else _count(spark, "[spark]", "cores", 1)),
        spark_conf=of(lambda: dict(flat("[spark.conf]", _get(spark, "[spark]", "conf", dict, {})))),
        buckets=of(lambda: _buckets(spark)),
    )
    if faults.found:
        return config
    source = config.source
    of(partial(check_fits, source.all_columns(), config.rules))
    for outlet in config.outlets:
        path = getattr(outlet.sink, "path", None)
        of(partial(check_no_loop, outlet.sink, source))
        of(partial(check_places, file, getattr(source, "path", None), config.checkpoint, path))
    return config


def _refuse_missing(table: Mapping[str, Any], needed: str) -> None:
    if needed not in table:
        raise UsageError(f"the file: {needed!r} is missing: write a table [{needed}]")


def _checkpoint(pipeline: Mapping[str, Any], name: str, folder: Path) -> Place:
    named = _get(pipeline, "[pipeline]", "checkpoint", str, f"{name}-checkpoint")
    return any_place("[pipeline]", "checkpoint", named, folder)


def _outlets(table: Mapping[str, Any], folder: Path, changes: bool, faults: Faults) -> tuple[Outlet[Destination], ...]:
    """[sink], or each [[sink]]."""
    given, before = table["sink"], len(faults.found)
    several = given if isinstance(given, list) else [given]
    made = [
        faults.of(partial(_numbered, {**table, "sink": each}, folder, changes, number if several is given else 0))
        for number, each in enumerate(several, 1)
    ]
    if len(faults.found) == before:
        faults.of(lambda: _check_together(made))
    return tuple(made)


def _check_together(made: list[Outlet[Destination]]) -> None:
    if not made:
        raise UsageError("the file: 'sink' is missing: write a table [sink]")
    check_takes([outlet.takes for outlet in made])
    refuse_one_place([outlet.sink.place for outlet in made])


def _numbered(table: Mapping[str, Any], folder: Path, changes: bool, number: int) -> Outlet[Destination]:
    """The outlet of [sink]; of one of several, `number` says which."""
    try:
        return _outlet(table, folder, changes)
    except UsageError as error:
        if not number:
            raise
        raise UsageError(f"[[sink]] number {number}: {str(error).removeprefix('[sink]: ')}") from error


def _outlet(table: Mapping[str, Any], folder: Path, changes: bool) -> Outlet[Destination]:
    sink = _part(table, "sink", None)
    if changes and {*STEPS, "takes"} & set(sink):
        raise UsageError(
            "[sink]: 'query', 'transform' and 'takes' are for results: a mirror follows its changes as they are"
        )
    columns = () if changes else columns_from("[sink]", sink)
    own = () if changes else (*STEPS, "columns", "takes")
    destination = destination_from({name: sink[name] for name in sink if name not in own}, folder, changes)
    takes = takes_from("[sink]", sink)
    return Outlet(destination, step_from("[sink]", sink, folder), columns, takes)


def _buckets(spark: Mapping[str, Any]) -> int | None:
    try:
        return checked("'buckets'", None if "buckets" not in spark else _get(spark, "[spark]", "buckets", int))
    except ValueError as error:
        raise UsageError(f"[spark]: {error}") from None


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


def source_from(source: Mapping[str, Any], folder: Path) -> Files | Topics | Reader:
    """The source of a parsed table [source], whose paths are relative to `folder`; UsageError says what is wrong."""
    where = "[source]"
    if reads_by_spark(source):
        return reader_from(source, folder)
    format_ = _one_of(where, "format", _get(source, where, "format", str, "jsonl"), FORMATS)
    check_names(where, source, TOPIC_NAMES if format_ == "kafka" else _FILE_NAMES, ())
    changes = format_ == "kafka" and source.get("value") in VALUES[1:]
    columns = {} if changes else _get(source, where, "columns", dict)
    for column, kind in columns.items():
        _one_of("[source.columns]", column, kind, COLUMN_TYPES)
    made = topics_from(source, folder) if format_ == "kafka" else _files(source, format_, folder)
    check_names_of(made.read_columns() if isinstance(made, Topics) else made.all_columns())
    return made


def _files(source: Mapping[str, Any], format_: str, folder: Path) -> Files:
    path = any_place("[source]", "path", _get(source, "[source]", "path", str), folder)
    return Files(format_, path, _count(source, "[source]", "files_per_batch", 16), source["columns"])
