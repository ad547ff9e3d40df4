"""The timing wheel in plain Python, built the way Apache Kafka builds its own, and under Kafka's names.

Timers by the hundred thousand mostly never run: the answer comes first and the timeout is cancelled. A heap
pays O(log n) for each of them. A wheel pays O(1): time is cut into ticks, and a level is a ring of
`wheel_size` buckets of one tick each. Adding hangs the timer into the bucket of its tick; cancelling unhangs
it; nobody sorts.

    level 1, tick 1     | 0 | 1 | 2 | ... | 19 |         covers [current_time, current_time + 20)
    level 2, tick 20    |   0   |   1   | ... | 19 |      covers 400
    level 3, tick 400   |       0       | ...             made when the first timer needs it

What lies beyond a level goes to its overflow wheel, whose tick is the whole interval of the level below.
When a coarse bucket's time comes it is emptied, and each timer in it goes down to the level where the rest
of its delay fits: 450 of the picture waits in level 3 until 400, in level 2 until 440, in level 1 until 450.

Clocks do not tick through emptiness. A queue holds the BUCKETS in use (not the timers) by expiration, the
start of the bucket's range; `advance` jumps from one to the next and moves the clocks of the levels to it.

Kafka's name            here
SystemTimer             TimingWheel: the queue, the counter, what is due
TimingWheel             Level (bucket.py): tick, wheel_size, interval, current_time, overflow wheel
TimerTaskList           TimerTaskList (bucket.py)
TimerTaskEntry, -Task   TimerHandle (bucket.py)

Promises (d the deadline of a timer, n the `now` handed to `advance`; the rest stands in docs/semantics.md):
    never early         it runs only when d <= n                                            (rounding="late")
    never forgotten     after advance(n) nothing waits whose d, rounded up to the tick, is <= n
    order               by tick, then in the order of adding

Three places where we leave Kafka, each on purpose:
1. Rounding. Kafka's bucket fires at its START, up to a tick early; that is `rounding="early"`. Here a
   deadline is rounded UP to the tick first, so the start of its bucket is never before it; that is
   `rounding="late"`.
2. Order. A timer added early sits in level 2, one added later for the same tick goes straight into level 1,
   and the first comes down behind the second. So timers carry a sequence number, all buckets of one
   expiration are opened together, and what was in them is put into the order of adding before it runs or
   goes down.
3. Idle. Kafka's clocks stand still while nothing expires, and the next short timer then needs several
   levels. Here `advance` ends with all clocks at `now`, and an add on an empty wheel starts from `now`.

Already due when added (d <= now)? It counts as of the tick of `now`: the next `advance` runs it, after all
that was due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop
from operator import attrgetter, index
from typing import Any, Literal
from weakref import ref

from waterclock.wheel.bounds import MAX_NOW, MAX_TICK, MAX_TIME, sizes_of, whole
from waterclock.wheel.bucket import Callback, Level, Queue, TaskCounter, TimerHandle, TimerTaskList
from waterclock.wheel.occupancy import Occupancy, laid_out
from waterclock.wheel.pictures import NotCopied, of_wheel
from waterclock.wheel.statistics import WheelSnapshot, WheelStatistics

__all__ = ["TimerHandle", "TimingWheel"]


class TimingWheel(NotCopied):
    """Timers by tick; no clock, no thread, no lock: time comes in through `advance`.

    tick: the grain of time, 1 .. 2**61, in any unit the caller likes; start: the time it begins at, in that
    unit. slots: buckets a level, 2 .. 65,536; a tuple gives each level its own size, the finest level first,
    and its last size is that of all levels above, too. rounding: "late" (never early) or "early" (Kafka's: up to
    a tick early).

    >>> wheel = TimingWheel(tick=10)
    >>> timer = wheel.add(25, lambda: print("ran at", wheel.now))
    >>> wheel.next_deadline(), wheel.advance(29), wheel.advance(30)
    ran at 30
    (30, 0, 1)
    """

    def __init__(
        self,
        tick: int = 1,
        start: int = 0,
        *,
        slots: int | tuple[int, ...] = 256,
        rounding: Literal["late", "early"] = "late",
    ) -> None:
        if rounding not in ("late", "early"):
            raise ValueError(f"rounding must be 'late' or 'early', got {rounding!r}")
        self._me: ref[Any] = ref(self)  # what its timers know of it: they do not keep it alive
        self._tick = whole("tick", tick, 1, MAX_TICK)
        self._now = whole("start", start, -MAX_TIME, MAX_TIME)
        self._late = rounding == "late"
        self._counter = TaskCounter()
        self._queue: Queue = []
        self._due = TimerTaskList(self._counter)  # of the tick the clock stands at; run before any bucket is opened
        self._bottom = Level(1, self._tick, sizes_of(slots), self._now, self._counter)
        # for occupancy() only; `_open`: timers of the running one's tick may wait
        self._base = self._reached = self._now
        self._open = self._advancing = False
        self._reschedule: Callable[[TimerHandle, Any], bool] | None = None  # a driver's, with a unit of its own
        self._returned: Callable[[Any], object] = id  # a driver's, for what a callback returned
        self._added = self._fired = self._cancelled = self._cascaded = self._opened = self._sequence = 0

    @property
    def now(self) -> int:
        """The latest `now` handed to `advance`, or `start`; inside a callback already the new one."""
        return self._now

    def __len__(self) -> int:
        """How many timers wait."""
        return self._counter.value

    def add(self, delay: int, callback: Callback, /, *argument: Any) -> TimerHandle:
        """Run `callback()`, or `callback(argument)` where one is given, once `delay` has passed since `now`.

        Zero or less means at the next `advance`. `ValueError` when the deadline lies beyond 2**62, `TypeError`
        for a delay that is no whole number.

        >>> TimingWheel(start=100).add(5, print).deadline
        105
        """
        return self.add_at(self._now + index(delay), callback, *argument)

    def add_at(self, deadline: int, callback: Callback, /, *argument: Any) -> TimerHandle:
        """As `add`, at `deadline`; at the next `advance` when that has passed."""
        deadline = whole("deadline", deadline, -MAX_TIME, MAX_TIME)
        if len(argument) > 1:
            raise TypeError(f"add takes one argument for the callback at most, got {len(argument)}")
        if not callable(callback):
            raise TypeError(f"callback must be callable, got {callback!r}")
        timer = TimerHandle(self._me, callback, *argument)
        self._schedule(timer, deadline)
        self._added += 1
        return timer

    def advance(self, now: int, limit: int | None = None) -> int:
        """Run every timer due at `now`, in order, but at most `limit`; returns how many ran.

        What `limit` holds back stays due and runs first at the next `advance`. A `now` before the wheel's
        does nothing. Callbacks may add, cancel and reschedule; `advance` from inside one raises
        `RuntimeError`. Exceptions of callbacks are raised together as one `ExceptionGroup` after the others
        ran; what is no `Exception` (KeyboardInterrupt) stops at once, the rest stays pending, and earlier
        failures are its cause.

        >>> wheel = TimingWheel()
        >>> _ = wheel.add(2, lambda: print("second")), wheel.add(1, lambda: print("first"))
        >>> wheel.advance(10)
        first
        second
        2
        """
        now = whole("now", now, -MAX_NOW, MAX_NOW)
        budget = -1 if limit is None else whole("limit", limit, 0, MAX_NOW)
        if self._advancing:
            raise RuntimeError("advance() called while advance() runs: from a callback add timers, or cancel them")
        if now < self._now:
            return 0
        self._now = now
        self._advancing = True
        errors: list[Exception] = []
        try:
            ran = self._turn(budget, errors)
        except BaseException as stop:
            if errors:
                raise stop from _group(errors)
            raise
        finally:
            self._advancing = self._open = False
        if errors:
            raise _group(errors)
        return ran

    def clear(self) -> list[TimerHandle]:
        """Cancel everything that waits; the handles, by deadline. Allowed inside a callback.

        >>> wheel = TimingWheel()
        >>> timer = wheel.add(5, print)
        >>> wheel.clear() == [timer], timer.cancelled(), len(wheel)
        (True, True, 0)
        """
        handles = [timer for bucket in self._buckets() for timer in bucket]
        return [timer for timer in sorted(handles, key=attrgetter("deadline")) if timer.cancel()]

    def next_deadline(self) -> int | None:
        """The least `now` for which `advance(now)` runs a callback; None when nothing waits.

        That is the tick of the earliest waiting timer: its deadline rounded to the tick, or the present
        `now` when it is already due. It is exact, not a bound: a driver that sleeps until then wakes for a
        callback every time. Cost: one look through the first buckets of the queue, never through all timers.

        >>> wheel = TimingWheel(tick=10, start=3)
        >>> _ = wheel.add(40, print)
        >>> wheel.next_deadline()
        50
        """
        if not self._counter.value:
            return None
        if self._due:
            return self._now
        earliest = self._earliest()
        return max(self._now, earliest - earliest % self._tick)

    def statistics(self) -> WheelStatistics:
        """Counts since the start, as one frozen record."""
        return WheelStatistics(
            now=self._now,
            pending=self._counter.value,
            added=self._added,
            fired=self._fired,
            cancelled=self._cancelled,
            cascaded=self._cascaded,
            opened=self._opened,
            levels=sum(1 for _ in self._levels()),
            buckets=sum(bool(bucket) for level in self._levels() for bucket in level.buckets.values()),
        )

    def occupancy(self) -> Occupancy:
        """How many timers wait in each bucket of the compiled wheel, which is why it counts them one by one.

        One mapping a level, the finest first: occupancy.py. `snapshot()` is the picture of this wheel itself.

        >>> wheel = TimingWheel(slots=20)
        >>> _ = wheel.add(350, print), wheel.add(3, print), wheel.add(3, print)
        >>> wheel.occupancy()
        ({3: 2}, {17: 1})
        """
        waiting = (timer.expiration for bucket in self._buckets() for timer in bucket)
        return laid_out(map(self._since_base, waiting), self._since_base(self._reached), self._bottom.sizes)

    def snapshot(self) -> WheelSnapshot:
        """The whole wheel at this moment: levels, buckets in use, the queue; for pictures and for learning.

        >>> wheel = TimingWheel(slots=20)
        >>> _ = wheel.add(350, print)
        >>> [(bucket.level, bucket.bucket, bucket.range) for bucket in wheel.snapshot().buckets]
        [(2, 17, (340, 360))]
        """
        buckets = tuple(view for level in self._levels() for view in level.bucket_views())
        return WheelSnapshot(
            now=self._now,
            levels=tuple(level.view() for level in self._levels()),
            buckets=buckets,
            queue=tuple(sorted(buckets, key=attrgetter("expiration", "level"))),
            due=tuple(self._due),
        )

    def __repr__(self) -> str:
        return of_wheel(self)

    def __del__(self) -> None:
        for bucket in self._buckets() if hasattr(self, "_bottom") else ():
            for timer in bucket:
                timer.take()

    # What timers ask of their wheel

    def _cancel(self, timer: TimerHandle) -> None:
        self._cancelled += 1
        timer.take()

    def _after(self, delay: int) -> int:
        return whole("deadline", self._now + index(delay), -MAX_TIME, MAX_TIME)

    def _move(self, timer: TimerHandle, deadline: int) -> bool:
        """As `reschedule`, to a deadline; drivers ask for it, too."""
        deadline = whole("deadline", deadline, -MAX_TIME, MAX_TIME)
        if timer._bucket is None or timer._wheel is not self._me:
            return False
        self._schedule(timer, deadline)
        return True

    # Placing

    def _schedule(self, timer: TimerHandle, deadline: int) -> None:
        if not self._counter.value:  # nothing waits: forget buckets that cancels emptied, and bring the clocks to now
            for _, _, bucket in self._queue:
                bucket.leave_queue()
            self._queue.clear()
            self._bottom.advance_clock(self._now)
            if not self._open:
                self._base = self._reached = self._now
        timer.deadline = deadline
        if deadline <= self._now:
            timer.expiration = self._now - self._now % self._tick
        else:
            timer.expiration = deadline + -deadline % self._tick if self._late else deadline
        timer.sequence = self._sequence
        self._sequence += 1
        self._place(timer)

    def _place(self, timer: TimerHandle) -> None:
        if not self._bottom.place(timer, self._queue):
            self._due.add(timer)

    # Turning

    def _turn(self, budget: int, errors: list[Exception]) -> int:
        ran = 0
        while True:
            ran += self._run_due(budget - ran, errors)
            if self._due:
                return ran  # the limit; the clocks stay with what is left
            if not self._queue or self._queue[0][0] > self._now:
                break
            self._open_next()
        self._bottom.advance_clock(self._now)
        if ran != budget:
            self._reached = self._now
        return ran

    def _run_due(self, budget: int, errors: list[Exception]) -> int:
        """Run what is due, first come first; callbacks may add to it. A negative budget has no end."""
        ran = 0
        while self._due and ran != budget:
            timer = self._due.first
            callback, arguments = timer.take()
            self._open = self._counter.value > 0
            self._reached = timer.expiration if self._open else self._now
            ran += 1
            self._fired += 1
            try:
                self._returned(callback(*arguments))
            except Exception as error:
                errors.append(error)
        return ran

    def _open_next(self) -> None:
        """Open all buckets of the next expiration as one; in order of adding, timers go down or are due."""
        expiration = self._queue[0][0]
        timers: list[TimerHandle] = []
        while self._queue and self._queue[0][0] == expiration:
            bucket = heappop(self._queue)[2]
            self._opened += bool(bucket)
            timers += bucket.flush()
        self._bottom.advance_clock(expiration)
        for timer in sorted(timers, key=attrgetter("sequence")):  # runs of sorted ones: linear
            self._place(timer)
            self._cascaded += timer._bucket is not self._due

    # Looking

    def _buckets(self) -> Iterator[TimerTaskList]:
        """Where timers may hang."""
        yield self._due
        for level in self._levels():
            yield from level.buckets.values()

    def _since_base(self, time: int) -> int:
        """Ticks from the tick of the base to that of a time."""
        return time // self._tick - self._base // self._tick

    def _levels(self) -> Iterator[Level]:
        level: Level | None = self._bottom
        while level is not None:
            yield level
            level = level.overflow

    def _earliest(self) -> int:
        """The least expiration of a timer: down the heap while a bucket could still hold an earlier one."""
        best = MAX_NOW
        places = [0]
        while places:
            place = places.pop()
            if place >= len(self._queue) or self._queue[place][0] >= best:
                continue
            expirations = (timer.expiration for timer in self._queue[place][2])
            best = min(best, min(expirations, default=best))
            places += (2 * place + 2, 2 * place + 1)
        return best

    def _check(self) -> None:
        """Raise AssertionError when a rule of the structure is broken; for tests, O(timers + buckets)."""
        queued = {(expiration, level) for expiration, level, _ in self._queue}
        assert len(queued) == len(self._queue), "a bucket is queued twice"
        found = len(list(self._due))
        for level in self._levels():
            assert level.current_time % level.tick == 0
            assert level.current_time <= self._now
            for view in level.bucket_views():
                assert (view.expiration, view.level) in queued, "a bucket in use is not queued"
                assert level.current_time < view.expiration < sum(level.view().range[1:]), "a bucket out of range"
                found += len(view.tasks)
                for timer in view.tasks:
                    assert view.range[0] <= timer.expiration < view.range[1], "a timer in a wrong bucket"
                    assert timer._callback is not None, "a waiting timer without a callback"
        assert found == self._counter.value, "a timer waits uncounted, or is counted and does not wait"
        assert found == self._added - self._fired - self._cancelled, "a timer lost or doubled"


def _group(errors: list[Exception]) -> ExceptionGroup[Exception]:
    return ExceptionGroup("callbacks of timers failed", errors)
