"""The buckets of the reference wheel, the timers that hang in them, and the levels that the buckets are in.

A bucket is Kafka's TimerTaskList: a ring of doubly linked timers around a sentinel, so that taking one out
of the middle (a cancel) costs the same as taking the first. A timer is Kafka's TimerTask and TimerTaskEntry
in one: it hangs in at most one bucket, and that is all its state.

    waiting    hangs in a bucket, has a callback
    over       hangs nowhere, its callback and argument let go: it ran, was cancelled, or its wheel is gone

A level is Kafka's TimingWheel: a ring of buckets, and above it the overflow wheel. With tick u, n buckets and a clock c, it
holds what expires in [c + u, c + n*u). What is earlier is due; what is later goes to the level above, whose tick is n*u. A
bucket is found by arithmetic: expiration // u says which tick it is, and that modulo n which bucket.

Rule 1: only `add` and `remove` of a bucket touch links and the count; what hangs in a bucket is counted,
nothing else is.
Rule 2: whoever leaves for good lets go of its callback at once.
Rule 3: a timer does not keep its wheel alive; a wheel that goes ends its timers.
Rule 4: a level's current_time is a multiple of its tick, and never later than the wheel's now.
Rule 5: a bucket in use lies within the level's range, so no two ticks ever share a bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappush
from typing import Any, Protocol
from weakref import ref

from waterclock.wheel.pictures import NotCopied, of_handle
from waterclock.wheel.statistics import BucketView, LevelView

Callback = Callable[..., Any]


class Wheel(Protocol):
    """What a timer asks of its wheel."""

    _reschedule: Callable[[TimerHandle, Any], bool] | None

    def _cancel(self, timer: TimerHandle) -> None: ...
    def _after(self, delay: int) -> int: ...
    def _move(self, timer: TimerHandle, deadline: int) -> bool: ...


class TaskCounter:
    """How many timers wait, shared by all buckets of all levels of one wheel."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class TimerHandle(NotCopied):
    """The handle of one waiting callback; made by `TimingWheel.add` and `add_at` only.

    `deadline` is what was asked for, in the caller's unit; `expiration` is what the wheel goes by (rounded).

    >>> from waterclock.wheel.reference import TimingWheel
    >>> wheel = TimingWheel()
    >>> timer = wheel.add(5, print)
    >>> timer.pending, timer.deadline, timer.cancel(), timer.cancel()
    (True, 5, True, False)
    """

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_bucket",
        "_callback",
        "_cancelled",
        "_next",
        "_previous",
        "_wheel",
        "deadline",
        "expiration",
        "sequence",
    )

    def __init__(self, wheel: ref[Wheel] | None, callback: Callback | None, *arguments: Any) -> None:
        self._wheel = wheel
        self._callback = callback
        self._arguments = arguments
        self._cancelled = False
        self._bucket: TimerTaskList | None = None
        self._next = self._previous = self
        self.deadline = self.expiration = self.sequence = 0

    @property
    def pending(self) -> bool:
        """Whether it still waits: neither run nor cancelled. False inside its own callback."""
        return self._bucket is not None

    def cancel(self) -> bool:
        """Take it out in O(1). True once, and then it never runs; else False: it ran or was cancelled."""
        wheel = self._around()
        if wheel is None:
            return False
        wheel._cancel(self)
        self._cancelled = True
        return True

    def cancelled(self) -> bool:
        """Whether it was cancelled; False while it waits and after it ran."""
        return self._cancelled

    def when(self) -> float:
        """The deadline in seconds, for a wheel that counts nanoseconds, as the drivers' do."""
        return self.deadline / 1e9

    def reschedule(self, delay: int, /) -> bool:
        """Move it to `delay` from the wheel's now, behind timers already added for that tick.

        Returns False, and does nothing, when it ran or was cancelled. `ValueError` for a deadline beyond
        2**62 leaves it where it was. Where a driver turns the wheel, `delay` is in the driver's unit, from its
        own now.
        """
        wheel = self._around()
        if wheel is None:
            return False
        if wheel._reschedule is not None:
            return wheel._reschedule(self, delay)
        return wheel._move(self, wheel._after(delay))

    def __repr__(self) -> str:
        wheel = self._around()
        return of_handle(self, self._callback, wheel is not None and wheel._reschedule is not None)

    def _around(self) -> Wheel | None:
        """The wheel it waits in, or None."""
        return None if self._bucket is None or self._wheel is None else self._wheel()

    def take(self) -> tuple[Callback, tuple[Any, ...]]:
        """Leave the bucket for good and hand over what to call; the timer keeps nothing alive after that."""
        assert self._bucket is not None, "only a waiting timer can be taken"
        assert self._callback is not None
        call = self._callback, self._arguments
        self._bucket.remove(self)
        self._callback = self._wheel = None
        self._arguments = ()
        self._next = self._previous = _OVER  # no ring of one, which only the collector would free
        return call


_OVER = TimerHandle(None, None)


class TimerTaskList:
    """A ring of timers around a sentinel; `expiration` is the start of its range, -1 unless queued."""

    __slots__ = ("_counter", "_root", "expiration", "index", "queued")

    def __init__(self, counter: TaskCounter, index: int = 0) -> None:
        self._counter = counter
        self._root = TimerHandle(None, None)
        self.index = index
        self.queued = False  # -1 alone cannot say it: expiration -1 is a moment for a wheel that starts below zero
        self.expiration = -1

    def __iter__(self) -> Iterator[TimerHandle]:
        """The timers in the order they came in; taking out the one just given is allowed."""
        timer = self._root._next
        while timer is not self._root:
            following = timer._next
            yield timer
            timer = following

    def __bool__(self) -> bool:
        return self._root._next is not self._root

    @property
    def first(self) -> TimerHandle:
        """The timer that came in first; the bucket must not be empty."""
        return self._root._next

    def set_expiration(self, expiration: int) -> bool:
        """Say when it expires; True when that is news, and it then has to be queued."""
        if self.queued and self.expiration == expiration:
            return False
        self.expiration = expiration
        self.queued = True
        return True

    def leave_queue(self) -> None:
        """It is not in the queue any more; the next timer in it queues it again."""
        self.expiration = -1
        self.queued = False

    def add(self, timer: TimerHandle) -> None:
        """Hang it in last; a timer that hangs in another bucket moves."""
        if timer._bucket is not None:
            timer._bucket.remove(timer)
        last = self._root._previous
        timer._previous, timer._next = last, self._root
        last._next = self._root._previous = timer
        timer._bucket = self
        self._counter.value += 1

    def remove(self, timer: TimerHandle) -> None:
        """Unhang it; a timer of another bucket, or of none, is left alone."""
        if timer._bucket is not self:
            return
        timer._previous._next = timer._next
        timer._next._previous = timer._previous
        timer._next = timer._previous = timer
        timer._bucket = None
        self._counter.value -= 1

    def flush(self) -> list[TimerHandle]:
        """Empty it for a new turn: everything in it, in the order it came in; no longer queued."""
        timers = list(self)
        for timer in timers:
            self.remove(timer)
        self.leave_queue()
        return timers


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
