"""How much one turn carries, and when: the pace of an owner, and that of each target in doubt. No Kafka client in this
file.

Rule 1: Kafka throws away a transaction that lasts longer than `TIMEOUT_MS`. The same turn again would end the same way, and
        so for ever: the next one is half as large as the one that failed.
Rule 2: one that took less than a quarter of that time is followed by one of twice the size, up to `MOST`: it has room for
        twice as many, and for a Kafka that is slower then.
Rule 3: Apache Kafka answers a commit before it has written the transaction's markers. A turn that begins meanwhile is
        answered CONCURRENT_TRANSACTIONS, and librdkafka asks again after 20 ms, a number of its own: it is quicker to rest
        for `REST_NS` first. waterclock's broker answers when all is written, and a rest would be most of what a message is
        late. So turns rest only where it helps: after `SLOW` turns in a row that did not rest and were slow, the next ones
        rest; then it is tried again without, each time less often.

A target is in doubt if it refused something, or may. It is delivered to by itself, and holds no other one back.

Rule 4: what is due for a target in doubt waits here, in its order, and goes out in transactions of its own. One that is
        refused is thrown away, and costs the other targets as long as one transaction lasts.
Rule 5: the next transaction for a target whose last one was refused carries half as much. One of a single message names
        it: that one is put aside. After one that was taken the next one carries twice as much.
Rule 6: a batch is refused for its size too. So no more goes into one transaction than the target takes in one batch, as far
        as that is known; a message that may be larger by itself goes alone, and Kafka says whether it takes it: compressed,
        it may fit. Once one was refused so, the next of that kind are probed first: a probe is a transaction of one message
        that is aborted whatever Kafka says. A probe that is taken ends the probing. Without probes, the
        transaction after a refused batch fails too: librdkafka has left numbers out, so Kafka finds a gap (Meaning.ANEW).
Rule 7: a target that does not answer is tried again after a pause that grows.
Rule 8: a target is in doubt until nothing waits for it, and it has refused nothing for `QUIET_NS`.
Rule 9: a message that was refused waits here too, until it becomes a dead letter: many are put aside together, since each
        is read from the log for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from waterclock.clock import WallClock
from waterclock.kafka.patience import Backoff
from waterclock.relay.store.rows import ROW, Array

MOST: Final = 50_000  # deliveries of one transaction, or answers
TIMEOUT_MS: Final = 10_000  # so long a dead relay's transaction hides what stands behind it in the targets
ENDED_S: Final = TIMEOUT_MS * 1.5 / 1000  # Kafka has ended a transaction by then, one way or the other
EASY_NS: Final = TIMEOUT_MS * 1_000_000 // 4
REST_NS: Final = 6_000_000
ASKED_TWICE_NS: Final = 18_000_000  # a commit that takes as long may have been answered CONCURRENT_TRANSACTIONS first
SLOW: Final = 3
SPELL, LONGEST_SPELL = 64, 16_384  # turns
QUIET_NS: Final = 60_000_000_000
PAUSES_S: Final = (0.5, 2.0, 5.0, 15.0, 30.0)
TOGETHER: Final = 200  # dead letters of one turn
TOGETHER_NS: Final = 1_000_000_000  # so long the first of them waits for others


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
        if ns < ASKED_TWICE_NS:
            return Rest()
        if self.slow + 1 < SLOW:
            return self._replace(slow=self.slow + 1)
        return Rest(self.spell, 0, min(LONGEST_SPELL, 2 * self.spell))


@dataclass(slots=True)
class _Doubt:
    """`most`: so many messages at once; `backoff`: attempts that got no answer. `probes`: rule 6."""

    since_ns: int
    backoff: Backoff
    most: int = MOST
    probes: bool = False
    rows: Array = field(default_factory=lambda: np.empty(0, ROW))


class Doubts:
    """The targets of one owner that are in doubt, by number, and the rows that wait for them."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._doubts: dict[int, _Doubt] = {}  # who is next stands first
        self.is_probe = False  # whether the last portion is a probe (rule 6)
        self._refused, self._refused_ns = np.empty(0, ROW), 0  # rule 9; since when the first one waits

    def add(self, target: int) -> None:
        """A target may refuse what is due for it."""
        now_ns = self._clock.monotonic_ns()
        if target not in self._doubts:
            self._doubts[target] = _Doubt(now_ns, Backoff(PAUSES_S, self._clock))
        self._doubts[target].since_ns = now_ns

    def halve(self, target: int, count: int) -> None:
        """A target refused a transaction with so many messages for it."""
        self.add(target)
        self._doubts[target].most = max(1, count // 2)

    def pause(self, target: int) -> None:
        """A target did not answer (rule 7)."""
        self.add(target)
        self._doubts[target].backoff.failed()

    def probe(self, target: int, probes: bool) -> None:
        """Whether the next message that may be larger than its batches is a probe (rule 6)."""
        self._doubts[target].probes = probes

    def took(self, target: int, count: int) -> None:
        """A target took so many, by themselves."""
        if (doubt := self._doubts.get(target)) is not None:
            doubt.most = max(doubt.most, 2 * count)
            doubt.backoff.succeeded()

    # Rows

    def sift(self, rows: Array) -> Array:
        """Moves the rows of targets in doubt in here, where they wait. Returns the others."""
        now_ns, stays = self._clock.monotonic_ns(), np.ones(len(rows), bool)
        for target, doubt in list(self._doubts.items()):
            own = rows["target"] == target
            if own.any():
                doubt.rows = _sorted(doubt.rows, rows[own])
                stays &= ~own
            elif not len(doubt.rows) and now_ns - doubt.since_ns >= QUIET_NS:
                del self._doubts[target]  # rule 8
        return rows[stays]

    def portion(self, sizes: Callable[[Array], Array], limit: Callable[[int], int | None], most: int) -> Array:
        """What the target that is next gets (rules 5 and 6), `most` messages at most; they wait no more. `sizes`
        are bounds; `limit`: of a target's batches, if known."""
        target, doubt = self._to_try()[0]
        self._doubts[target] = self._doubts.pop(target)
        due = int(np.searchsorted(doubt.rows["due"], self._clock.wall_ms(), "right"))
        count, bound, self.is_probe = min(doubt.most, most, due), limit(target), False
        if bound is not None and doubt.probes:
            doubtful = np.flatnonzero(sizes(doubt.rows[:due]) > bound)[:1]  # the first one, or none
            self.is_probe = doubt.probes = bool(len(doubtful))
            if self.is_probe:
                rows, doubt.rows = doubt.rows[doubtful], np.delete(doubt.rows, doubtful)
                return rows
        if bound is not None:
            count = min(count, int(np.searchsorted(np.cumsum(sizes(doubt.rows[:count])), bound, "right")))
        rows, doubt.rows = doubt.rows[: max(1, count)], doubt.rows[max(1, count) :]
        return rows

    def put_back(self, rows: Array) -> None:
        """A portion that was not delivered."""
        if len(rows):
            doubt = self._doubts[int(rows["target"][0])]
            doubt.rows = _sorted(doubt.rows, rows)

    def refused(self, rows: Array) -> None:
        """These messages are to be put aside."""
        if len(rows):
            self._refused_ns = self._refused_ns if len(self._refused) else self._clock.monotonic_ns()
            self._refused = np.concatenate([self._refused, rows])

    def to_put_aside(self) -> Array:
        """Up to `TOGETHER` of those that were refused, if it is time for it; they wait here no more."""
        count = TOGETHER if self._has_letters else 0
        rows, self._refused = self._refused[:count], self._refused[count:]
        return rows

    def remove(self, origins: Array) -> None:
        """Messages with these origins are not to be delivered."""
        for doubt in self._doubts.values():
            doubt.rows = doubt.rows[~np.isin(doubt.rows["origin"], origins)]
        self._refused = self._refused[~np.isin(self._refused["origin"], origins)]

    # What there is

    @property
    def is_empty(self) -> bool:
        """Whether no target is in doubt, and nothing waits to be put aside."""
        return not self._doubts and not len(self._refused)

    @property
    def origins(self) -> Array:
        """The origins of all that waits here."""
        return np.asarray(self.rows["origin"])

    @property
    def rows(self) -> Array:
        """The rows of all that waits here."""
        return np.concatenate([self._refused, *(doubt.rows for doubt in self._doubts.values())])

    def first(self, most: int) -> tuple[Array, dict[int, int]]:
        """The first rows of those of each target, so many at most; and how many rows wait for each one."""
        rows = np.concatenate([self._refused[:most], *(doubt.rows[:most] for doubt in self._doubts.values())])
        counts = {target: len(doubt.rows) for target, doubt in self._doubts.items() if len(doubt.rows)}
        return rows, counts

    @property
    def has_portion(self) -> bool:
        """Whether a target is to be tried now."""
        return bool(self._to_try())

    @property
    def next_due_ms(self) -> int | None:
        """The earliest due time among the messages that can be tried or put aside now; None if there are none."""
        dues = [int(doubt.rows["due"][0]) for _, doubt in self._to_try()]
        return min([*dues, *self._refused["due"][: int(self._has_letters)].tolist()], default=None)

    @property
    def _has_letters(self) -> bool:
        count, since_ns = len(self._refused), self._clock.monotonic_ns() - self._refused_ns
        return bool(count) and (count >= TOGETHER or since_ns >= TOGETHER_NS or not self.has_portion)

    def _to_try(self) -> list[tuple[int, _Doubt]]:
        waiting = (
            (target, doubt) for target, doubt in self._doubts.items() if len(doubt.rows) and doubt.backoff.is_time
        )
        now_ms = self._clock.wall_ms()  # it may have been set back since they were due
        return [(target, doubt) for target, doubt in waiting if doubt.rows["due"][0] <= now_ms]


def _sorted(some: Array, others: Array) -> Array:
    rows = np.concatenate([some, others])
    return np.asarray(rows[np.lexsort((rows["origin"], rows["due"]))])
