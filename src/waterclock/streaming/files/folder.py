"""A source's folder: which of its files are read, and what makes it unfit.

Rule 1: names that begin with _ or a dot, or end in ._COPYING_ (Hadoop's, of a file that it still writes), are passed over,
        as Spark does it.
"""

from __future__ import annotations

import os
from pathlib import Path

from waterclock.errors import UsageError
from waterclock.streaming.places.hadoop import HadoopPath, ListedFile
from waterclock.streaming.places.place import Place


def check_source(folder: Place) -> None:
    """Raise UsageError if the source's `folder` is not there, or something in it would be read wrongly or not at all."""
    check_readable(folder)
    if (folder / "_delta_log").is_dir():
        raise UsageError(
            f"the source folder {folder} is a table of Delta Lake: its files hold rows twice, and rows that are no more. "
            "Write the rows of the table to another folder, and read that"
        )
    if isinstance(folder, HadoopPath):
        columns = [entry.name for entry in folder.entries() if "=" in entry.name and entry.is_folder]
    else:
        columns = [entry.name for entry in folder.iterdir() if "=" in entry.name and entry.is_dir()]
    if columns:
        raise UsageError(
            f"the source folder {folder} holds the folder {min(columns)!r}, and Spark takes what stands before the = for a "
            "column: name that folder in [source], or move the files up"
        )
    # bytes that are no text stand in Python's names as halves of surrogate pairs
    names = [path.name for path in files_in(folder)]
    unseen = [name for name in names if not name.isprintable() and name.encode(errors="replace").decode() != name]
    if unseen:
        raise UsageError(
            f"the source folder {folder} holds the file {min(unseen)!a}, whose name is not UTF-8: Spark does not see it. "
            "Rename it"
        )


def check_readable(folder: Place) -> None:
    """Raise UsageError if the source's `folder` is not there, or this user may not read it."""
    if not folder.is_dir():
        raise UsageError(f"the source folder {folder} does not exist")
    if isinstance(folder, Path) and not os.access(folder, os.R_OK | os.X_OK):
        raise UsageError(
            f"the source folder {folder} cannot be read by this user: give it the rights to list and read it"
        )


def files_in(folder: Place) -> list[Place]:
    """The files of a folder that Spark reads (rule 1)."""
    if isinstance(folder, HadoopPath):
        return [folder / entry.name for entry in _entries(folder)]
    return [path for path in folder.iterdir() if _counts(path.name) and _is_file(path)]


def _is_file(entry: Place | os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except PermissionError:  # a link that this user may not follow: who reads it tells of it
        return True


def seen(path: Place) -> os.stat_result:
    """What the system says of a file; of a link that this user may not follow, of that. FileNotFoundError if it is gone."""
    try:
        return os.stat(str(path))
    except PermissionError:
        return os.lstat(str(path))


def written_in(folder: Place) -> list[tuple[str, int, int]]:
    """Of each of `files_in` the name, when it was written in milliseconds since 1970, and when anything of it changed last,
    in nanoseconds; 0 if that is not known: it is on this machine alone."""
    if isinstance(folder, HadoopPath):
        return [(entry.name, entry.written_ms, 0) for entry in _entries(folder)]
    found = [(path.name, seen(path)) for path in files_in(folder)]
    return [(name, at.st_mtime_ns // 1_000_000, max(at.st_mtime_ns, at.st_ctime_ns)) for name, at in found]


def _entries(folder: HadoopPath) -> list[ListedFile]:
    return [entry for entry in folder.entries() if _counts(entry.name) and not entry.is_folder]


def _counts(name: str) -> bool:
    return not (name.startswith(("_", ".")) or name.endswith("._COPYING_"))


def count_files(folder: Place) -> int:
    """How many `files_in` has; counted after each batch, so it looks at no file by itself."""
    if isinstance(folder, HadoopPath):
        return len(_entries(folder))
    with os.scandir(str(folder)) as entries:
        return sum(1 for entry in entries if _counts(entry.name) and _is_file(entry))
