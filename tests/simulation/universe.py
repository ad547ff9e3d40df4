"""One universe: one broker or two on disks of their own, clients, and a nemesis; then peace, and what is there is checked."""

from __future__ import annotations

import asyncio
import gc

from tests.simulation import clients
from tests.simulation.clients import INPUT, OUTPUT, PLAIN, committed_records
from tests.simulation.history import History
from tests.simulation.kafka import Gone, Kafka
from waterclock.broker import knobs
from waterclock.simulation import disk, install
from waterclock.simulation.network import Network
from waterclock.simulation.processes import Process
from waterclock.simulation.world import MS, NS, US, World

FOLDER = "/data/broker"
RARE = (
    "rename",
    "rename after",
    "unlink",
    "truncate",
    "ftruncate",
    "fallocate",
    "mkdir",
    "open",
    "fsync before",
    "fsync after",
)


class Node:
    """A machine with a disk, and the broker on it: what `Broker` is with a thread of its own."""

    def __init__(self, universe, name, port, follow=None):
        self.universe, self.world, self.name, self.address = universe, universe.world, name, ("127.0.0.1", port)
        self.disk = disk.Disk(name)
        self.first_follow = follow
        self.process = self.role = None
        self.up, self.skew_ms, self.starts = False, 0, 0

    @property
    def alive(self):
        return self.process is not None and self.process.alive

    def start(self):
        if self.alive:
            return
        self.starts += 1
        process = self.process = Process(self.name, self.disk)
        process.skew_ms = self.skew_ms
        process.on_exit = lambda code: self._exits(process)
        process.main(self._serve(process))

    def _exits(self, process):
        """It ends itself after a flush that failed."""
        self.universe.count("exit")
        process.kill()
        self.up = self.disk.broken_flush = False
        self.world.at(self.world.now + self.universe.rng.randrange(50 * MS, 2 * NS), self.start)

    def down(self):
        self.up = False
        back = self.universe.rng.choice(self.universe.comes_back)
        self.world.at(self.world.now + self.universe.rng.randrange(10 * MS, 10 * MS + back), self.start)

    async def _serve(self, process):
        from waterclock.broker.roles import Roles
        from waterclock.broker.security.access import Access
        from waterclock.broker.settings import Settings

        self.roles = roles = Roles(
            FOLDER,
            *self.address,
            Settings(self.universe.settings),
            Access(),
            install.Clock(process),
            self._taken,
            self.first_follow,
            install.Machine(process),
        )
        try:
            await roles.begin()
        except Exception as error:
            return self._refused(process, error)
        try:
            await roles.run()
            self.up = False
        except Exception as error:
            if type(error).__name__ == "CannotFollow" and self.universe.past_known:
                self.universe.count("could not follow: folder emptied")  # as an operator would, while the leader lives
                process.kill()
                self.disk = disk.Disk(self.name)
                return self.down()
            if not self.disk.full and not self.disk.broken_flush:
                self.world.problem("ended", f"{self.name}: {type(error).__name__}: {error}")
            process.kill()
            return self.down()
        self.world.log(self.name, "closed")
        process.kill()

    def _taken(self, role):
        self.role, self.up = role, True
        self.world.log(self.name, "is up", type(role).__name__)

    def _refused(self, process, error):
        process.kill()
        if self.disk.full or self.disk.broken_flush:
            self.world.log(self.name, "start refused", error)
            self.world.at(self.world.now + NS, self.start)
        else:
            self.world.problem("start", f"{self.name}: {type(error).__name__}: {error}")
            self.world.stop = True

    @property
    def leads(self):
        from waterclock.broker.core import Core

        return self.alive and self.up and isinstance(self.role, Core)


