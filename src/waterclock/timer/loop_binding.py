"""The loop that an AsyncTimer belongs to, and how errors get there.

Rule 1: the loop is bound on first use, and for good: a timer in another loop would wait for a loop that does not run.
Rule 2: a loop that is in debug mode when it is bound lets nobody but its own thread in while it runs, as it does for its
    own timers. Without debug mode nobody asks.
Rule 3: what a callback returned that is to be awaited becomes a task, which is kept until it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from threading import get_ident
from typing import Any

from waterclock.timer.awaited import Then, is_awaitable, unawaited
from waterclock.timer.report import OnError, Report, hand_to_python


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
        """The loop, which has to be the running one; `RuntimeError` if none runs, or another."""
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
        if self._loop is None or self.runs_here():
            self._tell(error)
        else:
            self.soon(self._tell, error)

    def _tell(self, error: BaseException) -> None:
        if self._on_error is not None:
            self._on_error(error)
        elif self.runs_here() and self._loop is not None:
            self._loop.call_exception_handler({"message": "a callback of an AsyncTimer failed", "exception": error})
        else:
            hand_to_python(error)

    def runs_here(self) -> bool:
        """Whether this is the loop's thread, while it runs."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


class Tasks:
    """What an AsyncTimer does with what its callbacks return."""

    def __init__(self, binding: LoopBinding, report: Report) -> None:
        self._binding = binding
        self._report = report
        self._running: set[asyncio.Future[Any]] = set()

    def take(self, returned: object, then: Then | None = None) -> None:
        """Make a task of what is to be awaited, from any thread; go on when it has ended."""
        if not is_awaitable(returned):
            if then is not None:
                then()
        elif self._binding.runs_here():
            self._start(returned, then)
        else:
            self._binding.soon(self._start, returned, then)

    def forget(self) -> None:
        """In a forked child: the tasks are the parent's."""
        self._running = set()

    async def ended(self) -> None:
        """Wait for all of them, but for the one that waits here."""
        me = asyncio.current_task()
        while others := self._running - {me}:
            await asyncio.wait(others)

    def _start(self, awaitable: Any, then: Then | None) -> None:
        try:
            asyncio.get_running_loop()
            task = asyncio.ensure_future(awaitable)
        except (RuntimeError, ValueError) as error:  # turned by hand without a loop; a future of another loop
            self._report(unawaited(awaitable) or error)
            if then is not None:
                then()
            return
        self._running.add(task)
        task.add_done_callback(partial(self._end, then))

    def _end(self, then: Then | None, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(error)
        if then is not None:
            then()
