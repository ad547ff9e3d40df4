"""Requests as records: what `Delays` writes to the input topic, and what it hears of them. No Kafka client in this file.

Rule 1: durations and moments are made milliseconds here; what is in the log depends on nobody's idea of "3 days".
Rule 2: a key's partition is the one that the Java client and librdkafka's murmur2 choose: whoever sends by key finds the
        partition that we find.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from waterclock.durations import Duration, datetime_us, duration_us
from waterclock.relay.wire.letters import DELIVERED, DONE, UNKNOWN
from waterclock.relay.wire.request import (
    ACTION,
    AT,
    CRON,
    DELAY,
    EXPIRES,
    ID,
    MISSED,
    TO,
    TTL,
    ZONE,
    Action,
    Header,
    is_kafkas_own,
    request_of,
)
from waterclock.relay.wire.topics import Topics

Text = str | bytes
Moment = datetime | int  # ms since 1970
WRITTEN: Final = "written"


class Receipt(NamedTuple):
    """Where a request stands in the log: it is safe there, whatever becomes of the relay. `id` is empty for none. Of a row
    in a transaction `partition` is -1 and `offset` the row's number."""

    topic: str
    partition: int
    offset: int
    id: str

    @property
    def origin(self) -> str:
        """How a delivered message names it, in its header `delayed-from`.

        >>> Receipt("delays", 0, 17, "").origin
        'delays-0-17'
        """
        return f"{self.topic}-{self.partition}-{self.offset}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a cancel or a replace: `outcome` is cancelled, replaced, already delivered or unknown, or `written` of
    one in a transaction; `count`: how many messages of that id were pending."""

    id: str
    outcome: str
    count: int


def schedule_headers(
    topic: str,
    target: str,
    when: Sequence[Header],
    id: str,
    headers: Sequence[Header],
    is_replace: bool,
    now_ms: int = 0,
) -> list[Header]:
    """The headers of a request to the relay of `topic`; `when` is what `when_headers` makes. ValueError names what is wrong
    at `now_ms`, TypeError what is no text.

    >>> schedule_headers("delays", "reminders", when_headers("3 days"), "cart-17", [("trace", b"x")], False)[:3]
    [('deliver-to', b'reminders'), ('delay', b'259200000'), ('delay-id', b'cart-17')]
    """
    for name, given in (("target", target), ("id", id)):
        if not isinstance(given, str):
            raise TypeError(f"{name} must be a text, got {given!r}")
    made: list[Header] = [(TO, target.encode()), *when]
    made += [(ID, id.encode())] if id else []
    made += [(ACTION, Action.REPLACE.value.encode())] if is_replace else []
    request_of([*made, *headers], now_ms)  # whatever the relay would refuse is refused here
    if target in Topics.of(topic):
        raise ValueError(f"{target} is the relay's own: nothing is delivered there")
    if is_kafkas_own(target):
        raise ValueError(f"{target} is Kafka's own, as all that begin with __: nothing is delivered there")
    return [*made, *headers]


def when_headers(
    delay: Duration | None = None,
    at: Moment | None = None,
    expires: Moment | Duration | None = None,
    *,
    cron: str | None = None,
    zone: str = "UTC",
    missed: str = "once",
) -> list[Header]:
    """When a message is delivered: after a delay, at a moment, or again and again; and until when: a moment, or a duration
    after it is due. ValueError or TypeError names the argument.

    >>> when_headers(cron="0 9 * * MON-FRI", zone="Europe/Berlin", expires="1 hour")[1:]
    [('delay-zone', b'Europe/Berlin'), ('delay-missed', b'once'), ('delay-ttl', b'3600000')]
    """
    if cron is not None:
        if delay is not None or at is not None:
            raise ValueError(f"give one of delay, at and cron, got delay={delay!r}, at={at!r} and cron={cron!r}")
        when: list[Header] = [(CRON, cron.encode()), (ZONE, zone.encode()), (MISSED, missed.encode())]
    elif (delay is None) is (at is None):
        raise ValueError(f"give either delay or at, got delay={delay!r} and at={at!r}")
    elif delay is not None:
        when = [_header(DELAY, -(-duration_us(delay, "delay") // 1000))]  # never early
    else:
        when = [_header(AT, _at_ms(at, "at"))]
    if expires is None:
        return when
    if isinstance(expires, str | timedelta):
        return [*when, _header(TTL, duration_us(expires, "expires") // 1000)]
    return [*when, _header(EXPIRES, _at_ms(expires, "expires"))]


def _header(name: str, ms: int) -> Header:
    return name, str(ms).encode()


def cancel_headers(id: str) -> list[Header]:
    """The headers of a cancel."""
    made: list[Header] = [(ID, id.encode()), (ACTION, Action.CANCEL.value.encode())]
    request_of(made, 0)
    return made


def _at_ms(at: Moment | None, name: str) -> int:
    if isinstance(at, datetime):
        return -(-datetime_us(at) // 1000)
    if not isinstance(at, int) or isinstance(at, bool) or at < 0:
        raise TypeError(f"{name} must be a datetime or milliseconds since 1970, got {at!r}")
    return at


def answer_of(values: Iterable[bytes]) -> Answer:
    """What several partitions have answered, as one: who has cancelled something is right, then who has delivered it.

    >>> answer_of([b'{"id": "a", "outcome": "unknown", "count": 0}', b'{"id": "a", "outcome": "cancelled", "count": 1}'])
    Answer(id='a', outcome='cancelled', count=1)
    """
    answers = [Answer(one["id"], one["outcome"], one["count"]) for one in map(json.loads, values)]
    best = min(answers, key=lambda answer: _RANKS.index(answer.outcome))
    return replace(best, count=sum(answer.count for answer in answers))


def request_answered(value: bytes | None) -> str:
    """Which request a record of TOPIC.replies answers; none, an empty text, if it is somebody else's.

    >>> request_answered(b'{"id": "a", "outcome": "unknown", "count": 0, "request": "delays-0-5"}'), request_answered(b"[]")
    ('delays-0-5', '')
    """
    try:
        reply = json.loads(value or b"")
        is_reply = reply["outcome"] in _RANKS and isinstance(reply["id"], str) and isinstance(reply["count"], int)
        return str(reply["request"]) if is_reply else ""
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""


_RANKS: Final = (*DONE.values(), DELIVERED, UNKNOWN)


def partition_of(key: bytes, partitions: int) -> int:
    """The number of the partition.

    >>> partition_of(b"cart-17", 3)
    1
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2 with Kafka's seed, as an unsigned number of 32 bits.

    >>> murmur2(b"21") - 2**32, murmur2(b"foobar") - 2**32, murmur2(b"a-little-bit-long-string") - 2**32
    (-973932308, -790332482, -985981536)
    """
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
