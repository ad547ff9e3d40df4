"""The request that a record of Kafka's client holds, whatever its headers are.

Rule 1: nothing in a record raises here but `BadRequest`. The client gives none of the headers where a name is not UTF-8: it
        fails, or leaves the error behind for whoever comes next, once Python has made that call a fast one.
"""

from __future__ import annotations

from operator import methodcaller
from typing import Final

from confluent_kafka import Message

from waterclock.relay.wire.request import BadRequest, Header, Request, request_of

_ask: Final = methodcaller("headers")


def headers_of(message: Message) -> list[Header] | None:
    """The headers; None where they cannot be read."""
    try:
        return _ask(message) or []
    except (SystemError, UnicodeDecodeError):
        return None


def request_in(message: Message) -> Request:
    """What the record asks for; `BadRequest` where it is no request."""
    headers = headers_of(message)
    if headers is None:
        raise BadRequest("its headers cannot be read: a name in them is not UTF-8.")
    return request_of(headers, message.timestamp()[1])
