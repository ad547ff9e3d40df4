"""Known damage of a segment: bytes in which no whole batch stands, and the offsets that are lost with them.

Rule 1: an offset that is lost is an error for who asks for it; every other offset of the segment is read as ever.
Rule 2: nothing is mended, cut or skipped: a reader goes past lost offsets where its program tells it to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


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
