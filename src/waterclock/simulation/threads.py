"""Threads as greenlets, and what they wait for: `threading` and `queue` of the simulated world.

Rule 1: a thread that waits has a ticket, and is resumed with it: a second reason to resume it, which comes late, is void.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import tasks
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final, Generic, TypeVar

from greenlet import greenlet

from waterclock.simulation.world import NS, DeadProcess, world

T = TypeVar("T")
ONE_TASK: Final = sys.version_info >= (3, 14)  # asyncio knows one present task of a thread, and not one of each loop


class Thread:
    """`threading.Thread`."""

    def __init__(
        self, group: None = None, target: Callable[..., object] = tuple, name: str = "thread", args: tuple[Any, ...] = (),
        daemon: bool | None = None, process: Any = None,
    ) -> None:  # fmt: skip
        self.world = world()
        self.process: Any = process or self.world.running().process
        self.target, self.name, self.args = target, name, args
        self.loop: Any = None  # that it runs
        self._task: asyncio.Task[Any] | None = None  # that it was in the midst of
        self.ticket, self.done = 0, False
        self._joiners: list[tuple[Thread, int]] = []

    def start(self) -> None:
        """Begin, soon."""
        self.process.threads.append(self)
        self._greenlet = greenlet(self._run, parent=self.world.hub)
        self.ticket += 1
        self.world.soon(self.resume, self.ticket)

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self.done

    def _run(self, *_: object) -> None:
        try:
            self.target(*self.args)
        except DeadProcess:
            pass
        except Exception as error:
            if self.process.alive:
                story = f"{self.process.name}/{self.name} ended: {type(error).__name__}: {error}"
                self.world.problem("thread", story)
        self.done = True
        if self.process.alive:
            _resume(self._joiners)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        if not self.done:
            _wait(self._joiners)

    def resume(self, ticket: int) -> None:
        """An event: it goes on, if that is what it waits for."""
        process, here = self.process, self.world
        if ticket != self.ticket or self.done or not process.alive:
            return
        if process.frozen_until > here.now:
            here.at(process.frozen_until, self.resume, ticket)
            return
        here.thread = self
        loop = self.loop
        if loop is None or (here.loop is loop and not ONE_TASK):
            self._greenlet.switch()
        else:
            self._resume_loop(loop)
        here.thread = None

    def end(self) -> None:
        """Unwind it: its process is dead, so every system call of it raises DeadProcess."""
        with suppress(DeadProcess):  # one that has not begun
            self._greenlet.throw(DeadProcess)

    def _resume_loop(self, loop: Any) -> None:
        here = self.world
        if here.loop is not loop:  # it stays set while the hub and other threads run: they do not ask
            asyncio._set_running_loop(loop)
            here.loop = loop
        if ONE_TASK and self._task is not None:
            tasks._swap_current_task(loop, self._task)  # type: ignore[attr-defined]
        self._greenlet.switch()
        if ONE_TASK:
            self._task = tasks._swap_current_task(loop, None)  # type: ignore[attr-defined]


def _wait(waiting: list[tuple[Thread, int]] | deque[tuple[Thread, int]]) -> None:
    """Wait among others until one of them is resumed, or all."""
    here = world()
    thread = here.running()
    thread.ticket += 1
    waiting.append((thread, thread.ticket))
    here.park()


def _resume(waiting: list[tuple[Thread, int]]) -> None:
    for thread, ticket in waiting:
        thread.world.soon(thread.resume, ticket)


def _resume_first(waiting: deque[tuple[Thread, int]]) -> None:
    if waiting:
        thread, ticket = waiting.popleft()
        thread.world.soon(thread.resume, ticket)


class SimpleQueue(Generic[T]):
    """`queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._waiting: deque[tuple[Thread, int]] = deque()

    def put(self, item: T) -> None:
        """Put an item behind the others."""
        self._items.append(item)
        _resume_first(self._waiting)

    def get(self) -> T:
        """The first item, once there is one."""
        while not self._items:
            _wait(self._waiting)
        return self._items.popleft()

    def empty(self) -> bool:
        """Whether nothing is there."""
        return not self._items

    def qsize(self) -> int:
        """How much is there."""
        return len(self._items)


class Lock:
    """`threading.Lock`."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[tuple[Thread, int]] = deque()

    def acquire(self) -> bool:
        """Have it, once it is free."""
        while self._held:
            _wait(self._waiting)
        self._held = True
        return True

    def release(self) -> None:
        """Let the next one have it."""
        self._held = False
        _resume_first(self._waiting)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Event:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[tuple[Thread, int]] = []

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._set

    def set(self) -> None:
        """It has happened: whoever waits goes on."""
        self._set = True
        waiting, self._waiting = self._waiting, []
        _resume(waiting)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it, for so many seconds at most; whether it has happened."""
        if not self._set:
            if timeout is not None:
                here = world()
                thread = here.running()
                here.at(here.now + round(timeout * NS), thread.resume, thread.ticket + 1)
            _wait(self._waiting)
        return self._set


THREADING: Final = SimpleNamespace(
    Thread=Thread, Lock=Lock, Event=Event, current_thread=lambda: world().thread, get_ident=lambda: 1
)
QUEUE: Final = SimpleNamespace(SimpleQueue=SimpleQueue)
