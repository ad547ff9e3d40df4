"""The mark of a clean stop: what each partition had when the broker was closed, for the next start to hold its log against.

1. A stop makes everything durable, then writes the mark: one file for the whole data folder, with a checksum.
2. A start holds each log against it (recovery.py).
3. The mark is removed, and that is durable, before anything is appended.

    a start finds              then
    the mark of the last run   a log that lacks something of it is damaged: no crash came between
    none                       a crash came: what was durable is what the log itself proves
    one that is damaged        that is said, and it counts as none
    one of another run         the same: it was put back from before, or from another folder
    a folder it does not name  it says nothing of it: that one was restored, or put there by hand

Rule 1: it names a partition only if all of it is durable and no compaction is in the midst of its files.
Rule 2: if it holds, nothing was undurable: nothing need be read again, flushed or written.
Rule 3: it names the run of the broker that was stopped, if the store had taken that: a number, new with each start
    (folder/inventory.py). One without a run is an earlier version's.
Rule 4: an end that any mark names, this one or one that was renamed, is an offset that no record is given again: `ends`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from waterclock.broker.errors import DAMAGED
from waterclock.disk import flush_folder, unsealed, write_sealed
from waterclock.outside import open_file, os

if TYPE_CHECKING:
    from waterclock.broker.log.partition import Partition

NAME: Final = "clean-stop"
NOTHING: Final = -1
RUN: Final = ""  # in the place of a folder's name
log = logging.getLogger("waterclock.broker")


class LeftBehind(NamedTuple):
    """What a stop has left of a partition: its end, the offset of its snapshot or NOTHING if there was nothing to keep,
    the bytes of each segment by its first offset, and the mark that says so."""

    end: int
    snapshot: int
    sizes: dict[int, int]
    mark: str


class StopMark(NamedTuple):
    """What stands in a mark: the run, if it says which, and what was left of each partition, by its folder."""

    run: int | None
    left: dict[str, LeftBehind]


class CleanStop:
    """The mark in the data folder `folder`, which is read when it is made; `run` is the last run, if that is known.

    `rebooted`: the machine may have been started anew since.
    """

    def __init__(self, folder: str, run: int | None = None, rebooted: bool = False) -> None:
        self.rebooted = rebooted
        self._folder, self._path = folder, os.path.join(folder, NAME)
        self.run: int | None = None
        """The present run, which the next mark will name."""
        found = self._read(self._path)
        self.ends = {path: left.end for some in (found, self._read(self._path + DAMAGED)) if some is not None
                     for path, left in some.left.items()}  # fmt: skip
        """Where logs ended at a stop, by the partitions' folders (rule 4)."""
        strange = found is not None and None not in (found.run, run) and found.run != run
        if found is not None and strange:
            log.error(
                "%s is of the run %016x, and the last one here was %016x: each log is read as after a crash",
                self._path, found.run, run,
            )  # fmt: skip
        self.holds = found is not None and not strange
        """Whether the last run was stopped, as far as anybody can know."""
        self._left = found.left if found is not None and self.holds else {}

    def _read(self, path: str) -> StopMark | None:
        """The mark in a file; None if there is none, or none that is good."""
        try:
            with open_file(path, "rb") as file:
                raw = file.read()
        except FileNotFoundError:
            return None
        with suppress(ValueError, TypeError, AttributeError):
            kept = unsealed(raw)
            run = int(kept.pop(RUN), 16) if RUN in kept else None
            left = {}
            for name, (end, snapshot, *sizes) in kept.items():
                of_segments = dict(zip(sizes[::2], sizes[1::2], strict=True))
                left[os.path.join(self._folder, name)] = LeftBehind(end, snapshot, of_segments, self._path)
            return StopMark(run, left)
        log.warning("%s is damaged: no stop is known to have been clean, so each log is read as after a crash", path)
        return None

    def take(self, folder: str) -> LeftBehind | None:
        """What it says of the partition in `folder`: once, as the partition changes from then on."""
        return self._left.pop(folder, None)

    def remove(self) -> None:
        """From here on logs may change. What was not taken yet can be taken still."""
        with suppress(FileNotFoundError):
            os.unlink(self._path)
            flush_folder(self._folder)

    def write(self, partitions: Iterable[Partition]) -> None:
        """These were closed. A disk that refuses makes the next start one after a crash."""
        left = dict(self._left)  # what was not opened is as it was
        left.update((partition.folder, row) for partition in partitions if (row := _left(partition, self._path)))
        skip = len(os.path.join(self._folder, ""))
        rows: dict[str, list[int] | str] = {
            folder[skip:]: [row.end, row.snapshot, *chain.from_iterable(row.sizes.items())]
            for folder, row in left.items()
        }
        if self.run is not None:
            rows[RUN] = f"{self.run:016x}"
        try:
            write_sealed(self._path, rows)
        except OSError as error:
            log.warning("%s cannot be written: %s. The next start reads each log as after a crash", self._path, error)


def _left(partition: Partition, mark: str) -> LeftBehind | None:
    if partition.durable < partition.end or partition.upkept or partition.deleted:
        return None
    if len(partition.producers.known) or len(partition.aborted):
        if partition.snapped != partition.end:
            return None  # the disk has refused it
        snapshot = partition.end
    else:
        snapshot = NOTHING
    return LeftBehind(partition.end, snapshot, {s.base: s.size for s in partition.segments}, mark)
