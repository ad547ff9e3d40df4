"""A table's files in Spark's own words: the log that its file sink keeps, and that `spark.read.parquet(path)` goes by.

    _spark_metadata/19.compact    all files of the table up to some manifest
    _spark_metadata/20            those of one manifest behind it, and so on

Each is a line "v1", and a line of JSON for each file, whose field `waterclock` is the number of the manifest that names it.
The last line has the sum of all that stands before, and of the log file's name; Spark passes over what it does not know.
So who reads the folder with Spark, and has nothing of ours, reads the files that manifests name, and no others.

Rule 1: it decides nothing. It is written behind a manifest (manifests.py), and made good at each start: a kill between both
        has Spark see a batch later, never one that is none. Our manifest cannot be this log itself: its paths are
        absolute, each of its folds lists all files and is due at a number that is not ours to choose, and it has no sums.
Rule 2: Spark takes the distance of the last two folds for the number of files from one to the next. So there are always
        two, at 10 * 2**k - 1: each stands at twice the number of the one before, and what is written for folds is a
        constant for a batch. The numbers between are passed over.
Rule 3: a file of it is made once, as a manifest is: who finds that another run was quicker looks anew. One that is in a
        fold already is removed when the next fold stands: who reads meanwhile finds it.
Rule 4: a log that is damaged, or whose files lie elsewhere since the folder was moved, is said and written anew from the
        manifests, behind what is there. A start looks at the sums of the last fold and of the last 1,000 files behind it.
        One with entries of somebody else's is an error: Spark's own sink writes there.
Rule 5: only a file whose sum is right tells anything: one that is damaged refuses no start, no reader, and lists nothing.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from waterclock.errors import SinkLost, StateMismatch
from waterclock.sinks.files.sums import sum_of
from waterclock.sinks.parquet.folders import Folder
from waterclock.sinks.parquet.manifests import Manifest, Manifests, NamedFile

log = logging.getLogger(__name__)
SPARK_LIST = "_spark_metadata"
_NAME = re.compile(r"(\d+)(\.compact)?")
_FIRST = (9, 19)  # numbers of the first two folds
_TRIES = 10
_LOOKED_AT = 1_000  # files behind the last fold, at a start
_BLOCK = 32 << 20  # bytes: what Spark's own sink writes there; nobody asks for it


class SparkList:
    """Spark's log of the files of a table, `part` of a manifest: "files" or "letters"."""

    def __init__(self, folder: Folder, location: str, part: str) -> None:
        self._folder, self._uri, self._part = folder, uri_of(location), part
        self._last = self._fold = -1  # Spark's numbers: of the last file, and of the last fold
        self._told = -1  # the last manifest that it knows

    def open(self, manifests: Manifests) -> None:
        """Make it, or make it good; StateMismatch where it is somebody else's, or knows more than the manifests."""
        if not any(self._is_made_good(manifests) for _ in range(_TRIES)):
            raise SinkLost(f"another run is quicker in {self._folder}/{SPARK_LIST}, again and again")

    def follow(self, manifests: Manifests) -> None:
        """List what was committed since."""
        if not self._is_level(manifests):
            self.open(manifests)

    def told(self) -> int:
        """The last manifest that it knows, as far as it can be read; -1 where it cannot."""
        last = max(self._numbers().items(), default=None)
        entry = None if last is None else self._last_of(_name_of(*last))
        return -1 if entry is None else int(entry["waterclock"])

    def refuse_end_lost(self, told: int, last: int) -> None:
        """Raise StateMismatch where it knew of manifest `told`, and `last` was the last one that was there later."""
        if told > last:
            raise StateMismatch(
                f"{self._folder}/{SPARK_LIST} lists files of manifest {told}, and the last manifest that is there is "
                f"{last}: later ones are gone. Restore them from a copy, or start over with --fresh"
            )

    def _is_made_good(self, manifests: Manifests) -> bool:
        """Whether it is, and no other run wrote to it meanwhile."""
        numbers = self._numbers()
        self._last = max(numbers, default=-1)
        told = self._told_by(numbers)
        if told is None:
            return self._write_folds(self._folds_behind(), manifests)
        if told > manifests.number:
            manifests.catch_up()
        self.refuse_end_lost(told, manifests.number)
        self._told, self._fold = told, max(number for number, is_fold in numbers.items() if is_fold)
        return self._is_level(manifests)

    def _is_level(self, manifests: Manifests) -> bool:
        if self._told >= manifests.listed[self._part]:
            return True
        is_recent = bool(manifests.recent) and manifests.recent[0].number <= self._told + 1
        for manifest in list(manifests.recent) if is_recent else manifests.everything():
            # what another run commits meanwhile is not in a fold that is made here
            if self._told < manifest.number <= manifests.number and getattr(manifest, self._part):
                if not self._is_added(manifest, manifests):
                    return False
                self._told = max(self._told, manifest.number)
        return True

    def _is_added(self, manifest: Manifest, manifests: Manifests) -> bool:
        before = self._fold
        if self._last + 1 < before + (before + 1) // 2:
            is_made = self._is_made(f"{self._last + 1}", self._entries([manifest]))
            self._last += 1
            return is_made
        is_made = self._write_folds((2 * before + 1,), manifests)
        if is_made:
            self._forget_before(before)
        return is_made

    def _write_folds(self, numbers: Sequence[int], manifests: Manifests) -> bool:
        entries = self._entries(each for each in manifests.everything() if each.number <= manifests.number)
        self._folder.make(SPARK_LIST)
        is_made = all(self._is_made(f"{number}.compact", entries) for number in numbers)
        self._last = self._fold = numbers[-1]
        self._told = manifests.number
        return is_made

    def _folds_behind(self) -> tuple[int, int]:
        """Numbers of two folds behind all that is there."""
        first = _FIRST[0]
        while first <= self._last:
            first = 2 * first + 1
        return first, 2 * first + 1

    def _is_made(self, name: str, entries: Sequence[str]) -> bool:
        """Whether the file is there as it should be; not where another run wrote another one, from where it stood."""
        name = f"{SPARK_LIST}/{name}"
        data = _summed(name, "\n".join(["v1", *entries]).encode())
        return self._folder.create_new(name, data) or self._folder.read(name) == data

    def _entries(self, manifests: Iterable[Manifest]) -> list[str]:
        return [
            json.dumps(self._entry(file, manifest.number))
            for manifest in manifests
            for file in getattr(manifest, self._part)
        ]

    def _entry(self, file: NamedFile, number: int) -> dict[str, Any]:
        return {
            "path": f"{self._uri}/{file.name}",
            "size": file.size,
            "isDir": False,
            "modificationTime": file.modified_ms,
            "blockReplication": 1,
            "blockSize": _BLOCK,
            "action": "add",
            "waterclock": number,
        }

    def _numbers(self) -> dict[int, bool]:
        """Spark's numbers that are there, and whether each is a fold."""
        found = [_NAME.fullmatch(name) for name in self._folder.names(SPARK_LIST)]
        return {int(match[1]): match[2] is not None for match in found if match}

    def _told_by(self, numbers: dict[int, bool]) -> int | None:
        """The last manifest that the log knows; None where there is none, or it is of no use any more."""
        if not numbers:
            return None
        name = _name_of(self._last, numbers[self._last])
        last = self._last_of(name)
        if last is None:
            self._refuse_anothers(name)
        is_sound = last is not None and _is_whole(numbers) and str(last["path"]).startswith(f"{self._uri}/")
        if last is None or not is_sound or not all(map(self._last_of, _looked_at(numbers))):
            log.warning(
                "%s/%s or one before it is damaged, or its files were moved: Spark's list of files is made anew",
                self._folder,
                name,
            )
            return None
        return int(last["waterclock"])

    def _last_of(self, name: str) -> dict[str, Any] | None:
        """The last entry of a file of the log; None where the file is not as it was written here."""
        try:
            data = self._folder.read(name)
            before, _, line = data.rpartition(b"\n")
            last = json.loads(line)
            del last["sum"]
        except (ValueError, TypeError, KeyError, FileNotFoundError):
            return None
        is_ours = data == _summed(name, before + b"\n" + json.dumps(last).encode())
        return dict(last) if is_ours else None

    def _refuse_anothers(self, name: str) -> None:
        """StateMismatch where a file of the log lists files, and none of them with a word of ours."""
        try:
            version, *lines = self._folder.read(name).decode().split("\n")
            entries = [json.loads(line) for line in lines]
        except (ValueError, FileNotFoundError):
            return
        words = {word for entry in entries for word in (entry if isinstance(entry, dict) else ("sum",))}
        if entries and version == "v1" and not words & {"waterclock", "sum"}:
            raise StateMismatch(
                f"{self._folder}/{name} lists files that waterclock did not write: a query of Spark writes into the same "
                "folder. Name another path for one of both"
            )

    def _forget_before(self, fold: int) -> None:
        for number, is_fold in self._numbers().items():
            if number < fold:
                self._folder.remove(_name_of(number, is_fold))


