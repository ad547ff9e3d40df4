"""What a driver shows of itself: frozen records, the only thing a console or a page of metrics may read; and how late
callbacks start, counted in a histogram.

Rule 1: a record is a copy; nothing in it changes when the driver goes on.
Rule 2: lateness is the moment a callback starts against its due tick, in whole nanoseconds, never negative.
Rule 3: buckets are eight to a power of two, so a quantile is at most an eighth too high, and never too low.
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


SUB_BITS = 3  # eight buckets to a power of two
SIZE = (64 - SUB_BITS) << SUB_BITS


class Histogram:
    """Counts by size: recording is one shift and one sum, whatever the size.

    >>> histogram = Histogram()
    >>> histogram.record(1_500, 3)
    >>> histogram.lateness().count
    3
    """

    __slots__ = ("_counts", "_max_ns")

    def __init__(self) -> None:
        self._counts = [0] * SIZE
        self._max_ns = 0

    def record(self, lateness_ns: int, count: int) -> None:
        """`count` callbacks started `lateness_ns` after their tick."""
        lateness_ns = max(lateness_ns, 0)
        self._counts[bucket_of(lateness_ns)] += count
        if lateness_ns > self._max_ns:
            self._max_ns = lateness_ns

    def lateness(self) -> Lateness:
        """A copy of what was recorded so far."""
        counts = enumerate(tuple(self._counts))
        return Lateness(tuple((top_of(bucket), count) for bucket, count in counts if count), self._max_ns)


def bucket_of(value_ns: int) -> int:
    """The bucket of a value: the first sixteen have one each, then eight share each power of two.

    >>> bucket_of(15), bucket_of(16), bucket_of(17), bucket_of(18)
    (15, 16, 16, 17)
    """
    shift = max(value_ns.bit_length() - SUB_BITS - 1, 0)
    return (shift << SUB_BITS) + (value_ns >> shift)


def top_of(bucket: int) -> int:
    """The largest value of a bucket, in nanoseconds.

    >>> top_of(15), top_of(16), top_of(17)
    (15, 17, 19)
    """
    shift = max((bucket >> SUB_BITS) - 1, 0)
    return ((bucket - (shift << SUB_BITS) + 1) << shift) - 1
