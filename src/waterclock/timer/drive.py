"""What both drivers share: a timing wheel of nanoseconds, turned by a clock. Knows no thread and no loop.

A driver sleeps until the earliest tick in its wheel, runs what is due, and sleeps again. How it sleeps is the
driver's: thread.py waits on a lock, loop.py leaves one `call_at` with the event loop. Under a ManualClock nothing
sleeps: `advance` turns the clock from tick to tick and runs the very same `_turn`.

Adding is the path that has to be short (adding.py): the callback is put into the wheel, and then one number is compared,
`_alarm_ns`:

    a deadline below it     the driver may have to be woken: `_look`
    NEVER                   every deadline is below it: the driver is about to sleep, or is closed
    AWAKE                   no deadline is below it: the driver is awake and looks into the wheel before it sleeps

Rule 1: who goes to sleep sets the alarm to NEVER first, then looks into the wheel, then sets it to what it sleeps for.
    Between the first and the second a timer may come in: it is seen by the look, or it finds NEVER and looks itself.
Rule 2: after close the alarm is NEVER for good. So an add that crossed the close looks, finds the driver closed,
    and takes its timer back, or finds it taken by the close.
Rule 3: `lock` is held to change the alarm, never while a callback runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVarTuple
from weakref import ref

from waterclock.clock import Clock, ManualClock, SystemClock
from waterclock.errors import TimerClosed
from waterclock.timer.awaited import Taker, is_asynchronous, refused
from waterclock.timer.cap import Cap, WhenFull
from waterclock.timer.driver import Handle
from waterclock.timer.forking import make_new_in_child
from waterclock.timer.locked import LockedWheel
from waterclock.timer.memory import Tidier
from waterclock.timer.periodic import NEXT_BEAT, Jitter, Missed, PeriodicHandle
from waterclock.timer.report import Report
from waterclock.timer.statistics import Histogram, TimerStatistics
from waterclock.timer.tick_runner import Offload, Stopwatch, TickRunner
from waterclock.timer.units import nanoseconds
from waterclock.wheel import tell_when_spare
from waterclock.wheel.occupancy import Occupancy
from waterclock.wheel.pictures import not_copied

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from waterclock.timer.adding import Adder as Adder
    from waterclock.timer.adding import Touch as Touch
    from waterclock.timer.adding import WayBack
    from waterclock.timer.driver import Driver
else:  # the short path, compiled if it was built, else plain: adding.py says what both do
    try:
        from waterclock.timer._adding import Adder, Touch, WayBack
    except ImportError:
        from waterclock.timer.adding import Adder, Touch, WayBack  # noqa: F401

Ts = TypeVarTuple("Ts")

NEVER = 2**63 - 1  # the largest number that fits 64 bits; no deadline is as late
AWAKE = -(2**63)


class Drive(Adder, TickRunner):
    """What `Timer` and `AsyncTimer` have in common; not for use by itself."""

    lock: AbstractContextManager[Any]
    returned: Taker

    def __init__(
        self,
        tick_s: float,
        clock: Clock | None,
        executor: Executor | None,
        report: Report,
        max_pending: int | None,
        when_full: WhenFull,
    ) -> None:
        self._tick_ns = nanoseconds("tick_s", tick_s, least=1)
        self._clock = clock if clock is not None else SystemClock()
        self._manual = self._clock if isinstance(self._clock, ManualClock) else None
        self._stopwatch = Stopwatch(self._clock)
        self.now_ns = self._stopwatch.now_ns
        self.report = report
        self._histogram = Histogram()
        self._offload = (
            None if executor is None else Offload(executor, report, self.returned, self._histogram, self._stopwatch)
        )
        if when_full not in ("raise", "block", "run"):
            raise ValueError(f"when_full must be 'raise', 'block' or 'run', got {when_full!r}")
        if max_pending is not None and (not isinstance(max_pending, int) or max_pending < 1):
            raise ValueError(f"max_pending must be a whole number from 1, or None, got {max_pending!r}")
        self._most = max_pending
        self._when_full: WhenFull = when_full
        self._wakeups = 0
        self._closed = False
        self._start_empty()
        make_new_in_child(self)

    def _start_empty(self) -> None:
        """A new wheel with nothing in it: at the start, and in a forked child."""
        self._wheel = self._make_wheel(self._tick_ns, self.now_ns())
        self._wheel._reschedule = WayBack(ref(self)).reschedule
        self._wheel._returned = self.returned.take
        self._cap = None
        self._add: Callable[..., Handle] = self._wheel.add_at  # on the wheel, never on self: a driver is no cycle
        if self._offload is not None:
            self._add = self._offload.before(self._add)
        if self._most is not None:
            self._cap = Cap(self._wheel, self._add, self._most, self._when_full, self.report, self.returned)
            self._add = self._cap.add
        self.periodic: set[PeriodicHandle] = set()
        self._fired = 0
        self._slice = 1
        self._alarm_ns = NEVER
        self._set_alarm(NEVER)

    # What a driver is

    def _make_wheel(self, tick_ns: int, start_ns: int) -> Any:
        raise NotImplementedError

    def _hasten(self) -> None:
        """Under the lock: what the driver sleeps for is no longer the first thing to do."""
        raise NotImplementedError

    def _hang_up(self) -> None:
        """Under the lock: the driver is closed."""
        raise NotImplementedError

    # Adding: adding.py

    def every(
        self,
        interval_s: float,
        fn: Callable[[*Ts], object],
        /,
        *args: *Ts,
        missed: Missed = "skip",
        jitter: Jitter = 0.0,
    ) -> Handle:
        """Call `fn(*args)` every `interval_s` seconds, the first time after one interval; `cancel()` ends it.

        missed: what to do when a call ends after the next was due. "skip" leaves out what was missed and stays on the
        beat, "burst" makes up for each, "delay" counts anew from the end of the late call. An error in a call is
        reported, and the beat goes on. jitter: by how many seconds each call is put off, drawn evenly from 0 to it, or
        given by a function; the beat stays. `ValueError` for an interval under a nanosecond, another `missed`, or a jitter
        beyond the interval. `max_pending` does not refuse it. Of a coroutine function of an `AsyncTimer` a call ends with
        its task.

        >>> from waterclock import ManualClock, Timer
        >>> timer = Timer(clock=ManualClock())
        >>> handle = timer.every(10, print, "tick")
        >>> timer.advance(25), handle.when(), handle.cancel()
        tick
        tick
        (2, 30.0, True)
        """
        if missed not in tuple(NEXT_BEAT):
            raise ValueError(f"missed must be 'skip', 'burst' or 'delay', got {missed!r}")
        self.check(fn)
        return PeriodicHandle(self, nanoseconds("interval_s", interval_s, least=1), missed, jitter, fn, args)

    def check(self, fn: Any, name: str = "callback") -> None:
        """`TypeError` for what cannot be called here, or would never run."""
        if not callable(fn):
            raise TypeError(f"{name} must be callable, got {fn!r}")
        if self._refuses_asynchronous and is_asynchronous(fn):
            raise refused(fn)

    def _look(self, handle: Handle, deadline: int) -> None:
        """A timer was added that the driver may not know of."""
        with self.lock:
            if self._closed:
                if handle.cancel():
                    raise TimerClosed("the timer was closed and takes no callback any more: make a new one")
            elif deadline < self._alarm_ns:
                try:
                    self._hasten()
                except BaseException:
                    handle.cancel()  # the caller gets no handle, so nothing of it may stay behind
                    raise

    def _set_alarm(self, alarm_ns: int) -> None:
        """Under the lock. No driver sleeps for a manual clock, nor in a pause; a closed one looks at every timer."""
        if self._closed:
            self._alarm_ns = NEVER
        elif self._manual is not None or self._stopwatch.paused:
            self._alarm_ns = AWAKE
        else:
            self._alarm_ns = alarm_ns

    def _set_alarm_for(self, due_ns: int | None) -> None:
        """Under the lock: the driver sleeps for this tick. Only an earlier tick is news, not an earlier nanosecond."""
        self._set_alarm(NEVER if due_ns is None else due_ns - self._tick_ns + 1)

    # Pausing, closing, looking

    def pause(self) -> None:
        """Let time stand still: everything that waits keeps its remaining time, also what is added meanwhile.

        A tick that is being run is run to its end. Twice is once.
        """
        with self.lock:
            self._stopwatch.pause()
            self.now_ns = self._stopwatch.now_ns
            self._set_alarm(AWAKE)

    def resume(self) -> None:
        """Let time go on from where it stood; without a pause nothing happens.

        >>> from waterclock import ManualClock, Timer
        >>> timer = Timer(clock=ManualClock())
        >>> handle = timer.call_later(10, print, "after ten seconds of its time")
        >>> timer.pause(), timer.advance(60), timer.resume(), timer.advance(9), timer.advance(1)
        after ten seconds of its time
        (None, 0, None, 0, 1)
        """
        with self.lock:
            if not self._stopwatch.resume():
                return
            self.now_ns = self._stopwatch.now_ns
            self._set_alarm(NEVER)
            if self._manual is None and len(self._wheel) and not self._closed:
                self._hasten()

    def close(self) -> list[Handle]:
        """End the driver: what waited never runs and comes back, in no promised order; every add raises `TimerClosed`.

        A callback that runs already is not waited for. Closing again gives an empty list.

        >>> from waterclock import ManualClock, Timer
        >>> timer = Timer(clock=ManualClock())
        >>> handle = timer.call_later(10, print)
        >>> timer.close() == [handle], handle.cancelled(), timer.close()
        (True, True, [])
        """
        with self.lock:
            self._closed = True
            self._set_alarm(NEVER)
            periodic, self.periodic = self.periodic, set()
            beats = {handle.end() for handle in periodic}
            handles = [handle for handle in self._wheel.clear() if handle not in beats]
            if self._cap is not None:
                handles = self._cap.handles_of(handles)
            self._hang_up()
        self.left()
        return [*handles, *periodic]

    def add_in_child(self, deadline: int, fn: Callable[..., Any], /, *argument: Any) -> None:
        """As a forked child is made new: no lock is taken, no thread started. It runs when the driver next looks."""
        if not self._closed:
            self._wheel.add_at(deadline, fn, *argument)

    def left(self) -> None:
        """A timer of the driver's own has left the wheel."""
        if self._cap is not None:
            self._cap.left()

    def statistics(self) -> TimerStatistics:
        """Counts since the start, as one frozen record."""
        wheel, now_ns = self._wheel.statistics(), self.now_ns()
        return TimerStatistics(
            pending=wheel.pending,
            added=wheel.added,
            fired=wheel.fired,
            cancelled=wheel.cancelled,
            failed=self.report.failed,
            wakeups=self._wakeups,
            lateness=self._histogram.lateness(),
            current_tick_ns=now_ns - now_ns % self._tick_ns,
            next_due_ns=self._wheel.next_deadline(),
        )

    @property
    def tick_s(self) -> float:
        """The grain of time, in seconds."""
        return self._tick_ns / 1e9

    def occupancy(self) -> Occupancy:
        """How many timers wait in each bucket in use, one mapping a level, the finest first: a copy.

        A `Timer` may be asked by any thread, an `AsyncTimer` by its loop's.

        >>> from waterclock import ManualClock, Timer
        >>> timer = Timer(clock=ManualClock())
        >>> handle = timer.call_later(0.003, print)
        >>> timer.occupancy()
        ({3: 1},)
        """
        occupancy: Occupancy = self._wheel.occupancy()
        return occupancy

    def __len__(self) -> int:
        """How many timers wait."""
        return len(self._wheel)

    def __bool__(self) -> bool:
        """A driver is there, however few timers wait."""
        return True

    def __repr__(self) -> str:
        due = self._wheel.next_deadline()
        state = "closed, " if self._closed else "paused, " if self._stopwatch.paused else ""
        following = "" if due is None else f", next={due / 1e9}"
        return f"<{type(self).__name__}, {state}{len(self)} waiting{following}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{not_copied(self)}; make another one")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Forking

    def _after_fork(self) -> None:
        """In the child: the parent's timers are over, the locks may be held by a thread that is not here."""
        forsaken, periodic = self._wheel, tuple(self.periodic)
        self._turned = False
        if self._offload is not None:
            self._offload.renew_lock()
        self._start_empty()
        for handle in periodic:
            handle.end()
        if isinstance(forsaken, LockedWheel):
            forsaken.forsake()
        else:
            forsaken.clear()


def driver(timer: Any) -> Driver:
    """What something stands on; `TypeError` if it is no driver.

    >>> driver(5)
    Traceback (most recent call last):
    TypeError: timer must be a Timer or an AsyncTimer, got 5
    """
    if not isinstance(timer, Drive):
        raise TypeError(f"timer must be a Timer or an AsyncTimer, got {timer!r}")
    return timer


tell_when_spare(Tidier().begin)
