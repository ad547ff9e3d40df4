"""How late callbacks start, counted in a histogram.

Rule 1: lateness is the moment a callback starts against its due tick, in whole nanoseconds, never negative.
Rule 2: buckets are eight to a power of two, so a quantile is at most an eighth too high, and never too low.
"""

from __future__ import annotations

from waterclock.timer.statistics import Lateness

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
