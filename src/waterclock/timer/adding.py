"""Adding and moving a timer: the part of a driver that has to be short, as every user pays for it at each timer.

`call_later` reads the clock, puts the callback into the wheel and returns the wheel's own handle; then it compares one
number, `_alarm_ns` (drive.py says what it is): a deadline below it, and the driver may have to be woken.

    the caller's seconds  ->  nanoseconds  ->  + the clock  ->  `_add`, the way into the wheel  ->  below the alarm?

This is the plain one, and what _adding.pyx has to agree with. The compiled one has the same names: it takes the steps from
the clock to the wheel in C if both are its own kind, and calls the functions of this file for everything else: another
clock, a cap, an executor, the plain wheel, a number of seconds that is no ordinary one.

Rule 1: `_add` is the wheel's own `add_at`, or what stands before it; `now_ns` the clock's own function, or a stopwatch's.
Rule 2: what cannot be done leaves nothing behind: a timer whose driver could not be woken is taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from math import floor
from typing import TYPE_CHECKING, Any, TypeVarTuple
from weakref import ref

from waterclock.timer.awaited import is_asynchronous, refused
from waterclock.timer.units import nanoseconds, within_reach

if TYPE_CHECKING:
    from waterclock.timer.driver import Handle

Ts = TypeVarTuple("Ts")


def bound(fn: Callable[..., object], args: tuple[Any, ...]) -> Callable[[], object]:
    """A callback with its arguments; `TypeError` with the words of the wheel if it cannot be called."""
    if not callable(fn):
        raise TypeError(f"callback must be callable, got {fn!r}")
    return partial(fn, *args)


class Adder:
    """How timers come into a driver and are moved in it; the driver itself is drive.py's."""

    lock: AbstractContextManager[Any]
    _closed: bool
    _wheel: Any
    _add: Callable[..., Handle]
    now_ns: Callable[[], int]
    _alarm_ns: int
    _refuses_asynchronous = False  # a thread has no loop that could run them

    if TYPE_CHECKING:  # drive.py has them

        def _look(self, handle: Handle, deadline: int) -> None: ...

        def _hasten(self) -> None: ...

    def time(self) -> float:
        """Now, in the seconds that `call_at` and `when()` count in: the clock's, less what was spent in pause.

        >>> from waterclock import ManualClock, Timer
        >>> Timer(clock=ManualClock(5.0)).time()
        5.0
        """
        return self.now_ns() / 1e9

    def call_later(self, delay_s: float, fn: Callable[[*Ts], object], /, *args: *Ts) -> Handle:
        """Call `fn(*args)` once `delay_s` seconds have passed; zero or less means at the driver's next turn.

        `TimerClosed` after `close()`, `TimerFull` as `when_full` says, `ValueError` for a delay that is no number
        or ends more than 146 years after the clock's zero. A coroutine function is a task of an `AsyncTimer`'s loop, and
        of a `Timer` a `TypeError`.

        >>> from waterclock import ManualClock, Timer
        >>> timer = Timer(clock=ManualClock())
        >>> handle = timer.call_later(0.25, print, "a quarter")
        >>> timer.advance(0.249), timer.advance(0.001), handle.pending
        a quarter
        (0, 1, False)
        """
        if self._refuses_asynchronous and is_asynchronous(fn):
            raise refused(fn)
        try:
            deadline = self.now_ns() + floor(delay_s * 1e9 + 0.5)  # nanoseconds(), without the price of a call
        except (OverflowError, ValueError, TypeError):
            deadline = self.deadline_in(delay_s)  # which says what is wrong with it
        if not args:
            handle = self._add(deadline, fn)
        elif len(args) == 1:
            handle = self._add(deadline, fn, args[0])
        else:
            handle = self._add(deadline, bound(fn, args))
        if deadline < self._alarm_ns:
            self._look(handle, deadline)
        return handle

    def call_at(self, when_s: float, fn: Callable[[*Ts], object], /, *args: *Ts) -> Handle:
        """Call `fn(*args)` when `time()` is `when_s`; at the next turn if that has passed. Errors as `call_later`.

        >>> from waterclock import ManualClock, Timer
        >>> timer = Timer(clock=ManualClock())
        >>> timer.call_at(60.0, print).when()
        60.0
        """
        if self._refuses_asynchronous and is_asynchronous(fn):
            raise refused(fn)
        deadline = nanoseconds("when_s", when_s)
        handle = self._add(deadline, bound(fn, args) if args else fn)
        if deadline < self._alarm_ns:
            self._look(handle, deadline)
        return handle

    def add_and_look(self, deadline: int, fn: Callable[..., Any], /, *argument: Any) -> Handle:
        """For timers of the driver itself: no cap, no executor."""
        handle: Handle = self._wheel.add_at(deadline, fn, *argument)
        if deadline < self._alarm_ns:
            self._look(handle, deadline)
        return handle

    def deadline_in(self, delay_s: float, /) -> int:
        """The nanosecond of the driver's time that is `delay_s` seconds from now; `ValueError` as for `call_later`."""
        return within_reach(self.now_ns() + nanoseconds("delay_s", delay_s))

    def move_in(self, handle: Handle, delay_s: float, /) -> bool:
        """What `reschedule` of the handles in the wheel does, in their driver's unit."""
        return self.move(handle, self.deadline_in(delay_s))

    def move(self, handle: Any, deadline: int, /) -> bool:
        """Move what waits, and see to it that the driver knows; False when it waits no more."""
        before = handle.deadline
        if not self._wheel._move(handle, deadline):
            return False
        if deadline < self._alarm_ns:
            self._look_again(handle, deadline, before)
        return True

    def _look_again(self, handle: Handle, deadline: int, before: int) -> None:
        """A timer was moved to where the driver may not know of it."""
        with self.lock:
            if not self._closed and deadline < self._alarm_ns:
                try:
                    self._hasten()
                except BaseException:
                    self._wheel._move(handle, before)
                    raise


class WayBack:
    """What a wheel knows of its driver, which it must not keep alive: the handles' `reschedule`.

    A driver that was dropped has ended its timers.
    """

    __slots__ = ("_driver",)

    def __init__(self, driver: ref[Adder]) -> None:
        self._driver = driver

    def reschedule(self, handle: Handle, delay_s: float, /) -> bool:
        driver = self._driver()
        return driver is not None and driver.move_in(handle, delay_s)


class Touch:
    """When something happened last, in its driver's time: what an `IdleTimeout` notes and no more."""

    __slots__ = ("_drive", "_touched_ns")

    _drive: Any
    _touched_ns: int

    def touch(self) -> None:
        """Something happened: count from now on."""
        self._touched_ns = self._drive.now_ns()
