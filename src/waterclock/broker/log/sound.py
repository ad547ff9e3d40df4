"""What of a segment may be handed out: bytes go from the file to the socket, and nobody reads them on the way.

Rule 1: an answer ends before known damage.
Rule 2: where nobody has read the file since the broker's start it ends before the first header that cannot be one, too:
    clients take nonsense there for a length, and wait for ever or end their process. The scrub has read all files some time
    after a start; from then on this costs nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from waterclock.broker.log.batch import FRAME, HEADER, MAGIC, PREFIX

if TYPE_CHECKING:
    from waterclock.broker.log.segment import Segment

LOOKED_AT: Final = (
    1 << 20
)  # bytes whose headers are looked at for one answer: a millisecond or so of the smallest batches
CHUNK: Final = 32 << 10


def sound_bytes(segment: Segment, at: int, size: int) -> int:
    """How many of the `size` bytes from byte `at` on, where a batch starts, may be handed out; LogDamaged if none may."""
    ahead = next((damage for damage in segment.damages if at < damage.upto), None)
    if ahead is not None:
        if ahead.at <= at:
            raise segment.lost(ahead)
        size = min(size, ahead.at - at)
    if at >= segment.unread:
        return size
    found = _sound_headers(segment, at, size)
    if not found:
        raise segment.broken(at)
    return found


def _sound_headers(segment: Segment, at: int, size: int) -> int:
    """The bytes of the batches from byte `at` on with headers that can be ones, of which some LOOKED_AT are looked at."""
    sound, least, unpack = 0, -1, FRAME.unpack_from
    while sound < min(size, LOOKED_AT):
        chunk = os.pread(segment.fd, CHUNK, at + sound)
        here, last, rest = 0, len(chunk) - HEADER, size - sound
        while here <= last and here < rest:
            base, length, _, magic, _, _, delta = unpack(chunk, here)
            after = here + PREFIX + length
            if magic != MAGIC or length < HEADER - PREFIX or after > rest or base < least or delta < 0:
                return sound + here
            here, least = after, base + delta + 1
        if not here:
            break  # the file has no more
        sound += here
    return sound
