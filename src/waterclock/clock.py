"""The one door to time: no other file reads a clock, but clock.h, which is this one for compiled code.

Rule 1: a core gets `now` as an argument; only drivers and commands hold a clock.
Rule 2: durations come from the monotonic clock, which never steps back; wall time is for people and file names.
Rule 3: seconds are floats and for people; what is compared and added up is whole nanoseconds.
Rule 4: the monotonic clock stops while the machine sleeps. What another machine counts meanwhile is measured by a clock
    that does not: `elapsed_ns`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", None)  # Linux has it
_elapsed_ns: Final[Callable[[], int]] = (
    time.monotonic_ns if _SINCE_BOOT is None else partial(time.clock_gettime_ns, _SINCE_BOOT)
)


class Clock(Protocol):
    """What a driver needs of time: one moment in seconds and in nanoseconds, from an arbitrary start, never going back."""

    def monotonic_s(self) -> float: ...

    def monotonic_ns(self) -> int: ...

    def sleep_s(self, duration_s: float) -> None: ...


class WallClock(Clock, Protocol):
    """A clock that also knows the date: what stamps records, and nothing that is waited for."""

    def wall_ms(self) -> int: ...


class MachineClock(WallClock, Protocol):
    """The machine's own time, whoever turns another clock: what work takes, and how long another machine may wait."""

    def elapsed_ns(self) -> int: ...


class SystemClock:
    """The machine's monotonic clock: what a driver goes by that is given no other.

    It is never set back, counts from an arbitrary start, and stops while the machine sleeps. Hand it to code of your own
    that takes a clock, and a `ManualClock` in its tests.

    >>> clock = SystemClock()
    >>> before_ns = clock.monotonic_ns()
    >>> clock.sleep_s(0.001)
    >>> clock.monotonic_ns() - before_ns >= 1_000_000
    True
    """

    monotonic_ns = staticmethod(time.monotonic_ns)  # no function of ours around it: drivers read it for every timer

    elapsed_ns = staticmethod(_elapsed_ns)
    """Nanoseconds that are never set back and go on while the machine sleeps, where it has such a clock. Rule 4."""

    def monotonic_s(self) -> float:
        """Seconds since the arbitrary start."""
        return time.monotonic()

    def sleep_s(self, duration_s: float) -> None:
        """Let so many seconds of real time pass; none where it is negative."""
        time.sleep(max(0.0, duration_s))

    def __repr__(self) -> str:
        return "<SystemClock>"

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000


def _nobody() -> None:
    pass


class ManualClock:
    """A clock that stands still until it is turned by hand. It counts whole nanoseconds.

    >>> clock = ManualClock()
    >>> clock.sleep_s(60.0)
    >>> clock.monotonic_s()
    60.0
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_ns = round(start_s * 1e9)
        self._date_ns = time.time_ns() - self._now_ns  # the date when it was made; it is turned with the clock
        self.turned_by: Callable[[], Any] = _nobody  # a weak reference to the loop that turns it, if one does

    def is_a_loops(self) -> bool:
        """Whether an event loop turns it, which has not been closed: then nobody else does."""
        loop = self.turned_by()
        return loop is not None and not loop.is_closed()

    def __repr__(self) -> str:
        return f"<ManualClock, now={self.monotonic_s()}>"

    def wall_ms(self) -> int:
        """Milliseconds since 1970: the date when the clock was made, and as much later as it was turned."""
        return (self._date_ns + self._now_ns) // 1_000_000

    def monotonic_s(self) -> float:
        """Where it stands, in seconds."""
        return self._now_ns / 1e9

    def monotonic_ns(self) -> int:
        """Where it stands, in nanoseconds."""
        return self._now_ns

    def sleep_s(self, duration_s: float) -> None:
        """As `advance_s`: who sleeps by this clock turns it."""
        self.advance_s(duration_s)

    def advance_s(self, duration_s: float) -> None:
        """Turn the clock by `duration_s` seconds; a negative duration raises ValueError (monotonic means monotonic)."""
        if duration_s < 0:
            raise ValueError(f"duration_s must not be negative, got {duration_s}")
        self._now_ns += round(duration_s * 1e9)

    def advance_to_ns(self, moment_ns: int) -> None:
        """Turn the clock to `moment_ns`; where that has passed, leave it alone.

        >>> clock = ManualClock(5.0)
        >>> clock.advance_to_ns(4), clock.monotonic_s()
        (None, 5.0)
        """
        self._now_ns = max(self._now_ns, moment_ns)
