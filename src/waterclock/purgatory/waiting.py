"""What wakes a coroutine that waits in a purgatory.

Rule 1: any thread may complete the operation; the future is touched on its loop's thread only.
"""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from threading import get_ident
from typing import Any


class Waker:
    """Made in the coroutine that is going to wait; `wake` is its operation's `on_complete`."""

    __slots__ = ("_loop", "_thread", "woken")

    def __init__(self) -> None:
        self._loop = get_running_loop()
        self._thread = get_ident()
        self.woken: asyncio.Future[None] = self._loop.create_future()

    def wake(self, op: Any) -> None:
        """Wake the coroutine, at once in its loop's thread and soon from another."""
        if get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._set)
        elif not self.woken.done():
            self.woken.set_result(None)

    def _set(self) -> None:
        if not self.woken.done():  # the task may have been cancelled
            self.woken.set_result(None)
