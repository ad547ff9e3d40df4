"""How much one turn carries, and whether the next one waits a little. No Kafka client in this file.

Rule 1: Kafka throws away a transaction that lasts longer than `TIMEOUT_MS`. The same turn again would end the same way, and
        so for ever: the next one is half as large as the one that failed.
Rule 2: one that took less than a quarter of that time is followed by one of twice the size, up to `MOST`: it has room for
        twice as many, and for a Kafka that is slower then.
Rule 3: Apache Kafka answers a commit before it has written the transaction's markers. A turn that begins meanwhile is sent
        away, and librdkafka asks again 20 ms later: it is quicker to rest for `REST_NS` first. waterclock's broker answers
        when all is written, and a rest would be most of what a message is late. So turns rest where it helps: after `SLOW`
        in a row that did not rest and were slow, the next ones do; then it is tried again without, each time less often.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MOST: Final = 50_000  # deliveries of one transaction, or answers
TIMEOUT_MS: Final = 10_000  # so long a dead relay's transaction hides what stands behind it in the targets
EASY_NS: Final = TIMEOUT_MS * 1_000_000 // 4
REST_NS: Final = 6_000_000
SENT_AWAY_NS: Final = 18_000_000  # an end that takes as long may have been asked for twice
SLOW: Final = 3
SPELL, LONGEST_SPELL = 64, 16_384  # turns


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


class Rest(NamedTuple):
    """`left`: so many turns rest, before it is tried again without. `slow`: so many in a row were slow without. `spell`:
    how many will rest if the next attempt is slow too."""

    left: int = 0
    slow: int = 0
    spell: int = SPELL

    @property
    def ns(self) -> int:
        """From a commit to the next turn."""
        return REST_NS if self.left else 0

    def took(self, ns: int, since_ns: int) -> Rest:
        """After a turn whose end took `ns`, and which began `since_ns` after the last commit.

        >>> Rest().took(4_000_000, 0), Rest(0, 2, 128).took(25_000_000, 0), Rest(128, 0, 256).took(5_000_000, 6_000_000)
        (Rest(left=0, slow=0, spell=64), Rest(left=128, slow=0, spell=256), Rest(left=127, slow=0, spell=256))
        """
        if self.left:
            return self._replace(left=self.left - 1)
        if since_ns >= REST_NS:
            return self  # it says nothing: the markers were written by then
        if ns < SENT_AWAY_NS:
            return Rest()
        if self.slow + 1 < SLOW:
            return self._replace(slow=self.slow + 1)
        return Rest(self.spell, 0, min(LONGEST_SPELL, 2 * self.spell))
