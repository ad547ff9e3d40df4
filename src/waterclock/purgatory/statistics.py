"""What a purgatory shows of itself: one frozen record, and the fullest of its keys, which have a call of their own."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from heapq import nlargest
from operator import index, itemgetter


@dataclass(frozen=True, slots=True)
class PurgatoryStatistics:
    """Counts of one moment; `Purgatory.statistics()` returns it.

    What was accepted is delayed + completed + expired + cancelled. An operation that was over at its first try
    counts as completed, and was never watched.

    >>> PurgatoryStatistics(watched=6, delayed=3, completed=0, expired=0, cancelled=0).delayed
    3
    """

    watched: int  # pairs of operation and key that wait now; exact, there is no purge
    delayed: int  # operations that wait now
    completed: int  # over because their condition held, or by force_complete()
    expired: int  # over by their timeout
    cancelled: int  # over by cancel_for_key(), close(), or a cancelled wait()


def fullest(counts: list[tuple[Hashable, int]], n: int) -> list[tuple[Hashable, int]]:
    """The `n` largest of these; of equal ones the first. Keys are not compared.

    >>> fullest([("a", 1), ("b", 3), ("c", 1)], 2)
    [('b', 3), ('a', 1)]
    """
    if isinstance(n, bool) or index(n) < 0:
        raise ValueError(f"n must be a whole number from 0, got {n}")
    return nlargest(n, counts, key=itemgetter(1))
