"""Is it right? What came, against what was sent and what was answered. No Kafka in this file.

    answered            then
    nothing             delivered, once
    cancelled           not delivered
    already delivered   delivered, once

Rule 1: none before its due time, each with the value, the key, the due time and the origin that it was sent with.
Rule 2: of one key, by due time, then in the order of the log. One that overtakes is wrong only where the other was in the
        log before the overtaker was due: nobody can deliver what has not come yet.
Rule 3: each cancel is answered once, and `unknown` is no answer: all of them were sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .plan import Plan
from .reader import Delivery
from .sender import Sent

CANCELLED, DELIVERED = "cancelled", "already delivered"
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Errors:
    """How many are wrong, and in which way; all 0 when it is right."""

    lost: int = 0
    twice: int = 0
    early: int = 0
    strange: int = 0  # not as it was sent, or never sent
    out_of_order: int = 0
    cancelled_and_delivered: int = 0
    told_delivered_and_was_not: int = 0
    answers_wrong: int = 0
    answers_missing: int = 0
    dead_letters: int = 0

    @property
    def total(self) -> int:
        return sum(asdict(self).values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of all. `already_delivered`: cancels that came too late, and were told so."""

    reminders: int
    delivered: int
    cancelled: int
    already_delivered: int
    errors: Errors
    shown: tuple[str, ...] = ()  # some of what overtook, in words


@dataclass(frozen=True)
class Evidence:
    """What is looked at. Times are ms since 1970; `start_ms` is the plan's zero."""

    plan: Plan
    start_ms: int
    reminders: Mapping[int, Sent]
    cancels: Mapping[int, Sent]
    deliveries: Sequence[Delivery]
    replies: Sequence[Mapping[str, Any]]
    dead: Sequence[str]


def check(seen: Evidence) -> Verdict:
    """All of the rules."""
    numbers = [_number(seen, delivery) for delivery in seen.deliveries]
    times = Counter(number for number in numbers if number is not None)
    told, wrong, missing = _answers(seen)
    outcomes = Counter(told.values())
    overtaken = _overtaken(seen, numbers)
    errors = Errors(
        lost=sum(not times[n] for n in seen.reminders if told.get(n) not in (CANCELLED, DELIVERED)),
        twice=sum(count - 1 for count in times.values()),
        early=sum(one.came_ms < one.due_ms for one in seen.deliveries),
        strange=numbers.count(None),
        out_of_order=len(overtaken),
        cancelled_and_delivered=sum(times[n] > 0 for n, outcome in told.items() if outcome == CANCELLED),
        told_delivered_and_was_not=sum(not times[n] for n, outcome in told.items() if outcome == DELIVERED),
        answers_wrong=wrong,
        answers_missing=missing,
        dead_letters=len(seen.dead),
    )
    words = tuple(_words(seen, *each) for each in overtaken[:_SHOWN])
    return Verdict(len(seen.reminders), len(times), outcomes[CANCELLED], outcomes[DELIVERED], errors, words)


def _number(seen: Evidence, delivery: Delivery) -> int | None:
    """Which reminder it is, where it is as it was sent."""
    text = (delivery.value or b"").removeprefix(b"reminder ")
    number = int(text) if text.isdigit() else -1
    if number not in seen.reminders:
        return None
    reminder = seen.plan.reminders[number]
    expected = reminder.value, reminder.key.encode(), seen.reminders[number].place, seen.start_ms + reminder.due_ms
    return number if expected == (delivery.value, delivery.key, delivery.origin, delivery.due_ms) else None


def _answers(seen: Evidence) -> tuple[dict[int, str], int, int]:
    """What was told of each cancelled one; answers that are wrong, and cancels without one."""
    asked = {sent.place: number for number, sent in seen.cancels.items()}
    told: dict[int, str] = {}
    wrong = 0
    for reply in seen.replies:
        number = asked.get(reply["request"])
        right = number is not None and number not in told and _is_one(seen, number, reply)
        wrong += not right
        if right and number is not None:
            told[number] = reply["outcome"]
    return told, wrong, len(asked.keys() - {reply["request"] for reply in seen.replies})


def _is_one(seen: Evidence, number: int, reply: Mapping[str, Any]) -> bool:
    """Whether it is an answer that can be: of that reminder, and of one message at most."""
    of = reply["id"], reply["action"], reply["outcome"], reply["count"]
    id = seen.plan.reminders[number].id
    return of in ((id, "cancel", CANCELLED, 1), (id, "cancel", DELIVERED, 0))


def _overtaken(seen: Evidence, numbers: Sequence[int | None]) -> list[tuple[Delivery, Delivery]]:
    """Rule 2: each that came behind one of its key that it should have come before, with that one."""
    furthest: dict[bytes | None, tuple[tuple[int, int], Delivery]] = {}
    found = []
    for number, delivery in zip(numbers, seen.deliveries, strict=True):
        if number is None:
            continue
        sent = seen.reminders[number]
        place = delivery.due_ms, sent.offset
        before = furthest.get(delivery.key)
        if before is None or place > before[0]:
            furthest[delivery.key] = place, delivery
        elif sent.acknowledged_ms <= before[0][0] and place < before[0]:
            found.append((delivery, before[1]))
    return found


def _words(seen: Evidence, late: Delivery, before: Delivery) -> str:
    """One of them, in ms since the start."""
    number = _number(seen, late)
    in_log_ms = seen.reminders[number].acknowledged_ms - seen.start_ms if number is not None else 0
    due_ms, came_ms = (each - seen.start_ms for each in (late.due_ms, late.came_ms))
    other_ms, other_came_ms = (each - seen.start_ms for each in (before.due_ms, before.came_ms))
    return (
        f"{late.origin}: in the log at {in_log_ms:,}, due at {due_ms:,}, came at {came_ms:,}, behind {before.origin}: "
        f"due at {other_ms:,}, came at {other_came_ms:,} (ms since the start)"
    )
