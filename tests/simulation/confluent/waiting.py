"""How a thread waits for what the loop of its process does, or another thread: `concurrent.futures` of the simulation."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from types import SimpleNamespace
from typing import Any

from tests.simulation.confluent.requests import raised
from waterclock.simulation.processes import Event, Thread
from waterclock.simulation.world import world


class Future:
    """Of a thread's or a coroutine's result."""

    def __init__(self) -> None:
        self._over, self._value, self._error = Event(), None, None

    def done(self) -> bool:
        return bool(self._over.is_set())

    def wait(self, timeout_s: float | None = None) -> bool:
        return bool(self._over.wait(timeout_s))

    def result(self, timeout: float | None = None) -> Any:
        if not self.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value

    def ends(self, value: Any, error: BaseException | None = None) -> None:
        self._value, self._error = value, error
        self._over.set()


def begun(process: Any, coroutine: Coroutine[Any, Any, Any]) -> Future:
    """Have the loop of a process run it."""
    future = Future()

    async def run() -> None:
        try:
            future.ends(await coroutine)
        except Exception as error:
            future.ends(None, error)

    process.loop.create_task(run())
    return future


class Calls:
    """What a client has begun and not ended: who asks again, as time was over, waits for the same."""

    def __init__(self, process: Any) -> None:
        self._process, self._under_way = process, dict[str, Future]()

    def wait(self, name: str, work: Callable[[], Coroutine[Any, Any, Any]], timeout_s: float) -> Any:
        if name not in self._under_way:
            self._under_way[name] = begun(self._process, work())
        future = self._under_way[name]
        if not future.wait(None if timeout_s < 0 else timeout_s):
            raise raised(-185, retriable=True)  # _TIMED_OUT
        del self._under_way[name]
        return future.result()

    def has(self, name: str) -> bool:
        return name in self._under_way


class ThreadPoolExecutor:
    """Each task has a thread of its own."""

    def __init__(self, most: int, name: str) -> None:
        self._name = name

    def submit(self, function: Callable[..., Any], *args: Any) -> Future:
        future = Future()

        def work() -> None:
            try:
                future.ends(function(*args))
            except Exception as error:
                future.ends(None, error)

        Thread(target=work, name=self._name).start()
        return future

    def shutdown(self) -> None:
        pass


def wait(several: Iterable[Future]) -> None:
    for one in several:
        one.wait()


FUTURES = SimpleNamespace(ThreadPoolExecutor=ThreadPoolExecutor, Future=Future, wait=wait)


def me() -> Any:
    """The process whose thread runs."""
    return world().thread.process