def _name_of(number: int, is_fold: bool) -> str:
    return f"{SPARK_LIST}/{number}{'.compact' if is_fold else ''}"


def _summed(name: str, data: bytes) -> bytes:
    """A file of the log with its sum in the last entry.

    >>> _summed("_spark_metadata/9", b'v1\\n{"path": "a"}')[:30]
    b'v1\\n{"path": "a", "sum": "07864'
    """
    return data[:-1] + f', "sum": "{sum_of(name.encode() + data)}"'.encode() + data[-1:]


def _looked_at(numbers: dict[int, bool]) -> list[str]:
    """The last fold, and the last files behind it."""
    fold = max(number for number, is_fold in numbers.items() if is_fold)
    return [_name_of(number, numbers[number]) for number in (fold, *sorted(numbers)[-_LOOKED_AT:]) if number >= fold]


def _is_whole(numbers: dict[int, bool]) -> bool:
    """Whether the last two folds are there, as far from each other as rule 2 wants them, and all that stands behind."""
    folds = sorted(number for number, is_fold in numbers.items() if is_fold)[-2:]
    behind = range(folds[-1], max(numbers) + 1) if folds else []
    return len(folds) == len(_FIRST) and folds[1] == 2 * folds[0] + 1 and all(number in numbers for number in behind)


def uri_of(location: str) -> str:
    """A location as Spark writes it.

    >>> uri_of("/lake/a b"), uri_of("s3a://lake/orders")
    ('file:///lake/a%20b', 's3a://lake/orders')
    """
    return location if "://" in location else Path(location).absolute().as_uri()


def is_of_spark_list(name: str) -> bool:
    """Whether a file of that name belongs into Spark's log; Java puts sums beside them."""
    return re.fullmatch(r"\.?\d+(\.compact)?(\.crc)?|\.\d+(\.compact)?\.[0-9a-f]{32}\.new", name) is not None
