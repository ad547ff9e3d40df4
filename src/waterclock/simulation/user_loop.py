"""The asyncio loop that a user's own code runs on in a universe: what a client library asks of a real one.

Rule 1: futures and tasks are numbered, and their hash is the number: a set of them has one order, whatever their addresses.
Rule 2: tasks stay referenced until the universe is over: what belonged to a killed process is not unwound in its midst.
"""

# mypy: disable-error-code="override, assignment"
from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from typing import Any

from waterclock.simulation.loop import Loop
from waterclock.simulation.processes import Process
from waterclock.simulation.streams import Transport, connected


class NumberedFuture(asyncio.Future[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class NumberedTask(asyncio.Task[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class UserLoop(Loop):
    """`deed` is done `steps` callbacks from now: a fault in the midst of what the process does."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._made = len(self.world.graveyard) << 24  # no two tasks of a universe have one number
        self.steps = 0
        self._tasks: list[NumberedTask] = []
        self.deed: Callable[[], object] = lambda: None

    def create_future(self) -> NumberedFuture:
        future = NumberedFuture(loop=self)
        future.number = self._made = self._made + 1
        return future

    def create_task(self, coro: Any, *, name: str | None = None, **known: Any) -> NumberedTask:
        self._made += 1
        task = NumberedTask(coro, loop=self, name=name or f"task-{self._made}", **known)
        task.number = self._made
        if self.process.alive:
            self._tasks.append(task)
        return task

    def forget(self) -> None:
        """As of any loop."""
        super().forget()
        self._tasks.clear()

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        if not self.process.alive:  # what is unwound calls too
            return asyncio.Handle(callback, args, self, context)
        if self.steps:
            self.steps -= 1
            if not self.steps:
                self.world.soon(self.deed)
        handle: asyncio.Handle = super().call_soon(callback, *args, context=context)
        return handle

    call_soon_threadsafe = call_soon

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """As a real loop does: into the log, as text. What is freed of a dead process says nothing."""
        if self.process.alive:
            error = context.get("exception")
            trace = "".join(traceback.format_exception(error)) if error is not None else ""
            logging.getLogger("asyncio").error("%s: %s\n%s", self.process.name, context.get("message"), trace)

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        """Nobody sends one: a universe ends a process as SIGKILL does."""

    async def create_connection(
        self, make: Callable[[], asyncio.Protocol], host: str, port: int, ssl: object = None, **_: object
    ) -> tuple[Transport, asyncio.Protocol]:
        if ssl is not None:
            raise NotImplementedError("a universe has no TLS")
        return await connected(self, make, host, port)
