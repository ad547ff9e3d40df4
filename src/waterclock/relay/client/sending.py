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
    request_of,
)

Text = str | bytes
Moment = datetime | int  # ms since 1970


class Receipt(NamedTuple):
    """Where a request stands in the log: it is safe there, whatever becomes of the relay. `id` is empty for none."""

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
    """What became of a cancel or a replace: `outcome` is cancelled, replaced, already delivered or unknown; `count`: how
    many messages of that id were pending."""

    id: str
    outcome: str
    count: int


def schedule_headers(
    target: str, when: Sequence[Header], id: str, headers: Sequence[Header], replace: bool, now_ms: int = 0
) -> list[Header]:
    """The headers of a request; `when` is what the functions below make. ValueError names what is wrong, at `now_ms`;
    TypeError what is no text.

    >>> schedule_headers("reminders", when_headers("3 days", None), "cart-17", [("trace", b"x")], False)[:3]
    [('deliver-to', b'reminders'), ('delay', b'259200000'), ('delay-id', b'cart-17')]
    """
    for name, given in (("target", target), ("id", id)):
        if not isinstance(given, str):
            raise TypeError(f"{name} must be a text, got {given!r}")
    made: list[Header] = [(TO, target.encode()), *when]
    made += [(ID, id.encode())] if id else []
    made += [(ACTION, Action.REPLACE.value.encode())] if replace else []
    request_of([*made, *headers], now_ms)  # whatever the relay would refuse is refused here
    return [*made, *headers]


def when_headers(delay: Duration | None, at: Moment | None, expires: Moment | Duration | None = None) -> list[Header]:
    """After a delay or at a moment; ValueError or TypeError names the argument."""
    if (delay is None) is (at is None):
        raise ValueError(f"give either delay or at, got delay={delay!r} and at={at!r}")
    when = _header(DELAY, _delay_ms(delay)) if delay is not None else _header(AT, _at_ms(at))
    return [when, *expiry_headers(expires)]


def series_headers(cron: str, zone: str, missed: str, expires: Moment | Duration | None) -> list[Header]:
    """Again and again.

    >>> series_headers("0 9 * * MON-FRI", "Europe/Berlin", "once", "1 hour")[1:]
    [('delay-zone', b'Europe/Berlin'), ('delay-missed', b'once'), ('delay-ttl', b'3600000')]
    """
    made = [(CRON, cron.encode()), (ZONE, zone.encode()), (MISSED, missed.encode())]
    return [*made, *expiry_headers(expires)]


def when_or_series_headers(
    delay: Duration | None,
    at: Moment | None,
    expires: Moment | Duration | None,
    series: tuple[str | None, str, str],
) -> list[Header]:
    """After a delay, at a moment, or again and again; `series`: cron, None where it does not recur, zone and missed."""
    cron, zone, missed = series
    if cron is None:
        return when_headers(delay, at, expires)
    if delay is not None or at is not None:
        raise ValueError(f"give one of delay, at and cron, got delay={delay!r}, at={at!r} and cron={cron!r}")
    return series_headers(cron, zone, missed, expires)


def expiry_headers(expires: Moment | Duration | None) -> list[Header]:
    """Until when it is delivered: a moment, or a duration after it is due; TypeError for anything else."""
    if expires is None:
        return []
    if isinstance(expires, str | timedelta):
        return [_header(TTL, duration_us(expires, "expires") // 1000)]
    return [_header(EXPIRES, _at_ms(expires, "expires"))]


def _header(name: str, ms: int) -> Header:
    return name, str(ms).encode()


def cancel_headers(id: str) -> list[Header]:
    """The headers of a cancel."""
    made: list[Header] = [(ID, id.encode()), (ACTION, Action.CANCEL.value.encode())]
    request_of(made, 0)
    return made


def _delay_ms(delay: Duration) -> int:
    return -(-duration_us(delay, "delay") // 1000)  # never early


def _at_ms(at: Moment | None, name: str = "at") -> int:
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
    """Which request a record of TOPIC.replies answers; none, an empty text, where it is somebody else's.

    >>> request_answered(b'{"id": "a", "outcome": "unknown", "count": 0, "request": "delays-0-5"}'), request_answered(b"[]")
    ('delays-0-5', '')
    """
    try:
        told = json.loads(value or b"")
        is_reply = told["outcome"] in _RANKS and isinstance(told["id"], str) and isinstance(told["count"], int)
        return str(told["request"]) if is_reply else ""
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
