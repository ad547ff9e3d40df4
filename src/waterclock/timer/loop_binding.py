"""The loop that an AsyncTimer belongs to, and how errors get there.

Rule 1: the loop is bound on first use, and for good: a timer in another loop would wait for a loop that does not run.
Rule 2: a loop that is in debug mode when it is bound lets nobody but its own thread in while it runs, as it does for its
    own timers. Without debug mode nobody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from threading import get_ident
from typing import Any

from waterclock.timer.report import OnError, hand_to_python


class LoopThread:
    """Stands where a thread's driver has its lock, in debug mode: nobody waits, and another thread is refused."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = get_ident()

    def __enter__(self) -> None:
        if get_ident() != self._thread and self._loop.is_running():
            raise RuntimeError(
                "an AsyncTimer is used from its loop's thread only: from another one hand the call to the loop, "
                "loop.call_soon_threadsafe(timer.call_later, ...)"
            )

    def __exit__(self, *error: object) -> None:
        pass

    def call(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Call `fn(*args)`, in the loop's thread only."""
        with self:
            return fn(*args)


class LoopBinding:
    """Knows its loop, the context its callbacks run in, and where their errors go."""

    def __init__(self, on_error: OnError | None) -> None:
        self._on_error = on_error
        self._loop: asyncio.AbstractEventLoop | None = None
        self.context: Context | None = None

    @property
    def bound(self) -> bool:
        return self._loop is not None

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which has to be the running one; `RuntimeError` where none runs, or another."""
        running = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = running
            self.context = copy_context()
        elif self._loop is not running:
            raise RuntimeError("this AsyncTimer belongs to another event loop: make one for each loop")
        return running

    def soon(self, call: Callable[..., object], *args: object) -> None:
        """Have the loop call it, from any thread; without a loop call it here."""
        if self._loop is None or self._loop.is_closed():
            call(*args)
        else:
            self._loop.call_soon_threadsafe(call, *args)

    def leave(self) -> None:
        """Belong to no loop, as at first."""
        self._loop = self.context = None

    def report(self, error: BaseException) -> None:
        """Hand an error of a callback to `on_error`, else to the loop's exception handler, in the loop's thread."""
        if self._loop is None or self._runs_here():
            self._tell(error)
        else:
            self.soon(self._tell, error)

    def _tell(self, error: BaseException) -> None:
        if self._on_error is not None:
            self._on_error(error)
        elif self._runs_here() and self._loop is not None:
            self._loop.call_exception_handler({"message": "a callback of an AsyncTimer failed", "exception": error})
        else:
            hand_to_python(error)

    def _runs_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False
