"""The places that a pipeline names: its file, source, checkpoint and sink must not lie in each other.

The source is read whole, and `--fresh` removes the checkpoint's folder and the sink's file: a place that is also
something else would be read as input, or be lost.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from waterclock.errors import UsageError

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


def plain_name(where: str, name: str) -> str:
    """`name`, which becomes part of a path; UsageError where it could lead elsewhere."""
    if not _PLAIN_NAME.fullmatch(name):
        raise UsageError(f"{where}: 'name' must be up to 100 letters (a to z), digits, - and _, got {name!r}")
    return name


def place(where: str, name: str, given: str, folder: Path) -> Path:
    """The path `given` under `name`, relative to `folder`; UsageError where it is none."""
    if not given.strip() or not given.isprintable():
        raise UsageError(f"{where}: {name!r} must be a path, got {given!r}")
    return folder / given


def check_places(file: Path | None, source: Path | None, checkpoint: Path, sink: Path | None) -> None:
    """Raise UsageError where one of the places is, or lies in, another one; None where a place is no path."""
    pipeline, checkpoint = file and _real(file), _real(checkpoint)
    source, sink = source and _real(source), sink and _real(sink)
    if pipeline and _is_in(pipeline, checkpoint):
        raise UsageError(
            f"[pipeline]: 'checkpoint' {checkpoint} holds the pipeline's file, and --fresh removes it: "
            "name a folder of its own"
        )
    if source and (_is_in(checkpoint, source) or _is_in(source, checkpoint)):
        raise UsageError(f"[pipeline]: 'checkpoint' {checkpoint} and the source folder {source} lie in each other")
    if sink is None:
        return
    for other, what in ((source, "the source folder"), (checkpoint, "the checkpoint")):
        if other and (_is_in(sink, other) or _is_in(other, sink)):
            raise UsageError(f"[sink]: 'path' {sink} and {what} {other} lie in each other: name a file of its own")
    other_folder = sink.is_dir() and not (sink / "_delta_log").is_dir()  # a table of Delta Lake is a folder
    if (pipeline and _is_in(pipeline, sink)) or other_folder:
        raise UsageError(f"[sink]: 'path' {sink} is the place of something else: name a file of its own")


def _is_in(inner: Path, outer: Path) -> bool:
    return inner == outer or outer in inner.parents


def _real(path: Path) -> Path:
    try:
        real = path.resolve()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            real.lstat()  # a name that is too long is reported here
        return real
    except (OSError, RuntimeError) as error:
        raise UsageError(f"the path {path} leads nowhere: {error}") from error
