"""A capture on a machine of its own: what `waterclock cdc` does, with kills, power cuts and networks that are cut.

Rule 1: an operator starts it again when it has ended, and does what its last sentence says: `--skip` for what nobody can
    read, the log's files put back. One that another has overtaken is left alone for a while.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any

from tests.simulation.capture.database import Database
from tests.simulation.capture.promises import Promises
from tests.simulation.capture.source import Forgotten, LogSource, refuse_if_down
from tests.simulation.kafka.batches import Record
from waterclock.cdc import capture as capturing
from waterclock.cdc.position import Position
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.source import Source, put_aside, stop
from waterclock.errors import Unreadable, UsageError, WaterclockError
from waterclock.simulation.clocks import Clock
from waterclock.simulation.processes import Process, _place
from waterclock.simulation.world import MS, NS, US, world

NOWHERE = ("127.0.0.1", 1)
NAME = "till"
STEPS = ("fence", "fenced", "begin", "store", "finish", "finished", "source")


class CaptureProcess(Process):
    """`lost`: the breaks since the last commit; `has_begun`: whether both ends were there once; `position`: what Kafka
    holds of it; `fenced_at`: what was committed when it had fenced all others; `is_overtaken`: by one that has committed,
    when it was fenced; `skips`: the transactions that its command leaves out; `dies_at`: the step that `dies` waits for,
    so many times."""

    def __init__(self, node: CaptureNode, skips: frozenset[str]) -> None:
        super().__init__(f"{node.name}.{node.starts}")
        self.skips = skips
        self.node, self.stops, self.has_begun, self.is_overtaken = node, False, False, False
        self.lost = self.unreachable_until = self.steps = 0
        self.position: Position | None = None
        self.fenced_at = (0, 0)
        self.dies_at, self.dies = "", lambda where: None

    def step(self, name: str) -> None:
        """Time passes, and it may die: here, or soon behind it."""
        self.world.breathe(name, 0.15, 1 * US, 2 * MS)
        if self.steps and name.startswith(self.dies_at):
            self.steps -= 1
            if not self.steps:
                self.dies(f"at {name}")
                if not self.alive:
                    self.world.park()

    def where(self) -> tuple[str, int]:
        address: tuple[str, int] = self.node.universe.where()
        return NOWHERE if self.world.now < self.unreachable_until else address

    def wall_ms(self) -> int:
        return self.world.wall_ms()

    def saw_produced(self, topic: str, record: Record) -> None: ...

    def saw_read(self, topic: str, number: int, record: Record) -> None: ...

    def was_silent(self, began_ns: int) -> None: ...


class Stop:
    """In the place of signals.py: the signal that came to the process that asks."""

    def __init__(self, *, second_raises: bool) -> None:
        self._process = world().running().process

    def __bool__(self) -> bool:
        return bool(self._process.stops)

    def __enter__(self) -> Stop:
        return self

    def __exit__(self, *error: object) -> None: ...


class Steps(Publisher):
    """The product's, which may die before and behind each of its steps; the promises hear of them."""

    def __init__(self, process: CaptureProcess, target: Target) -> None:
        self._process, self._promises = process, process.node.promises
        self._storing: Position | None = None
        super().__init__(target, NAME, {"batch.size": process.node.batch_bytes}, Clock(process))
        self._promises.began(process, self.stored)

    def fence(self) -> None:
        self._process.step("fence")
        asked_ns = world().now
        super().fence()
        self._promises.fenced(self._process, asked_ns)
        self._process.step("fenced")

    def begin(self) -> None:
        self._process.step("begin")
        super().begin()

    def store(self, position: Position) -> None:
        self._process.step("store")
        super().store(position)
        self._storing = position

    def finish(self) -> None:
        self._process.step("finish")
        asked_ns = world().now
        super().finish()
        if self._storing is not None:
            self._promises.committed(self._process, self._storing, asked_ns)
        self._process.step("finished")


