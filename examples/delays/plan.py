"""What is sent: reminders with their due times, and cancels for some of them. Made beforehand from a seed.

Rule 1: times are ms since the start. Due times are evenly spread over the seconds that were asked for.
Rule 2: a reminder is sent seconds before it is due, so that its request is in the log by then, whatever the machine does.
Rule 3: most cancels come at some moment between the two; one in five comes so near to the due time that nobody knows who
        is first. The answer has to say it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

LEAD_MS: Final = 2_000  # the least between sending and due
_BEGIN_MS: Final = 4_000  # before it nothing is due: what is due first has to be sent too
_LEADS: Final = 4  # of the whole time, so small a part is the most that is added to the least
_CLOSE: Final = 0.2
_CLOSE_MS: Final = 250
KEYS: Final = 1_000


class Reminder(NamedTuple):
    """One of them; `cancel_ms` is when a cancel is sent, or None."""

    number: int
    sent_ms: int
    due_ms: int
    cancel_ms: int | None

    @property
    def key(self) -> str:
        """Whose reminder it is."""
        return f"user {self.number % KEYS}"

    @property
    def value(self) -> bytes:
        """What is delivered."""
        return b"reminder %d" % self.number

    @property
    def id(self) -> str:
        """By which it is cancelled."""
        return f"reminder-{self.number}"


class Step(NamedTuple):
    """Something to be sent."""

    at_ms: int
    number: int
    is_cancel: bool


@dataclass(frozen=True)
class Plan:
    """All reminders by their numbers, and what is sent when, in order."""

    reminders: Sequence[Reminder]
    steps: Sequence[Step]

    @property
    def cancels(self) -> int:
        return len(self.steps) - len(self.reminders)

    @property
    def ends_ms(self) -> int:
        """When the last one is due."""
        return max(each.due_ms for each in self.reminders)


def plan(count: int, seconds: float, cancel: float, seed: int) -> Plan:
    """`count` reminders due within `seconds`; a share of `cancel` is cancelled.

    >>> made = plan(10, 5.0, 0.5, 1)
    >>> len(made.reminders), made.cancels, 4000 <= made.ends_ms < 9000
    (10, 5, True)
    """
    chance = Random(f"delays {seed}")
    cancelled = set(chance.sample(range(count), round(count * cancel)))
    reminders = [_reminder(chance, number, seconds, number in cancelled) for number in range(count)]
    sends = [Step(each.sent_ms, each.number, False) for each in reminders]
    cancels = [Step(each.cancel_ms, each.number, True) for each in reminders if each.cancel_ms is not None]
    return Plan(reminders, sorted(sends + cancels, key=lambda step: (step.at_ms, step.is_cancel)))


def _reminder(chance: Random, number: int, seconds: float, cancelled: bool) -> Reminder:
    due_ms = _BEGIN_MS + int(chance.random() * seconds * 1000)
    lead_ms = LEAD_MS + int(chance.random() * seconds * 1000 / _LEADS)
    sent_ms = max(0, due_ms - lead_ms)
    return Reminder(number, sent_ms, due_ms, _cancel_ms(chance, sent_ms, due_ms) if cancelled else None)


def _cancel_ms(chance: Random, sent_ms: int, due_ms: int) -> int:
    if chance.random() < _CLOSE:
        return max(sent_ms, due_ms + chance.randrange(-_CLOSE_MS, _CLOSE_MS))
    return chance.randrange(sent_ms, due_ms)
