"""Targets in doubt: those that refused something, or may. Each is delivered to by itself, and holds no other one back.

Rule 1: what is due for a target in doubt waits here, in its order, and goes out in transactions of its own. One that is
        refused is thrown away, and costs the other targets as long as one transaction lasts.
Rule 2: the next transaction for a target whose last one was refused carries half as much. One of a single message names
        it: that one is put aside. After one that was taken the next one carries twice as much.
Rule 3: a batch is refused for its size too. So no more goes into one transaction than the target takes in one batch, as far
        as that is known; a message that may be larger by itself goes alone, and Kafka says: compressed, it may fit.
        Once one was refused so, the next of that kind are tried first, each in a transaction that is thrown away whatever
        Kafka says, until one is taken: what was committed behind a refused batch would cost one more transaction each time.
Rule 4: a target that does not answer is tried again after a pause that grows.
Rule 5: a target is in doubt until nothing waits for it, and it has refused nothing for `QUIET_NS`.
Rule 6: who was refused waits for a letter here too: many are put aside together, each is read from the log for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from waterclock.clock import WallClock
from waterclock.kafka.patience import Backoff
from waterclock.relay.owner.pace import MOST
from waterclock.relay.store.rows import ROW, Array

QUIET_NS: Final = 60_000_000_000
PAUSES_S: Final = (0.5, 2.0, 5.0, 15.0, 30.0)
TOGETHER: Final = 200  # letters
TOGETHER_NS: Final = 1_000_000_000  # so long the first of them waits for others


@dataclass(slots=True)
class _Doubt:
    """`most`: so many messages at once; `backoff`: attempts that got no answer. `probes`: rule 3."""

    since_ns: int
    backoff: Backoff
    most: int = MOST
    probes: bool = False
    rows: Array = field(default_factory=lambda: np.empty(0, ROW))


class Doubts:
    """The targets of one owner that are in doubt, by number, and the rows that wait for them."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._doubts: dict[int, _Doubt] = {}  # whose turn it is stands first
        self.is_probe = False  # whether the last portion is only to be tried (rule 3)
        self._refused, self._refused_ns = np.empty(0, ROW), 0  # rule 6; since when the first one waits

    def add(self, target: int) -> None:
        """It may refuse what is due for it."""
        now_ns = self._clock.monotonic_ns()
        if target not in self._doubts:
            self._doubts[target] = _Doubt(now_ns, Backoff(PAUSES_S, self._clock))
        self._doubts[target].since_ns = now_ns

    def halve(self, target: int, count: int) -> None:
        """It refused a transaction with so many messages for it."""
        self.add(target)
        self._doubts[target].most = max(1, count // 2)

    def pause(self, target: int) -> None:
        """Rule 4."""
        self.add(target)
        self._doubts[target].backoff.failed()

    def probe(self, target: int, probes: bool) -> None:
        """It refused, or took, one that may be larger than its batches."""
        self._doubts[target].probes = probes

    def took(self, target: int, count: int) -> None:
        """It took so many, by themselves."""
        if (doubt := self._doubts.get(target)) is not None:
            doubt.most = max(doubt.most, 2 * count)
            doubt.backoff.succeeded()

    # Rows

    def sift(self, rows: Array) -> Array:
        """Those of `rows` whose targets are in no doubt; the others wait here."""
        now_ns, stays = self._clock.monotonic_ns(), np.ones(len(rows), bool)
        for target, doubt in list(self._doubts.items()):
            own = rows["target"] == target
            if own.any():
                doubt.rows = _sorted(doubt.rows, rows[own])
                stays &= ~own
            elif not len(doubt.rows) and now_ns - doubt.since_ns >= QUIET_NS:
                del self._doubts[target]  # rule 5
        return rows[stays]

    def portion(self, sizes: Callable[[Array], Array], limit: Callable[[int], int | None], most: int) -> Array:
        """What the target whose turn it is gets next (rules 2 and 3), `most` messages at most; they wait no more. `sizes`
        are bounds; `limit`: of a target's batches, if known."""
        target, doubt = self._to_try()[0]
        self._doubts[target] = self._doubts.pop(target)
        count, bound, self.is_probe = min(doubt.most, most), limit(target), False
        if bound is not None and doubt.probes:
            doubtful = np.flatnonzero(sizes(doubt.rows) > bound)[:1]
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
        """These are to be put aside."""
        if len(rows):
            self._refused_ns = self._refused_ns if len(self._refused) else self._clock.monotonic_ns()
            self._refused = np.concatenate([self._refused, rows])

    def to_put_aside(self) -> Array:
        """Up to `TOGETHER` of those that were refused, where it is time for it; they wait here no more."""
        count = TOGETHER if self._has_letters else 0
        rows, self._refused = self._refused[:count], self._refused[count:]
        return rows

    def remove(self, origins: Array) -> None:
        """These are not to be delivered."""
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
        """Of all that waits here."""
        return np.concatenate([each["origin"] for each in (self._refused, *(d.rows for d in self._doubts.values()))])

    @property
    def has_portion(self) -> bool:
        """Whether a target is to be tried now."""
        return bool(self._to_try())

    @property
    def next_due_ms(self) -> int | None:
        """When the first of what there is something to be done about was due; None if that is nothing."""
        dues = [int(doubt.rows["due"][0]) for _, doubt in self._to_try()]
        return min([*dues, *self._refused["due"][: self._has_letters].tolist()], default=None)

    @property
    def _has_letters(self) -> bool:
        count, since_ns = len(self._refused), self._clock.monotonic_ns() - self._refused_ns
        return bool(count) and (count >= TOGETHER or since_ns >= TOGETHER_NS or not self.has_portion)

    def _to_try(self) -> list[tuple[int, _Doubt]]:
        return [(target, doubt) for target, doubt in self._doubts.items() if len(doubt.rows) and doubt.backoff.is_time]


def _sorted(some: Array, others: Array) -> Array:
    rows = np.concatenate([some, others])
    return np.asarray(rows[np.lexsort((rows["origin"], rows["due"]))])
