"""What of a segment may be handed out: bytes go from the file to the socket, and nobody reads them on the way.

Rule 1: an answer ends before known damage.
Rule 2: if nobody has read the file since the broker's start, it ends before the first batch that is not whole, too, and is
    no longer than what was looked at: clients take nonsense for a length or a record, and wait for ever or end their
    process. The scrub has read all files some time after a start; from then on this costs nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from waterclock.broker.log.batch import FRAME, HEADER, PREFIX
from waterclock.broker.log.scrubbing import is_whole

if TYPE_CHECKING:
    from waterclock.broker.log.segment import Segment

LOOKED_AT: Final = 1 << 20
"""Bytes of one answer, or its first batch if that is longer: at most some ten milliseconds, with the smallest batches."""


def sound_bytes(segment: Segment, at: int, size: int) -> int:
    """How many of the `size` bytes from byte `at` on, where a batch starts, may be handed out; LogDamaged if none may."""
    ahead = next((damage for damage in segment.damages if at < damage.upto), None)
    if ahead is not None:
        if ahead.at <= at:
            raise segment.lost(ahead)
        size = min(size, ahead.at - at)
    if at >= segment.unread:
        return size
    found = _whole_batches(segment.fd, at, size)
    if not found:
        raise segment.broken(at)
    return found


def _whole_batches(fd: int, at: int, size: int) -> int:
    """The bytes of the whole batches in order that stand at byte `at`: of the first one, and of LOOKED_AT bytes."""
    sound, least = 0, -1
    data = memoryview(os.pread(fd, min(size, LOOKED_AT), at))
    if len(data) >= HEADER and len(data) < (first := PREFIX + FRAME.unpack_from(data)[1]) <= size:
        data = memoryview(os.pread(fd, first, at))
    while is_whole(data, sound):
        base, length, _, _, _, _, delta = FRAME.unpack_from(data, sound)
        if base < least:
            break
        sound, least = sound + PREFIX + length, base + delta + 1
    return sound
