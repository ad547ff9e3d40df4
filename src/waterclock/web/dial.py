"""A live wheel as the console draws it: how many timers wait in each bucket, and what a bucket of each level spans.

    {"tick_ms": 1.0, "levels": [{"3": 2}, {"17": 1}], "size": 256}

A bucket in use lies ahead of the hand of its level. So the hand's next stop is the first one in use, whatever the tick is
that the wheel has reached: the record need not have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SIZE: Final = 256  # buckets of a level, of every wheel that a Timer, a broker or a relay turns


@dataclass(frozen=True, slots=True)
class Dial:
    """A wheel at one moment: `levels` as its `occupancy()` has them, the finest first."""

    tick_ms: float
    levels: Sequence[Mapping[int, int]]
    size: int = SIZE


def dial_of(timer: Any) -> Dial:
    """That of a `Timer` or an `AsyncTimer`.

    >>> from waterclock import ManualClock, Timer
    >>> timer = Timer(clock=ManualClock())
    >>> handle = timer.call_later(0.3, print)
    >>> dial_of(timer)
    Dial(tick_ms=1.0, levels=({}, {1: 1}), size=256)
    """
    return Dial(timer.tick_s * 1000, timer.occupancy())
