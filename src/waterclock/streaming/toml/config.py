"""A pipeline as a TOML file: parsed once, checked whole, before Spark is started. The reference is made of this.

    [pipeline]
    engine           what runs it: "spark", or "local", which needs no Java: one process on one machine
    name             names the query and the progress bar: up to 100 letters (a to z), digits, - and _
    checkpoint       the folder, or the URI, in which Spark and waterclock keep how far they are; it is made. Left out, it
                     is NAME-checkpoint; without a name either it has the file's, so orders.toml has orders-checkpoint
    [source]
    format           what is read: "jsonl" (JSON objects, one a line) and "parquet" are files, "kafka" topics; the
                     others, and "parquet" without columns, are read by Spark itself
    path             the folder of files, which must be there; a URI such as s3a://bucket/in too
    files_per_batch  how many new files a batch takes at most, the oldest first
    columns          [source.columns]: each column's name = "string", "long", "int", "double", "boolean" or "timestamp"
    [time]
    watermark_delay  how far an event may come behind the largest time seen; a later one is late
    close            whether a run without --live ends by closing: nothing stays held, and no more files may come
    [local]
    buckets          with engine = "local": in how many parts the keys are kept, 2 to 4096
    linger           how long a live run rests behind a batch that took all there was: longer costs less processor, and
                     rows come later
[spark]
    cores            how many cores Spark uses; left out, all of the machine
    buckets          in how many parts the keys are kept, 2 to 4096: as many cores can apply rules at once. Left out, as
                     the checkpoint has them; a new one has 16, or as many as there are cores if these are more
    conf             [spark.conf]: Spark's own settings by their names; they win over waterclock's

Topics: topics.py; Spark's readers: readers.py. [rules]: rules/toml.py; with changes of tables there are neither [rules] nor
[time]. [sink], or several [[sink]]: sink.py; what it is given of a batch: steps.py. Paths are relative to the file. The
checkpoint and a source's path may be a URI that Spark knows, such as hdfs://host/folder.

What must fit together (columns and rules, durations and the calendar) is checked for a pipeline that is written in Python
too, in the same words.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from waterclock.errors import UsageError
from waterclock.rules.model import Rules
from waterclock.rules.toml import rules_from
from waterclock.rules.truth import Kind, Unfit
from waterclock.sinks.destination import Destination
from waterclock.streaming.buckets import checked
from waterclock.streaming.layout import check_each_once, refuse_own
from waterclock.streaming.places.place import Place, is_remote
from waterclock.streaming.toml.readers import READERS, Reader, reader_from, reads_by_spark
from waterclock.streaming.toml.sink import check_no_loop, destination_from, refuse_one_place
from waterclock.streaming.toml.steps import NAMES as STEPS
from waterclock.streaming.toml.steps import Outlet, check_takes, columns_from, step_from, takes_from
from waterclock.streaming.toml.table import LONGEST_US, FileTable, check_places, one_of, plain_name
from waterclock.streaming.toml.topics import NAMES as TOPIC_NAMES
from waterclock.streaming.toml.topics import VALUES, Topics, topics_from

_KINDS: Mapping[str, Kind] = {  # what a condition takes a column for
    "string": "text",
    "long": "number",
    "int": "number",
    "double": "number",
    "boolean": "boolean",
    "timestamp": "time",
}


def check_fits(columns: Mapping[str, str] | None, rules: Rules | None) -> None:
    """Raise UsageError if rules and the columns that are read do not fit each other.

    `columns` is None if only Spark knows them.
    """
    if rules is None:
        return
    check_durations(rules)
    if columns is not None:
        _check_columns(columns, rules)


def check_names_of(columns: Iterable[str], where: str = "[source.columns]") -> None:
    """Raise UsageError if columns could not be those of a table, or travel beside ours."""
    names = list(columns)
    for name in names:
        if not name.strip() or not name.isprintable():
            raise UsageError(f"{where}: a column's name must be printable and not empty, got {name!r}")
    refuse_own(names, where)
    check_each_once(names, where)


def check_durations(rules: Rules) -> None:
    """A deadline far outside of the calendar could not be written, by this batch or any re-run of it."""
    wait_us = rules.ordering.wait_us if rules.ordering else 0
    named = [("order(wait=)", wait_us), ("deduplicate(within=)", rules.within_us or 0)]
    named += [(f"delay {rule.emit!r}", rule.by_us) for rule in rules.delays]
    named += [(f"expect {rule.otherwise!r}", rule.within_us or 0) for rule in rules.expects]
    named += [(f"quiet {rule.emit!r}", rule.after_us) for rule in rules.quiets]
    for name, us in named:
        if us > LONGEST_US:
            raise UsageError(f"[rules]: {name} waits for more than 10,000 years: shorten it")


def _check_columns(columns: Mapping[str, str], rules: Rules) -> None:
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
        one_of("[source.columns]", name, columns[name], kinds)
    try:
        rules.questions().check({name: _KINDS[kind] for name, kind in columns.items()})
    except Unfit as error:
        raise UsageError(f"[rules]: {error}") from None


Made = TypeVar("Made")
SERVED = "waterclock.sink"  # in a checkpoint: where the results are that go with it
FORMATS = ("jsonl", "parquet", "kafka", *READERS)
COLUMN_TYPES = ("string", "long", "int", "double", "boolean", "timestamp")
_FILE_NAMES = ("format", "path", "files_per_batch", "columns")
_TABLES = ("pipeline", "source", "time", "rules", "sink", "local", "spark")
ENGINES = ("spark", "local")
_BUCKETS_OF_LOCAL = 4


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
class Local:
    """How a pipeline runs without Spark; `is_chosen` by its file."""

    is_chosen: bool = False
    buckets: int = _BUCKETS_OF_LOCAL
    linger_us: int = 0


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
    local: Local = Local()

    @property
    def sink(self) -> Destination:
        """The first sink, whose totals are those that are shown."""
        return self.outlets[0].sink

    def modules(self) -> Path | None:
        """The folder in which a `transform` may have modules beside it; None if there is none."""
        steps = (getattr(self.source, "step", None), *(outlet.step for outlet in self.outlets))
        return next((step.folder for step in steps if step is not None and step.transform is not None), None)

    def is_remote(self) -> bool:
        """Whether a place that it names is reached through Spark alone."""
        places = (self.checkpoint, getattr(self.source, "path", None))
        return any(map(is_remote, places)) or any(each.sink.needs_session for each in self.outlets)


def log_of(config: Config, file: str | Path) -> Path:
    """Where Spark's log goes: into the checkpoint's folder; beside the pipeline's `file` if that lies behind a URI."""
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
    whole = file.resolve()
    config = _config(FileTable("the file", table, whole.parent), whole, faults)
    found = [UsageError(f"{file}: {fault}") for fault in faults.found]
    return None if found else config, found


