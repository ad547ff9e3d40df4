"""What the files of a partition may have against their owner."""

from __future__ import annotations

from pathlib import Path

from waterclock.errors import WaterclockError


class StoreDamaged(WaterclockError):
    """A file does not hold what was written to it: the owner discards the store, and files everything anew from the log."""


class DiskRefused(OSError):
    """The disk does not take what is to be written: `wanted` is how many bytes that is, `filename` where they were to go.
    As `OSError` it says why."""

    def __init__(self, error: OSError, path: Path, wanted: int) -> None:
        super().__init__(error.errno, error.strerror, str(path))
        self.wanted = wanted
