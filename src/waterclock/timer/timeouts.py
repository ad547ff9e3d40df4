"""`timer.timeout()`: what `asyncio.timeout` is to its loop, with the time of an AsyncTimer.

A timeout cancels its task, and on the way out turns that one cancellation into a TimeoutError. A cancellation by
anybody else goes on: the task counts the requests, and ours is given back with `uncancel()`.

    created     __aenter__            entered
    entered     its time comes        expiring      the task is cancelled
    entered     __aexit__             exited
    expiring    __aexit__             expired       TimeoutError, if the cancellation that comes out is ours alone

Rule 1: `reschedule` is for an entered one; in every other state it raises RuntimeError.
"""

from __future__ import annotations

import asyncio
from asyncio import current_task
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol

from waterclock.timer.units import nanoseconds
from waterclock.wheel.pictures import NotCopied

if TYPE_CHECKING:
    from waterclock.timer.loop import AsyncTimer

State = Literal["created", "entered", "expiring", "expired", "exited"]


class Cancellable(Protocol):
    def cancel(self) -> object: ...


class Timeout(NotCopied):
    """The context manager that `AsyncTimer.timeout` gives; times are seconds of `timer.time()`, None is never."""

    __slots__ = ("__weakref__", "_cancelling", "_deadline_ns", "_handle", "_state", "_task", "_timer")

    def __init__(self, timer: AsyncTimer, deadline_ns: int | None) -> None:
        self._timer = timer
        self._deadline_ns = deadline_ns
        self._state: State = "created"
        self._handle: Cancellable | None = None

    def when(self) -> float | None:
        """The moment it expires, or did."""
        return None if self._deadline_ns is None else self._deadline_ns / 1e9

    def expired(self) -> bool:
        """Whether its time has come before the block ended."""
        return self._state in ("expiring", "expired")

    def reschedule(self, when_s: float | None) -> None:
        """Let it expire at another moment; one that has passed expires it at the loop's next turn."""
        if self._state != "entered":
            raise RuntimeError(f"a timeout is rescheduled inside its block, and before it expires; it is {self._state}")
        deadline_ns = None if when_s is None else nanoseconds("when_s", when_s)
        self._disarm()
        self._deadline_ns = deadline_ns
        self._arm()

    def __repr__(self) -> str:
        return f"<Timeout, {self._state}, when={self.when()}>"

    def lapse(self) -> None:
        """Its time has come by other means than its own; nothing if the block has ended."""
        if self._state == "entered":
            self._disarm()
            self._expire()

    async def __aenter__(self) -> Timeout:
        if self._state != "created":
            raise RuntimeError(f"a timeout is entered once; this one is {self._state}")
        task = current_task()
        if task is None:
            raise RuntimeError("a timeout cancels its task: use it inside one")
        self._task, self._cancelling = task, task.cancelling()
        self._state = "entered"
        self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._state == "entered":
            self._state = "exited"
        elif self._state == "expiring":
            self._state = "expired"
            ours_alone = self._task.uncancel() <= self._cancelling
            if ours_alone and isinstance(error, asyncio.CancelledError):
                raise TimeoutError from error

    def _arm(self) -> None:
        deadline_ns, timer = self._deadline_ns, self._timer
        if deadline_ns is None:
            return
        if deadline_ns <= timer.now_ns():
            self._handle = asyncio.get_running_loop().call_soon(self._expire)
        else:
            self._handle = timer.add_and_look(deadline_ns, self._expire)

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _expire(self) -> None:
        self._handle = None
        self._state = "expiring"
        self._task.cancel()