class Faults:
    """What is wrong, in the order in which it was found."""

    def __init__(self) -> None:
        self.found: list[UsageError] = []

    def of(self, make: Callable[[], Made], otherwise: Any = None) -> Made | Any:
        """What `make` makes; `otherwise` if that is wrong, which is kept."""
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


def _config(file: FileTable, path: Path, faults: Faults) -> Config:
    """A pipeline of which what is in `faults` afterwards is wrong."""
    of, missing = faults.of, cast("Any", None)
    of(lambda: file.check(_TABLES))
    changes = of(lambda: _brings_changes(file), otherwise=True)
    for needed in ("sink", "source") if changes else ("rules", "sink", "source"):
        if needed not in file:
            faults.found.append(UsageError(f"the file: {needed!r} is missing: write a table [{needed}]"))
    none = FileTable("", {}, file.folder)
    pipeline = of(lambda: file.part("pipeline", ("engine", "name", "checkpoint")), none)
    time = of(lambda: file.part("time", ("watermark_delay", "close")), none)
    spark = of(lambda: file.part("spark", ("buckets", "cores", "conf")), none)
    name = of(lambda: plain_name("[pipeline]", pipeline.text("name", "pipeline")), "pipeline")
    config = Config(
        name=name,
        checkpoint=of(lambda: pipeline.any_place("checkpoint", pipeline.text("checkpoint", f"{name}-checkpoint"))),
        source=of(lambda: source_from(file.part("source"))) if "source" in file else missing,
        watermark_delay_us=of(lambda: time.duration("watermark_delay", 0)),
        close=of(lambda: not changes and time.take("close", bool, True)),
        rules=of(lambda: rules_from(file.part("rules"))) if "rules" in file and not changes else None,
        outlets=_outlets(file, changes, faults) if "sink" in file else (),
        cores=of(lambda: None if "cores" not in spark else spark.count("cores", 1)),
        spark_conf=of(lambda: spark.flat("conf")),
        buckets=of(lambda: _buckets("[spark]", spark)),
        local=of(lambda: _local(pipeline, file.part("local", ("buckets", "linger")))),
    )
    if faults.found:
        return config
    if "name" not in pipeline and "checkpoint" not in pipeline:
        config = replace(
            config, checkpoint=_checkpoint_of(path, " and ".join(each.sink.place for each in config.outlets))
        )
    source = config.source
    of(partial(check_fits, source.all_columns(), config.rules))
    for outlet in config.outlets:
        sink_path = getattr(outlet.sink, "path", None)
        of(partial(check_no_loop, outlet.sink, source))
        of(partial(check_places, path, getattr(source, "path", None), config.checkpoint, sink_path))
    return config


