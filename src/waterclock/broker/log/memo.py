"""What must outlive a partition's process beside its records: where the log starts, its leaders' epochs, and how far it
was compacted.

    memo.json         memo.copy           then
    good              the same, or older  memo.json is right
    good              damaged or gone     memo.json is right
    good              later               memo.json was put back from before: the copy is right
    damaged or gone   good                the copy is right
    damaged or gone   damaged or gone     nobody knows where readers may begin: LogDamaged
    gone              gone                the log is new, or nothing was ever kept of it

Rule 1: written whole into a new file, flushed, then renamed: a crash leaves the old or the new one. Then its copy is
    written, which no crash needs and so nobody flushes: it is there for a disk that damages or loses one of the two.
Rule 2: each has a checksum, says whose it is by its folder's name, and counts how often it was written: the later one is
    right. The form of earlier versions, without these, is taken as it is.
Rule 3: a start moves on the disk first. A disk may refuse it, or a power cut take it back: nobody was told of it then, and
    no record is gone. A save behind it never takes it back; only a cut of the log does.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from waterclock.broker.errors import LogDamaged, renaming
from waterclock.disk import replacing, sealed, unsealed, write_whole
from waterclock.outside import open_file, os

NAME, COPY = "memo.json", "memo.copy"
WITHOUT_CHECKSUM: Final = {"start", "epochs", "cleaned"}  # all that earlier versions wrote
log = logging.getLogger("waterclock.broker")


@dataclass
class Memo:
    """`start`: the first offset that readers may ask for. `epochs`: (epoch, first offset) of each leader, rising.
    `cleaned`: the offset up to which compaction has come. `writes`: how often it was written, 0 if never. `lost`: from
    which offset to before which the records are gone that the log began with, not deleted: readers may stand there."""

    path: str
    start: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    cleaned: int = 0
    writes: int = 0
    lost: tuple[int, int] | None = None
    saved: int = field(init=False)
    """The start that stands on the disk: no earlier than `start`."""

    def __post_init__(self) -> None:
        self.saved = self.start

    @classmethod
    def load(cls, folder: str) -> Memo:
        """What is kept in `folder`, or a new log's; LogDamaged if it cannot be known."""
        path, other = os.path.join(folder, NAME), os.path.join(folder, COPY)
        first, why = _read(path)
        copy, why_not_copy = _read(other)
        if first is None and copy is None:
            if why or why_not_copy:
                raise LogDamaged(
                    f"{path} cannot be read ({why or why_not_copy}), nor can {other}. Restore it; or "
                    f"{renaming(path, other)}, to go on without: the log then begins at its first segment, and what "
                    f"DeleteRecords had hidden there is seen again"
                )
            return cls(path)
        memo = first
        if first is None or (copy is not None and copy.writes > first.writes > 0):
            memo = copy  # an earlier version that wrote since counts nothing
        assert memo is not None
        memo.path = path
        if first is not memo:
            why = why or ("it is gone" if first is None else "it is of before")
            log.warning("%s was written anew from its copy: %s", path, why)
            memo.save()
        elif memo.writes == 0:
            memo.save()
        elif copy is None or copy.writes != memo.writes:
            memo.save_copy()
        return memo

    def begin_at(self, start: int) -> None:
        """Have readers begin at `start`, or where they do if that is later."""
        self.save(start)
        self.start = max(self.start, start)

    def save(self, start: int = 0) -> None:
        """Write it, durably, with `start` in place of its own if that is later.

        Milliseconds on a slow disk: the loop has it written by the upkeep's thread.
        """
        start = max(start, self.start, self.saved)
        self.writes += 1
        write_whole(self.path, self._dump(start))
        self.saved = start
        self.save_copy()

    def save_copy(self) -> None:
        """Write the copy; a disk that refuses it has the memo all the same."""
        with suppress(OSError), replacing(os.path.join(os.path.dirname(self.path), COPY)) as file:
            file.write(self._dump(self.saved))

    def _dump(self, start: int) -> bytes:
        kept = {"start": start, "epochs": self.epochs, "cleaned": self.cleaned, "writes": self.writes}
        return sealed(kept | {"lost": self.lost, "of": _folder(self.path)})

    @property
    def epoch(self) -> int:
        """The present leader's epoch."""
        return self.epochs[-1][0]

    def forget_from(self, end: int) -> None:
        """The log was cut to `end`. Of an epoch that began there, or later, there is nothing."""
        self.epochs = [row for row in self.epochs if row[1] < end] or [(0, end)]
        self.start, self.saved, self.cleaned = min(self.start, end), min(self.saved, end), min(self.cleaned, end)

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and the offset after its last record; (-1, -1) if all are later. KIP-101."""
        row = bisect_right(self.epochs, (epoch, 1 << 63)) - 1
        if row < 0 or epoch > self.epoch:
            return -1, -1
        return self.epochs[row][0], self.epochs[row + 1][1] if row + 1 < len(self.epochs) else log_end


def _read(path: str) -> tuple[Memo | None, str]:
    """What stands in the file at `path`, and what is wrong with it; (None, "") if there is none."""
    try:
        with open_file(path, "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        return None, ""
    try:
        kept = _kept(raw)
        if kept.get("of", _folder(path)) != _folder(path):
            return None, f"it is of {kept['of']}"
        epochs = [(int(e), int(o)) for e, o in kept["epochs"]]
        lost = (int(kept["lost"][0]), int(kept["lost"][1])) if kept.get("lost") else None
        return Memo(path, int(kept["start"]), epochs or [(0, 0)], int(kept["cleaned"]), kept.get("writes", 0), lost), ""
    except (ValueError, KeyError, TypeError) as error:
        return None, str(error)


def _folder(path: str) -> str:
    return os.path.basename(os.path.dirname(path))


def _kept(raw: bytes) -> dict[str, Any]:
    """What the bytes say; ValueError if they are not whole."""
    try:
        kept: dict[str, Any] = unsealed(raw)
    except ValueError as error:
        with suppress(ValueError, AttributeError):
            kept = json.loads(raw)
            if kept.keys() == WITHOUT_CHECKSUM:
                return kept
        raise error from None
    return kept
