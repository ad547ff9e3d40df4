"""Next occurrences of series that stand further on in the input than it was read: looked for before commands are answered
that wait for the end of the input to be reached, and are too many for that.

Rule 1: the relay writes the next occurrence behind whatever came meanwhile. A command that stands before it, and was not
        read when the occurrence before was delivered, is for it too: answered without it, the series would go on behind a
        cancel, and beside what a replace has put in its place.
Rule 2: nothing is kept of the other records. It is a second reading of what is left, and happens once in a take-over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from waterclock.relay.owner.context import Context
from waterclock.relay.wire.request import OCCURRENCE, BadRequest, Flag, headers_of, occurrence_of, request_in

TOLD_EVERY: Final = 10_000


def next_occurrences(context: Context, number: int, offsets: range) -> Iterator[tuple[bytes, int, int]]:
    """Id, offset, and where the series began, of each next occurrence that a relay wrote into this part of a partition."""
    topic = context.topics.input
    for count, message in enumerate(context.logs.read(topic, number, offsets.start, offsets.stop)):
        offset = message.offset()
        if not count % TOLD_EVERY:
            context.reading(f"{topic}-{number}", offset - offsets.start, len(offsets))
        if any(name == OCCURRENCE for name, _ in headers_of(message) or ()):
            try:
                request = request_in(message)
            except BadRequest:  # a copy too: what it is a copy of was noted when that was read
                continue
            if request.flags & Flag.NEXT:
                yield request.id, offset, occurrence_of(request.headers, offset)[1]
