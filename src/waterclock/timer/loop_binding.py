"""The loop that an AsyncTimer belongs to, and how errors get there.

Rule 1: the loop is bound on first use, and for good: a timer in another loop would wait for a loop that does not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context

from waterclock.timer.report import OnError, hand_to_python


class LoopBinding:
    """Knows its loop, the context its callbacks run in, and where their errors go."""

    def __init__(self, on_error: OnError | None) -> None:
        self._on_error = on_error
        self._loop: asyncio.AbstractEventLoop | None = None
        self.context: Context | None = None

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
