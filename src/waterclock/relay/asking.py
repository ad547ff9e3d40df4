"""What the commands beside the relay do: send, cancel, replace, read; for people, or as JSON."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import Message

from waterclock.clock import SystemClock
from waterclock.durations import duration_us, from_us
from waterclock.errors import UsageError
from waterclock.kafka.settings import base_settings, from_file
from waterclock.relay.client.delays import Delays
from waterclock.relay.client.listening import reading
from waterclock.relay.client.sending import Answer, Moment, Receipt, schedule_headers, when_headers
from waterclock.relay.watching.listing import json_text
from waterclock.relay.wire.letters import REASON
from waterclock.relay.wire.request import CRON, EXPIRES, FROM, ID, TO, TTL, UNTIL, ZONE, headers_of
from waterclock.wording import counted, show_duration

_TYPED: Final = {TO: "TOPIC", CRON: "--cron", ZONE: "--zone", ID: "ID", EXPIRES: "--expires", TTL: "--expires"}


def delays_of(arguments: Namespace, servers: str) -> Delays:
    """A client by the command's options. UsageError for what is no request, before anybody is waited for."""
    if "value" in arguments:
        _check(arguments)
    settings = from_file("--kafka-config", arguments.kafka_config)
    return Delays(arguments.bootstrap or servers, arguments.topic, settings=settings)


def sent(delays: Delays, arguments: Namespace) -> Receipt:
    """Write the request, of one message or of a series; UsageError if it cannot be read."""
    named = {"key": arguments.key, "id": arguments.id}
    with _read_by_users():
        if arguments.cron is None:
            return delays.send(arguments.target, arguments.value, **when(arguments), **named)
        return delays.every(arguments.target, arguments.value, **when(arguments), **named)


def cancelled(delays: Delays, arguments: Namespace) -> Answer:
    """Have the messages of an id not delivered; UsageError if it is none."""
    with _read_by_users():
        return delays.cancel(arguments.id, key=arguments.key)


def replaced(delays: Delays, arguments: Namespace) -> Answer:
    """Cancel what has the id, and write the request; UsageError if it cannot be read."""
    with _read_by_users():
        return delays.replace(arguments.id, arguments.target, arguments.value, **when(arguments), key=arguments.key)


def _check(arguments: Namespace) -> None:
    if arguments.cron is not None and not arguments.id:
        raise UsageError("--cron needs --id NAME: without one the series could not be ended.")
    with _read_by_users():
        due = when_headers(**when(arguments))
        now_ms = SystemClock().wall_ms()
        schedule_headers(arguments.topic, arguments.target, due, arguments.id, (), is_replace=False, now_ms=now_ms)


@contextmanager
def _read_by_users() -> Iterator[None]:
    """What a request cannot be is a user's mistake, and is told by the words that were typed."""
    try:
        yield
    except ValueError as error:
        typed = re.sub(r"\b(deliver|delay)-\w+\b", lambda header: _TYPED.get(header[0], header[0]), str(error))
        raise UsageError(typed) from None


def when(arguments: Namespace) -> dict[str, Any]:
    """`delay` or `at`, or `cron`, `zone` and `missed`; and `expires`. UsageError if one cannot be read."""
    if arguments.cron is not None:
        named = {"cron": arguments.cron, "zone": arguments.zone or "UTC", "missed": arguments.missed or "once"}
        return {**named, **_expires(arguments)}
    if (arguments.zone, arguments.missed) != (None, None):
        raise UsageError("--zone and --missed are for what recurs: give them with --cron, or leave them out.")
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
        raise UsageError(f"{error}: write such as {option} 3s or {option} 1h30min.") from None


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


def print_answer(answer: Answer, hoped: str, as_json: bool) -> int:
    """Print what became of it; the exit code."""
    if as_json:
        print(json.dumps(asdict(answer)))
    else:
        print(f"{answer.outcome}, {counted(answer.count, 'message')}" if answer.count else answer.outcome)
    return 0 if answer.outcome == hoped else 1


def read(arguments: Namespace, servers: str) -> int:
    """Print what a topic holds and what comes, each with its lateness, until Ctrl-C."""
    settings = base_settings(arguments.bootstrap or servers, from_file("--kafka-config", arguments.kafka_config))
    line = _json_line if arguments.json else _line
    left = arguments.most
    try:
        with reading(settings, arguments.target, arguments.new) as messages:
            while left != 0:
                print(line(next(messages)), flush=True)
                left = None if left is None else left - 1
    except KeyboardInterrupt:
        pass
    return 0


def _line(message: Message) -> str:
    headers = dict(headers_of(message) or [])
    stamp_ms = message.timestamp()[1]
    parts = [from_us(1000 * stamp_ms).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"]
    if (late_ms := _late_ms(stamp_ms, headers.get(UNTIL))) is not None:
        parts.append(f"{show_duration(abs(late_ms))} {'early' if late_ms < 0 else 'late'}")
    parts += [_text(part) for part in (message.key(), message.value()) if part is not None]
    if (origin := headers.get(FROM)) is not None:
        parts.append(f"({_text(origin)})")
    if (reason := headers.get(REASON)) is not None:
        parts.append(f"dead: {_text(reason)}")
    return "  ".join(parts)


def _late_ms(stamp_ms: int, until: bytes | None) -> int | None:
    """How late it came; None if no relay says when it was due: anybody may write to a topic."""
    return stamp_ms - int(until) if until is not None and until.isdigit() and len(until) <= 18 else None


def _json_line(message: Message) -> str:
    """The same for programs; what is no UTF-8 is printed as base64, under another name."""
    headers = dict(headers_of(message) or [])
    stamp_ms = message.timestamp()[1]
    found = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "came_ms": stamp_ms,
    }
    found["late_ms"] = _late_ms(stamp_ms, headers.get(UNTIL))
    if (reason := headers.get(REASON)) is not None:
        found["dead_reason"] = _text(reason)
    found["request"] = None if (origin := headers.get(FROM)) is None else _text(origin)
    for name, part in (("key", message.key()), ("value", message.value())):
        found |= json_text(name, part)
    return json.dumps(found)


def _text(part: bytes) -> str:
    return part.decode("utf-8", "backslashreplace")
