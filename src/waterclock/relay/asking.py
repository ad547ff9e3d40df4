"""What the commands beside the relay do: send, cancel, replace, read."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from waterclock.clock import SystemClock
from waterclock.errors import UsageError
from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import READING, base_settings
from waterclock.relay.delays import Delays
from waterclock.relay.process import kafka_settings
from waterclock.relay.request import FROM, UNTIL
from waterclock.relay.sending import Answer, Moment, Receipt
from waterclock.rules.durations import duration_us, from_us


def delays_of(arguments: Namespace, servers: str) -> Delays:
    """A client by the command's options."""
    settings = kafka_settings(arguments.kafka_config)
    return Delays(arguments.bootstrap or servers, arguments.topic, settings=settings, patience_s=15.0)


def sent(delays: Delays, arguments: Namespace) -> Receipt:
    """Write the request, of one message or of a series; UsageError where it cannot be read."""
    named = {"key": arguments.key, "id": arguments.id}
    if arguments.cron is not None and not arguments.id:
        raise UsageError("--cron needs --id NAME: without one the series could not be ended.")
    with _read_by_users():
        if arguments.cron is None:
            return delays.send(arguments.target, arguments.value, **when(arguments), **named)
        return delays.every(arguments.target, arguments.value, **when(arguments), **named)


def replaced(delays: Delays, arguments: Namespace) -> Answer:
    """Cancel what has the id, and write the request; UsageError where it cannot be read."""
    with _read_by_users():
        return delays.replace(arguments.id, arguments.target, arguments.value, **when(arguments), key=arguments.key)


@contextmanager
def _read_by_users() -> Iterator[None]:
    """What a request cannot be is a user's mistake."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from None


def when(arguments: Namespace) -> dict[str, Any]:
    """`delay` or `at`, or `cron`, `zone` and `missed`; and `expires`. UsageError where one cannot be read."""
    if arguments.cron is not None:
        named = {name: getattr(arguments, name) for name in ("cron", "zone", "missed")}
        return {**named, **_expires(arguments)}
    if arguments.delay is not None:
        return {"delay": _duration(arguments.delay, "--delay"), **_expires(arguments)}
    return {"at": _moment(arguments.at, "--at"), **_expires(arguments)}


def _expires(arguments: Namespace) -> dict[str, Any]:
    text = arguments.expires
    if text is None:
        return {}
    is_moment = text.isdecimal() or text[4:5] == "-"
    return {"expires": (_moment if is_moment else _duration)(text, "--expires")}


def _duration(text: str, option: str) -> str:
    try:
        return f"{duration_us(text, option)} us"
    except ValueError as error:
        raise UsageError(f"{error}: write {option} 3s.") from None


def _moment(text: str, option: str) -> Moment:
    if text.isdecimal():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{error}: write {option} 2026-12-01T09:00Z.") from None
    if at.tzinfo is None:
        raise UsageError(f"{option} {text} has no time zone: write {text}Z for UTC, or +01:00 behind it.")
    return at


def told(answer: Answer, hoped: str) -> int:
    """Print what became of it; the exit code."""
    print(f"{answer.outcome}, {answer.count:,} messages" if answer.count else answer.outcome)
    return 0 if answer.outcome == hoped else 1


def read(arguments: Namespace, servers: str) -> int:
    """Print what a topic holds and what comes, each with its lateness, until Ctrl-C."""
    settings = base_settings(arguments.bootstrap or servers, kafka_settings(arguments.kafka_config))
    partitions = _partitions(settings, arguments.target)
    reader = Consumer({**settings, **READING, "group.id": "unused", "fetch.wait.max.ms": 100})
    try:
        starts = [TopicPartition(arguments.target, n, -1 if arguments.new else -2) for n in range(partitions)]
        reader.assign(starts)
        left = arguments.most
        while left is None or left > 0:
            message = reader.poll(0.25)
            if message is not None and message.error() is None:
                print(_line(message), flush=True)
                left = None if left is None else left - 1
    except KeyboardInterrupt:
        pass
    finally:
        reader.close()
    return 0


def _partitions(settings: dict[str, Any], topic: str) -> int:
    """How many there are, once there are some."""
    clock, admin, said = SystemClock(), Admin(settings), False
    while not (found := admin.topics().get(topic)):
        if not said:
            print(f"waterclock: there is no topic {topic} yet: waiting for it", file=sys.stderr, flush=True)
            said = True
        clock.sleep_s(0.25)
    return found


def _line(message: Message) -> str:
    headers = dict(message.headers() or [])
    stamp_ms = message.timestamp()[1]
    parts = [_clock_time(stamp_ms)]
    if (until := headers.get(UNTIL)) is not None:
        parts.append(f"{stamp_ms - int(until):+,d} ms")
    parts += [_text(part) for part in (message.key(), message.value()) if part is not None]
    if (origin := headers.get(FROM)) is not None:
        parts.append(f"({_text(origin)})")
    return "  ".join(parts)


def _clock_time(ms: int) -> str:
    return from_us(1000 * ms).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _text(part: bytes) -> str:
    return part.decode("utf-8", "backslashreplace")
