"""A table of a pipeline's file, each value looked at as it is read: one way for every part of the file; and its paths.

The pipeline's file, source, checkpoint and sink must not lie in each other. The source is read whole, and `--fresh` removes
the checkpoint's folder and the sink's file: a place that is also something else would be read as input, or be lost.

Rule 1: a UsageError names the table, the key and what it got. Without a default, a key must be there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from waterclock.durations import duration_us
from waterclock.errors import UsageError
from waterclock.kafka.settings import from_environment, refuse_own
from waterclock.rules.toml import check_names
from waterclock.streaming.places.hadoop import HadoopPath
from waterclock.streaming.places.place import Place, is_uri, place_of

_OF_TABLES = ("_delta_log", "_spark_metadata")  # Delta Lake's, and that of Spark's own file sink
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


def plain_name(where: str, name: str) -> str:
    """`name`, which becomes part of a path; UsageError if it could lead elsewhere."""
    if not _PLAIN_NAME.fullmatch(name):
        raise UsageError(f"{where}: 'name' must be up to 100 letters (a to z), digits, - and _, got {name!r}")
    return name


def place(where: str, name: str, given: str, folder: Path) -> Path:
    """The path `given` under `name`, relative to `folder`; UsageError if it is none."""
    if is_uri(given):
        raise UsageError(f"{where}: {name!r} must be a path of this machine, got {given!r}")
    return Path(str(any_place(where, name, given, folder)))


def any_place(where: str, name: str, given: str, folder: Path) -> Place:
    """The place `given` under `name`: a path relative to `folder`, or a URI; UsageError if it is neither."""
    if not given.strip() or not given.isprintable():
        raise UsageError(f"{where}: {name!r} must be a path, got {given!r}")
    try:
        return place_of(given, folder)
    except UsageError as error:
        raise UsageError(f"{where}: {name!r}: {error}") from None


def check_places(file: Path | None, source: Place | None, checkpoint: Place, sink: Path | None) -> None:
    """Raise UsageError if one of the places is, or lies in, another one; None if a place is no path."""
    pipeline, kept = real(file) if file else None, real(checkpoint)
    read = real(source) if source else None
    sink = Path(str(real(sink))) if sink else None
    if pipeline and is_in(pipeline, kept):
        raise UsageError(
            f"[pipeline]: 'checkpoint' {kept} holds the pipeline's file, and --fresh removes it: name a folder of its own"
        )
    if read and (is_in(kept, read) or is_in(read, kept)):
        raise UsageError(f"[pipeline]: 'checkpoint' {kept} and the source folder {read} lie in each other")
    if sink is None:
        return
    for other, what in ((read, "the source folder"), (kept, "the checkpoint")):
        if other and (is_in(sink, other) or is_in(other, sink)):
            raise UsageError(f"[sink]: 'path' {sink} and {what} {other} lie in each other: name a file of its own")
    is_table = any((sink / name).is_dir() for name in _OF_TABLES)
    if (pipeline and is_in(pipeline, sink)) or (sink.is_dir() and any(sink.iterdir()) and not is_table):
        raise UsageError(f"[sink]: 'path' {sink} is the place of something else: name a file of its own")


def is_in(inner: Path | HadoopPath, outer: Path | HadoopPath) -> bool:
    """Whether of two real places one is, or lies in, the other."""
    return inner == outer or outer in inner.parents


def real(place: Place) -> Path | HadoopPath:
    """Where it truly is; behind a URI there are no links, but for those of this machine."""
    if isinstance(place, HadoopPath) and place.scheme != "file":
        return place
    path = Path(re.sub("^file:/+", "/", str(place), flags=re.IGNORECASE))
    try:
        real = path.resolve()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            real.lstat()  # a name that is too long is reported here
        return real
    except (OSError, RuntimeError) as error:
        raise UsageError(f"the path {path} leads nowhere: {error}") from error


LONGEST_US = 10_000 * 366 * 86_400_000_000  # Arrow writes times up to the year 32,767: 9,999 and this lie before it
_LARGEST_COUNT = 2**31 - 1  # Spark's integers
_REQUIRED: Any = object()
_NAMES: Mapping[type, str] = {
    str: "a text",
    int: "an integer",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}


class FileTable(dict[str, Any]):
    """A table that errors call `where`; paths in it are relative to `folder`. For the records of sinks it is a
    `sinks.destination.SinkTable`, which knows whether the source brings changes of tables."""

    def __init__(self, where: str, values: Mapping[str, Any], folder: Path, changes: bool = False) -> None:
        super().__init__(values)
        self.where = where
        self.folder = folder
        self.changes = changes

    def part(self, name: str, known: Iterable[str] | None = None) -> FileTable:
        """The table `name` in it, empty if there is none; with `known`, no other keys are allowed in that."""
        found = self.get(name, {})
        if not isinstance(found, Mapping):
            raise UsageError(f"[{name}] must be a table, got {found!r}")
        made = FileTable(f"[{name}]", found, self.folder)
        if known is not None:
            made.check(known)
        return made

    def check(self, known: Iterable[str]) -> None:
        """UsageError for a key that is none of `known`."""
        check_names(self.where, self, known, ())

    def take(self, name: str, kind: type, default: Any = _REQUIRED) -> Any:
        """The value of a key, which must be of `kind`."""
        if name not in self:
            if default is _REQUIRED:
                raise UsageError(f"{self.where}: {name!r} is missing")
            return default
        value = self[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise UsageError(f"{self.where}: {name!r} must be {_NAMES[kind]}, got {value!r}")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        return str(self.take(name, str, _REQUIRED if default is None else default))

    def texts(self, name: str, default: list[str]) -> list[str]:
        """A list of texts."""
        values = self.take(name, list, default)
        if not all(isinstance(value, str) for value in values):
            raise UsageError(f"{self.where}: {name!r} must be a list of texts, got {values!r}")
        return list(values)

    def one_of(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """The default, or one of the texts `allowed`."""
        given = self.text(name, default)
        return given if given == default else str(one_of(self.where, name, given, allowed))

    def count(self, name: str, default: int) -> int:
        """A number from 1 to what Spark's integers hold."""
        number = int(self.take(name, int, default))
        if number < 1:
            raise UsageError(f"{self.where}: {name!r} must be at least 1, got {number}")
        if number > _LARGEST_COUNT:
            raise UsageError(f"{self.where}: {name!r} must be at most {_LARGEST_COUNT}, got {number}")
        return number

    def number(self, name: str, default: int, largest: int) -> int:
        """A number from 1 to `largest`, or the default."""
        number = int(self.take(name, int, default))
        if number != default and not 0 < number <= largest:
            raise UsageError(f"{self.where}: {name!r} must be 1 to {largest}, got {number}")
        return number

    def duration(self, name: str, default: int) -> int:
        """A duration in microseconds, up to 10,000 years."""
        try:
            us = duration_us(self.get(name, default), name)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{self.where}: {error}") from error
        if us > LONGEST_US:
            raise UsageError(f"{self.where}: {name} must be at most 10,000 years, got {self[name]!r}")
        return us

    def place(self, name: str, given: str) -> Path:
        """What is `given` under `name` as a path of this machine."""
        return place(self.where, name, given, self.folder)

    def any_place(self, name: str, given: str) -> Place:
        """What is `given` under `name` as a path, or a URI."""
        return any_place(self.where, name, given, self.folder)

    def flat(self, name: str) -> dict[str, str]:
        """The settings in the table `name` by their dotted names, as text: without quotes, TOML takes `spark.ui.port` for
        tables in tables."""
        return dict(_flat(self._inner(name), self.take(name, dict, {})))

    def settings(self, name: str) -> dict[str, str]:
        """The same, secrets taken from the environment."""
        where = self._inner(name)
        return dict(_flat(where, from_environment(where, self.take(name, dict, {}))))

    def client(self, own: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """Where Kafka is (`servers`, a text or a list of texts), and the settings of librdkafka under `client`; `own` are
        those that nobody else may say, and why."""
        settings = self.settings("client")
        refuse_own(self._inner("client"), settings, own)
        given = self.get("servers")
        servers = ",".join(given) if isinstance(given, list) and all(isinstance(s, str) for s in given) else given
        if not isinstance(servers, str) or not re.fullmatch(r"[^\s,]+( *, *[^\s,]+)*", servers):
            raise UsageError(f"{self.where}: 'servers' must be addresses such as \"localhost:9092\", got {given!r}")
        return servers, settings

    def _inner(self, name: str) -> str:
        return f"{self.where.removesuffix(']')}.{name}]"


def one_of(where: str, name: str, value: Any, allowed: tuple[str, ...]) -> Any:
    """`value`, which must be one of the allowed ones."""
    if value not in allowed:
        raise UsageError(f"{where}: {name!r} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def _flat(where: str, table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(where, value, f"{prefix}{name}.")
        elif isinstance(value, str | int | float):
            yield f"{prefix}{name}", str(value).lower() if isinstance(value, bool) else str(value)
        else:
            raise UsageError(f"{where}: '{prefix}{name}' must be a text, a number, true or false, got {value!r}")
