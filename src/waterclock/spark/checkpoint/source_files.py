"""Which files of a folder Spark has taken, by its own log.

    sources/0/7            entry 7: behind a version a line for each file, with its path and when it was written
    sources/0/9.compact    the same of all entries up to 9

An offset of the folder is the number of an entry: a batch takes the entries behind the offset of the batch before it.

Rule 1: a file is known by its name, for a source is one folder.
Rule 2: an entry is written before its batch: what it names is read by that batch, or by its re-run after a crash; or by no
        batch yet, if the crash came before the batch was planned (reads.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

from waterclock.streaming.checkpoint import damaged
from waterclock.streaming.places.place import Place, names_in


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
            try:
                entry = json.loads(line)
                named, written_ms, number = unquote(entry["path"]), int(entry["timestamp"]), int(entry["batchId"])
            except (ValueError, KeyError, TypeError) as error:
                raise damaged(path, f"{type(error).__name__}: {error}") from error
            yield TakenFile(named.rpartition("/")[2], written_ms, number, named)
