"""`IdleTimeout`: a deadline that moves with each touch, for connections, sessions and watchdogs.

To move a timer in the wheel at each message would cost what a timer costs. A touch notes the time and nothing else. When
the moment comes for which the wheel holds it, what was touched meanwhile goes back, for as long as it has left:

    made at 0, 30 seconds        the wheel holds it for 30
    touched at 10 and at 25      the wheel holds it for 30 still
    30 comes                     25 + 30 = 55: the wheel holds it for 55
    55 comes                     nothing since 25: the callback runs

Rule 1: never early: the callback runs once, when `idle_s` have passed since the latest touch, rounded up to the tick.
Rule 2: the wheel is asked once in `idle_s` at most, however often it is touched.
Rule 3: a touch comes before the callback's beginning, and moves it, or after, and does nothing.
Rule 4: time is the driver's: it stands still in a pause, and is turned by hand under a ManualClock.
Rule 5: threads are the driver's: under a Timer every method may be called from any thread.
Rule 6: it counts for `max_pending` and is never refused by it, as `every` is.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVarTuple

from waterclock.errors import TimerClosed
from waterclock.timer.drive import Drive, Touch, driver
from waterclock.timer.driver import nothing
from waterclock.timer.units import nanoseconds
from waterclock.wheel.pictures import NotCopied

if TYPE_CHECKING:
    from waterclock.timer.driver import Driver, Handle

Ts = TypeVarTuple("Ts")


class IdleTimeout(Touch, NotCopied):
    """Call `fn(*args)` once nothing was touched for `idle_s` seconds; a handle, and a context manager that cancels it.

    timer: a `Timer` or an `AsyncTimer`. What `fn` raises goes where the timer's errors go. `TypeError` for what cannot be
    called, `ValueError` for a time that is no number above zero, `TimerClosed` after the timer's `close()`.

    >>> from waterclock import ManualClock, Timer
    >>> timer = Timer(clock=ManualClock())
    >>> idle = IdleTimeout(timer, 30, print, "nothing for half a minute")
    >>> timer.advance(20), idle.touch(), idle.when(), timer.advance(29), timer.advance(1)
    nothing for half a minute
    (0, None, 50.0, 1, 1)
    """

    __slots__ = ("__weakref__", "_args", "_ended", "_fn", "_idle_ns", "_inner")

    def __init__(self, timer: Drive, idle_s: float, fn: Callable[[*Ts], object], /, *args: *Ts) -> None:
        self._drive: Driver = driver(timer)
        timer.check(fn)
        self._idle_ns = nanoseconds("idle_s", idle_s, least=1)
        self._fn: Callable[..., object] = fn
        self._args: tuple[Any, ...] = args
        self._ended = ""
        self._touched_ns = timer.now_ns()
        with timer.lock:
            self._inner: Handle = timer.add_and_look(self._touched_ns + self._idle_ns, _look, self)

    @property
    def pending(self) -> bool:
        """Whether it still waits: neither run nor cancelled."""
        with self._drive.lock:
            return self._waits()

    def cancelled(self) -> bool:
        """Whether it was cancelled, or its timer closed."""
        with self._drive.lock:
            return self._ended == "cancelled" or self._inner.cancelled()

    def when(self) -> float:
        """The moment it runs at if nothing is touched until then, in seconds of `timer.time()`."""
        return (self._touched_ns + self._idle_ns) / 1e9

    def cancel(self) -> bool:
        """True once, and then it never runs; else False: it ran, or was cancelled."""
        with self._drive.lock:
            if not self._waits():
                return False
            self._inner.cancel()  # False if its moment has come just now: then it finds that it has ended
            self._end("cancelled")
        self._drive.left()
        return True

    def reschedule(self, delay_s: float, /) -> bool:
        """Let it run in `delay_s` seconds, unless it is touched before; False when it ran or was cancelled."""
        drive = self._drive
        with drive.lock:
            if not self._waits():
                return False
            now_ns = drive.now_ns()
            due_ns = drive.deadline_in(delay_s)
            drive.move(self._inner, self._held_for(due_ns, now_ns))
            self._touched_ns = due_ns - self._idle_ns
        return True

    def _held_for(self, due_ns: int, now_ns: int) -> int:
        """No further than a touch that comes right now would have it: where it was moved far away it may be touched."""
        return min(due_ns, now_ns + self._idle_ns)

    def _waits(self) -> bool:
        return not self._ended and not self._inner.cancelled()

    def _end(self, how: str) -> None:
        self._ended = how
        self._fn, self._args = nothing, ()  # what waits no more keeps nothing alive

    def __repr__(self) -> str:
        if not self.pending:
            return f"<IdleTimeout, {'cancelled' if self.cancelled() else 'over'}>"
        return f"<IdleTimeout, waiting, when={self.when()}, idle={self._idle_ns / 1e9}, callback={self._fn!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()


def _look(idle: IdleTimeout) -> None:
    """The moment has come for which the wheel holds it."""
    drive = idle._drive
    with drive.lock:
        due_ns = idle._touched_ns + idle._idle_ns
        if idle._ended:
            return
        if due_ns > (now_ns := drive.now_ns()):  # it was touched: back into the wheel
            try:
                idle._inner = drive.add_and_look(idle._held_for(due_ns, now_ns), _look, idle)
            except TimerClosed:
                idle._end("cancelled")
            return
        fn, args = idle._fn, idle._args
        idle._end("ran")
    drive.call(fn, args, nothing)
