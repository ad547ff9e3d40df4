"""Memory that a flood of records took goes back to the system, in a relay's own process.

Records come from the client in tens of thousands. Once they are filed their memory is free, and stays with the allocator:
hundreds of megabytes, which the process may never need again. glibc gives them back when it is asked, in 10 to 70 ms.

Rule 1: it is asked after `FLOOD` records, once there is nothing to do for `QUIET_S`: nobody waits for it.
Rule 2: another time not before `EVERY_NS`.
Rule 3: for a process that does nothing else. An allocator that cannot be asked (musl's, that of macOS) is left alone.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, Final

from waterclock.clock import Clock

FLOOD: Final = 100_000  # read or delivered
QUIET_S: Final = 0.1
EVERY_NS: Final = 10_000_000_000


class MemoryTrim:
    """Hears how much a process does, and when it has nothing to do."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._done = self._next_ns = 0

    def step(self, done: int, free_s: float) -> None:
        """So many records were dealt with, and there is nothing to do for so long."""
        self._done += done
        if self._done >= FLOOD and free_s >= QUIET_S and self._clock.monotonic_ns() >= self._next_ns:
            self._done, self._next_ns = 0, self._clock.monotonic_ns() + EVERY_NS
            give_back()


_trim: Final[Callable[[int], Any] | None] = (
    getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None  # glibc has it
)


def give_back() -> None:
    """What is free in this process, and in whole pages, goes back to the system."""
    if _trim is not None:
        _trim(0)
