# cython: language_level=3, annotation_typing=False, binding=False, auto_pickle=False
"""What a coroutine that waits in a purgatory is to its operation: whom it asks, and what it wakes.

Rule 1: any thread may complete the operation; the future is touched on its loop's thread only.
Rule 2: it is compiled as it stands, with the types of _waiting.pxd.
"""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from collections.abc import Callable
from threading import get_ident
from typing import Any


class Waker:
    """Made in the coroutine that is going to wait; `ask` and `wake` are its operation's question and deed."""

    __slots__ = ("_loop", "_predicate", "_thread", "woken")

    def __init__(self, predicate: Callable[[], Any]) -> None:
        self._predicate = predicate
        self._loop = get_running_loop()
        self._thread = get_ident()
        self.woken: asyncio.Future[None] = self._loop.create_future()

    def ask(self, op: Any) -> Any:
        """What the predicate says, which knows of no operation."""
        return self._predicate()

    def wake(self, op: Any) -> None:
        """Wake the coroutine, at once in its loop's thread and soon from another."""
        if get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._set)
        elif not self.woken.done():
            self.woken.set_result(None)

    def _set(self) -> None:
        if not self.woken.done():  # the task may have been cancelled
            self.woken.set_result(None)
