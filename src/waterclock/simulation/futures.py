"""`concurrent.futures` of the simulated world; and futures for whoever has the loop of its process do something."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from waterclock.simulation.threads import Event, Thread
from waterclock.simulation.world import DeadProcess

if TYPE_CHECKING:
    from waterclock.simulation.processes import Process


class Future:
    """`concurrent.futures.Future`, as far as it is asked."""

    def __init__(self) -> None:
        self._over = Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether it has ended."""
        return self._over.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end; whether it has come."""
        return self._over.wait(timeout)

    def result(self, timeout: float | None = None) -> Any:
        """What came of it, or the error that did. TimeoutError."""
        if not self.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value

    def ends(self, value: Any, error: BaseException | None = None) -> None:
        """This came of it."""
        self._value, self._error = value, error
        self._over.set()


def begun(process: Process, coroutine: Coroutine[Any, Any, Any]) -> Future:
    """Have the loop of a process run it; for any thread of that. DeadProcess if it is dead."""
    if not process.alive:
        coroutine.close()
        raise DeadProcess
    future = Future()

    async def run() -> None:
        try:
            future.ends(await coroutine)
        except Exception as error:
            future.ends(None, error)

    process.loop.create_task(run())
    return future


class ThreadPoolExecutor:
    """`concurrent.futures.ThreadPoolExecutor`: each task has a thread of its own."""

    def __init__(self, max_workers: int, thread_name_prefix: str) -> None:
        self._name = thread_name_prefix

    def submit(self, function: Callable[..., object], *args: Any) -> Future:
        """Call it in a thread."""
        future = Future()

        def work() -> None:
            try:
                future.ends(function(*args))
            except Exception as error:
                future.ends(None, error)

        Thread(target=work, name=self._name).start()
        return future

    def shutdown(self) -> None:
        """As Python's."""


def wait(several: Iterable[Future]) -> None:
    """`concurrent.futures.wait`."""
    for one in several:
        one.wait()


FUTURES: Final = SimpleNamespace(ThreadPoolExecutor=ThreadPoolExecutor, Future=Future, wait=wait)
