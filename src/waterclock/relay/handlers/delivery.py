"""What a handler is called with. No Kafka client in this file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from waterclock.relay.handlers.retries import TOPIC, attempts_of, id_of
from waterclock.relay.wire.request import UNTIL, Header, headers_of


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that was delivered.

    `id` is the same however often the message is tried, or comes again after a crash. `topic`: where it was delivered
    first. `due_ms`: when it was due, ms since 1970; None where it did not come from a relay. `attempt`: 1 for the first.
    """

    id: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    due_ms: int | None
    attempt: int

    @property
    def text(self) -> str:
        """The value as text; empty where there is none. UnicodeDecodeError if it is no UTF-8."""
        return (self.value or b"").decode()


def delivery_of(message: Any) -> Delivery:
    """A record of Kafka's (confluent_kafka's Message) as a handler sees it; ValueError where it cannot be read."""
    headers = headers_of(message)
    if headers is None:
        raise ValueError("its headers cannot be read: a name in them is not UTF-8")
    named = dict(headers)
    until, topic = named.get(UNTIL) or b"", named.get(TOPIC)
    return Delivery(
        id_of(message),
        topic.decode("utf-8", "replace") if topic else message.topic(),
        message.key(),
        message.value(),
        headers,
        int(until) if until.isdigit() else None,
        attempts_of(message) + 1,
    )
