"""A delivered message as a handler sees it, and retries as a recipe: where one goes that its consumer could not handle. No
Kafka client in this file.

    attempt 1 fails     to the relay, which delivers it to `to` after the first of the waits
    attempt 2 fails     likewise, after the second
    ...                 and when there is no wait left, to `dead`

Rule 1: the consumer sends the record that `after` makes, and its own offset behind the message, in one transaction: so the
        message is tried again once, or is a dead letter once, whoever dies.
Rule 2: a message that is tried again comes to `to`, a topic of the group's own: other groups that read its topic do not see
        it twice. It comes behind others of its key that came after it.
Rule 3: what it was stays with it, in headers: retry-attempts, how many failed; retry-error, the first error; retry-topic,
        from which its group had it first; retry-of, by which it is known for good: the `delayed-from` that it bore first,
        or else TOPIC-PARTITION-OFFSET.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from waterclock.durations import Duration, duration_us
from waterclock.relay.wire.letters import ORIGIN, REASON
from waterclock.relay.wire.request import DELAY, FROM, TO, UNTIL, Header, headers_of, is_ours

WAITS: Final = ("1 s", "5 s", "1 min", "10 min", "1 hour")
ATTEMPTS: Final = "retry-attempts"
ERROR: Final = "retry-error"
TOPIC: Final = "retry-topic"
OF: Final = "retry-of"
_OURS: Final = (ATTEMPTS, ERROR, TOPIC, OF)
_MOST: Final = 1_000  # characters of an error


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that was delivered.

    `id` is the same however often the message is tried, or comes again after a crash. `topic`: where it was delivered
    first. `due_ms`: when it was due, ms since 1970; None if it did not come from a relay. `attempt`: 1 for the first.
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
        """The value as text; empty if there is none. UnicodeDecodeError if it is no UTF-8."""
        return (self.value or b"").decode()


class RetryAfter(Exception):
    """Raised by a handler that knows better when to try again: `after` that long, instead of the next of the waits.

    It counts as an attempt: after the last one the message is a dead letter all the same.
    """

    def __init__(self, after: Duration, why: str = "") -> None:
        super().__init__(why or f"try again after {after}")
        self.after_ms = _ms(after, "after")


class LeftBroken(Exception):
    """A handler passed over an error of its database: nothing more can be done in its transaction. It has failed."""


class OfAnother(Exception):
    """Two handlers of one group have different topics: a message to be tried again came to the wrong one."""

    def __init__(self, first: str, topic: str) -> None:
        super().__init__(
            f"it is for the handler of {first}, and came to that of {topic}: give each a group= of its own"
        )


class SentOn(NamedTuple):
    """A record to be sent, by key; `is_dead`: a dead letter."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: list[Header]
    is_dead: bool


class Retries:
    """Where failed messages go: back `to` a topic after each of the `waits`, by way of the relay whose input is `relay`;
    then to the topic `dead`. ValueError or TypeError for waits that are no durations.

    >>> Retries("mailer.retry", "mailer.dead", waits=["1 s", "1 min"]).attempts
    3
    """

    def __init__(self, to: str, dead: str, *, waits: Sequence[Duration] = WAITS, relay: str = "delays") -> None:
        self.to = to
        self.dead = dead
        self._relay = relay
        self._waits_ms = [_ms(wait, "waits") for wait in waits]

    @property
    def attempts(self) -> int:
        """How often a message is tried at most."""
        return len(self._waits_ms) + 1

    def after(self, message: Any, error: BaseException) -> SentOn:
        """What is to be sent of a message (confluent_kafka's) whose handling raised `error`."""
        if headers_of(message) is None:
            return self.named(message, error)
        failed = attempts_of(message) + 1
        if failed >= self.attempts:
            return self._letter(message, failed, error)
        wait_ms = error.after_ms if isinstance(error, RetryAfter) else self._waits_ms[failed - 1]
        request = [(TO, self.to.encode()), (DELAY, str(wait_ms).encode())]
        headers = [*request, *_handed_on(message), *self._history(message, failed, error)]
        return SentOn(self._relay, message.value(), message.key(), headers, False)

    def stray(self, message: Any, topic: str) -> OfAnother | None:
        """What is wrong with a message that is tried again and was not read from `topic` first: it is for another
        function. None for any other message, also for one that a person put into `to` (a dead letter, to try it again)."""
        first = (dict(headers_of(message) or ()).get(TOPIC) or b"").decode("utf-8", "replace")
        return OfAnother(first, topic) if message.topic() == self.to and first not in ("", topic, self.to) else None

    def aside(self, message: Any, error: BaseException) -> SentOn:
        """The dead letter of a message that was not tried this time."""
        return self._letter(message, attempts_of(message), error)

    def _letter(self, message: Any, failed: int, error: BaseException) -> SentOn:
        headers = [*_handed_on(message), *self._history(message, failed, error), *_reason(message, error)]
        return SentOn(self.dead, message.value(), message.key(), headers, True)

    def named(self, message: Any, error: BaseException) -> SentOn:
        """The dead letter of a message that Kafka does not take with its headers, or whose headers cannot be read: it says
        where the message stands."""
        there = ("dead-record", f"it stands at {place_of(message)}".encode())
        history = self._history(message, attempts_of(message) + 1, error)
        return SentOn(self.dead, None, None, [*history, *_reason(message, error), there], True)

    def _history(self, message: Any, failed: int, error: BaseException) -> list[Header]:
        headers = dict(headers_of(message) or ())
        first = headers.get(ERROR) or _words(error)
        topic = headers.get(TOPIC) if message.topic() == self.to else None  # elsewhere it is another group's
        return [
            (ATTEMPTS, b"%d" % failed),
            (ERROR, first),
            (TOPIC, topic or message.topic().encode()),
            (OF, id_of(message).encode()),
        ]


def delivery_of(message: Any) -> Delivery:
    """A record of Kafka's (confluent_kafka's Message) as a handler sees it; ValueError if it cannot be read."""
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


def attempts_of(message: Any) -> int:
    """How often it was tried before."""
    text = dict(headers_of(message) or ()).get(ATTEMPTS) or b""
    return int(text) if text.isdigit() and len(text) < 10 else 0


def place_of(message: Any) -> str:
    """TOPIC-PARTITION-OFFSET of a message."""
    return f"{message.topic()}-{message.partition()}-{message.offset()}"


def id_of(message: Any) -> str:
    """By what a message is known, however often it is tried: a second one with the same id is the same."""
    headers = dict(headers_of(message) or ())
    id = headers.get(OF) or headers.get(FROM)
    return id.decode("utf-8", "replace") if id else place_of(message)


def _handed_on(message: Any) -> list[Header]:
    """Its own headers, without those by which the relay would take it for another request."""
    return [header for header in headers_of(message) or () if not is_ours(header[0]) and header[0] not in _OURS]


def _reason(message: Any, error: BaseException) -> list[Header]:
    return [(REASON, _words(error)), (ORIGIN, place_of(message).encode())]


def _words(error: BaseException) -> bytes:
    return f"{type(error).__name__}: {error}"[:_MOST].encode("utf-8", "replace")


def _ms(wait: Duration, name: str) -> int:
    return -(-duration_us(wait, name) // 1000)
