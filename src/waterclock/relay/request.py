"""A request: what the headers of a record of the input topic ask for. No Kafka client in this file.

    deliver-to     the topic that the message goes to
    deliver-at     when: ms since 1970 as decimal digits; or
    delay          ms from the record's timestamp, likewise
    delay-id       a name to cancel or replace by: UTF-8, 1 to 255 bytes
    delay-action   cancel, or replace: what is pending under delay-id is not delivered; replace schedules this record

Rule 1: what the headers mean depends on nothing else: whoever reads the record again, whenever, reads the same request.
Rule 2: every other header is handed on, in its order, but for `delayed-from` and `delayed-until`, which a
        delivered message is given anew: where its request stood, and when it was due.
Rule 3: each way to be malformed has a sentence that says what it got.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from waterclock.relay.store.packing import MOST_ID
from waterclock.relay.store.rows import MOST_DUE

TO: Final = "deliver-to"
AT: Final = "deliver-at"
DELAY: Final = "delay"
ID: Final = "delay-id"
ACTION: Final = "delay-action"
FROM: Final = "delayed-from"
UNTIL: Final = "delayed-until"
ORIGIN: Final = "delay-origin"  # of a copy that the relay has moved on: moves.py
_OURS: Final = frozenset((TO, AT, DELAY, ID, ACTION, FROM, UNTIL))
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")

Header = tuple[str, bytes | None]
_Asked = dict[str, bytes | None]


class BadRequest(ValueError):
    """A record that is no request; the message is a sentence for whoever sent it."""


class Action(Enum):
    """What is asked for."""

    SCHEDULE = "schedule"
    CANCEL = "cancel"
    REPLACE = "replace"


class Request(NamedTuple):
    """What one record asks for; of a cancel, `target` is empty. `headers` are those that are handed on."""

    action: Action
    target: str
    due_ms: int
    id: bytes
    headers: list[Header]


def request_of(headers: Sequence[Header] | None, timestamp_ms: int) -> Request:
    """The request of a record with these headers and this timestamp; `BadRequest` if it is none.

    >>> request_of([("deliver-to", b"reminders"), ("delay", b"3000"), ("trace", b"x")], 1_000)
    Request(action=<Action.SCHEDULE: 'schedule'>, target='reminders', due_ms=4000, id=b'', headers=[('trace', b'x')])
    >>> request_of([("deliver-to", b"reminders")], 1_000)
    Traceback (most recent call last):
    ...
    waterclock.relay.request.BadRequest: there is neither deliver-at nor delay: one of them says when.
    """
    asked: _Asked = dict(headers or ())
    others: list[Header] = []
    if len(asked) == len(headers or ()) == 2 and TO in asked and AT in asked:  # as most are
        return Request(Action.SCHEDULE, _topic(asked[TO]), _due(_number(AT, asked[AT])), b"", others)
    if len(asked) != len(headers or ()) or not _OURS.issuperset(asked):
        asked, others = _sorted(headers or ())
    action = _action(asked) if ACTION in asked else Action.SCHEDULE
    id = _id(asked, action) if ID in asked or action is not Action.SCHEDULE else b""
    if action is Action.CANCEL:
        return Request(action, "", 0, id, others)
    return Request(action, _target(asked), _due_ms(asked, timestamp_ms), id, others)


def _sorted(headers: Sequence[Header]) -> tuple[_Asked, list[Header]]:
    """Our headers, and the others in their order."""
    asked: _Asked = {}
    others: list[Header] = []
    for header in headers:
        name = header[0]
        if name == ORIGIN:
            raise BadRequest(f"the header {ORIGIN} is the relay's own: leave it out.")
        if name not in _OURS:
            others.append(header)
        elif name in asked and name not in (FROM, UNTIL):
            raise BadRequest(f"the header {name} stands there twice: send it once.")
        else:
            asked[name] = header[1]
    return asked, others


def _action(asked: _Asked) -> Action:
    text = asked[ACTION]
    if text not in (b"cancel", b"replace"):
        raise BadRequest(f"{ACTION} must be cancel or replace, got {_shown(text)}: to schedule, leave it out.")
    return Action(text.decode())


def _id(asked: _Asked, action: Action) -> bytes:
    if ID not in asked:
        raise BadRequest(f"there is no {ID}: it says what to {action.value}.")
    id = asked[ID] or b""
    if not 1 <= len(id) <= MOST_ID:
        raise BadRequest(f"{ID} must have 1 to {MOST_ID} bytes, got {len(id)}.")
    try:
        id.isascii() or id.decode()
    except UnicodeDecodeError:
        raise BadRequest(f"{ID} must be UTF-8, got {_shown(id)}.") from None
    return id


def _target(asked: _Asked) -> str:
    if TO not in asked:
        raise BadRequest(f"there is no {TO}: it names the topic that the message goes to.")
    return _topic(asked[TO])


@lru_cache(1024)
def _topic(name: bytes | None) -> str:
    topic = (name or b"").decode("utf-8", "replace")
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise BadRequest(f"{TO} must be the name of a topic, got {_shown(name)}.")
    return topic


def _due_ms(asked: _Asked, timestamp_ms: int) -> int:
    if AT in asked and DELAY in asked:
        raise BadRequest(f"there are both {AT} and {DELAY}: send one of them.")
    if AT in asked:
        return _due(_number(AT, asked[AT]))
    if DELAY in asked:
        return _due(_number(DELAY, asked[DELAY]) + max(0, timestamp_ms))
    raise BadRequest(f"there is neither {AT} nor {DELAY}: one of them says when.")


def _due(due_ms: int) -> int:
    if due_ms >= MOST_DUE:
        raise BadRequest(
            f"the message would be due {due_ms} ms after 1970, later than the year 6400: send an earlier time."
        )
    return due_ms


def _number(name: str, text: bytes | None) -> int:
    if text is None or not text.isdigit() or len(text) > 18:
        raise BadRequest(f"{name} must be milliseconds as decimal digits, got {_shown(text)}.")
    return int(text)


def _shown(text: bytes | None) -> str:
    shown = repr(text)[1:] if text is not None else "nothing"
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
