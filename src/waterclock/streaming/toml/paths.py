"""The places that a pipeline names: its file, source, checkpoint and sink must not lie in each other.

The source is read whole, and `--fresh` removes the checkpoint's folder and the sink's file: a place that is also
something else would be read as input, or be lost.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from waterclock.errors import UsageError
from waterclock.streaming.places.hadoop import HadoopPath
from waterclock.streaming.places.place import Place, is_uri, place_of

_OF_TABLES = ("_delta_log", "_spark_metadata")  # Delta Lake's, and that of Spark's own file sink
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


def plain_name(where: str, name: str) -> str:
    """`name`, which becomes part of a path; UsageError where it could lead elsewhere."""
    if not _PLAIN_NAME.fullmatch(name):
        raise UsageError(f"{where}: 'name' must be up to 100 letters (a to z), digits, - and _, got {name!r}")
    return name


def place(where: str, name: str, given: str, folder: Path) -> Path:
    """The path `given` under `name`, relative to `folder`; UsageError where it is none."""
    if is_uri(given):
        raise UsageError(f"{where}: {name!r} must be a path of this machine, got {given!r}")
    return Path(str(any_place(where, name, given, folder)))


def any_place(where: str, name: str, given: str, folder: Path) -> Place:
    """The place `given` under `name`: a path relative to `folder`, or a URI; UsageError where it is neither."""
    if not given.strip() or not given.isprintable():
        raise UsageError(f"{where}: {name!r} must be a path, got {given!r}")
    try:
        return place_of(given, folder)
    except UsageError as error:
        raise UsageError(f"{where}: {name!r}: {error}") from None


def check_places(file: Path | None, source: Place | None, checkpoint: Place, sink: Path | None) -> None:
    """Raise UsageError where one of the places is, or lies in, another one; None where a place is no path."""
    pipeline, kept = _real(file) if file else None, _real(checkpoint)
    read = _real(source) if source else None
    sink = _local(_real(sink)) if sink else None
    if pipeline and _is_in(pipeline, kept):
        raise UsageError(
            f"[pipeline]: 'checkpoint' {kept} holds the pipeline's file, and --fresh removes it: name a folder of its own"
        )
    if read and (_is_in(kept, read) or _is_in(read, kept)):
        raise UsageError(f"[pipeline]: 'checkpoint' {kept} and the source folder {read} lie in each other")
    if sink is None:
        return
    for other, what in ((read, "the source folder"), (kept, "the checkpoint")):
        if other and (_is_in(sink, other) or _is_in(other, sink)):
            raise UsageError(f"[sink]: 'path' {sink} and {what} {other} lie in each other: name a file of its own")
    if (pipeline and _is_in(pipeline, sink)) or _is_other_folder(sink):
        raise UsageError(f"[sink]: 'path' {sink} is the place of something else: name a file of its own")


def _is_other_folder(sink: Path) -> bool:
    """Whether it is a folder that holds things, and no table."""
    return sink.is_dir() and any(sink.iterdir()) and not any((sink / name).is_dir() for name in _OF_TABLES)


def _is_in(inner: Path | HadoopPath, outer: Path | HadoopPath) -> bool:
    return inner == outer or outer in inner.parents


def _local(real: Path | HadoopPath) -> Path:
    assert isinstance(real, Path)
    return real


def _real(place: Place) -> Path | HadoopPath:
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
