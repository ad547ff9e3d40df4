"""The plain Python wheel, made for several threads.

The compiled wheel needs nothing: a method of it is one step for every other thread. The plain one can be interrupted
between any two bytecodes. There this wheel stands in front.

    thread A, cancel            thread B, advance
    handle waits? yes
                                takes the timer out
    takes the timer out: an error, or a ghost that is counted for ever

Rule 1: every step on the structure is taken under one lock.
Rule 2: no callback runs under it. A timer leaves the wheel under the lock, one at a time, and then runs without it.
Rule 3: whoever takes a handle out of the wheel, by cancelling or by its time, has it alone.
Rule 4: a handle does not keep the wheel alive; a wheel that goes ends its timers.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from threading import RLock  # re-entrant: the collector may run a destructor that cancels, right in the middle
from typing import Any
from weakref import ref

from waterclock.wheel import TimerHandle, TimingWheel, WheelStatistics
from waterclock.wheel.occupancy import Occupancy
from waterclock.wheel.pictures import NotCopied, of_handle, of_wheel


class LockedHandle(NotCopied):
    """What `TimerHandle` is to its wheel; every method may be called from any thread."""

    __slots__ = ("__weakref__", "_call", "_cancelled", "_inner", "_wheel", "deadline")

    def __init__(self, wheel: ref[LockedWheel], deadline: int, call: tuple[Any, ...]) -> None:
        self._wheel = wheel
        self._call: tuple[Any, ...] | None = call
        self._cancelled = False
        self._inner: TimerHandle | None = None
        self.deadline = deadline

    @property
    def pending(self) -> bool:
        return self._call is not None

    def when(self) -> float:
        return self.deadline / 1e9

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> bool:
        wheel = self._wheel()
        return wheel is not None and wheel.cancel(self)

    def reschedule(self, delay: Any, /) -> bool:
        """As `TimerHandle`'s: in the driver's unit if one turns the wheel, else in the wheel's."""
        wheel = self._wheel()
        if wheel is None or self._call is None:
            return False
        if wheel._reschedule is not None:
            return wheel._reschedule(self, delay)
        return wheel._move(self, wheel._wheel.now + index(delay))

    def __repr__(self) -> str:
        wheel, call = self._wheel(), self._call
        driven = wheel is not None and wheel._reschedule is not None
        return of_handle(self, None if call is None else call[0], driven)


class LockedWheel(NotCopied):
    """A timing wheel, timers of nanoseconds in it, and a lock. Interface and promises are the wheel's.

    >>> wheel = LockedWheel(tick=10, start=0)
    >>> handle = wheel.add_at(25, print, "ran")
    >>> wheel.advance(29), wheel.advance(30), handle.cancel()
    ran
    (0, 1, False)
    """

    def __init__(self, tick: int, start: int) -> None:
        self._me: ref[LockedWheel] = ref(self)
        self._wheel = TimingWheel(tick, start)
        self._lock = RLock()
        self._waiting: dict[LockedHandle, None] = {}
        self._taken: tuple[Any, ...] | None = None
        self._advancing = False
        self._reschedule: Callable[[LockedHandle, Any], bool] | None = None
        self._returned: Callable[[Any], object] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add_at(self, deadline: int, callback: Callable[..., Any], /, *argument: Any) -> LockedHandle:
        """As the wheel's; without an argument the callback is called with nothing."""
        if not callable(callback):
            raise TypeError(f"callback must be callable, got {callback!r}")
        handle = LockedHandle(self._me, deadline, (callback, *argument))
        with self._lock:
            handle._inner = self._wheel.add_at(deadline, _take, handle)
            self._waiting[handle] = None
        return handle

    def advance(self, now: int, limit: int | None = None) -> int:
        """As the wheel's: run what is due at `now`, at most `limit`; several threads at once is a RuntimeError."""
        with self._lock:
            if self._advancing:
                raise RuntimeError("advance() called while advance() runs: from a callback add timers, or cancel them")
            self._advancing = True
        ran = 0
        errors: list[Exception] = []
        try:
            while ran != limit and (call := self._next_due(now)) is not None:
                ran += 1
                try:
                    returned = call[0](*call[1:])
                    if returned is not None and self._returned is not None:
                        self._returned(returned)
                except Exception as error:
                    errors.append(error)
        except BaseException as stop:
            if errors:
                raise stop from ExceptionGroup("callbacks of timers failed", errors)
            raise
        finally:
            self._advancing = False
        if errors:
            raise ExceptionGroup("callbacks of timers failed", errors)
        return ran

    def next_deadline(self) -> int | None:
        with self._lock:
            return self._wheel.next_deadline()

    def statistics(self) -> WheelStatistics:
        with self._lock:
            return self._wheel.statistics()

    def occupancy(self) -> Occupancy:
        with self._lock:
            return self._wheel.occupancy()

    def cancel(self, handle: LockedHandle) -> bool:
        """Take one out: True for exactly one caller, and then it never runs."""
        with self._lock:
            if handle._call is None or handle._inner is None:
                return False
            call, handle._call = handle._call, None  # let go of after the lock: a destructor may do anything
            handle._cancelled = handle._inner.cancel()
            handle._inner = None
            del self._waiting[handle]
        return call is not None

    def _move(self, handle: LockedHandle, deadline: int) -> bool:
        """As the wheel's; False if it ran or was cancelled."""
        with self._lock:
            if handle._inner is None or not self._wheel._move(handle._inner, deadline):
                return False
            handle.deadline = deadline
            return True

    def clear(self) -> list[LockedHandle]:
        """Cancel everything that waits, and give it back."""
        with self._lock:
            return [handle for handle in tuple(self._waiting) if self.cancel(handle)]

    def __repr__(self) -> str:
        return of_wheel(self)

    def __del__(self) -> None:
        for handle in getattr(self, "_waiting", ()):
            handle._call = handle._inner = None

    @property
    def now(self) -> int:
        return self._wheel.now

    def forsake(self) -> None:
        """In a forked child: end all timers without the lock and the structure, which another thread may have held."""
        self._lock = RLock()
        for handle in tuple(self._waiting):
            handle._call = handle._inner = None
            handle._cancelled = True
        self._waiting.clear()

    def _next_due(self, now: int) -> tuple[Any, ...] | None:
        with self._lock:
            self._taken = None
            self._wheel.advance(now, 1)
            call, self._taken = self._taken, None
        return call


def _take(handle: LockedHandle) -> None:
    """Called by the wheel, under the lock: the handle's time has come."""
    wheel = handle._wheel()
    call, handle._call = handle._call, None
    handle._inner = None
    if wheel is not None:
        wheel._taken = call
        wheel._waiting.pop(handle, None)  # not there: forsaken