class CaptureNode:
    """`options`: of `Target`, and `once`, `begin`: as the command has them."""

    def __init__(
        self, universe: Any, name: str, database: Database, promises: Promises, once: bool, begin: str, target: Target
    ) -> None:
        self.universe, self.world, self.name = universe, universe.world, name
        self.database, self.promises = database, promises
        self.once, self.begin, self.target = once, begin, target
        self.rng = self.world.stream(f"node {name}")
        self.process: CaptureProcess | None = None
        self.batch_bytes = self.rng.choice((500, 10_000, 1_000_000))  # of which a segment may take less
        self.starts = 0
        self.is_wanted = True

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> None:
        if self.alive or not self.is_wanted:
            return
        self.starts += 1
        process = self.process = CaptureProcess(self, frozenset(self.promises.skip))
        process.main(_rest())
        process.begin_thread(partial(self._live, process), "capture")

    def _live(self, process: CaptureProcess) -> None:
        """As `waterclock cdc` does, and then its operator."""
        self.world.log(process.name, "starts")
        try:
            self._capture(process)
            self._down(process, *(10 * MS, NS))
        except (Unreadable, Forgotten) as error:
            self.world.log(process.name, "ends", error)
            self.universe.count(f"capture: {type(error).__name__.lower()}")
            self.promises.ended(process, error)
            self.database.put_back()
            self.promises.skip.update(re.findall(r"--skip (\S+);", str(error)))
            self._down(process, 100 * MS, 2 * NS)
        except WaterclockError as error:
            self.world.log(process.name, "ends", error)
            self.promises.ended(process, error)
            is_overtaken = isinstance(error, UsageError)
            self._down(process, *((5 * NS, 20 * NS) if is_overtaken else (100 * MS, 2 * NS)))
        except Exception as error:
            self.world.problem("ended", f"{process.name}: {type(error).__name__}: {error} at {_place(error)}")

    def _capture(self, process: CaptureProcess) -> None:
        place: Position | Any = self._place if self.begin != "place" else Position("0")
        capture = capturing.Capture(
            partial(Steps, process, self.target), partial(self._source, process), Clock(process), start=place,
            lost=partial(self._lost, process),
        )  # fmt: skip
        refuse_if_down(self.database)
        end = str(self.database.end) if self.once else None
        try:
            capture.run(end)
        except KeyboardInterrupt:
            if not process.stops:
                self.world.problem("ended", f"{process.name} took a signal that never came")
        else:
            self.promises.ran_to(process, end)
        self.world.log(process.name, "is done", capture.statistics())

    def _place(self) -> Position:
        refuse_if_down(self.database)
        return Position(str(self.database.end if self.begin == "now" else self.database.forgotten))

    def _source(self, process: CaptureProcess, position: Position) -> Source:
        refusal = put_aside if self.target.dead_letters else stop
        source = LogSource(self.database, position, process.skips, refusal)
        process.has_begun = True
        return source

    def _lost(self, process: CaptureProcess, error: WaterclockError) -> None:
        process.lost += 1
        self.promises.lost(process, error)
        self.universe.count("capture: break")
        self.world.log(process.name, "lost", error)

    def _down(self, process: CaptureProcess, least_ns: int, most_ns: int) -> None:
        process.kill()
        self.world.at(self.world.now + self.rng.randrange(least_ns, most_ns), self.start)

    # Faults

    def kill(self) -> None:
        """Now, or at a step to come or some time behind it."""
        process, rng = self.process, self.rng
        assert process is not None
        if rng.random() < 0.3:
            return self._kill(process, "now")
        process.dies_at, process.steps = rng.choice(("", *STEPS)), rng.randrange(1, rng.choice((2, 5, 30)))
        after_ns = rng.choice((0, 0, 200 * US, 3 * MS, 30 * MS))
        process.dies = partial(self._kill, process)
        if after_ns:
            process.dies = lambda where: self.world.at(
                self.world.now + after_ns, self._kill, process, f"soon behind, {where}"
            )
        return None

    def kill_soon(self) -> None:
        """At one of the next steps."""
        process = self.process
        assert process is not None
        process.dies_at, process.steps, process.dies = (
            "",
            self.rng.choice((1, 1, 2, 4, 10)),
            partial(self._kill, process),
        )

    def _kill(self, process: CaptureProcess, where: str) -> None:
        if process.alive and not self.universe.quiet:
            self.universe.count("capture killed")
            self.world.log(process.name, "killed", where)
            self._down(process, 10 * MS, self.rng.choice((20 * MS, NS, 4 * NS)))

    def cut_power(self) -> None:
        self.universe.count("capture without power")
        assert self.process is not None
        for sock in self.process.sockets.values():
            sock.silent = True
        self._kill(self.process, "no power")

    def stop(self) -> None:
        self.universe.count("capture stopped")
        assert self.process is not None
        self.process.stops = True

    def freeze(self) -> None:
        self.universe.count("capture frozen")
        assert self.process is not None
        self.process.frozen_until = self.world.now + self.rng.choice((200 * MS, 3 * NS, 15 * NS))

    def cut_off(self) -> None:
        """Its network is cut, to Kafka and often to the database."""
        self.universe.count("capture cut off")
        assert self.process is not None
        for sock in list(self.process.sockets.values()):
            if hasattr(sock, "peer"):
                self.universe.network.reset(sock)
        self.process.unreachable_until = self.world.now + self.rng.choice((MS, NS, 5 * NS))
        if self.rng.random() < 0.5:
            self.database.cut()

    def pacify(self) -> None:
        """No faults any more."""
        if self.process is not None:
            self.process.doom, self.process.stops = None, self.process.stops or not self.is_wanted
            self.process.unreachable_until = 0
            self.process.frozen_until = min(self.process.frozen_until, self.world.now + 1)
        self.start()


async def _rest() -> None:
    """The loop is for the client's sake."""
    await asyncio.get_running_loop().create_future()
