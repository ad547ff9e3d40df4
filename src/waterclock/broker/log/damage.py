"""Bytes of a segment in which no whole batch stands, as far as they are known, and what readers get beside them.

Rule 1: an offset that is lost is an error for who asks for it; every other offset of the segment is read as ever.
Rule 2: nothing is mended, cut or skipped here: a reader goes past lost offsets where its program tells it to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from waterclock.broker.log.batch import FRAME, HEADER, PREFIX

if TYPE_CHECKING:
    from waterclock.broker.log.segment import Segment

LOOKED_AT: Final = (
    1 << 20
)  # bytes whose headers are looked at for one answer: a few milliseconds of the smallest batches
CHUNK: Final = 32 << 10
MAGIC: Final = 2


class Damage(NamedTuple):
    """From byte `at` to before byte `upto` there is no whole batch; offsets from `first` to before `end` are lost there."""

    at: int
    upto: int
    first: int
    end: int


def begin_beyond(damages: Iterable[Damage], at: int, offset: int) -> int:
    """Where a walk to `offset` begins that would begin at byte `at`: behind all damage before that offset."""
    return max(at, *(damage.upto for damage in damages if damage.end <= offset), 0)


def lost_with(damages: Iterable[Damage], offset: int) -> Damage | None:
    """The damage that the batch with `offset` was lost with; None if it is there."""
    return next((damage for damage in damages if damage.first <= offset < damage.end), None)


def sound_bytes(segment: Segment, at: int, size: int) -> int:
    """How many of the `size` bytes from byte `at` on, where a batch starts, may be handed out; LogDamaged if none may.

    They end before the damage that is known. Where nobody has read the file since the broker's start they end before the
    first header that cannot be one: a client takes nonsense there for a length, and waits for ever or ends its process.
    """
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
