"""One level of the reference wheel: a ring of buckets, and above it the overflow wheel. Kafka's TimingWheel.

With tick u, n buckets and a clock c, a level holds what expires in [c + u, c + n*u). What is earlier is due;
what is later goes to the level above, whose tick is n*u. A bucket is found by arithmetic: expiration // u
says which tick it is, and that modulo n which bucket.

Rule 1: current_time is a multiple of the tick, and never later than the wheel's now.
Rule 2: a bucket in use lies within the level's range, so no two ticks ever share a bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush

from waterclock.wheel.bucket import TaskCounter, TimerHandle, TimerTaskList
from waterclock.wheel.statistics import BucketView, LevelView

# A heap of (expiration, level, bucket); no two entries share the first two.
Queue = list[tuple[int, int, TimerTaskList]]


class Level:
    """Kafka's TimingWheel: one ring of buckets, and the coarser ring that takes what lies beyond it."""

    __slots__ = (
        "buckets",
        "counter",
        "current_time",
        "interval",
        "number",
        "overflow",
        "sizes",
        "tick",
        "wheel_size",
    )

    def __init__(self, number: int, tick: int, sizes: tuple[int, ...], start: int, counter: TaskCounter) -> None:
        self.number = number
        self.tick = tick
        self.sizes = sizes
        self.wheel_size = sizes[min(number, len(sizes)) - 1]
        self.interval = tick * self.wheel_size
        self.current_time = start - start % tick
        self.counter = counter
        self.buckets: dict[int, TimerTaskList] = {}
        self.overflow: Level | None = None

    def place(self, timer: TimerHandle, queue: Queue) -> bool:
        """Hang the timer where it belongs, here or above; False when it is due and belongs nowhere."""
        expiration = timer.expiration
        if expiration < self.current_time + self.tick:
            return False
        if expiration >= self.current_time + self.interval:
            return self.overflow_wheel().place(timer, queue)
        position = expiration // self.tick
        bucket = self.bucket(position % self.wheel_size)
        bucket.add(timer)
        if bucket.set_expiration(position * self.tick):
            heappush(queue, (bucket.expiration, self.number, bucket))
        return True

    def bucket(self, place: int) -> TimerTaskList:
        """The bucket there, made on first use: a level of 65,536 costs no more than the buckets it needs."""
        bucket = self.buckets.get(place)
        if bucket is None:
            bucket = self.buckets[place] = TimerTaskList(self.counter, place)
        return bucket

    def overflow_wheel(self) -> Level:
        """The level above, made on first use: tick our interval, clock ours rounded down to that."""
        if self.overflow is None:
            self.overflow = Level(self.number + 1, self.interval, self.sizes, self.current_time, self.counter)
        return self.overflow

    def advance_clock(self, time: int) -> None:
        """Move to `time` rounded down, here and above; a level whose tick has not passed stops the walk."""
        if time < self.current_time + self.tick:
            return
        self.current_time = time - time % self.tick
        if self.overflow is not None:
            self.overflow.advance_clock(self.current_time)

    def view(self) -> LevelView:
        """This level as a record."""
        return LevelView(self.number, self.tick, self.wheel_size, self.interval, self.current_time)

    def bucket_views(self) -> Iterator[BucketView]:
        """The buckets in use, by position."""
        for _, bucket in sorted(self.buckets.items()):
            if bucket:
                start = bucket.expiration
                yield BucketView(self.number, bucket.index, start, (start, start + self.tick), tuple(bucket))
