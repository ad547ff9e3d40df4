"""What a wheel shows of itself: frozen records, the only thing a console or a picture may read.

Rule 1: a record is a copy; nothing in it changes when the wheel moves on.
Rule 2: every time is in the caller's unit, as handed to the wheel; levels count from 1, buckets from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waterclock.wheel.bucket import TimerHandle


@dataclass(frozen=True, slots=True)
class WheelStatistics:
    """Counts since the wheel was made; `statistics()` of both wheels returns it.

    `cascaded`, `opened`, `levels` and `buckets` are about how a wheel works and differ between the two.

    >>> from waterclock.wheel.reference import TimingWheel
    >>> TimingWheel(start=7).statistics().now
    7
    """

    now: int  # the last `now` of advance, or start
    pending: int  # timers waiting; added = pending + fired + cancelled
    added: int
    fired: int  # callbacks run, failing ones included
    cancelled: int
    cascaded: int  # moves of a timer to a lower level
    opened: int  # non-empty buckets taken by advance
    levels: int  # reference: levels made; compiled: highest level in use
    buckets: int  # buckets that hold a timer, the one of the already due not among them


@dataclass(frozen=True, slots=True)
class LevelView:
    """One level: `wheel_size` buckets of `tick` each, covering [current_time, current_time + interval)."""

    level: int
    tick: int
    wheel_size: int
    interval: int
    current_time: int

    @property
    def range(self) -> tuple[int, int]:
        """Start (included) and end (excluded) of what this level can hold now.

        >>> LevelView(level=1, tick=10, wheel_size=6, interval=60, current_time=120).range
        (120, 180)
        """
        return self.current_time, self.current_time + self.interval


@dataclass(frozen=True, slots=True)
class BucketView:
    """One bucket in use; `tasks` are the handles in it, in the order they came into the bucket."""

    level: int
    bucket: int
    expiration: int
    range: tuple[int, int]
    tasks: tuple[TimerHandle, ...]


@dataclass(frozen=True, slots=True)
class WheelSnapshot:
    """The whole reference wheel at one moment; `queue` is every bucket in use by expiration, then level."""

    now: int
    levels: tuple[LevelView, ...]
    buckets: tuple[BucketView, ...]
    queue: tuple[BucketView, ...]
    due: tuple[TimerHandle, ...]  # not in a level any more: the next advance runs them
