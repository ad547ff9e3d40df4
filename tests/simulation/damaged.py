"""Files that are damaged between a stop and a start: it is refused with words, says what it lost, or nothing is missing.

    the broker is stopped, or killed    a file of its folder or two are damaged: a bit, a sector, their end, all of it;
                                        or another day's copy takes its place
    the start is refused                fine, if the error is the product's own, and names what is damaged
    it is up                            clients' stories are looked at as ever. What is missing, or other than it was, must
                                        have been said: in the log, with the file's name, its partition's or its topic's,
                                        or to who reads it, by CORRUPT_MESSAGE

Rule 1: some things no damage explains: garbage that is served, a value twice, a task or a thread that ends, no answer.
"""

from __future__ import annotations

import asyncio
import posixpath
from typing import IO, Any

from tests.simulation.clients.producers import Producer
from tests.simulation.kafka import Kafka
from tests.simulation.node import FOLDER, Node
from tests.simulation.plan import Plan
from tests.simulation.universe import Universe
from waterclock.errors import WaterclockError
from waterclock.simulation.world import NS

NEVER = frozenset(("garbage", "doubled", "phantom", "traceback", "exception", "thread", "ended", "stalled"))
SETTINGS = {"log.initial.task.delay.ms": "500"}  # the scrub finds what a start does not look at
SCRUBBED_S = 5
WORKLOADS = (
    "producers",
    "transactions",
    "committer",
    "compaction",
    "deletions",
    "retention",
    "lives",
    "rights",
    "groups",
)


class DamagedNode(Node):
    """A broker whose start may be refused."""

    refusal: Exception | None = None
    held = False  # nobody starts it, as long as its files are damaged: not what a fault of before had put off either

    def start(self) -> None:
        if not self.held:
            super().start()

    def _refused(self, process: Any, error: Exception) -> None:
        if not self.universe.damaged:
            return super()._refused(process, error)
        process.kill()
        self.refusal = error
        self.world.log(self.name, "refuses to start:", error)
        return None


class Damaged(Universe):
    """A universe of one broker."""

    def __init__(self, plan: Plan, trace: IO[str] | None = None) -> None:
        super().__init__(plan, trace)
        self.nodes = [DamagedNode(self, "a", 9092)]
        self.lines: list[str] = []  # what the broker logged since the damage
        self.damaged: list[str] = []
        self.older: dict[str, bytes] = {}
        self._log, self.world.log = self.world.log, self._listen

    def _listen(self, *what: Any) -> None:
        if "log" in what[:1] and what[2] in ("WARNING", "ERROR"):
            self.lines.append(" ".join(map(str, what[3:])))
        self._log(*what)

    async def _begin(self, kafka: Kafka) -> None:
        await super()._begin(kafka)
        at_ns = self.world.now + round(self.plan.stream("older").random() * self.plan.seconds * NS)
        self.world.at(at_ns, self._keep)

    def _keep(self) -> None:
        """A copy of the folder, of which a file may be put back."""
        disk = self.nodes[0].disk
        self.older = {path: bytes(disk.file(path).data) for path in disk.files("/data")}

    async def _verify(self, kafka: Kafka) -> None:
        while self.left:
            await asyncio.sleep(0.5)
        node, rng = self.nodes[0], self.plan.stream("damage")
        await self._stop(node, cleanly=rng.random() < 0.5)
        problems, self.world.problems = self.world.problems, []
        self.lines = []
        for _ in range(rng.choice((1, 1, 2))):
            self._damage(node, rng)
        node.held = False
        node.start()
        while not node.up and node.refusal is None:
            await asyncio.sleep(0.1)
        if node.refusal is None:
            await asyncio.sleep(SCRUBBED_S)
            await self._look(kafka)
        found, self.world.problems = self.world.problems, problems
        self._judge(node.refusal, found)
        self.verified = True

    async def _stop(self, node: Any, cleanly: bool) -> None:
        while not node.up:
            node.start()
            await asyncio.sleep(0.1)
        over, node.held = node.role.over, True
        if cleanly:
            node.process.loop.call_soon(lambda: over.done() or over.set_result("stop"))
            while node.alive:
                await asyncio.sleep(0.1)
        node.process.kill()
        node.up = False

    def _damage(self, node: Any, rng: Any) -> None:
        """One file: each kind of them is as likely as any other."""
        disk, kinds = node.disk, dict[str, list[str]]()
        for path in disk.files(FOLDER):
            if disk.file(path).data:
                kinds.setdefault(kind_of(path), []).append(path)
        kinds = {kind: paths for kind, paths in kinds.items() if kind == self.plan.damages} or kinds
        path = rng.choice(kinds[rng.choice(sorted(kinds))])
        size = len(disk.walk(path).data)
        at, deed = rng.randrange(size), rng.choice(("flip", "flip", "zero", "cut", "remove", "older"))
        if deed == "flip":
            disk.flip_bit(path, at, rng.randrange(8))
        elif deed == "zero":
            disk.zero_sector(path, at)
        elif deed == "cut":
            disk.cut_file(path, at)
        elif (
            deed == "older" and path in self.older and kind_of(path) != ".log"
        ):  # what such a log hides: docs/broker.md
            disk.set_back(path, self.older[path])
        else:
            disk.remove(path)
        self.damaged.append(path)
        self.count(f"{kind_of(path)} damaged")
        self._log("DAMAGE", deed, path, at, size)

    async def _look(self, kafka: Kafka) -> None:
        for client in self.working.values():
            if type(client.actor) is Producer:
                await client.actor.ask_again(kafka)
        for one in self.workloads:
            await one.verify(self, kafka)

    def _judge(self, refusal: Exception | None, found: list[tuple[str, str]]) -> None:
        told = [
            *self.lines,
            *([str(refusal)] if refusal else []),
            *(story for kind, story in found if kind == "refused"),
        ]
        said = any(word in line for line in told for path in self.damaged for word in words(path))
        for kind, story in found:
            if kind in NEVER or not said:
                self.world.problem(kind, f"{story} (damaged: {self.damaged}; told: {told[:3]})")
        if refusal is not None and not (said and isinstance(refusal, WaterclockError)):
            self.world.problem("start", f"{self.damaged}: {type(refusal).__name__}: {refusal}")
        self.count("refused" if refusal else "something missing, and said" if found else "nothing missing")


def kind_of(path: str) -> str:
    """store.log, write-ahead.0 and topic.json are their own; a partition's others are told apart by their endings."""
    name = posixpath.basename(path)
    return posixpath.splitext(name)[1] if name[:1].isdigit() else name


def words(path: str) -> set[str]:
    """What a line about a file names: it, its partition or its topic."""
    parts = path.removeprefix(FOLDER).strip("/").split("/")
    if parts[0] != "topics":
        return {parts[-1], parts[0].split(".")[0]}
    partition = parts[1].rsplit(".", 1)[0]
    return {parts[-1], parts[1], partition, f"the topic {partition.rsplit('-', 1)[0]}"}


def plan_of(plan: Plan, damages: str = "") -> Plan:
    """The same universe with one broker, and what damage can be seen by."""
    names = tuple(name for name in WORKLOADS if plan.stream(f"damage to {name}").random() < 0.4) or WORKLOADS[:1]
    plan = plan.but(pair=False, damaged=True, damages=damages).only(names)
    return plan.but(settings={**plan.settings, **SETTINGS})
