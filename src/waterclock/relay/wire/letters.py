"""What a turn answers besides deliveries: commands, the replies to them, and dead letters. No Kafka client in this file.

Rule 1: a reply says what is true once its transaction is committed:
        cancelled, replaced      so many were pending, and will not be delivered
        already delivered        none was pending, and one was delivered
        unknown                  nothing is known of the id: it was never sent, or was delivered long ago
Rule 2: a cancel of what was cancelled before is `cancelled` with count 0: it will not be delivered, as was asked.
Rule 3: a dead letter is the record as it came, with the reason in a header.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, NamedTuple

from waterclock.relay.wire.request import Action, Header

REASON: Final = "dead-reason"
ORIGIN: Final = "dead-from"
DELIVERED: Final = "already delivered"
UNKNOWN: Final = "unknown"
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)  # whole rows would take it ten times as long
DONE: Final = {Action.CANCEL: "cancelled", Action.REPLACE: "replaced"}


class Command(NamedTuple):
    """A cancel or a replace that waits for a turn."""

    offset: int
    action: Action
    id: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a command; `request` is TOPIC-PARTITION-OFFSET of it."""

    id: str
    action: str
    outcome: str
    count: int
    request: str

    def as_json(self) -> bytes:
        """The value of the record on TOPIC.replies.

        >>> Reply("cart-17", "cancel", "cancelled", 1, "delays-0-5").as_json()
        b'{"id": "cart-17", "action": "cancel", "outcome": "cancelled", "count": 1, "request": "delays-0-5"}'
        """
        id = _ENCODER.encode(self.id)  # the one text in it that is somebody else's
        return (
            f'{{"id": {id}, "action": "{self.action}", "outcome": "{self.outcome}", "count": {self.count}, '
            f'"request": "{self.request}"}}'
        ).encode()


class Letter(NamedTuple):
    """A record that cannot be done, and why. `pending`: it was filed, and is settled by this."""

    offset: int
    reason: str
    value: bytes | None
    key: bytes | None
    headers: list[Header]
    pending: bool


def outcome(action: Action, pending: int, cancelled: bool, delivered: bool) -> str:
    """What is answered (rules 1 and 2): of how many were pending, and whether any was cancelled or delivered before.

    >>> outcome(Action.REPLACE, 1, False, True), outcome(Action.CANCEL, 0, False, True)
    ('replaced', 'already delivered')
    """
    if pending or (cancelled and not delivered and action is Action.CANCEL):
        return DONE[action]
    return DELIVERED if delivered else UNKNOWN
