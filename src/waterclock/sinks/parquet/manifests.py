"""What decides which files are a table's rows: a manifest for each batch, a file that is made whole, once, and stays.

    000000000/000000000000.json    manifest 0: the table was made, with these columns
    000000000/000000000001.json    manifest 1: a batch with its files, counters and offsets; or a new owner (epochs.py); or
                                   what a vacuum is about to remove (parquet_tables.py)
    000000000.fold                 the first 500 manifests in one file, made when there are as many

A manifest is a line of JSON, and a line with that one's SHA-256. It holds the sum of the manifest before it, so that one
which is missing, damaged or put back from before is told. A fold is the lines of its manifests, and their sum.

Rule 1: manifests are numbered without a gap, and the number is the name. Of two writers that commit the same number the
        file system or the store refuses one: no lock, lease or clock decides anything.
Rule 2: no manifest is ever removed or written again. So whoever stood still finds the number taken when it wakes up,
        however long that was.
Rule 3: a fold only makes reading quick. One that is missing, damaged or from another time is said, and its manifests are
        read.
Rule 4: each manifest says where its table stands behind it: the last batch of each query, the sums of its counters, the
        owner, and which manifest named files last. So a start reads the last two groups of 500, and no more.
Rule 5: what cannot be read is an error with number, file and remedy. Nothing is passed over.
Rule 6: a number is free in a table that was made anew, too. So whoever commits looks first whether the last manifest
        that it read is the one that stands there.
"""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import uuid4

from waterclock.errors import StateMismatch
from waterclock.sinks.epochs import Epoch
from waterclock.sinks.files.files import place_of
from waterclock.sinks.files.sums import sum_of
from waterclock.sinks.marks import Mark, Marks
from waterclock.sinks.parquet.folders import Folder, store_url

log = logging.getLogger(__name__)
GROUP = 500  # manifests of a fold
TABLE, BATCH, OWNER, VACUUM = "table", "batch", "owner", "vacuum"
_VERSION = 1
_GROUP_NAME, _FOLD_NAME, _NAME = re.compile(r"\d{9}"), re.compile(r"\d{9}\.fold"), re.compile(r"\d{12}\.json")
_NOTHING = {"queries": {}, "owner": None, "listed": {"files": -1, "letters": -1}}
_UNREAD = "?"  # in the place of a sum: the manifest before was not read
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.new")


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that a manifest names."""

    name: str
    size: int  # bytes
    rows: int
    modified_ms: int
    sum: str = ""  # of its bytes (sums.py); empty where none was kept


Files = tuple[NamedFile, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one commit says. `writer` tells it from every other one; `stands` is where the table stands behind it."""

    number: int
    kind: str
    writer: str
    files: Files = ()
    letters: Files = ()  # files of dead letters
    stands: dict[str, Any] = field(default_factory=dict)
    told: dict[str, Any] = field(
        default_factory=dict
    )  # of a batch its row; of the table its columns; of a vacuum names

    def line(self, before: str) -> bytes:
        """The manifest as JSON; TypeError for counters that are no numbers."""
        told = {"waterclock": _VERSION, "before": before, **asdict(self)}
        return json.dumps(told, ensure_ascii=False, sort_keys=True).encode()


def whole(line: bytes) -> bytes:
    """The file of a manifest, or of a fold of several lines."""
    return line + b"\n" + sum_of(line).encode() + b"\n"


