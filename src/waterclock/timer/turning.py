"""How a driver runs what is due: a tick at a time, in slices, by its clock or by hand.

Rule 1: `_turn` is the only place that advances the wheel, under every clock.
Rule 2: a slice is one callback at first and up to 64 while they are quick. So it is known how late a callback starts
    without a call of ours for each; where a slice was not quick, all but its first count as started at its end.
Rule 3: errors leave the wheel together, at the end of a slice, and each goes to the report. What is no `Exception`
    stops a slice; KeyboardInterrupt and SystemExit go on to who turned the wheel.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

from waterclock.clock import ManualClock
from waterclock.errors import UsageError
from waterclock.timer.lateness import Histogram
from waterclock.timer.offload import Offload
from waterclock.timer.report import Report
from waterclock.timer.room import Room
from waterclock.timer.stopwatch import Stopwatch
from waterclock.timer.units import nanoseconds

LARGEST_SLICE = 64
QUICK_NS = 100_000


class Turning:
    """The half of a driver that runs callbacks."""

    _wheel: Any
    _turning: AbstractContextManager[Any]  # held while a wheel is turned by hand
    _stopwatch: Stopwatch
    _now_ns: Callable[[], int]
    _manual: ManualClock | None
    _report: Report
    _offload: Offload | None
    _room: Room | None
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
            if wheel is not self._wheel:
                return ran  # a callback forked, and this is the child: its timers are none of ours
        if not self._stopwatch.paused:  # nothing is due; the wheel is to place what comes next by a fresh clock
            ran += self._run_slice(wheel, until_ns - self._stopwatch.shift_ns)
        return ran

    def _run_slice(self, wheel: Any, due: int) -> int:
        self._enter(due)
        ran, started_ns = -1, self._now_ns()
        try:
            ran = wheel.advance(due, self._slice)
        except ExceptionGroup as group:
            self._report_all(group)
        except BaseException as stop:
            self._report_all(stop.__cause__)
            if isinstance(stop, KeyboardInterrupt | SystemExit):
                raise
            self._report(stop)
        finally:
            ran = ran if ran >= 0 else wheel.statistics().fired - self._fired
            self._fired += ran
            self._leave(ran)
            self._measure(ran, due, started_ns)
        return ran

    def _report_all(self, group: BaseException | None) -> None:
        for error in group.exceptions if isinstance(group, ExceptionGroup) else ():
            self._report(error)

    def _enter(self, due: int) -> None:
        if self._offload is not None:
            self._offload.due_ns = due
        if self._room is not None:
            self._room.enter()

    def _leave(self, ran: int) -> None:
        if self._room is not None:
            self._room.leave(ran)

    def _measure(self, ran: int, due: int, started_ns: int) -> None:
        """Note how late `ran` callbacks started (see rule 4); in an executor they are noted there."""
        if not ran:
            return
        ended_ns = self._now_ns()
        quick = ended_ns - started_ns <= QUICK_NS
        if self._offload is None:
            on_time = ran if quick else 1
            self._histogram.record(max(started_ns - due, 0), on_time)
            if ran > on_time:
                self._histogram.record(max(ended_ns - due, 0), ran - on_time)
        if not quick:
            self._slice = 1
        elif ran == self._slice:
            self._slice = min(2 * ran, LARGEST_SLICE)

    def _call(self, fn: Callable[..., Any], args: tuple[Any, ...], then: Callable[[], None]) -> None:
        """Run a periodic callback where callbacks run, and `then` in the driver when it has ended."""
        if self._offload is not None:
            self._offload.submit(fn, args, self._from_executor(then))
            return
        try:
            fn(*args)
        finally:
            then()

    # By hand

    def advance(self, duration_s: float) -> int:
        """Turn the ManualClock by `duration_s` and run what is due on the way, tick by tick; how many callbacks ran.

        While a callback runs the clock shows its tick. `UsageError` under another clock, `ValueError` for a negative
        duration, `RuntimeError` from inside a callback.
        """
        manual = self._by_hand()
        return self._advance_to(manual.monotonic_ns() + nanoseconds("duration_s", duration_s, least=0))

    def advance_to_next(self) -> int:
        """Turn the ManualClock to the next tick that has a timer, and run it; 0 where nothing waits. Errors as `advance`.

        >>> from waterclock import ManualClock, Timer
        >>> timer = Timer(clock=ManualClock())
        >>> handle = timer.call_later(3600, print, "an hour")
        >>> timer.advance_to_next(), timer.time()
        an hour
        (1, 3600.0)
        """
        self._by_hand()
        due = self._next_due()
        return 0 if due is None else self._advance_to(due + self._stopwatch.shift_ns)

    def _by_hand(self) -> ManualClock:
        if self._manual is None:
            raise UsageError("only a timer with a ManualClock is turned by hand: make it with clock=ManualClock()")
        return self._manual

    def _advance_to(self, target_ns: int) -> int:
        manual, ran = self._by_hand(), 0
        with self._turning:
            while True:
                ran += self._turn(target_ns)
                manual.advance_to_ns(target_ns)
                if manual.monotonic_ns() == target_ns:
                    return ran
                target_ns = manual.monotonic_ns()  # a callback has turned the clock further
