"""A source's folder: which of its files Spark reads, what makes it unfit, and which files Spark has taken, by its own log.

    sources/0/7            entry 7: behind a version a line for each file, with its path and when it was written
    sources/0/9.compact    the same of all entries up to 9

An offset of the folder is the number of an entry: a batch takes the entries behind the offset of the batch before it.

Rule 1: a file is known by its name, for a source is one folder.
Rule 2: an entry is written before its batch: what it names is read by that batch, or by its re-run after a crash; or by no
        batch yet, if the crash came before the batch was planned (reads.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from waterclock.errors import UsageError
from waterclock.streaming.places.hadoop import HadoopPath, ListedFile
from waterclock.streaming.places.place import Place, names_in


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
    """The files of a folder that Spark reads: it passes over names that begin with _ or a dot."""
    if isinstance(folder, HadoopPath):
        return [folder / entry.name for entry in _entries(folder)]
    return [path for path in folder.iterdir() if _counts(path.name) and path.is_file()]


def written_in(folder: Place) -> list[tuple[str, int, int]]:
    """Of each of `files_in` the name, when it was written in milliseconds since 1970, and when anything of it changed last,
    in nanoseconds; 0 if that is not known: it is on this machine alone."""
    if isinstance(folder, HadoopPath):
        return [(entry.name, entry.written_ms, 0) for entry in _entries(folder)]
    seen = [(path.name, os.stat(str(path))) for path in files_in(folder)]
    return [(name, at.st_mtime_ns // 1_000_000, max(at.st_mtime_ns, at.st_ctime_ns)) for name, at in seen]


def _entries(folder: HadoopPath) -> list[ListedFile]:
    return [entry for entry in folder.entries() if _counts(entry.name) and not entry.is_folder]


def _counts(name: str) -> bool:
    return not name.startswith(("_", "."))


def count_files(folder: Place) -> int:
    """How many `files_in` has; counted after each batch, so it looks at no file by itself."""
    if isinstance(folder, HadoopPath):
        return len(_entries(folder))
    with os.scandir(str(folder)) as entries:
        return sum(1 for entry in entries if _counts(entry.name) and entry.is_file())


@dataclass(frozen=True, slots=True)
class TakenFile:
    """A file in Spark's log: its name, when it was written in milliseconds since 1970, the number of the entry, and where
    it lies, as Spark names it."""

    name: str
    written_ms: int
    entry: int
    path: str


def entries_of(log: Place) -> dict[int, str]:
    """The names of the entries in the `log` of a source, by their numbers."""
    return {int(stem): name for name in names_in(log) if (stem := name.partition(".")[0]).isdecimal()}


def entry_of(offset: str) -> int:
    """The number of the entry up to which an offset of a source goes; -1 for one that is none of a folder.

    >>> entry_of('{"logOffset":7}'), entry_of("-"), entry_of('{"orders":{"0":5}}')
    (7, -1, -1)
    """
    with suppress(ValueError):
        found = json.loads(offset)
        return int(found.get("logOffset", -1)) if isinstance(found, dict) else -1
    return -1


def taken_files(log: Place) -> Iterator[TakenFile]:
    """All files in the `log` of a source, in the order in which they were taken; none if there is no log."""
    entries = entries_of(log)
    whole = max((number for number, name in entries.items() if "." in name), default=0)
    for number in sorted(number for number in entries if number >= whole):
        yield from _files_in(log / entries[number], b"}")


def files_of_entry(log: Place, number: int) -> list[TakenFile]:
    """The files of one entry of the `log`; of one that holds all before it too, no more than its own are looked at."""
    alone, whole = log / str(number), log / f"{number}.compact"
    return list(_files_in(alone if alone.exists() else whole, b'"batchId":%d}' % number))


def is_unchanged(name: str, written_ms: int, taken: Mapping[str, TakenFile]) -> bool:
    """True if the file `name`, written then, is one of those that were taken, as it was then."""
    before = taken.get(name)
    return before is not None and before.written_ms == written_ms


def _files_in(path: Place, ending: bytes) -> Iterator[TakenFile]:
    for line in path.read_bytes().split(b"\n")[1:]:
        if line.endswith(ending):
            entry = json.loads(line)
            named = unquote(entry["path"])
            yield TakenFile(named.rpartition("/")[2], entry["timestamp"], entry["batchId"], named)