class Universe:
    mixed = past_known = False
    ends_rise = True
    comes_back = (20 * MS, 300 * MS, 2 * NS)

    def __init__(self, seed, trace=None, seconds=20):
        self.world = World(seed, trace)
        self.network = self.world.network = Network()
        self.rng = self.world.stream("universe")
        self.history = History(self.world)
        self.history.sources = {}
        self.seconds, self.quiet, self.verified = seconds, False, False
        self.working, self.faults, self.protocols = {}, {}, {}
        self.knobs()
        self.nodes = self.make_nodes()

    def make_nodes(self):
        return [Node(self, "broker", 9092)]

    def knobs(self):
        """What is fixed in the product, and rare at its size, comes in small sizes too."""
        rng = self.rng
        knobs.turn(
            knobs.Knobs(
                ahead_room=rng.choice((24 << 10, 64 << 10, 1 << 20)),
                ahead_small=rng.choice((300, 2 << 10, 16 << 10)),
                ahead_most=rng.choice((4 << 10, 16 << 10)),
                snapshot_every=rng.choice((2 << 10, 20 << 10, 4 << 20)),
                store_reserved=rng.choice((256, 4 << 10, 64 << 10)),
                store_renew=rng.choice((1 << 10, 8 << 10, 1 << 20)),
            )
        )
        self.settings = {
            "log.segment.bytes": str(rng.choice((20_000, 60_000, 1 << 20))),
            "log.initial.task.delay.ms": str(rng.choice((500, 30_000))),
            "auto.create.topics.enable": "false",
        }

    def where(self):
        """Where a client connects: to who leads, mostly."""
        leaders = [node for node in self.nodes if node.leads]
        if len(self.nodes) == 1 or (leaders and self.rng.random() < 0.85):
            return (leaders or self.nodes)[-1].address
        return self.rng.choice(self.nodes).address

    def node(self):
        return self.nodes[0] if len(self.nodes) == 1 else self.rng.choice(self.nodes)

    # clients

    def spawn(self, kind, name, **named):
        incarnation = self.working.get(name, (None, 0))[1] + 1
        process = Process(f"{name}.{incarnation}")
        process.skew_ms = self.rng.randrange(-500, 500)
        actor = kind(self, process, f"{name}.{incarnation}", **named)
        self.working[name] = (actor, incarnation, kind, named)
        process.main(actor.run())

    def finished(self, actor):
        actor.done = True

    def protocol(self, id):
        """Whether clients of this id end transactions by protocol 2. `mixed`: each for itself, as in a rolled back upgrade."""
        if self.mixed:
            return self.rng.random() < 0.5
        return self.protocols.setdefault(id, self.rng.random() < 0.5)

    def begin(self):
        self.spawn(clients.Producer, "producer-a")
        self.spawn(clients.Producer, "producer-b")
        self.spawn(clients.Transactions, "tx-a", id="tx-a")
        self.spawn(clients.Transactions, "tx-b", id="tx-b")
        if self.rng.random() < 0.6:
            self.spawn(clients.Transactions, "tx-c", id="tx-b")
        self.spawn(clients.Transformer, "transform-a")
        if self.rng.random() < 0.4:
            self.spawn(clients.Transformer, "transform-b")
        for number in range(self.rng.randrange(1, 4)):
            self.spawn(clients.Reader, f"reader-{number}")
        self.spawn(clients.Committer, "committer")
        if self.rng.random() < 0.5:
            self.spawn(clients.Member, "member-a")
            self.spawn(clients.Member, "member-b")

    # faults

    def count(self, what):
        self.faults[what] = self.faults.get(what, 0) + 1
        self.world.log("FAULT", what)

    kinds = ("kill", "cut_power", "stop_cleanly", "freeze", "reset", "fill_disk", "slow_disk", "break_flush",
             "step_date", "kill_client", "freeze_client", "slow_net")  # fmt: skip

    def choose_nemesis(self):
        """Each universe has faults of its own: a few kinds, often or seldom."""
        chosen = self.rng.sample(self.kinds, self.rng.randrange(3, len(self.kinds) + 1))
        self.weights = {one: self.rng.choice((1, 1, 3)) for one in chosen}
        if self.rng.random() < 0.7:
            self.weights["cut_power"] = 4
        self.calm_ns = self.rng.choice((600 * MS, 2 * NS, 5 * NS))

    def nemesis(self):
        if not self.quiet:
            deed = self.rng.choices(list(self.weights), list(self.weights.values()))[0]
            getattr(self, deed)()
            self.world.at(self.world.now + self.rng.randrange(100 * MS, self.calm_ns), self.nemesis)

    def _at_some_call(self, node, deed):
        """Now, or in the midst of a system call to come."""
        process = node.process
        if not node.alive:
            return
        if self.rng.random() < 0.3:
            deed(node, process, "now")
        else:
            rare = self.rng.random() < 0.5  # what is seldom called has its turn too
            process.doom_at = self.rng.choice(RARE) if rare else None
            process.doom = self.rng.randrange(1, 5 if rare else self.rng.choice((5, 40, 200)))
            process.doomed = lambda where: deed(node, process, where)

    def kill(self):
        self._at_some_call(self.node(), self._kill)

    def _kill(self, node, process, where):
        if process.alive:
            self.world.log(node.name, "killed", where)
            process.kill()
            self.count("kill")
            node.down()

    def cut_power(self):
        self._at_some_call(self.node(), self._cut_power)

    def _cut_power(self, node, process, where):
        if process.alive:
            for sock in process.sockets.values():
                sock.silent = True
            process.kill()
            self.world.log(node.name, "power cut", where, node.disk.cut_power())
            self.count("power cut")
            node.down()

    def cut_and_fill(self):
        """A power cut, and a disk that is full when it comes back. Not among the usual kinds: --faults."""
        node = self.node()
        if node.alive and not node.disk.full:
            self._cut_power(node, node.process, "now")
            node.disk.full = True
            self.world.at(self.world.now + self.rng.randrange(NS, 4 * NS), self._free, node)

    def stop_cleanly(self):
        node = self.node()
        if node.alive and node.up and not node.role.over.done():
            self.count("stop")
            role = node.role
            node.process.loop.call_soon(lambda: role.over.done() or role.over.set_result("stop"))
            self.world.at(self.world.now + self.rng.randrange(100 * MS, 3 * NS), self._start_again, node)

    def _start_again(self, node):
        if node.alive and not node.up:
            self.world.at(self.world.now + 100 * MS, self._start_again, node)
        else:
            node.start()

    def freeze(self):
        node = self.node()
        if node.alive:
            self.count("freeze")
            node.process.frozen_until = self.world.now + self.rng.randrange(50 * MS, 6 * NS)

    def reset(self):
        pairs = list(self.network.pairs)
        if pairs:
            self.count("reset")
            for sock in self.rng.sample(pairs, self.rng.randrange(1, len(pairs) + 1)):
                self.network.reset(sock)

    def fill_disk(self):
        node = self.node()
        if not node.disk.full:
            self.count("full disk")
            node.disk.full = True
            self.world.at(self.world.now + self.rng.randrange(50 * MS, 4 * NS), self._free, node)

    def _free(self, node):
        node.disk.full = False
        self.world.log(node.name, "room again")

    def slow_disk(self):
        self.count("slow disk")
        self.world.fsync_ns = self.rng.choice(((20 * MS, 400 * MS), (5 * MS, 50 * MS), (50 * US, 100 * US)))
        self.world.at(self.world.now + self.rng.randrange(200 * MS, 5 * NS), self._usual_disk)

    def _usual_disk(self):
        self.world.fsync_ns = (200 * US, 4 * MS)

    def break_flush(self):
        node = self.node()
        if node.alive:
            self.count("flush fails")
            node.disk.broken_flush = True
            self.world.at(self.world.now + self.rng.randrange(1 * MS, 100 * MS), self._whole_flush, node)

    def _whole_flush(self, node):
        node.disk.broken_flush = False

    def step_date(self):
        self.count("date")
        node = self.node()
        node.skew_ms = self.rng.randrange(-2_400_000, 2_400_000)
        if node.process is not None:
            node.process.skew_ms = node.skew_ms

    def _client(self):
        return self.working[self.rng.choice(sorted(self.working))]

    def kill_client(self):
        actor, _, kind, named = self._client()
        if actor.process.alive:
            self.count("client killed")
            name = actor.name.rsplit(".", 1)[0]
            actor.process.kill()
            self.world.at(self.world.now + self.rng.randrange(10 * MS, 2 * NS), self._spawn_again, kind, name, named)

    def _spawn_again(self, kind, name, named):
        self.spawn(kind, name, **named)

    def freeze_client(self):
        actor = self._client()[0]
        if actor.process.alive:
            self.count("client frozen")
            actor.process.frozen_until = self.world.now + self.rng.randrange(50 * MS, 15 * NS)

    def slow_net(self):
        self.count("slow net")
        self.network.delay = self.rng.choice(((1 * MS, 300 * MS), (10 * US, 30 * US), (1 * MS, 30 * MS)))
        self.world.at(self.world.now + self.rng.randrange(200 * MS, 5 * NS), self._usual_net)

    def _usual_net(self):
        self.network.delay = (20 * US, 2 * MS)

    # the whole of it

    def run(self):
        world = self.world
        self.choose_nemesis()
        self.nodes[0].start()
        admin = Process("admin")
        admin.main(self._prepare(Kafka(admin, self.network, self.where)))
        world.run(world.now + self.seconds * NS)
        self.make_peace()
        world.run(world.now + 200 * NS, lambda: self.verified)
        if not self.verified and not world.stop:
            left = [name for name, (actor, *_) in self.working.items() if not getattr(actor, "done", False)]
            up = [(node.name, node.up, node.leads) for node in self.nodes]
            world.problem("stalled", f"{left}, {up}")
        world.log("end", sorted(self.faults.items()), self.history.acked, self.history.read)
        return self

    def make_peace(self):
        world = self.world
        self.quiet = True
        world.log("peace")
        self._usual_disk(), self._usual_net()
        for node in self.nodes:
            node.disk.full = node.disk.broken_flush = False
            node.skew_ms = 0
            if node.process is not None:
                node.process.doom = None
                node.process.frozen_until = min(node.process.frozen_until, world.now + 1)
                node.process.skew_ms = 0
                node.start()
        verifier = Process("verifier")
        verifier.main(self._verify(Kafka(verifier, self.network, self.where)))

    async def _prepare(self, kafka):
        for name, partitions in (("log", 3), ("in", 1), ("out", 1)):
            while True:
                try:
                    error = await kafka.create_topic(name, partitions, {})
                except Gone:
                    await asyncio.sleep(0.2)
                    continue
                if error in (0, 36):
                    break
                self.world.log("create", name, error)
                await asyncio.sleep(0.2)
        kafka.close()
        await self.join_forces()
        self.begin()
        self.nemesis()

    async def join_forces(self):
        """What else there is before faults begin."""

    async def _verify(self, kafka):
        """Wait until everybody is done, end what is open, and read everything."""
        while not all(getattr(actor, "done", False) for actor, *_ in self.working.values()):
            await asyncio.sleep(0.5)
            for node in self.nodes:
                node.start()
        if self.rng.random() < 0.5:  # once more, from what lies on the disks
            for node in self.nodes:
                node.process.kill()
                node.up = False
                if self.rng.random() < 0.5:
                    self.world.log(node.name, "last power cut", node.disk.cut_power())
                node.start()
        for name in ("tx-a", "tx-b", "transform"):
            await self._until(lambda name=name: kafka.init(name), f"last init of {name}", kafka)
        logs, committed, offsets = {}, {}, {}
        for tp in [*PLAIN, INPUT, OUTPUT]:
            logs[tp] = await self._everything(kafka, tp, False)
            committed[tp] = await self._everything(kafka, tp, True)
        for group, tp in self.history.offset_asked:
            offsets[group, tp] = (await self._until(lambda g=group, t=tp: kafka.fetch_offset(g, t), "offset", kafka))[1]
        _, offset = await self._until(lambda: kafka.fetch_offset("of-transactions", ("log", 0)), "offset", kafka)
        self._check_transactions_offset(offset)
        self.history.check(logs, committed, offsets)
        self.verified = True

    async def _until(self, ask, what, kafka):
        """Ask until there is an answer without an error."""
        while True:
            try:
                answer = await ask()
                if not answer[0]:
                    return answer
                self.world.log(what, answer[0])
                kafka.elsewhere(answer[0])
            except Gone as gone:
                self.world.log(what, gone)
            await asyncio.sleep(0.3)

    async def _everything(self, kafka, tp, committed):
        found, at, idle = [], 0, 0
        _, end = await self._until(lambda: kafka.end_offset(tp), "end", kafka)

        async def fetch():
            return (await kafka.fetch([(tp, at, 1 << 20)], committed, 0))[tp]

        while at < end and idle < 50:
            error, high, stable, aborted, some = await fetch()
            if error:
                self.world.problem("refused", f"the last fetch of {tp} at {at} was answered {error}")
                break
            if any(not one.crc_ok for one in some):
                self.world.problem("garbage", f"a batch of {tp}")
            records = committed_records(some, aborted) if committed else [r for one in some for r in one.values]
            found += [(offset, int(data.split(b".", 1)[0])) for offset, data in records if offset >= at]
            idle = 0 if some else idle + 1
            if some:
                at = some[-1].last + 1
            else:
                await asyncio.sleep(0.1)
        if at < end:
            self.world.problem("stalled", f"{tp} is read to {at} of {end}, committed {committed}")
        return found

    def _check_transactions_offset(self, offset):
        commits = self.history.group_commits
        if offset > 0 and (offset > len(commits) or commits[offset - 1].outcome == "aborted"):
            self.world.problem("committed back", f"the transactions' offset is {offset}, of an aborted one")
        known = commits[offset - 1] if 0 < offset <= len(commits) else None
        for txn in commits:
            if txn.outcome == "committed" and txn.offset > offset and (known is None or _before(known, txn)):
                self.world.problem(
                    "committed back", f"the transactions' offset is {offset}, {txn.offset} was committed"
                )
                return


