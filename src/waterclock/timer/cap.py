"""A cap on how many timers wait, and what happens to one more.

    raise    TimerFull
    block    the caller waits until one has run or was cancelled; from a callback it raises TimerFull, as waiting
             would be for ever
    run      the callback runs at once, in the caller

Rule 1: comparing with the cap and adding is one step: two threads never both add the last timer it allows.
Rule 2: no callback runs under the lock.
Rule 3: a caller has the wheel's own handle if that will do. A callback that ran at once has one that is over; where callers
    wait for one to leave, a cancel lets them look again.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from threading import Condition, get_ident
from typing import Any, Literal
from weakref import WeakSet

from waterclock.errors import TimerFull
from waterclock.timer.awaited import Taker
from waterclock.timer.driver import Handle
from waterclock.timer.report import Report
from waterclock.wheel.pictures import NotCopied

WhenFull = Literal["raise", "block", "run"]
Add = Callable[..., Handle]


class RanHandle(NotCopied):
    """Of a callback that ran in its caller, because the timer was full: over from the start."""

    __slots__ = ("__weakref__", "_deadline_ns")

    pending = False

    def __init__(self, deadline_ns: int) -> None:
        self._deadline_ns = deadline_ns

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def reschedule(self, delay_s: float, /) -> bool:
        return False

    def when(self) -> float:
        return self._deadline_ns / 1e9

    def __repr__(self) -> str:
        return f"<RanHandle, over, when={self.when()}>"


class CappedHandle(NotCopied):
    """Of a capped timer, where callers wait until one leaves: its cancel lets them look again."""

    __slots__ = ("__weakref__", "_left", "inner")

    def __init__(self, inner: Handle, left: Callable[[], None]) -> None:
        self.inner = inner
        self._left = left

    @property
    def pending(self) -> bool:
        return self.inner.pending

    def cancel(self) -> bool:
        done = self.inner.cancel()
        if done:
            self._left()
        return done

    def cancelled(self) -> bool:
        return self.inner.cancelled()

    def reschedule(self, delay_s: float, /) -> bool:
        return self.inner.reschedule(delay_s)

    def when(self) -> float:
        return self.inner.when()

    def __repr__(self) -> str:
        return repr(self.inner)


class Cap:
    """Stands before `add`, the way into the wheel, and lets `most` timers wait."""

    def __init__(self, wheel: Sized, add: Add, most: int, when_full: WhenFull, report: Report, returned: Taker) -> None:
        self._wheel = wheel
        self._add = add
        self._most = most
        self._when_full = when_full
        self._report = report
        self._returned = returned
        self._freed = Condition()
        self._driver: int | None = None  # the thread that runs callbacks now
        self._handles: WeakSet[CappedHandle] = WeakSet()

    def add(self, deadline: int, fn: Callable[..., Any], /, *argument: Any) -> Handle:
        """Add the timer, or do what was chosen for a full wheel."""
        with self._freed:
            if self._is_below():
                handle = self._add(deadline, fn, *argument)
                if self._when_full == "block":
                    handle = CappedHandle(handle, self.left)
                    self._handles.add(handle)
                return handle
        return self._run(deadline, fn, *argument)

    def enter(self) -> None:
        """The calling thread runs callbacks now: it must not wait for what only it can bring about."""
        self._driver = get_ident()

    def leave(self, ran: int) -> None:
        """It has run so many."""
        self._driver = None
        if ran:
            self.left()

    def left(self) -> None:
        """A timer has left the wheel: callers that wait for that may look again."""
        with self._freed:
            self._freed.notify_all()

    def handles_of(self, handles: list[Handle]) -> list[Handle]:
        """The same handles, as their callers have them."""
        with self._freed:
            capped = {handle.inner: handle for handle in self._handles}
        return [capped.get(handle, handle) for handle in handles]

    def _is_below(self) -> bool:
        """Under the lock. False only if the caller is to run the callback itself."""
        blocks = self._when_full == "block" and self._driver != get_ident()
        while len(self._wheel) >= self._most:
            if self._when_full == "run":
                return False
            if not blocks:
                raise TimerFull(
                    f"{self._most} timers wait, as many as max_pending allows: allow more, cancel some, "
                    "or choose another when_full"
                )
            self._freed.wait()
        return True

    def _run(self, deadline: int, fn: Callable[..., Any], *argument: Any) -> Handle:
        if not callable(fn):
            raise TypeError(f"callback must be callable, got {fn!r}")
        try:
            self._returned.take(fn(*argument))
        except Exception as error:
            self._report(error)
        return RanHandle(deadline)
