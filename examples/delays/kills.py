"""Who is killed when, and for how long it stays away.

Rule 1: kills are spread over the time in which reminders are due, at moments and in an order that the seed chooses.
Rule 2: every other one comes back at once, and gets its partitions back; in between one stays away for longer than the
        group waits for it (6 seconds), and the other relay takes its partitions over.
Rule 3: never both at a time: a kill whose turn has come waits until the other one runs.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from .plan import Plan
from .stage import RELAYS, Stage

SHORT_S, LONG_S = 0.3, 8.0
_SPARE: Final = 0.6  # of its part of the time: in the rest it comes back


class Kill(NamedTuple):
    """One of them, at a moment of the plan."""

    at_ms: int
    name: str
    rest_s: float


class Kills:
    """`done` are those that happened, with the moments at which they did."""

    def __init__(self, plan: Plan, count: int, seed: int) -> None:
        self.left = kills(min(each.due_ms for each in plan.reminders), plan.ends_ms, count, seed)
        self.done: list[Kill] = []

    def look(self, now_ms: int, stage: Stage) -> None:
        """Kill whose turn has come."""
        if self.left and self.left[0].at_ms <= now_ms and stage.kill(self.left[0].name, self.left[0].rest_s):
            self.done.append(self.left.pop(0)._replace(at_ms=now_ms))


def kills(first_ms: int, last_ms: int, count: int, seed: int) -> list[Kill]:
    """One in each of `count` parts of the time.

    >>> [kill.rest_s for kill in kills(0, 60_000, 4, 1)]
    [0.3, 8.0, 0.3, 8.0]
    """
    chance = Random(f"kills {seed}")
    part_ms = (last_ms - first_ms) / max(1, count)
    return [
        Kill(
            first_ms + int((number + _SPARE * chance.random()) * part_ms),
            chance.choice(RELAYS),
            LONG_S if number % 2 else SHORT_S,
        )
        for number in range(count)
    ]
