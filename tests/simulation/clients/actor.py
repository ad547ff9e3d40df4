"""`Actor`: a client in a process of its own, which works until the universe is quiet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from tests.simulation import coverage
from tests.simulation.kafka import Gone, Kafka
from tests.simulation.kafka.codes import RETRIABLE
from tests.simulation.knobs import PACES, VALUES

if TYPE_CHECKING:
    from tests.simulation.promises import History, Write
    from waterclock.simulation.processes import Process


class Actor:
    """A client process. `universe` knows where the broker is, and when it is over."""

    def __init__(self, universe: Any, process: Process, name: str) -> None:
        self.universe, self.process, self.name = universe, process, name
        self.world = universe.world
        self.history: History = universe.history
        self.rng = self.world.stream(f"client {name}")
        self.kafka = Kafka(process, universe.network, universe.where)
        self.begin()

    def begin(self) -> None:
        """What this kind of client has of its own."""

    @property
    def over(self) -> bool:
        return self.universe.quiet

    async def work(self) -> None:
        """One piece of work."""
        raise NotImplementedError

    async def pause(self, least: float = 0.01, most: float = 0.3) -> None:
        await asyncio.sleep(self.rng.uniform(least, most))

    async def between(self, most: float) -> None:
        """Two pieces of work: who is eager goes on almost at once."""
        await self.pause(0.0002, most * PACES[self.universe.plan.pace])

    def data(self, write: Write) -> tuple[bytes, bytes | None]:
        size = self.rng.choice(VALUES[self.universe.plan.values])
        return (b"k%d" % (write.value % 5), b"%d." % write.value + b"x" * size)

    def tell(self, *what: object) -> None:
        self.world.log(self.process.name, *what)
        coverage.passed(coverage.TOLD)

    async def run(self) -> None:
        while not self.over:
            try:
                await self.work()
            except Gone as gone:
                self.tell("gone", gone)
                await self.pause(0.05, 0.5)
        self.kafka.close()
        self.universe.finished(self)

    async def go_elsewhere(self, what: str, error: int) -> None:
        """After an answer that says: not here, or not now."""
        self.tell(what, error)
        self.kafka.elsewhere(error)
        await self.pause()

    def refused(self, what: str, error: int) -> None:
        self.world.problem("refused", f"{self.process.name}: {what} was answered {error}")

    async def until(self, what: str, ask: Callable[[], Awaitable[Any]], fine: tuple[int, ...] = (0,)) -> Any:
        """Ask until an answer (its error, or a tuple that begins with it) is fine or of another kind; None in peace."""
        while not self.over:
            try:
                answer = await ask()
            except Gone as gone:
                self.tell(what, gone)
                await self.pause(0.05, 0.5)
                continue
            error = answer[0] if isinstance(answer, tuple) else answer
            if error in fine or error not in RETRIABLE:
                return answer
            await self.go_elsewhere(what, error)
        return None
