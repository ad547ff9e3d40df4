"""A folder of files as Spark sees it: which of them it reads, and what makes the folder unfit to be a source."""

from __future__ import annotations

import os
from pathlib import Path

from waterclock.errors import UsageError
from waterclock.streaming.places.hadoop import Entry, HadoopPath
from waterclock.streaming.places.place import Place


def check_source(folder: Place) -> None:
    """Raise UsageError where the source's `folder` is not there, or something in it would be read wrongly or not at all."""
    check_readable(folder)
    if why := _why_unfit(folder):
        raise UsageError(f"the source folder {folder} {why}")


def check_readable(folder: Place) -> None:
    """Raise UsageError where the source's `folder` is not there, or this user may not read it."""
    if not folder.is_dir():
        raise UsageError(f"the source folder {folder} does not exist")
    if isinstance(folder, Path) and not os.access(folder, os.R_OK | os.X_OK):
        raise UsageError(
            f"the source folder {folder} cannot be read by this user: give it the rights to list and read it"
        )


def _why_unfit(folder: Place) -> str | None:
    """What keeps Spark from reading the folder as it is, and the way out."""
    if (folder / "_delta_log").is_dir():
        return (
            "is a table of Delta Lake: its files hold rows twice, and rows that are no more. Write the rows of the table "
            "to another folder, and read that"
        )
    if columns := _columns_in(folder):
        return (
            f"holds the folder {min(columns)!r}, and Spark takes what stands before the = for a column: name that folder "
            "in [source], or move the files up"
        )
    names = [path.name for path in files_in(folder)]
    unseen = [name for name in names if not name.isprintable() and not _is_utf_8(name)]
    return (
        f"holds the file {min(unseen)!a}, whose name is not UTF-8: Spark does not see it. Rename it" if unseen else None
    )


def _is_utf_8(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:  # bytes that are no text stand in Python's names as halves of surrogate pairs
        return False


def _columns_in(folder: Place) -> list[str]:
    """The folders in it whose names Spark takes for a column and its value."""
    if isinstance(folder, HadoopPath):
        return [entry.name for entry in folder.entries() if "=" in entry.name and entry.is_folder]
    return [entry.name for entry in folder.iterdir() if "=" in entry.name and entry.is_dir()]


def files_in(folder: Place) -> list[Place]:
    """The files of a folder that Spark reads: it passes over names that begin with _ or a dot."""
    if isinstance(folder, HadoopPath):
        return [folder / entry.name for entry in _entries(folder)]
    return [path for path in folder.iterdir() if _counts(path.name) and path.is_file()]


def written_in(folder: Place) -> list[tuple[str, int, int]]:
    """Of each of `files_in` the name, when it was written in milliseconds since 1970, and when anything of it changed last,
    in nanoseconds; 0 where that is not known: it is on this machine alone."""
    if isinstance(folder, HadoopPath):
        return [(entry.name, entry.written_ms, 0) for entry in _entries(folder)]
    seen = [(path.name, os.stat(str(path))) for path in files_in(folder)]
    return [(name, at.st_mtime_ns // 1_000_000, max(at.st_mtime_ns, at.st_ctime_ns)) for name, at in seen]


def _entries(folder: HadoopPath) -> list[Entry]:
    return [entry for entry in folder.entries() if _counts(entry.name) and not entry.is_folder]


def _counts(name: str) -> bool:
    return not name.startswith(("_", "."))


def count_files(folder: Place) -> int:
    """How many `files_in` has; asked after each batch, so it looks at no file by itself."""
    if isinstance(folder, HadoopPath):
        return len(_entries(folder))
    with os.scandir(str(folder)) as entries:
        return sum(1 for entry in entries if _counts(entry.name) and entry.is_file())
