"""A cap on how many timers wait, and what happens to one more.

    raise    TimerFull
    block    the caller waits until one has run or was cancelled; from a callback, where waiting would be for ever,
             it raises TimerFull
    run      the callback runs at once, in the caller

Rule 1: looking for room and taking it is one step: two threads never share the last place.
Rule 2: no callback runs under the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from threading import Condition, get_ident
from typing import Any, Literal
from weakref import WeakSet

from waterclock.errors import TimerFull
from waterclock.timer.handles import Handle, RanHandle, RoomHandle
from waterclock.timer.report import Report

WhenFull = Literal["raise", "block", "run"]
Add = Callable[..., Handle]


class Room:
    """Stands before `add`, the way into the wheel, and lets `most` timers wait."""

    def __init__(self, wheel: Sized, add: Add, most: int, when_full: WhenFull, report: Report) -> None:
        self._wheel = wheel
        self._add = add
        self._most = most
        self._when_full = when_full
        self._report = report
        self._door = Condition()
        self._driver: int | None = None  # the thread that runs callbacks now
        self._faces: WeakSet[RoomHandle] = WeakSet()

    def add(self, deadline: int, fn: Callable[..., Any], /, *argument: Any) -> Handle:
        """Place the timer, or do what was chosen for a full wheel."""
        with self._door:
            if self._has_room():
                handle = self._add(deadline, fn, *argument)
                return self._faced(handle) if self._when_full == "block" else handle
        return self._run(deadline, fn, *argument)

    def enter(self) -> None:
        """The calling thread runs callbacks now: it must not wait for room that only itself can make."""
        self._driver = get_ident()

    def leave(self, ran: int) -> None:
        """It has run so many."""
        self._driver = None
        if ran:
            self.left()

    def left(self) -> None:
        """A timer has left the wheel: who waits at the door may look again."""
        with self._door:
            self._door.notify_all()

    def faces_of(self, handles: list[Handle]) -> list[Handle]:
        """The same handles, as their callers have them."""
        with self._door:
            faces = {face.inner: face for face in self._faces}
        return [faces.get(handle, handle) for handle in handles]

    def _faced(self, handle: Handle) -> Handle:
        face = RoomHandle(handle, self.left)
        self._faces.add(face)
        return face

    def _has_room(self) -> bool:
        """Under the lock. False only where the caller is to run the callback itself."""
        blocks = self._when_full == "block" and self._driver != get_ident()
        while len(self._wheel) >= self._most:
            if self._when_full == "run":
                return False
            if not blocks:
                raise TimerFull(
                    f"{self._most} timers wait, as many as max_pending allows: allow more, cancel some, "
                    "or choose another when_full"
                )
            self._door.wait()
        return True

    def _run(self, deadline: int, fn: Callable[..., Any], *argument: Any) -> Handle:
        if not callable(fn):
            raise TypeError(f"callback must be callable, got {fn!r}")
        try:
            fn(*argument)
        except Exception as error:
            self._report(error)
        return RanHandle(deadline)
