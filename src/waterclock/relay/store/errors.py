"""What the files of a partition may have against their owner."""

from __future__ import annotations

from waterclock.errors import WaterclockError


class StoreDamaged(WaterclockError):
    """A file does not hold what was written to it: the owner discards the store, and files everything anew from the log."""
