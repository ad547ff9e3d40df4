"""The relays of a universe, who asks them for something, and their faults."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.confluent import door
from tests.simulation.confluent.requests import Kafka
from tests.simulation.confluent.topics import count_of, make, until_done, whole
from tests.simulation.relay.nodes import RelayNode
from tests.simulation.relay.promises import Found, Promises
from tests.simulation.relay.senders import FAR_MS, INPUT, PARTS, TARGETS, Sender
from waterclock.relay import relay
from waterclock.relay.options import StandsBy
from waterclock.relay.owner import owner
from waterclock.relay.standby import follower, standby
from waterclock.relay.store import ids, ledger, spans, store
from waterclock.relay.upkeep import lap
from waterclock.relay.wire import settlement
from waterclock.simulation.world import DATE_MS, MS, NS

GROUP = "waterclock-relay-delays"
FAULTS = ("kill", "cut_power", "stop", "roll", "freeze", "set_clock", "fill_disk", "break_flush")
PATIENCE_NS = 120 * NS
KNOBS = (
    (owner, "SOON_MS", (1_000, 60_000, 600_000)), (owner, "SLICE", (1, 10, 100_000)),
    (owner, "CHECKPOINT_NS", (100 * MS, NS, NS)), (follower, "CHECKPOINT_NS", (100 * MS, NS, 5 * NS)),
    (ledger, "JOURNAL_BYTES", (100, 2_000, 4 << 20)), (ids, "IN_MEMORY", (8, 100, 262_144)), (ids, "FAN", (2, 6)),
    (relay, "READ", (3, 10_000)), (standby, "TAKEN", (3, 2_000)), (standby, "TOGETHER", (2, 500)),
    (lap, "MOST", (1, 5, 2_000)), (spans, "FULL_BYTES", (1_000, 64 << 20)),
    (spans, "FULL_ROWS", (3, 131_072)), (store, "TIDY_ROWS", (2, 2_048)),
    (settlement, "PART", (100, 500_000)),
)  # fmt: skip


class Relays:
    """One to three relays on one input."""

    def __init__(self, universe: Any) -> None:
        self.universe, self.world = universe, universe.world
        self.rng = universe.plan.stream("relays")
        count = self.rng.randrange(1, 4)
        self.promises = Promises(self.world)
        self.found_last: Found | None = None
        self._turn_knobs()
        self.partitions, self.is_ready = self.rng.randrange(1, 4), False
        self.nodes = [self._node(f"relay-{number}") for number in range(count)]
        chosen = self.rng.sample(FAULTS, self.rng.randrange(1, len(FAULTS) + 1))
        self.faults = [one for one in chosen for _ in range(self.rng.choice((1, 1, 3)))]
        self.calm_ns = self.rng.choice((800 * MS, 3 * NS, 8 * NS))

    def _turn_knobs(self) -> None:
        """Sizes that make things rare are drawn too."""
        for module, name, values in KNOBS:
            setattr(module, name, self.rng.choice(values))

    def _node(self, name: str) -> RelayNode:
        options = {
            "topic": INPUT, "group": GROUP, "partitions": self.partitions,
            "name": name if self.rng.random() < 0.5 else None,
            "lap_bytes": self.rng.choice((2 << 10, 20 << 10, 1 << 30)),
            "standby": self.rng.choice((StandsBy.ALL, StandsBy.NONE)),
        }  # fmt: skip
        return RelayNode(self.universe, name, options, self.promises)

    async def begin(self, kafka: Kafka) -> None:
        door.install()
        for topic, count in zip(TARGETS, (1, PARTS), strict=True):
            await until_done(lambda t=topic, c=count: make(kafka, t, c))
        for node in self.nodes:
            node.start()
        while not await count_of(kafka, f"{INPUT}.dead"):
            await asyncio.sleep(0.2)
        self.is_ready = True
        for number in range(self.rng.randrange(1, 3)):
            self.universe.spawn(Sender, f"sender-{number}", promises=self.promises, partitions=self.partitions)
        if self.rng.random() < 0.9:
            self.world.at(self.world.now + self.rng.randrange(self.calm_ns), self._strike)

    def _strike(self) -> None:
        if self.universe.quiet:
            return
        node = self.rng.choice(self.nodes)
        if node.alive:
            getattr(node, self.rng.choice(self.faults))()
        self.world.at(self.world.now + self.rng.randrange(50 * MS, self.calm_ns), self._strike)

    def _pacify(self) -> None:
        """All are up, and stay so."""
        for node in (*self.nodes, *self.universe.nodes):
            node.start()
        for node in self.nodes:
            node.pacify()
        self.world.at(self.world.now + NS, self._pacify)

    async def verify(self, kafka: Kafka) -> None:
        self._pacify()
        for step_ms in (0, *FAR_MS):  # the date goes on to where the next ones are due
            await asyncio.sleep(self.rng.choice((0.5, 2)))
            self.world.wall_shift_ms = max(self.world.wall_shift_ms, DATE_MS + step_ms)
        await asyncio.sleep(3)  # who delivers twice has the time for it
        until, found = self.world.now + PATIENCE_NS, await self.found(kafka)
        while self.promises.missing(found) and self.world.now < until:
            await asyncio.sleep(2)
            found = await self.found(kafka)
        self.world.log("verified", len(found.requests), len(found.delivered), len(found.replies), len(found.dead))
        self.promises.check(found)
        self.found_last = found

    async def found(self, kafka: Kafka) -> Found:
        found = Found()
        for number in range(self.partitions):
            given = await whole(kafka, (INPUT, number))
            found.is_cut |= given.first > 0
            for record in given.records:
                self.promises.known.setdefault((number, record.offset), record)
            for record in (await whole(kafka, (f"{INPUT}.replies", number))).records:
                found.add_reply(record)
            for record in (await whole(kafka, (f"{INPUT}.dead", number))).records:
                found.add_letter(record)
        for topic, count in zip(TARGETS, (1, PARTS), strict=True):
            for number in range(count):
                for record in (await whole(kafka, (topic, number))).records:
                    found.add_delivery(topic, number, record)
        for (number, _), record in sorted(self.promises.known.items()):
            found.add_request(number, record)
        return found


async def begin(universe: Any) -> None:
    """One to three relays beside whatever else there is in a universe."""
    universe.relays = Relays(universe)
    await universe.relays.begin(universe.kafka)


async def verify(universe: Any, kafka: Kafka) -> None:
    """In peace: everything that was asked for came, once."""
    await universe.relays.verify(kafka)