class Pair(Universe):
    """A leader and its follower, min.insync.replicas=2: what was acknowledged survives whichever is promoted."""

    ends_rise = False  # a new leader's high watermark may lag for a moment: KIP-207
    comes_back = (20 * MS, 300 * MS, 2 * NS, 6 * NS)
    kinds = (*Universe.kinds, "promote", "promote", "lose_leader", "lose_leader", "lose_both")

    def make_nodes(self):
        return [Node(self, "a", 9092), Node(self, "b", 9093, "127.0.0.1:9092")]

    def knobs(self):
        super().knobs()
        self.settings["min.insync.replicas"] = "2"
        self.settings["replica.lag.time.max.ms"] = str(self.rng.choice((1000, 5000, 30_000)))

    async def join_forces(self):
        self.nodes[1].start()
        await asyncio.sleep(3)

    def choose_nemesis(self):
        super().choose_nemesis()
        self.weights["lose_leader"] = 3

    def promote(self):
        for node in self.nodes:
            if node.alive and node.up and not node.leads:
                self.count("promotion")
                role = node.role
                node.process.loop.call_soon(lambda: self.world.log("promote", node.name, int(role.promote())))
                return

    def lose_leader(self):
        """The leader goes, and the other is promoted."""
        for node in self.nodes:
            if node.leads:
                self._at_some_call(node, self.rng.choice((self._kill, self._cut_power)))
                self.world.at(self.world.now + self.rng.randrange(10 * MS, NS), self.promote)
                return

    def lose_both(self):
        for node in self.nodes:
            self._at_some_call(node, self.rng.choice((self._kill, self._cut_power)))


def _before(one, other):
    """Whether one's end is known to lie before the other's commit was asked for."""
    return one.end_ns is not None and one.end_ns < other.commit_ns


def run(seed, trace=None, seconds=20, kind=Universe):
    gc.disable()
    universe = kind(seed, trace, seconds)
    try:
        return universe.run()
    finally:
        universe.world.over()
