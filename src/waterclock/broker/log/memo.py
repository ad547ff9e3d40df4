"""What must outlive a partition's process beside its records: where the log starts, its leaders' epochs, and how far it
was compacted.

Rule 1: written whole into a new file, flushed, then renamed: a crash leaves the old or the new one.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from waterclock.broker.errors import LogDamaged
from waterclock.disk import write_whole


@dataclass
class Memo:
    """`start`: the first offset that readers may ask for. `epochs`: (epoch, first offset) of each leader, rising.
    `cleaned`: the offset up to which compaction has come."""

    path: str
    start: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    cleaned: int = 0
    saved: int = field(init=False)
    """The start that stands on the disk."""

    def __post_init__(self) -> None:
        self.saved = self.start

    @classmethod
    def load(cls, folder: str) -> Memo:
        """What is kept in `folder`, or a new log's; LogDamaged if it cannot be read."""
        path = os.path.join(folder, "memo.json")
        with suppress(FileNotFoundError):
            return cls._read(path)
        return cls(path)

    @classmethod
    def _read(cls, path: str) -> Memo:
        with open(path, "rb") as file:
            raw = file.read()
        try:
            kept: dict[str, Any] = json.loads(raw)
            epochs = [(int(e), int(o)) for e, o in kept["epochs"]]
            return cls(path, int(kept["start"]), epochs or [(0, 0)], int(kept["cleaned"]))
        except (ValueError, KeyError, TypeError) as error:
            raise LogDamaged(
                f"{path} cannot be read ({error}). Delete it: the log then starts at its first segment"
            ) from error

    def save(self) -> None:
        """Write it, durably: milliseconds on a slow disk. The loop has it written by the upkeep's thread."""
        start = self.start
        write_whole(self.path, self.dump())
        self.saved = start

    def dump(self) -> bytes:
        """What stands in the file."""
        return json.dumps({"start": self.start, "epochs": self.epochs, "cleaned": self.cleaned}).encode()

    @property
    def epoch(self) -> int:
        """The present leader's epoch."""
        return self.epochs[-1][0]

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and the offset after its last record; (-1, -1) where all are later. KIP-101."""
        row = bisect_right(self.epochs, (epoch, 1 << 63)) - 1
        if row < 0 or epoch > self.epoch:
            return -1, -1
        return self.epochs[row][0], self.epochs[row + 1][1] if row + 1 < len(self.epochs) else log_end
