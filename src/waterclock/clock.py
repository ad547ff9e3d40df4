"""The one door to time: no other file reads a clock.

Rule 1: a core gets `now` as an argument; only drivers and commands hold a clock.
Rule 2: durations come from the monotonic clock, which never steps back; wall time is for people and file names.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a driver needs of time: `monotonic_s()` in seconds from an arbitrary start, never going back."""

    def monotonic_s(self) -> float: ...

    def sleep_s(self, duration_s: float) -> None: ...


class SystemClock:
    """The machine's monotonic clock."""

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep_s(self, duration_s: float) -> None:
        time.sleep(max(0.0, duration_s))


class ManualClock:
    """A clock that stands still until it is turned by hand.

    >>> clock = ManualClock()
    >>> clock.sleep_s(60.0)
    >>> clock.monotonic_s()
    60.0
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def monotonic_s(self) -> float:
        return self._now_s

    def sleep_s(self, duration_s: float) -> None:
        self.advance_s(duration_s)

    def advance_s(self, duration_s: float) -> None:
        """Turn the clock by `duration_s` seconds; a negative duration raises ValueError (monotonic means monotonic)."""
        if duration_s < 0:
            raise ValueError(f"duration_s must not be negative, got {duration_s}")
        self._now_s += duration_s
