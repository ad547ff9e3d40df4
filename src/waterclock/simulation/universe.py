"""`universe(seed)`: a user's own asyncio code against a simulated broker, under virtual time, with faults.

Rule 1: whatever happens in it is the seed's choice: the same code and the same seed give the same history.
Rule 2: a process of the user's is an async function. Killed, it never runs again; begun again, it has nothing but what it
    reads from Kafka and from a `Table`.
Rule 3: it begins again as under a supervisor: after a kill, and after an error of Kafka, of a connection or of a timeout.
    Any other error is the test's.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from waterclock.errors import UsageError, meant
from waterclock.simulation.broker_node import HOST, PORT, BrokerNode
from waterclock.simulation.install import installed, sweep
from waterclock.simulation.nemesis import FAULTS, Nemesis, Victim
from waterclock.simulation.network import Network
from waterclock.simulation.stand_ins import stand_ins
from waterclock.simulation.user_process import UserProcess
from waterclock.simulation.world import MS, NS, World, world

T = TypeVar("T")
PATIENCE_S = 300
TOLD = 25  # of the last events, where a test fails


class Table(dict[Any, Any]):
    """What outlives every process, as a database does. It is read as a dict; a write takes time."""

    async def write(self, rows: Mapping[Any, Any]) -> None:
        """All of the rows or none. A kill may come before, or after, when nobody has heard that they are there."""
        chance = world().stream("tables")
        await asyncio.sleep(chance.uniform(0.0005, 0.02))
        self.update(rows)
        await asyncio.sleep(chance.uniform(0.0005, 0.005))


class Universe:
    """What `universe()` hands out. `bootstrap` is for `bootstrap_servers`."""

    bootstrap = f"{HOST}:{PORT}"

    def __init__(self, seed: int, faults: Iterable[str], settings: Mapping[str, str]) -> None:
        self.seed = seed
        self.world = World(seed)
        self.world.network = Network()
        self._rng = self.world.stream("universe")
        self._machine = BrokerNode(self.world, self._rng, {"auto.create.topics.enable": "false", **settings})
        self._workers: list[UserProcess] = []
        self._told: list[str] = []
        self._failure: Exception | None = None
        self._nemesis = Nemesis(self.world, self._victims, self._machine, faults, self.note)
        self._machine.start()
        self._go(PATIENCE_S, lambda: self._machine.up)

    def _victims(self) -> list[Victim]:
        return [self._machine, *self._workers]

    # what a test sets up

    def topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Make a topic, with Kafka's settings by Kafka's names."""

        async def make() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            made = await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=dict(settings or {}))])
            await admin.close()
            if refused := [why for _, code, *why in made.topic_errors if code]:
                raise ValueError(f"the topic {name!r} was refused: {refused[0][0]}")

        self._do("topic", make)

    def send(self, topic: str, values: Iterable[bytes]) -> None:
        """Records that are there before anybody begins."""

        async def send() -> None:
            async with AIOKafkaProducer(bootstrap_servers=self.bootstrap) as producer:
                for value in values:
                    await producer.send(topic, value)

        self._do("send", send)

    def process(self, name: str, function: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
        """Run `function(*args)` as a process: killed at any moment if the faults say so, and begun again."""
        if any(worker.name == name for worker in self._workers):
            raise ValueError(f"there is a process {name!r} already")
        self._workers.append(worker := UserProcess(self, name, lambda: function(*args)))
        self.later(0, 100 * MS, worker.start)

    def table(self) -> Table:
        return Table()

    # what a test does

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let so much virtual time pass, with faults; less where `until()` is true. Whether it was."""
        self._nemesis.begin()
        return self._go(seconds, until)

    def settle(self, until: Callable[[], bool] | None = None, seconds: float = PATIENCE_S) -> None:
        """No faults any more, for so much virtual time or until `until()`; AssertionError where that does not come."""
        __tracebackhide__ = True
        self._nemesis.end()
        if not self._go(seconds, until or (lambda: False)) and until is not None:
            raise AssertionError(f"not so after {seconds:g} virtual seconds without a fault")

    def records(self, topic: str) -> list[ConsumerRecord[Any, Any]]:
        """All that a topic holds, of transactions what is committed. Ends the faults."""
        self._nemesis.end()

        async def read() -> list[ConsumerRecord[Any, Any]]:
            consumer = AIOKafkaConsumer(
                topic, bootstrap_servers=self.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
            )
            await consumer.start()
            parts = sorted(consumer.assignment())
            ends = await consumer.end_offsets(parts)
            found: list[ConsumerRecord[Any, Any]] = []
            while any([await consumer.position(part) < ends[part] for part in parts]):
                for some in (await consumer.getmany(timeout_ms=500)).values():
                    found += some
            await consumer.stop()
            return sorted(found, key=lambda record: (record.partition, record.offset))

        return self._do("records", read)

    # what happens

    def _go(self, seconds: float, until: Callable[[], bool]) -> bool:
        __tracebackhide__ = True
        self.world.run(self.world.now + round(seconds * NS), until)
        if self._failure is not None:
            raise self._failure
        for kind, story in self.world.problems:
            raise RuntimeError(f"the simulated broker failed, and that is a defect of waterclock: {kind}: {story}")
        return until()

    def _do(self, name: str, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run one coroutine to its end, by a process of its own."""
        results: list[T] = []

        async def keep() -> None:
            results.append(await function())

        UserProcess(self, name, keep).start()
        if not self._go(PATIENCE_S, lambda: bool(results)):
            raise RuntimeError(f"{name} took more than {PATIENCE_S} virtual seconds")
        return results[0]

    def later(self, least_ns: int, most_ns: int, deed: Callable[[], object]) -> None:
        self.world.at(self.world.now + self._rng.randrange(least_ns, most_ns), deed)

    def ended(self, name: str, error: Exception | None, passing: bool) -> None:
        """A process has ended. An error that does not pass ends the history, and is raised where the test waits."""
        if name in [worker.name for worker in self._workers]:
            self.note(f"{name} is done" if error is None else f"{name} ended: {error!r}")
        if error is not None and not passing:
            self._failure, self.world.stop = error, True

    def note(self, what: str) -> None:
        """A line of the history."""
        self.world.log(what)
        self._told.append(f"{self.world.now / NS - 1000:9.3f} s  {what}")

    def story(self) -> str:
        """The seed, and the last that happened."""
        return "\n".join([f"universe of seed {self.seed}:", *self._told[-TOLD:]])

    @property
    def digest(self) -> str:
        """Of the whole history: equal where nothing differs."""
        return self.world.digest.hexdigest()


@contextmanager
def universe(seed: int, faults: Iterable[str], settings: Mapping[str, str] | None) -> Iterator[Universe]:
    """What `waterclock.testing.universe` is."""
    faults = tuple(faults)
    if asyncio._get_running_loop() is not None:
        raise UsageError("a universe has loops of its own: ask for it in a plain function, not in a coroutine")
    for fault in faults:
        if fault not in FAULTS:
            raise UsageError(f"there is no fault {fault!r}: {meant(fault, FAULTS)}")
    with installed():
        made = Universe(seed, faults, settings or {})
        with stand_ins(made.world):
            try:
                yield made
            except BaseException as error:
                error.add_note(made.story())
                raise
            finally:
                _bury(made.world)
                World.now_world = None


def _bury(world: World) -> None:
    """What belonged to killed processes is unwound: it can do nothing any more, and what it says is not heard."""
    told, sys.unraisablehook = sys.unraisablehook, lambda _: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        world.over()
        for _ in range(3):  # what unwinds may hold on to others once more
            sweep()
    sys.unraisablehook = told
