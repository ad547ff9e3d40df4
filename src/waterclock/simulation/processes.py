"""Processes: what is killed as one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from waterclock.simulation.loop import Loop
from waterclock.simulation.threads import Thread
from waterclock.simulation.world import world

if TYPE_CHECKING:
    import asyncio

    from waterclock.simulation.disk import Disk
    from waterclock.simulation.nodes import OpenFile


class Process:
    """A loop, threads, files and sockets, on a machine with a disk if it needs one.

    `skew_ms` is how far its date is off. `doom` counts down its system calls, all or those of the name `doom_at`, until
    `doomed` is called with where that was. `on_exit` is asked what becomes of it when it ends itself.
    """

    def __init__(self, name: str, machine: Disk | None = None) -> None:
        self.world, self.name, self.machine = world(), name, machine
        self.alive, self.frozen_until, self.skew_ms = True, 0, 0
        self.doom: int | None = None
        self.doom_at: str | None = None
        self.doomed: Callable[[str], object] | None = None
        self.on_exit: Callable[[int], object] | None = None
        self.exited: int | None = None
        self.threads: list[Thread] = []
        self.files: dict[int, OpenFile] = {}
        self.sockets: dict[int, Any] = {}  # network.py
        self.task: asyncio.Task[Any] | None = None
        self._coroutine: Coroutine[Any, Any, object] | None = None
        self.loop = Loop(self)  # type: ignore[abstract]
        self.world.processes.append(self)

    def main(self, coroutine: Coroutine[Any, Any, object]) -> Thread:
        """Run a coroutine as its main task, in a thread that is the loop's."""
        thread = Thread(process=self, target=self.loop.run_ready_forever, name="loop")
        thread.loop, self.loop.thread, self._coroutine = self.loop, thread, coroutine
        self.loop.call_soon(self._begin)
        thread.start()
        return thread

    def _begin(self) -> None:
        assert self._coroutine is not None
        self.task = self.loop.create_task(self._coroutine)
        self.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self.alive:
            self.world.problem("ended", f"{self.name}: {type(error).__name__}: {error} at {_place(error)}")

    def begin_thread(self, target: Callable[[], object], name: str) -> None:
        """Run a function in a thread of this process."""
        Thread(process=self, target=target, name=name).start()

    def meet_doom(self, name: str) -> None:
        """A system call is made while it is doomed: the last one is not done."""
        assert self.doom is not None
        if self.doom_at not in (None, name):
            return
        self.doom -= 1
        if self.doom <= 0:
            self.doom = None
            deed, self.doomed = self.doomed, None
            assert deed is not None
            deed(f"in {self.world.running().name}, at {name}")
            self.world.park()

    def kill(self) -> None:
        """As by SIGKILL, or by the end of its machine: nothing of it runs again."""
        if not self.alive:
            return
        self.alive = False
        self.world.processes.remove(self)
        self.world.graveyard.append(self)  # greenlets that are never resumed, until the history is over
        for sock in list(self.sockets.values()):
            sock.process_died()

    def lose_power(self) -> str:
        """Its machine goes: nobody is told, and what was not flushed may be gone. What became of that, in words."""
        for sock in self.sockets.values():
            sock.silent = True
        self.kill()
        assert self.machine is not None
        return self.machine.cut_power()

    def have_peace(self) -> None:
        """What was to come over it does not, and it stands still no longer."""
        self.doom = None
        self.frozen_until = min(self.frozen_until, self.world.now + 1)

    def end(self) -> None:
        """The history is over: nothing of it is left behind."""
        self.alive = False
        for thread in self.threads:
            thread.end()
        self.loop.end()
        if self.task is None and self._coroutine is not None:  # it was killed before it began
            self._coroutine.close()
        self.task = self._coroutine = None
        self.threads.clear()
        self.loop.forget()

    def exit(self, code: int) -> None:
        """It ends itself, and never comes back from here."""
        self.world.log("exit", self.name, code)
        self.exited = code
        if self.on_exit is not None:
            self.on_exit(code)
        else:
            self.kill()
        self.world.park()


def _place(error: BaseException) -> str:
    """File and line of the innermost frame."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    return "nowhere" if where is None else f"{where.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{where.tb_lineno}"
