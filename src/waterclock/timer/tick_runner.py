"""How a driver runs what is due: a tick at a time, in slices, by its clock or by hand.

Rule 1: `_turn` is the only place that advances the wheel, under every clock.
Rule 2: a slice is one callback at first and up to 256 while they are quick. So it is known how late a callback starts
    without a call of ours for each; if a slice was not quick, all but its first count as started at its end.
Rule 3: errors leave the wheel together, at the end of a slice, and each goes to the report. What is no `Exception`
    stops a slice; KeyboardInterrupt and SystemExit go on to who turned the wheel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

from waterclock.clock import ManualClock
from waterclock.errors import UsageError
from waterclock.timer.awaited import Taker
from waterclock.timer.cap import Cap
from waterclock.timer.lateness import Histogram
from waterclock.timer.offload import Offload
from waterclock.timer.report import Report
from waterclock.timer.stopwatch import Stopwatch
from waterclock.timer.units import nanoseconds

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
