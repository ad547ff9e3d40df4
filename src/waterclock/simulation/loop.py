"""A process's asyncio loop under virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, TypeVarTuple

from waterclock.simulation.world import US, DeadProcess, world

if TYPE_CHECKING:
    from waterclock.simulation.threads import Thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
UNWOUND = 100  # times that a coroutine may await while it is closed
FAR_S = 1e9  # a timer that is later than that never comes


class CheapHandle(asyncio.Handle):
    """A handle that asks nobody whether it is to be debugged."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: Loop, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr = False, None


class CheapTimer(asyncio.TimerHandle):
    """A timer of the same kind, which its loop does not keep."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: Loop, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr = False, None
        self._when, self._scheduled = when, False

    def cancel(self) -> None:
        """It stays in the heap until its moment, and keeps nothing alive."""
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class HasFd(Protocol):
    """A socket."""

    def fileno(self) -> int: ...


class Loop(asyncio.AbstractEventLoop):
    """A process's asyncio loop: callbacks in their order (asyncio promises that), sockets in any order, timers late."""

    def __init__(self, process: Any) -> None:
        self.process: Any = process
        self.world = world()
        self.thread: Thread
        self._random = self.world.rng.random
        self._ready: deque[Any] = deque()  # handles
        self._hot: dict[int, None] = {}  # sockets that may have news
        self._readers: dict[int, asyncio.Handle] = {}
        self._writers: dict[int, asyncio.Handle] = {}
        self._sleeps = False

    # asyncio's side

    def time(self) -> float:
        """Virtual seconds."""
        return self.world.now / 1e9

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Always."""
        return True

    def is_closed(self) -> bool:
        """Whether its process is dead."""
        return not self.process.alive

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: Any = None, context: Context | None = None, **named: Any
    ) -> asyncio.Task[Any]:
        """As asyncio's; tasks are called alike, since numbers would go on from one history to the next."""
        return asyncio.Task(coro, loop=self, name=name or "task", context=context, **named)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody caught is a problem."""
        error = context.get("exception")
        if self.process.alive:
            story = f"{self.process.name}: {context.get('message')}: {type(error).__name__}: {error}"
            self.world.problem("exception", story)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Behind all that is called soon already."""
        handle = CheapHandle(callback, args, self, context)
        self._ready.append(handle)
        if self._sleeps:
            self._rouse()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """After a delay."""
        return self.call_at(self.world.now / 1e9 + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """At a moment, or somewhat later."""
        handle = CheapTimer(when, callback, args, self, context)
        moment = max(self.world.now, int(min(when, FAR_S) * 1e9) + 1)
        self.world.at(moment + int(self._random() * 300 * US), self._due, handle)
        return handle

    def _due(self, handle: asyncio.TimerHandle) -> None:
        if not handle._cancelled and self.process.alive:
            self._ready.append(handle)
            if self._sleeps:
                self._rouse()

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """In a thread of its own."""
        future = self.create_future()

        def work() -> None:
            try:
                self.call_soon_threadsafe(tell, func(*args), None)
            except Exception as error:
                self.call_soon_threadsafe(tell, None, error)

        def tell(result: Any, error: Exception | None) -> None:
            if not future.done():
                future.set_exception(error) if error is not None else future.set_result(result)

        self.process.begin_thread(work, "executor")
        return future

    # Sockets

    def add_reader(self, fd: int | HasFd, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        self._watch(self._readers, fd, callback, args)

    def add_writer(self, fd: int | HasFd, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        self._watch(self._writers, fd, callback, args)

    def _watch(self, where: dict[int, asyncio.Handle], fd: int | HasFd, callback: Any, args: tuple[Any, ...]) -> None:
        fd = _number(fd)
        where[fd] = CheapHandle(callback, args, self, None)
        self.io(fd)

    def remove_reader(self, fd: int | HasFd) -> bool:
        return self._readers.pop(_number(fd), None) is not None

    def remove_writer(self, fd: int | HasFd) -> bool:
        return self._writers.pop(_number(fd), None) is not None

    def waits_to_write(self, fd: int) -> bool:
        """Whether somebody wants to hear that there is room again."""
        return fd in self._writers

    def io(self, fd: int) -> None:
        """Something about this socket may be news."""
        self._hot[fd] = None
        if self._sleeps:
            self._rouse()

    def _poll(self) -> None:
        """What epoll would say: a socket stays hot for as long as somebody can read or write it."""
        found: list[asyncio.Handle] = []
        sockets, readers, writers, cold = self.process.sockets, self._readers, self._writers, []
        for fd in self._hot:
            sock, is_cold = sockets.get(fd), True
            if sock is not None:
                if fd in readers and sock.readable():
                    found.append(readers[fd])
                    is_cold = False
                if fd in writers and sock.writable():
                    found.append(writers[fd])
                    is_cold = False
            if is_cold:
                cold.append(fd)
        for fd in cold:
            del self._hot[fd]
        if len(found) > 1:
            self.world.rng.shuffle(found)
        self._ready.extend(found)

    def forget(self) -> None:
        """The history is over: it keeps nothing alive."""
        for kept in (self._ready, self._readers, self._writers):
            kept.clear()

    # The thread

    def end(self) -> None:
        """Its process is dead: close what its tasks were in the midst of, and what that begins."""
        asyncio._set_running_loop(self)
        try:
            for _ in range(UNWOUND):
                left: list[Any] = [task.get_coro() for task in asyncio.all_tasks(self)]
                left = [one for one in left if getattr(one, "cr_frame", None) is not None]
                if not left:
                    return
                for coroutine in left:
                    with suppress(BaseException):  # it awaits, or fails: nobody hears of it
                        coroutine.close()
        finally:
            asyncio._set_running_loop(None)

    def _rouse(self) -> None:
        self._sleeps = False
        self.world.soon(self.thread.resume, self.thread.ticket)

    def run_ready_forever(self) -> None:
        """What its thread does."""
        here, process, ready, random = self.world, self.process, self._ready, self._random
        while True:
            if self._hot:
                self._poll()
            if not ready:
                self.thread.ticket += 1
                self._sleeps = True
                here.park()
                continue
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    try:  # as Handle._run, without its frame
                        handle._context.run(handle._callback, *handle._args)
                    except Exception as error:
                        self.call_exception_handler({"message": "in a callback", "exception": error})
                    if not process.alive:
                        raise DeadProcess
                if random() < 0.05:  # another thread has the interpreter
                    here.sleep(1 + int(random() * 40 * US))
            here.sleep(1 + int(random() * 10 * US))


def _number(fd: int | HasFd) -> int:
    return fd if isinstance(fd, int) else fd.fileno()
