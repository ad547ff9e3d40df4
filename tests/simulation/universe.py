"""One universe: one broker or two on disks of their own, clients, and faults; then peace, and what is there is checked.

    begin       the broker starts, a pair comes together, each workload makes its topics and spawns its clients
    faults      for the plan's seconds, at their moments
    peace       faults end, everything starts again, clients finish what they have; half of the universes start once more
    verify      each workload reads what is there, and holds it against what its clients were told

A universe is in peace for 200 s at most: who needs longer is stalled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from random import Random
from typing import IO, Any

from tests.simulation import alarms, coverage, faults, knobs
from tests.simulation.clients import WORKLOADS, Workload
from tests.simulation.kafka import Kafka
from tests.simulation.node import Node
from tests.simulation.plan import Fault, Plan
from tests.simulation.promises import History
from tests.simulation.strike import Struck
from waterclock.simulation import install
from waterclock.simulation.network import Network
from waterclock.simulation.processes import Process
from waterclock.simulation.world import MS, NS, World

BEGINS_S, PEACE_S = 60, 200


@dataclass
class Client:
    """A client as it works now: killed, it is spawned again from this."""

    name: str
    kind: Any
    named: dict[str, Any]
    incarnation: int
    actor: Any = None


class Universe:
    """What a plan says, in one world."""

    rng: Random  # of the workload that begins or is verified
    relays: Any = None  # relay/workload.py

    def __init__(self, plan: Plan, trace: IO[str] | None = None) -> None:
        self.plan = plan
        self.world = World(f"{plan.seed}+{plan.salt}" if plan.salt else plan.seed, trace)
        install.hear(all_lines=trace is not None)
        self.network = self.world.network = Network()
        self.history = History(self.world)
        self.history.sources = {}
        self.quiet = self.verified = False
        self.working: dict[str, Client] = {}
        self.faults: dict[str, int] = {}
        self.struck: list[Struck] = []
        self.passed = coverage.begin()
        self.began_ns = self.peace_ns = 0
        self.settings = dict(plan.settings)
        self._protocols: dict[str, bool] = {}
        self._where = self.world.stream("where")
        knobs.turn(plan.knobs)
        alarms.expected[0] = plan.damaged
        self.nodes = [Node(self, "a", 9092), Node(self, "b", 9093, "127.0.0.1:9092")][: 2 if plan.pair else 1]

    @property
    def workloads(self) -> list[Workload]:
        return [one for one in WORKLOADS if one.name in self.plan.workloads]

    @property
    def machines(self) -> list[Any]:
        """Brokers' and relays'."""
        return [*self.nodes, *(self.relays.nodes if self.relays is not None else ())]

    @property
    def ends_rise(self) -> bool:
        """Whether no end goes back: a new leader's high watermark may lag for a moment (KIP-207)."""
        return not self.plan.pair

    @property
    def comes_back(self) -> tuple[int, ...]:
        """How long a broker is away at most."""
        return (20 * MS, 300 * MS, 2 * NS, 6 * NS)[: 4 if self.plan.pair else 3]

    def where(self) -> tuple[str, int]:
        """Where a client connects: to who leads, mostly."""
        leaders = [node for node in self.nodes if node.leads]
        if len(self.nodes) == 1 or (leaders and self._where.random() < 0.85):
            return (leaders or self.nodes)[-1].address
        return self._where.choice(self.nodes).address

    def protocol(self, id: str) -> bool:
        """Whether clients of this id end transactions by protocol 2."""
        if self.plan.mixed:
            return self.world.stream(f"protocol {id}").random() < 0.5
        return self._protocols.setdefault(id, self.plan.stream(f"protocol {id}").random() < 0.5)

    # clients

    def spawn(self, kind: Any, name: str, **named: Any) -> None:
        if name not in self.plan.absent:
            self._spawn(Client(name, kind, named, 1))

    def spawn_again(self, client: Client) -> None:
        self._spawn(Client(client.name, client.kind, client.named, client.incarnation + 1))

    def _spawn(self, client: Client) -> None:
        full = f"{client.name}.{client.incarnation}"
        process = Process(full)
        process.skew_ms = self.plan.stream(f"date of {full}").randrange(-500, 500)
        client.actor = client.kind(self, process, full, **client.named)
        self.working[client.name] = client
        process.main(client.actor.run())

    def finished(self, actor: Any) -> None:
        actor.done = True

    @property
    def left(self) -> list[str]:
        """Who has not finished."""
        return [name for name, one in self.working.items() if not getattr(one.actor, "done", False)]

    # faults

    def count(self, what: str) -> None:
        self.faults[what] = self.faults.get(what, 0) + 1
        self.world.log("FAULT", what)

    def usual_disk(self) -> None:
        self.world.fsync_ns = knobs.FLUSHES[self.plan.flushes]

    def usual_net(self) -> None:
        self.network.delay = knobs.NETS[self.plan.net]

    def _strike(self, fault: Fault) -> None:
        if not self.quiet:
            faults.strike(self, fault)

    # the whole of it

    def run(self, sought: Collection[str] = (), peace_s: float = PEACE_S) -> Universe:
        """To its end, or to the first problem of a kind that is sought."""
        world = self.world
        world.sought = sought
        self.nodes[0].start()
        self._process("admin", self._begin)
        world.run(world.now + BEGINS_S * NS, lambda: self.began_ns > 0)
        world.run(world.now + round(self.plan.seconds * NS))
        self._make_peace()
        world.run(world.now + round(peace_s * NS), lambda: self.verified)
        if not self.verified and not world.stop:
            world.problem("stalled", f"{self.left}, {[(node.name, node.up, node.leads) for node in self.nodes]}")
        world.log("end", sorted(self.faults.items()), self.history.acked, self.history.read)
        return self

    def _process(self, name: str, deed: Any) -> None:
        process = Process(name)
        process.main(deed(Kafka(process, self.network, self.where)))

    async def _begin(self, kafka: Kafka) -> None:
        self.kafka = kafka
        for node in self.nodes[1:]:
            while not self.nodes[0].up:
                await asyncio.sleep(0.1)
            node.start()
            await asyncio.sleep(1)
        for one in self.workloads:
            self.rng = self.plan.stream(f"workload {one.name} begins")
            await one.begin(self)
        kafka.close()
        self.began_ns = self.world.now
        self.usual_disk()
        self.usual_net()
        for fault in self.plan.faults:
            self.world.at(self.world.now + fault.at_ns, self._strike, fault)

    def _make_peace(self) -> None:
        self.quiet, self.peace_ns = True, self.world.now
        self.world.log("peace")
        self.world.fsync_ns, self.network.delay = knobs.FLUSHES["usual"], knobs.NETS["usual"]
        for node in self.nodes:
            node.have_peace()
        self._process("verifier", self._verify)

    async def _verify(self, kafka: Kafka) -> None:
        while self.left:
            await asyncio.sleep(0.5)
            for node in self.nodes:
                node.start()
        if (rng := self.plan.stream("last start")).random() < 0.5:  # from what lies on the disks
            for node in self.nodes:
                node.start_once_more(cut=rng.random() < 0.5)
        for one in self.workloads:
            self.rng = self.plan.stream(f"workload {one.name} is verified")
            await one.verify(self, kafka)
        self.verified = True


def run(plan: Plan, trace: IO[str] | None = None, sought: Collection[str] = (), peace_s: float = PEACE_S) -> Universe:
    """Live a plan; damage is judged behind it all, so that it has nothing that is sought."""
    from tests.simulation.damaged import Damaged  # a universe too

    universe = (Damaged if plan.damaged else Universe)(plan, trace)
    try:
        return universe.run(() if plan.damaged else sought, peace_s)
    finally:
        universe.world.over()
