"""How much one turn carries: less after one that failed, more after one that was easy. No Kafka client in this file.

Rule 1: Kafka throws away a transaction that lasts longer than `TIMEOUT_MS`. The same turn again would end the same way, and
        so for ever: the next one is half as large as the one that failed.
Rule 2: one that took less than a quarter of that time is followed by one of twice the size, up to `MOST`: it has room for
        twice as many, and for a Kafka that is slower then.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MOST: Final = 50_000  # deliveries of one transaction, or answers
MOST_ALONE: Final = 2_000  # where each is a batch of its own
TIMEOUT_MS: Final = 10_000  # so long a dead relay's transaction hides what stands behind it in the targets
EASY_NS: Final = TIMEOUT_MS * 1_000_000 // 4


class Pace(NamedTuple):
    """`most`: how many deliveries the next turn has at most, and how many answers."""

    most: int = MOST

    def failed(self, count: int) -> Pace:
        """After a turn of so many that Kafka did not take.

        >>> Pace().failed(40_000), Pace(1).failed(1)
        (Pace(most=20000), Pace(most=1))
        """
        return Pace(max(1, min(count, self.most) // 2)) if count else self

    def took(self, ns: int) -> Pace:
        """After a turn that was committed within that time.

        >>> Pace(500).took(40_000_000), Pace(500).took(3_000_000_000), Pace(30_000).took(0)
        (Pace(most=1000), Pace(most=500), Pace(most=50000))
        """
        return Pace(min(MOST, 2 * self.most)) if ns < EASY_NS else self
