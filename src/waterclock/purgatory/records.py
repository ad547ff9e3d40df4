"""What a purgatory tells about itself: one frozen record, the only thing a console may read."""

from __future__ import annotations

from dataclasses import dataclass


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
