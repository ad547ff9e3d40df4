"""A process of a universe that runs a user's async function, and begins it again as a supervisor does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiokafka.errors import KafkaError

from waterclock.simulation.processes import Process
from waterclock.simulation.user_loop import UserLoop
from waterclock.simulation.world import MS, NS

if TYPE_CHECKING:
    from types import FrameType

PASSING: Final = (KafkaError, OSError, TimeoutError)
"""What a supervisor begins a process again after."""


class Supervisor(Protocol):
    """Who hears of a process's end, and when it is to begin again."""

    def ended(self, name: str, error: Exception | None, passing: bool) -> None: ...

    def later(self, least_ns: int, most_ns: int, deed: Callable[[], object]) -> None: ...


class UserProcess:
    """`process` is what runs now, if anything does."""

    def __init__(self, supervisor: Supervisor, name: str, function: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self.name, self._function, self._supervisor = name, function, supervisor
        self.process: Process | None = None

    def start(self) -> None:
        """Begin, with nothing in memory but what the function was given."""
        self.process = process = Process(self.name)
        process.loop = UserLoop(process)  # type: ignore[abstract]
        process.main(self._live(process))

    async def _live(self, process: Process) -> None:
        try:
            await self._function()
        except Exception as error:
            if not process.alive:
                return
            passing = isinstance(error, PASSING)
            self._supervisor.ended(self.name, error, passing)
            self.kill() if passing else self._end()
        else:
            self._supervisor.ended(self.name, None, True)
            self._end()

    def kill(self) -> None:
        """End it, and begin it again after a while."""
        self._end()
        self._supervisor.later(10 * MS, 2 * NS, self.start)

    def _end(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process = None

    def place(self) -> str:
        """Where the user's code stands."""
        task = self.process.task if self.process is not None else None
        frames = _frames(task.get_coro()) if task is not None else []
        of_user = [frame for frame in frames if frame.f_code.co_filename == frames[1].f_code.co_filename]
        return f" at {of_user[-1].f_code.co_filename.rsplit('/', 1)[-1]}:{of_user[-1].f_lineno}" if of_user else ""


def _frames(coroutine: Any) -> list[FrameType]:
    """Of a coroutine and of those that it waits for; the first is ours."""
    found = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        found.append(frame)
        coroutine = coroutine.cr_await
    return found if len(found) > 1 else []
