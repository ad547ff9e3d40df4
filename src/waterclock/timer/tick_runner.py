"""How a driver runs what is due: a tick at a time, in slices, by its clock or by hand; here, or in an executor.

The time of a driver is its clock's, less what was spent in pause: pausing moves no timer, it stops the time.

Rule 1: `_turn` is the only place that advances the wheel, under every clock.
Rule 2: a slice is one callback at first and up to 256 while they are quick. So it is known how late a callback starts
    without a call of ours for each; if a slice was not quick, all but its first count as started at its end.
Rule 3: errors leave the wheel together, at the end of a slice, and each goes to the report. What is no `Exception`
    stops a slice; KeyboardInterrupt and SystemExit go on to who turned the wheel.
Rule 4: `now_ns` is the clock's own function while nothing was ever paused: it is read for every timer.
Rule 5: in an executor lateness counts to the moment the callback starts there: a queue there is seen. Its error goes where
    all errors go, from the thread it was raised in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from waterclock.clock import Clock, ManualClock
from waterclock.errors import UsageError
from waterclock.timer.awaited import Taker
from waterclock.timer.cap import Cap
from waterclock.timer.driver import Handle
from waterclock.timer.report import Report
from waterclock.timer.statistics import Histogram
from waterclock.timer.units import nanoseconds

if TYPE_CHECKING:
    from concurrent.futures import Executor


class Stopwatch:
    """Nanoseconds that stand still between `pause()` and `resume()`.

    >>> from waterclock.clock import ManualClock
    >>> clock = ManualClock(5.0)
    >>> stopwatch = Stopwatch(clock)
    >>> stopwatch.pause(), clock.advance_s(60.0), stopwatch.resume(), clock.advance_s(1.0)
    (None, None, True, None)
    >>> stopwatch.now_ns()
    6000000000
    """

    __slots__ = ("_clock_ns", "now_ns", "paused", "shift_ns")

    def __init__(self, clock: Clock) -> None:
        self._clock_ns: Callable[[], int] = clock.monotonic_ns
        self.now_ns: Callable[[], int] = self._clock_ns
        self.paused = False
        self.shift_ns = 0  # spent in pause so far

    def pause(self) -> None:
        """Stop; one that stands already stands where it stood."""
        stopped_ns = self.now_ns()
        self.now_ns = lambda: stopped_ns
        self.paused = True

    def resume(self) -> bool:
        """Go on from where it stopped; False when it goes already."""
        if not self.paused:
            return False
        read, shift_ns = self._clock_ns, self._clock_ns() - self.now_ns()
        self.now_ns = lambda: read() - shift_ns
        self.shift_ns = shift_ns
        self.paused = False
        return True


class Offload:
    """Stands before the wheel: what is added runs in `executor` when its time comes."""

    def __init__(
        self, executor: Executor, report: Report, returned: Taker, histogram: Histogram, stopwatch: Stopwatch
    ) -> None:
        self._executor = executor
        self._report = report
        self._returned = returned
        self._histogram = histogram
        self._stopwatch = stopwatch
        self.renew_lock()
        self.due_ns = 0  # the tick that is being run

    def renew_lock(self) -> None:
        """At the start, and in a forked child."""
        self._lock = Lock()  # of the histogram

    def before(self, add: Callable[..., Handle]) -> Callable[..., Handle]:
        """The way into the wheel, `add`, with the executor at its end."""

        def add_for_executor(deadline: int, fn: Callable[..., Any], /, *argument: Any) -> Handle:
            if not callable(fn):
                raise TypeError(f"callback must be callable, got {fn!r}")
            return add(deadline, self._hand_over, (fn, argument, None))

        return add_for_executor

    def submit(self, fn: Callable[..., Any], argument: tuple[Any, ...], then: Callable[[], object] | None) -> None:
        """Run `fn(*argument)` in the executor, and after it, failed or not, `then`."""
        self._executor.submit(self._run, self.due_ns, fn, argument, then)

    def _hand_over(self, call: tuple[Any, tuple[Any, ...], None]) -> None:
        self.submit(*call)

    def _run(
        self, due_ns: int, fn: Callable[..., Any], argument: tuple[Any, ...], then: Callable[[], object] | None
    ) -> None:
        lateness_ns = self._stopwatch.now_ns() - due_ns
        with self._lock:
            self._histogram.record(lateness_ns, 1)
        returned = None
        try:
            returned = fn(*argument)
        except BaseException as error:  # no one reads the future: what is not reported here would be lost
            self._report(error)
        finally:
            self._returned.take(returned, then)


LARGEST_SLICE = 256
QUICK_NS = 100_000


class TickRunner:
    """The half of a driver that runs callbacks."""

    _wheel: Any
    _turning: AbstractContextManager[Any]  # held while the clock is turned by hand
    _turned = False  # whether it is, right now
    _stopwatch: Stopwatch
    now_ns: Callable[[], int]
    _manual: ManualClock | None
    report: Report
    returned: Taker
    _offload: Offload | None
    _cap: Cap | None
    _histogram: Histogram
    _fired: int
    _slice: int

    # By the clock

    def _from_executor(self, then: Callable[[], None]) -> Callable[[], object]:
        """`then`, made so that a thread of the executor may call it."""
        return then

    def _next_due(self) -> int | None:
        """The tick to sleep for; None while nothing waits, and while time stands still."""
        return None if self._stopwatch.paused else cast("int | None", self._wheel.next_deadline())

    def _turn(self, until_ns: int) -> int:
        """Run everything due by this moment of the clock, a tick at a time; how many. Not re-entrant."""
        wheel, ran = self._wheel, 0
        while (due := self._next_due()) is not None and due + self._stopwatch.shift_ns <= until_ns:
            if self._manual is not None:
                self._manual.advance_to_ns(due + self._stopwatch.shift_ns)
            ran += self._run_slice(wheel, due)
            while wheel.next_deadline() == due:  # to its end, slice by slice, also if a callback pauses the timer
                ran += self._run_slice(wheel, due)
            if wheel is not self._wheel:
                return ran  # a callback forked, and this is the child: its timers are none of ours
        if not ran and not self._stopwatch.paused:
            # after a rest: the wheel is to place what comes next by a fresh clock
            ran = self._run_slice(wheel, until_ns - self._stopwatch.shift_ns)
        return ran

    def _run_slice(self, wheel: Any, due: int) -> int:
        if self._offload is not None:
            self._offload.due_ns = due
        if self._cap is not None:
            self._cap.enter()
        started_ns, interrupt = self.now_ns(), None
        try:
            ran: int = wheel.advance(due, self._slice)
        except BaseException as stop:
            ran = wheel.statistics().fired - self._fired
            interrupt = self._sort_out(stop)
        self._fired += ran if wheel is self._wheel else 0
        if self._cap is not None:
            self._cap.leave(ran)
        if ran:
            self._measure(ran, started_ns - due, self.now_ns() - started_ns)
        if interrupt is not None:
            raise interrupt
        return ran

    def _sort_out(self, stop: BaseException) -> BaseException | None:
        """Report what the callbacks of a slice raised; gives back what is not ours to keep.

        That is an interrupt, and an error of the wheel itself: what callbacks raise comes as a group.
        """
        group = stop if isinstance(stop, ExceptionGroup) else stop.__cause__
        for error in group.exceptions if isinstance(group, ExceptionGroup) else ():
            self.report(error)
        if group is stop:
            return None
        if isinstance(stop, KeyboardInterrupt | SystemExit | Exception):
            return stop
        self.report(stop)
        return None

    def _measure(self, ran: int, late_ns: int, took_ns: int) -> None:
        """Note how late `ran` callbacks started (rule 2); in an executor they are noted there."""
        if took_ns > QUICK_NS:
            self._slice = 1
        elif ran == self._slice:
            self._slice = min(2 * ran, LARGEST_SLICE)
        if self._offload is not None:
            return
        on_time = ran if took_ns <= QUICK_NS else 1
        self._histogram.record(late_ns, on_time)
        if ran > on_time:
            self._histogram.record(late_ns + took_ns, ran - on_time)

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], then: Callable[[], None]) -> None:
        """Run a periodic callback where callbacks run, and `then` in the driver when it has ended."""
        if self._offload is None:
            try:
                returned = fn(*args)
            except BaseException:
                then()
                raise
            self.returned.take(returned, then)
            return
        try:
            self._offload.submit(fn, args, self._from_executor(then))
        except BaseException:
            then()  # the executor takes nothing now; it may at the next beat
            raise

    # By hand

    def advance(self, duration_s: float) -> int:
        """Turn the ManualClock by `duration_s` and run what is due on the way, tick by tick; how many callbacks ran.

        While a callback runs the clock shows its tick. `UsageError` under another clock, `ValueError` for a negative
        duration, `RuntimeError` from inside a callback.
        """
        duration_ns = nanoseconds("duration_s", duration_s, least=0)
        with self._alone() as manual:
            return self._advance_to(manual, manual.monotonic_ns() + duration_ns)

    def advance_to_next(self) -> int:
        """Turn the ManualClock to the next tick that has a timer, and run it; 0 if nothing waits. Errors as `advance`.

        >>> from waterclock import ManualClock, Timer
        >>> timer = Timer(clock=ManualClock())
        >>> handle = timer.call_later(3600, print, "an hour")
        >>> timer.advance_to_next(), timer.time()
        an hour
        (1, 3600.0)
        """
        with self._alone() as manual:
            due = self._next_due()
            return 0 if due is None else self._advance_to(manual, due + self._stopwatch.shift_ns)

    @contextmanager
    def _alone(self) -> Iterator[ManualClock]:
        """One thread at a time turns the clock; who turns it already, and is in a callback, is refused."""
        if self._manual is None:
            raise UsageError("only a timer with a ManualClock is turned by hand: make it with clock=ManualClock()")
        with self._turning:
            if self._turned:
                raise RuntimeError("a callback turned the clock that is being turned: add timers from it instead")
            self._turned = True
            try:
                yield self._manual
            finally:
                self._turned = False

    def _advance_to(self, manual: ManualClock, target_ns: int) -> int:
        ran = 0
        while True:
            ran += self._turn(target_ns)
            manual.advance_to_ns(target_ns)
            if manual.monotonic_ns() == target_ns:
                return ran
            target_ns = manual.monotonic_ns()  # a callback has turned the clock further
