"""The captures of a universe, the database that they read, and their faults."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from tests.simulation import coverage
from tests.simulation.capture import nodes
from tests.simulation.capture.database import Database
from tests.simulation.capture.nodes import NAME, CaptureNode
from tests.simulation.capture.promises import Found, Options, Promises
from tests.simulation.confluent import door
from tests.simulation.confluent.requests import Kafka
from tests.simulation.confluent.topics import count_of, whole
from waterclock.cdc import capture, produce
from waterclock.cdc.produce import Target
from waterclock.simulation.world import MS, NS

FAULTS = ("kill", "cut_power", "stop", "freeze", "cut_off", "overtake", "restart", "cut", "fall_silent", "forget")
PATIENCE_NS = 150 * NS
MARKS = sorted(name for name, (module, _) in coverage.MARKS.items() if module.startswith("waterclock.cdc."))
PAUSES_S = capture._PAUSES_S
KNOBS = (
    (capture, "LARGEST", (1_000_000, 10, 3)), (capture, "MOST", (20_000, 20, 3)), (capture, "LONGEST_MS", (200, 0, 2_000)),
    (capture, "POSITION_EVERY_MS", (1_000, 100)), (produce, "_FIRST_LOOK", (64, 2)),
    (produce, "_TIMEOUT_MS", (300_000, 300_000, 10_000)),
)  # fmt: skip


class Captures:
    """One capture of a database, and in half of the universes another of the same name."""

    def __init__(self, universe: Any) -> None:
        self.universe, self.world = universe, universe.world
        self.rng = rng = universe.plan.stream("captures")
        for module, name, values in KNOBS:
            setattr(module, name, rng.choice(values))
        capture._PAUSES_S = universe.plan.stream("captures' pauses").choice((PAUSES_S, (0.05,) * len(PAUSES_S)))
        capture.StopSignal = nodes.Stop
        self.database = Database(universe)
        order, count, letters = rng.choice(("key", "key", "global")), rng.randrange(1, 4), rng.choice(("", "till.dead"))
        per_table, begin = rng.random() < 0.4, rng.choice(("start", "start", "now", "place"))
        if self.database.is_slot and begin == "place":
            begin = "start"  # a slot takes no place
        self.options = Options(capture.LARGEST, order, count, letters, per_table, begin == "place")
        self.promises = Promises(self.world, self.database, self.options)
        target = Target("simulated:9092", NAME, order, count, letters, "per-table" if per_table else "one")
        once = rng.random() < 0.3
        self.nodes = [
            CaptureNode(universe, f"capture-{name}", self.database, self.promises, once, begin, target)
            for name in ("ab" if rng.random() < 0.5 else "a")
        ]
        self.faults = {one: rng.choice((1, 1, 3)) for one in rng.sample(FAULTS, rng.randrange(1, len(FAULTS) + 1))}
        self.calm_ns = rng.choice((300 * MS, NS, 4 * NS))
        for node in self.nodes[1:]:
            node.is_wanted = False

    async def begin(self) -> None:
        door.install()
        self.database.begin()
        self.nodes[0].start()
        if self.rng.random() < 0.9:
            self.world.at(self.world.now + self.rng.randrange(self.calm_ns), self._strike)

    def _strike(self) -> None:
        if self.universe.quiet:
            return
        fault, node = self.rng.choices([*self.faults], [*self.faults.values()])[0], self.rng.choice(self.nodes)
        if fault == "overtake":
            self._overtake()
        elif hasattr(self.database, fault):
            self.universe.count(f"database: {fault}")
            getattr(self.database, fault)()
        elif node.alive and fault == "kill" and self.rng.random() < 0.3:
            coverage.wait(self.rng.choice(MARKS), self._kill_who_passes)
        elif node.alive:
            getattr(node, fault)()
        self.world.at(self.world.now + self.rng.randrange(20 * MS, self.calm_ns), self._strike)

    def _kill_who_passes(self) -> None:
        """A rare branch was waited for."""
        process = self.world.running().process
        for node in self.nodes:
            if node.process is process:
                node.kill_soon()

    def _overtake(self) -> None:
        """Somebody starts another one of the same name."""
        for node in self.nodes[1:]:
            node.is_wanted = True
            if not node.alive:
                self.universe.count("capture overtaken")
                node.start()

    def _pacify(self) -> None:
        """One is up, and stays so."""
        for node in self.nodes[1:]:
            node.is_wanted = False
        self.database.come_up()
        self.database.put_back()
        self.database.silent_until = 0
        for node in (*self.nodes, *self.universe.nodes):
            node.pacify() if isinstance(node, CaptureNode) else node.start()
        self.world.at(self.world.now + NS, self._pacify)

    async def verify(self, kafka: Kafka) -> None:
        self._pacify()
        until, end = self.world.now + PATIENCE_NS, self.database.end
        positions = await self._positions(kafka)
        while (not positions or int(positions[-1].place) < end) and self.world.now < until:
            await asyncio.sleep(2)
            positions = await self._positions(kafka)
        found = await self.found(kafka)
        if not found.positions or int(found.positions[-1].place) < end:
            self.world.problem("stalled", f"the captures stand at {found.positions[-1:]}, the database at {end}")
            return  # they go on meanwhile
        self.world.log("verified", end, len(found.positions), len(self.promises.skip))
        self.promises.check(found)

    async def _positions(self, kafka: Kafka) -> list[Any]:
        if not await count_of(kafka, f"{NAME}.position"):
            return []
        records = (await whole(kafka, (f"{NAME}.position", 0))).records
        return [SimpleNamespace(**json.loads(one.value or b"")) for one in records]

    async def found(self, kafka: Kafka) -> Found:
        found = Found()
        found.positions = await self._positions(kafka)
        for topic, count in self.options.topics.items():
            for number in range(count if await count_of(kafka, topic) else 0):
                came = await whole(kafka, (topic, number))
                found.changes[topic, number] = came.transactions
                if sorted(came.records) != sorted(one for some in came.transactions for one in some):
                    self.world.problem("aborted", f"readers of committed records see others in {topic}-{number}")
        return found


async def begin(universe: Any) -> None:
    """A capture beside whatever else there is in a universe."""
    universe.captures = Captures(universe)
    await universe.captures.begin()


async def verify(universe: Any, kafka: Kafka) -> None:
    """In peace: everything that was committed came, once."""
    await universe.captures.verify(kafka)
