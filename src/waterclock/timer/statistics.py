"""What a driver shows of itself: frozen records, the only thing a console or a page of metrics may read.

Rule 1: a record is a copy; nothing in it changes when the driver goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late callbacks started: `buckets` are (largest nanoseconds, callbacks), the smallest first, none empty.

    >>> lateness = Lateness(((1_000, 98), (50_000, 2)), 48_000)
    >>> lateness.count, lateness.p50_s, lateness.p99_s, lateness.max_s
    (100, 1e-06, 4.8e-05, 4.8e-05)
    """

    buckets: tuple[tuple[int, int], ...] = ()
    max_ns: int = 0

    @property
    def count(self) -> int:
        """Callbacks that started."""
        return sum(count for _, count in self.buckets)

    @property
    def p50_s(self) -> float:
        """Half of the callbacks started at most so many seconds late."""
        return self.quantile_s(0.5)

    @property
    def p99_s(self) -> float:
        """99 in 100 started at most so many seconds late."""
        return self.quantile_s(0.99)

    @property
    def max_s(self) -> float:
        """The latest start, in seconds; exact."""
        return self.max_ns / 1e9

    def quantile_s(self, share: float) -> float:
        """Seconds of lateness that `share` (0 to 1) of the callbacks did not exceed; 0.0 if none ran."""
        if not 0 <= share <= 1:
            raise ValueError(f"share must lie within 0 and 1, got {share}")
        wanted = share * self.count
        so_far = accumulate(count for _, count in self.buckets)
        tops = (top for (top, _), seen in zip(self.buckets, so_far, strict=True) if seen >= wanted)
        return min(next(tops, 0), self.max_ns) / 1e9


@dataclass(frozen=True, slots=True)
class TimerStatistics:
    """What a driver did since it was made; `statistics()` of both drivers returns it."""

    pending: int  # timers waiting; added = pending + fired + cancelled
    added: int  # each call of a periodic timer is added anew
    fired: int  # callbacks started, or handed to the executor; failing ones included
    cancelled: int  # by `cancel()` and by `close()`
    failed: int  # errors that went to `on_error`, or to Python's own hook
    wakeups: int  # how often the thread woke, or the loop called; 0 under a ManualClock
    lateness: Lateness
    current_tick_ns: int  # the tick it is now, in nanoseconds of `time()`
    next_due_ns: int | None  # that of the earliest that waits, None if nothing does; not after now if it is late
