"""A small world for tests of the world itself: processes on one disk and one network, and functions run in threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from waterclock.simulation.disk import Disk
from waterclock.simulation.network import Network
from waterclock.simulation.processes import Process
from waterclock.simulation.world import NS, World


class Scene:
    """The world of `seed`, with a process of one machine, and another of another one."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.world.network = self.network = Network()
        self.disk = Disk()
        self.process, self.other = Process("one", self.disk), Process("other", Disk("other"))

    def begin(self, *functions: Callable[[], object], process: Process | None = None) -> None:
        """Each in a thread of its own."""
        for function in functions:
            (process or self.process).begin_thread(function, getattr(function, "__name__", "function"))

    def pass_s(self, seconds: float = 5.0) -> None:
        """Let virtual time pass; nothing may go wrong."""
        self.world.run(self.world.now + round(seconds * NS))
        assert self.world.problems == []

    def done(self, *functions: Callable[[], Any], process: Process | None = None) -> list[Any]:
        """What they return, each run in a thread of its own; what one raises is raised here."""
        answers: dict[int, Any] = {}
        errors: list[BaseException] = []

        def answering(number: int, function: Callable[[], Any]) -> Callable[[], None]:
            def run() -> None:
                try:
                    answers[number] = function()
                except (OSError, AssertionError) as error:
                    errors.append(error)

            return run

        self.begin(*(answering(*one) for one in enumerate(functions)), process=process)
        self.pass_s()
        for error in errors:
            raise error
        assert len(answers) == len(functions), "not all of them came to an end"
        return [answers[number] for number in range(len(functions))]