def _checkpoint_of(file: Path, sink: str) -> Path:
    """The checkpoint of a file that names none: two files in a folder have two.

    All were called pipeline-checkpoint once. Who has that goes on with it, unless it goes with another file's results.
    """
    first = file.with_name("pipeline-checkpoint")
    try:
        own = file.with_name(f"{plain_name('', file.stem)}-checkpoint")
    except UsageError:
        return first
    with suppress(OSError, ValueError):
        if not own.exists():
            served = (first / SERVED).read_text()
            was_moved = json.loads((first / "waterclock.json").read_text())["checkpoint"] != str(first)
            return first if served == sink or was_moved else own
    return own


def _outlets(file: FileTable, changes: bool, faults: Faults) -> tuple[Outlet[Destination], ...]:
    """[sink], or each [[sink]]."""
    given, before = file["sink"], len(faults.found)
    several = given if isinstance(given, list) else [given]

    def check_together() -> None:
        if not made:
            raise UsageError("the file: 'sink' is missing: write a table [sink]")
        check_takes([outlet.takes for outlet in made])
        refuse_one_place([outlet.sink.alone for outlet in made])

    made = [
        faults.of(partial(_outlet, each, file.folder, changes, number if several is given else 0))
        for number, each in enumerate(several, 1)
    ]
    if len(faults.found) == before:
        faults.of(check_together)
    return tuple(made)


def _outlet(given: Any, folder: Path, changes: bool, number: int) -> Outlet[Destination]:
    """The outlet of [sink]; of one of several, `number` says which."""
    try:
        sink = FileTable("", {"sink": given}, folder).part("sink")
        if changes and {*STEPS, "takes"} & set(sink):
            raise UsageError(
                "[sink]: 'query', 'transform' and 'takes' are for results: a mirror follows its changes as they are"
            )
        columns = () if changes else columns_from(sink)
        own = () if changes else (*STEPS, "columns", "takes")
        of_record = FileTable(sink.where, {name: sink[name] for name in sink if name not in own}, folder, changes)
        return Outlet(destination_from(of_record), step_from(sink), columns, takes_from(sink))
    except UsageError as error:
        if not number:
            raise
        raise UsageError(f"[[sink]] number {number}: {str(error).removeprefix('[sink]: ')}") from error


def _local(pipeline: FileTable, local: FileTable) -> Local:
    is_chosen = pipeline.one_of("engine", ENGINES, "spark") == "local"
    return Local(is_chosen, _buckets("[local]", local) or _BUCKETS_OF_LOCAL, local.duration("linger", 0))


def _buckets(where: str, table: FileTable) -> int | None:
    try:
        return checked("'buckets'", table.take("buckets", int, None))
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def _brings_changes(file: FileTable) -> bool:
    """Whether the source's records are changes of tables; then nothing else can be done with them than to apply them."""
    source = file.part("source")
    if source.get("format") != "kafka" or source.get("value") not in VALUES[1:]:
        return False
    for name in ("rules", "time"):
        if name in file:
            raise UsageError(
                f"the file: changes (value = {source['value']!r} in [source]) are put into tables by their positions, and "
                f"[{name}] would do nothing: leave it out"
            )
    return True


def source_from(source: FileTable) -> Files | Topics | Reader:
    """The source that the table [source] means; UsageError says what is wrong."""
    if reads_by_spark(source):
        return reader_from(source)
    format_ = source.one_of("format", FORMATS, "jsonl")
    source.check(TOPIC_NAMES if format_ == "kafka" else _FILE_NAMES)
    changes = format_ == "kafka" and source.get("value") in VALUES[1:]
    columns = {} if changes else source.take("columns", dict)
    for column, kind in columns.items():
        one_of("[source.columns]", column, kind, COLUMN_TYPES)
    if format_ == "kafka":
        topics = topics_from(source)
        check_names_of(topics.read_columns())
        return topics
    path = source.any_place("path", source.text("path"))
    check_names_of(columns)
    return Files(format_, path, source.count("files_per_batch", 16), columns)
