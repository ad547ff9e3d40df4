"""The places that a pipeline names: its file, source, checkpoint and sink must not lie in each other.

The source is read whole, and `--fresh` removes the checkpoint's folder and the sink's file: a place that is also
something else would be read as input, or be lost.
"""

from __future__ import annotations

import os
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


def check_places(file: Path, source: Path | None, checkpoint: Path, sink: Path | None) -> None:
    """Raise UsageError where one of the places is, or lies in, another one; None where a place is no path."""
    pipeline, checkpoint = _real(file), _real(checkpoint)
    source, sink = source and _real(source), sink and _real(sink)
    if _is_in(pipeline, checkpoint):
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
    if _is_in(pipeline, sink) or other_folder:
        raise UsageError(f"[sink]: 'path' {sink} is the place of something else: name a file of its own")


def check_source(folder: Path) -> None:
    """Raise UsageError where the source's `folder` is not there, or something in it would be read wrongly or not at all."""
    if not folder.is_dir():
        raise UsageError(f"the source folder {folder} does not exist")
    if why := _why_unfit(folder):
        raise UsageError(f"the source folder {folder} {why}")


def _why_unfit(folder: Path) -> str | None:
    """What keeps Spark from reading the folder as it is, and the way out."""
    if not os.access(folder, os.R_OK | os.X_OK):
        return "cannot be read by this user: give it the rights to list and read it"
    if (folder / "_delta_log").is_dir():
        return (
            "is a table of Delta Lake: its files hold rows twice, and rows that are no more. Write the rows of the table "
            "to another folder, and read that"
        )
    if columns := [entry.name for entry in folder.iterdir() if "=" in entry.name and entry.is_dir()]:
        return (
            f"holds the folder {min(columns)!r}, and Spark takes what stands before the = for a column: name that folder "
            "in [source], or move the files up"
        )
    unseen = [path.name for path in files_in(folder) if not path.name.isprintable() and not _is_utf_8(path.name)]
    return (
        f"holds the file {min(unseen)!a}, whose name is not UTF-8: Spark does not see it. Rename it" if unseen else None
    )


def _is_utf_8(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:  # bytes that are no text stand in Python's names as halves of surrogate pairs
        return False


def _is_in(inner: Path, outer: Path) -> bool:
    return inner == outer or outer in inner.parents


def _real(path: Path) -> Path:
    try:
        real = path.resolve()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            real.lstat()  # a name that is too long is told here
        return real
    except (OSError, RuntimeError) as error:
        raise UsageError(f"the path {path} leads nowhere: {error}") from error


def files_in(folder: Path) -> list[Path]:
    """The files of a folder that Spark reads: it passes over names that begin with _ or a dot."""
    return [path for path in folder.iterdir() if not path.name.startswith(("_", ".")) and path.is_file()]


def count_files(folder: Path) -> int:
    """How many `files_in` has; asked after each batch, so it looks at no file by itself."""
    with os.scandir(folder) as entries:
        return sum(1 for entry in entries if not entry.name.startswith(("_", ".")) and entry.is_file())