class Manifests:
    """The manifests in a folder, as far as they are needed to go on, and a way to all of them."""

    def __init__(self, folder: Folder, what: str) -> None:
        self._folder, self._what = folder, what
        self._lines: list[bytes] = []  # of the group that is not full yet
        self._before = ""
        self.number = -1  # of the last one
        self._stands: dict[str, Any] = _NOTHING
        self.recent = deque[Manifest](maxlen=2 * GROUP)

    @property
    def marks(self) -> Marks:
        """The last batch of each query, with the sums of its counters, and the owner."""
        return marks_of(self._stands)

    @property
    def listed(self) -> dict[str, int]:
        """The last manifest that names files, and the last one that names files of dead letters."""
        return dict(self._stands["listed"])

    @property
    def removed(self) -> set[str]:
        """The files that vacuums took or will take, by the last manifests."""
        return {name for each in self.recent if each.kind == VACUUM for name in each.told["removed"]}

    def load(self) -> bool:
        """Read where the table stands; False where there is none."""
        groups = self._groups()
        self._start(len(groups))
        for group in range(max(0, len(groups) - 2), len(groups)):
            self._take_group(group)
        for group in [number for number, is_folded in enumerate(groups[:-1]) if not is_folded]:
            self._fold_again(group)  # somebody removed it
        self.fold_full()  # a kill came in front of it
        return self.number >= 0

    def catch_up(self) -> None:
        """Read what was committed since."""
        while True:
            try:
                found = self._folder.read(name_of(self.number + 1))
            except FileNotFoundError:
                return
            self._take(*self._checked(found, self.number + 1))

    def next(self, kind: str, marks: Marks, told: dict[str, Any], files: Files = (), letters: Files = ()) -> Manifest:
        """The manifest of the next number, behind which the table stands as `marks` says; the caller commits it."""
        number = self.number + 1
        named = {"files": files, "letters": letters}
        listed = {part: number if found else self.listed[part] for part, found in named.items()}
        return Manifest(number, kind, uuid4().hex, files, letters, {**stands_of(marks), "listed": listed}, told)

    def commit(self, manifest: Manifest) -> bool:
        """Make the manifest of the next number; False where another writer made that one.

        StateMismatch where the last one that was read is not there any more: the table was removed, and maybe made anew.
        """
        assert manifest.number == self.number + 1
        self._refuse_replaced()
        line, name = manifest.line(self._before), name_of(manifest.number)
        if manifest.number % GROUP == 0:
            self._folder.make(name.partition("/")[0])
        # a store may make it, lose the answer, and refuse the same again: what stands there tells
        if not self._folder.create_new(name, whole(line)) and self._folder.read(name) != whole(line):
            return False
        self._take(line, manifest)
        return True

    def fold_full(self) -> None:
        """Fold the last group, where it is full."""
        if len(self._lines) == GROUP:
            self._folder.create_new(f"{self.number // GROUP:09d}.fold", whole(b"\n".join(self._lines)))

    def everything(self) -> Iterator[Manifest]:
        """All manifests, in their order, each looked at whether it belongs behind the one before."""
        other = Manifests(self._folder, self._what)
        groups = other._groups()
        for group in range(len(groups)):
            other.recent.clear()
            other._take_group(group)
            yield from other.recent

    # Reading ---------------------------------------------------------------------------------------------------

    def _groups(self) -> list[bool]:
        """Whether there is a fold, by group; StateMismatch where a group is missing."""
        names = {*self._folder.names()}
        groups = {int(name[:9]) for name in names if _GROUP_NAME.fullmatch(name) or _FOLD_NAME.fullmatch(name)}
        count = max(groups, default=-1) + 1
        if gone := [group for group in range(count) if group not in groups]:
            raise self._lost(gone[0] * GROUP, f"{gone[0]:09d}.fold", "is missing, and so are its manifests")
        return [f"{group:09d}.fold" in names for group in range(count)]

    def _start(self, groups: int) -> None:
        self._lines, self._before, self.number, self._stands = [], "", -1, _NOTHING
        self.recent.clear()
        if groups > 2:
            self._before = _UNREAD

    def _take_group(self, group: int) -> None:
        lines = self._folded(group)
        if lines is not None:
            for number, line in enumerate(lines, group * GROUP):
                self._take(line, self._parsed(line, number, f"{group:09d}.fold"))
            return
        names = [name for name in self._folder.names(f"{group:09d}") if _NAME.fullmatch(name)]
        for number, name in enumerate(names, group * GROUP):
            if name != name_of(number).rpartition("/")[2]:
                raise self._lost(number, name_of(number), "is missing")
            self._take(*self._checked(self._read(number), number))

    def _read(self, number: int) -> bytes:
        return self._folder.read(name_of(number))

    def _folded(self, group: int) -> list[bytes] | None:
        """The lines of a fold; None where there is none that can be used."""
        name = f"{group:09d}.fold"
        try:
            lines, _, end = self._folder.read(name).rstrip(b"\n").rpartition(b"\n")
        except FileNotFoundError:
            return None
        if sum_of(lines) == end.decode(errors="replace") and lines.count(b"\n") == GROUP - 1:
            found = lines.split(b"\n")
            if not self._has_another(group, found[-1]):
                return found
        log.warning(
            "%s/%s of %s is damaged, or from another time: the %d manifests that it folds are read instead. Remove it, and "
            "the next start of a pipeline makes it anew",
            self._folder,
            name,
            self._what,
            GROUP,
        )
        return None

    def _has_another(self, group: int, line: bytes) -> bool:
        """Whether the last manifest of a group is whole and has another line: each holds the sum of the one before, so a
        fold with that one has them all."""
        try:
            found = self._read((group + 1) * GROUP - 1)
        except FileNotFoundError:
            return False
        return found != whole(line) and found == whole(found.partition(b"\n")[0])

    def _checked(self, found: bytes, number: int) -> tuple[bytes, Manifest]:
        line, _, end = found.rstrip(b"\n").partition(b"\n")
        if sum_of(line) != end.decode(errors="replace"):
            raise self._lost(number, name_of(number), "is damaged")
        return line, self._parsed(line, number, name_of(number))

    def _parsed(self, line: bytes, number: int, name: str) -> Manifest:
        told = json.loads(line)
        version, before = told.pop("waterclock"), told.pop("before")
        if version != _VERSION:
            raise StateMismatch(
                f"the manifest {number} of {self._what} was written by another version of waterclock: read it with that"
            )
        if self._before not in (before, _UNREAD):
            raise self._lost(
                number, name, "does not follow on the one before, as if one of both were from another time"
            )
        files = {part: tuple(NamedFile(**each) for each in told[part]) for part in ("files", "letters")}
        return Manifest(**{**told, **files})

    def _take(self, line: bytes, manifest: Manifest) -> None:
        if manifest.number % GROUP == 0:
            self._lines = []
        self._lines.append(line)
        self._before, self.number = sum_of(line), manifest.number
        self._stands = manifest.stands
        self.recent.append(manifest)

    def _refuse_replaced(self) -> None:
        """Raise StateMismatch where the last manifest is not the one that was read: rule 6."""
        if self.number < 0:
            return
        try:
            found = self._read(self.number).partition(b"\n")[0]
        except FileNotFoundError:
            found = (self._folded(self.number // GROUP) or [b""])[-1]
        if found != self._lines[-1]:
            raise StateMismatch(
                f"{self._what} is not the one that this run wrote to: its manifest {self.number}, "
                f"{self._folder}/{name_of(self.number)}, is gone or another one. Somebody removed the table, or made it "
                "anew, while nothing was heard of this run. Nothing of this batch was written; start again, and it says "
                "what is there"
            )

    def _lost(self, number: int, name: str, why: str) -> StateMismatch:
        return StateMismatch(
            f"manifest {number} of {self._what}, {self._folder}/{name}, {why}: which rows are the table's cannot be known. "
            "Restore it from a copy of the folder, or start over with --fresh"
        )

    def _fold_again(self, group: int) -> None:
        other = Manifests(self._folder, self._what)
        other._start(group + 2)
        other._take_group(group)
        other.fold_full()


def name_of(number: int) -> str:
    """The file of a manifest.

    >>> name_of(1234)
    '000000002/000000001234.json'
    """
    return f"{number // GROUP:09d}/{number:012d}.json"


def is_ours(name: str) -> bool:
    """Whether a file of that name, in the folder of manifests or in a group's, is one that is made here."""
    return any(each.fullmatch(name) for each in (_GROUP_NAME, _FOLD_NAME, _NAME, TEMPORARY))


def stands_of(marks: Marks) -> dict[str, Any]:
    """Where a table stands, as a manifest tells it."""
    queries = {query: [mark.batch_id, dict(mark.totals)] for query, mark in marks.queries.items()}
    return {"queries": queries, "owner": None if marks.owner is None else [marks.owner.lineage, marks.owner.number]}


def marks_of(stands: dict[str, Any]) -> Marks:
    """The same, read back."""
    marks = Marks()
    for query, (batch_id, totals) in stands["queries"].items():
        marks.queries[query] = Mark(batch_id, totals)
    marks.owner = None if stands["owner"] is None else Epoch(*stands["owner"])
    return marks


def refuse_changed(folder: str, files: Sequence[NamedFile]) -> None:
    """Raise StateMismatch where a file that a manifest names is not there as it was."""
    for file, size in found_changed(folder, files):
        raise changed(folder, file, size)


def found_changed(folder: str, files: Sequence[NamedFile]) -> Iterator[tuple[NamedFile, int | None]]:
    """Those of `files` that are gone, with None, or have another size, with that."""
    at, inner = place_of(store_url(folder))
    found = at.get_file_info([f"{inner}/{file.name}" for file in files])
    for file, there in zip(files, found, strict=True):
        if not there.is_file or there.size != file.size:
            yield file, there.size if there.is_file else None


def changed(folder: str, file: NamedFile, size: int | None) -> StateMismatch:
    """The error for a file that is gone, where `size` is None, or has another size."""
    seen = "is gone" if size is None else f"has {size} bytes, and was written with {file.size}"
    return StateMismatch(
        f"{folder}/{file.name} {seen}: its {file.rows} rows are a part of the table. Restore it from a copy, or start over "
        "with --fresh"
    )
