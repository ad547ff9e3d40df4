"""A request: what the headers of a record of the input topic ask for. No Kafka client in this file.

    deliver-to     the topic that the message goes to
    deliver-at     when: ms since 1970 as decimal digits; or
    delay          ms from the record's timestamp, likewise
    delay-id       a name to cancel or replace by: UTF-8, 1 to 255 bytes
    delay-action   cancel, or replace: what is pending under delay-id is not delivered; replace schedules this record
    delay-expires  ms since 1970: later than that it is not delivered; or
    delay-ttl      ms after it is due, likewise
    delay-cron     again and again, by a cron expression; deliver-at says when first, else it is the next time after the
                   record's timestamp. It needs a delay-id
    delay-zone     the time zone of delay-cron; UTC if left out
    delay-missed   what becomes of occurrences that nobody was there to deliver: once, all or skip (follow_ups.py)
    delay-occurrence   the how-manieth of its series, and the offset at which that began, with a space between; the relay
                   alone writes it, in the request of each next one

Rule 1: what the headers mean depends on nothing else: whoever reads the record again, whenever, reads the same request.
        (But for the first time of a series, which the zone database has a say in.)
Rule 2: every other header is handed on, in its order, but for those that a delivered message is given anew: `delayed-from`,
        where its request stood, `delayed-until`, when it was due, and `delayed-occurrence`.
Rule 3: each way to be malformed has a sentence that says what it got.
Rule 4: nothing in a record raises here but `BadRequest`. Kafka's client gives none of the headers if a name is not UTF-8:
        it fails, or leaves the error behind for whoever comes next, once Python has made that call a fast one.
Rule 5: what is to be known when the message is due (`KEPT`) is filed with it, behind the headers that are handed on; the
        flags of its row say that there is something (`Flag`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, IntFlag
from functools import lru_cache
from operator import methodcaller
from typing import TYPE_CHECKING, Final, NamedTuple

from waterclock.relay.store.rows import MOST_DUE, MOST_ID
from waterclock.relay.wire.cron import next_ms

if TYPE_CHECKING:
    from confluent_kafka import Message

TO: Final = "deliver-to"
AT: Final = "deliver-at"
DELAY: Final = "delay"
ID: Final = "delay-id"
ACTION: Final = "delay-action"
EXPIRES: Final = "delay-expires"
TTL: Final = "delay-ttl"
CRON: Final = "delay-cron"
ZONE: Final = "delay-zone"
MISSED: Final = "delay-missed"
OCCURRENCE: Final = "delay-occurrence"
FROM: Final = "delayed-from"
UNTIL: Final = "delayed-until"
ORIGIN: Final = "delay-origin"  # of a copy that the relay has moved on: moves.py
WHICH: Final = "delayed-occurrence"
KEPT: Final = (EXPIRES, TTL, CRON, ZONE, MISSED, OCCURRENCE)
WAYS: Final = (b"once", b"all", b"skip")  # of delay-missed
_KEPT: Final = frozenset(KEPT)
_GIVEN_ANEW: Final = (FROM, UNTIL, WHICH)
_OURS: Final = frozenset((TO, AT, DELAY, ID, ACTION, *KEPT, *_GIVEN_ANEW))
_OCCURRENCE: Final = re.compile(rb"[0-9]{1,18} [0-9]{1,18}")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ask_headers: Final = methodcaller("headers")

Header = tuple[str, bytes | None]
_Asked = dict[str, bytes | None]


class BadRequest(ValueError):
    """A record that is no request; the message is a sentence for whoever sent it."""


class Action(Enum):
    """What is asked for."""

    SCHEDULE = "schedule"
    CANCEL = "cancel"
    REPLACE = "replace"


_ACTIONS: Final[Mapping[bytes | None, Action]] = {b"cancel": Action.CANCEL, b"replace": Action.REPLACE}


class Flag(IntFlag):
    """What is to be done when a message is due, besides delivering it."""

    SERIES = 1  # schedule the next one
    EXPIRES = 2  # see whether it is too late
    NEXT = 4  # one that the relay has scheduled so


class DelayRequest(NamedTuple):
    """What one record asks for; of a cancel, `target` is empty. `headers` are those that are filed with the message: those
    that are handed on, and `KEPT`. `flags` are of `Flag`."""

    action: Action
    target: str
    due_ms: int
    id: bytes
    headers: list[Header]
    flags: int = 0


def headers_of(message: Message) -> list[Header] | None:
    """The headers of a record; None if they cannot be read. Rule 4."""
    try:
        return _ask_headers(message) or []
    except (SystemError, UnicodeDecodeError):
        return None


def request_in(message: Message) -> DelayRequest:
    """What the record asks for; `BadRequest` if it is no request."""
    headers = headers_of(message)
    if headers is None:
        raise BadRequest("its headers cannot be read: a name in them is not UTF-8.")
    return request_of(headers, message.timestamp()[1])


def request_of(headers: Sequence[Header] | None, timestamp_ms: int) -> DelayRequest:
    """The request of a record with these headers and this timestamp; `BadRequest` if it is none.

    >>> request_of([("deliver-to", b"reminders"), ("delay", b"3000"), ("trace", b"x")], 1_000)[1:]
    ('reminders', 4000, b'', [('trace', b'x')], 0)
    >>> request_of([("deliver-to", b"reminders")], 1_000)
    Traceback (most recent call last):
    ...
    waterclock.relay.wire.request.BadRequest: there is neither deliver-at nor delay: one of them says when.
    """
    asked: _Asked = dict(headers or ())
    others: list[Header] = []
    if len(asked) == len(headers or ()) == 2 + (ID in asked) and TO in asked and AT in asked:  # as most are
        id = _id(asked, Action.SCHEDULE) if ID in asked else b""
        return DelayRequest(Action.SCHEDULE, _topic(asked[TO]), _due(_number(AT, asked[AT])), id, others)
    if len(asked) != len(headers or ()) or not _OURS.issuperset(asked):
        asked, others = _sorted(headers or ())
    action = _ACTIONS.get(asked[ACTION]) if ACTION in asked else Action.SCHEDULE
    if action is None:
        raise BadRequest(f"{ACTION} must be cancel or replace, got {_shown(asked[ACTION])}: to schedule, leave it out.")
    id = _id(asked, action) if ID in asked or action is not Action.SCHEDULE else b""
    if action is Action.CANCEL:
        return DelayRequest(action, "", 0, id, others)
    if _KEPT.isdisjoint(asked):
        return DelayRequest(action, _target(asked), _due_ms(asked, timestamp_ms), id, others)
    due_ms = _first_ms(asked, timestamp_ms) if CRON in asked else _due_ms(asked, timestamp_ms)
    flags = _flags(asked, due_ms, id)
    kept = [(name, asked[name]) for name in KEPT if name in asked]
    return DelayRequest(action, _target(asked), due_ms, id, [*others, *kept], flags)


def occurrence_of(headers: Iterable[Header], origin: int) -> tuple[int, int]:
    """The how-manieth of its series a message with these headers is, and at which offset the series began.

    >>> occurrence_of([("delay-occurrence", b"3 17")], 40), occurrence_of([], 17)
    ((3, 17), (1, 17))
    """
    text = dict(headers).get(OCCURRENCE)
    if text is None:
        return 1, origin
    number, began = text.split()
    return int(number), int(began)


def is_ours(name: str) -> bool:
    """Whether a header of that name means something to a relay, or is given by one."""
    return name in _OURS


def expiry_ms(kept: Mapping[str, bytes | None], due_ms: int) -> int | None:
    """The last moment at which a message with these headers is delivered; None if there is none."""
    ends = [int(text) + plus for name, plus in ((EXPIRES, 0), (TTL, due_ms)) if (text := kept.get(name)) is not None]
    return min(ends, default=None)


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
        elif name in asked and name not in _GIVEN_ANEW:
            raise BadRequest(f"the header {name} stands there twice: send it once.")
        else:
            asked[name] = header[1]
    return asked, others


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


def names_a_topic(name: str) -> bool:
    """Whether a topic may have this name."""
    return bool(_TOPIC.fullmatch(name)) and name not in (".", "..")


def is_kafkas_own(topic: str) -> bool:
    """Whether a topic of this name is Kafka's, for groups and transactions: no message is delivered there. A request for it
    is a request all the same (rule 1): it is filed, and settled with its dead letter."""
    return topic.startswith("__")


@lru_cache(1024)
def _topic(name: bytes | None) -> str:
    topic = (name or b"").decode("utf-8", "replace")
    if not names_a_topic(topic):
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


def _first_ms(asked: _Asked, timestamp_ms: int) -> int:
    """When a series occurs first."""
    if DELAY in asked:
        raise BadRequest(f"there are both {CRON} and {DELAY}: the first one says when, or {AT} beside it.")
    after_ms = _number(AT, asked[AT]) if AT in asked else max(0, timestamp_ms)
    try:  # with a time beside it too: the expression must be one before it is needed
        first_ms = next_ms(_words(CRON, asked), _words(ZONE, asked), _due(after_ms))
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if first_ms is None:
        raise BadRequest(f"{CRON} says no time within 50 years: {_shown(asked[CRON])}.")
    return _due(after_ms if AT in asked else first_ms)


def _words(name: str, asked: _Asked) -> str:
    return (asked.get(name, b"UTC" if name == ZONE else None) or b"").decode("utf-8", "replace")


def _flags(asked: _Asked, due_ms: int, id: bytes) -> int:
    """What of KEPT there is, once it is known to be right."""
    for name in (MISSED, ZONE, OCCURRENCE):
        if name in asked and CRON not in asked:
            raise BadRequest(f"there is {name} and no {CRON}: it is for those that recur.")
    if CRON in asked and not id:
        raise BadRequest(f"there is {CRON} and no {ID}: without one the series could not be ended.")
    if asked.get(MISSED, WAYS[0]) not in WAYS:
        raise BadRequest(f"{MISSED} must be once, all or skip, got {_shown(asked[MISSED])}.")
    if EXPIRES in asked and TTL in asked and CRON not in asked:
        raise BadRequest(f"there are both {EXPIRES} and {TTL}: send one of them.")
    for name in (EXPIRES, TTL):
        if name in asked:
            _number(name, asked[name])
    if OCCURRENCE in asked and not _OCCURRENCE.fullmatch(asked[OCCURRENCE] or b""):
        raise BadRequest(f"{OCCURRENCE} is for the relay to write, got {_shown(asked[OCCURRENCE])}: leave it out.")
    if (end_ms := expiry_ms(asked, due_ms)) is not None and end_ms < due_ms:
        raise BadRequest(f"it would expire before it is due: {EXPIRES} is {end_ms}, and it is due at {due_ms}.")
    if end_ms == due_ms and OCCURRENCE not in asked:  # the next one of a series may be due at the end of that
        raise BadRequest(f"it would expire when it is due, at {due_ms}, and is delivered a little later: give it time.")
    flags = ((CRON, Flag.SERIES), (OCCURRENCE, Flag.NEXT), (EXPIRES, Flag.EXPIRES), (TTL, Flag.EXPIRES))
    return sum({flag.value for name, flag in flags if name in asked})


def _number(name: str, text: bytes | None) -> int:
    if text is None or not text.isdigit() or len(text) > 18:
        raise BadRequest(f"{name} must be milliseconds as decimal digits, got {_shown(text)}.")
    return int(text)


def _shown(text: bytes | None) -> str:
    shown = repr(text)[1:] if text is not None else "nothing"
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
