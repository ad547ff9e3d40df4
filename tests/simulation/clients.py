"""The clients of a universe, each in a process of its own: what they do, and what they write into the history."""

from __future__ import annotations

import asyncio
import struct

from tests.simulation import kafka as k
from tests.simulation.history import Session
from tests.simulation.kafka import Gone, Kafka
from waterclock.simulation.world import world

PLAIN = [("log", 0), ("log", 1), ("log", 2)]
INPUT, OUTPUT = ("in", 0), ("out", 0)
RETRIABLE = {5, 6, 7, 13, 14, 15, 16, 19, 20, 51, 56, 3}


class Actor:
    """A client process. `universe` knows where the broker is, and when it is over."""

    def __init__(self, universe, process, name):
        self.universe, self.process, self.name = universe, process, name
        self.world, self.history = universe.world, universe.history
        self.rng = self.world.stream(f"client {name}")
        self.kafka = Kafka(process, universe.network, universe.where)

    @property
    def over(self):
        return self.universe.quiet

    async def pause(self, least=0.01, most=0.3):
        await asyncio.sleep(self.rng.uniform(least, most))

    def data(self, write):
        size = self.rng.choice((0, 10, 100, 100, 1500, 5000))
        return (b"k%d" % (write.value % 5), b"%d." % write.value + b"x" * size)

    def tell(self, *what):
        self.world.log(self.process.name, *what)

    async def run(self):
        while not self.over:
            try:
                await self.work()
            except Gone as gone:
                self.tell("gone", gone)
                await self.pause(0.05, 0.5)
        self.kafka.close()
        self.universe.finished(self)

    def refused(self, what, error):
        self.world.problem("refused", f"{self.process.name}: {what} was answered {error}")


class Producer(Actor):
    """Idempotent, with several batches on their way, sent again in their order."""

    def __init__(self, *args):
        super().__init__(*args)
        self.id, self.latest = None, {}
        self.tps = PLAIN + [INPUT]

    async def work(self):
        if self.id is None:
            error, producer, epoch = await self.kafka.init(None)
            if error:
                self.tell("init", error)
                self.kafka.elsewhere(error)
                return await self.pause()
            self.id, self.epoch, self.next, self.left = producer, epoch, {}, {}
        await self.round()
        await self.pause(0.001, 0.2)

    def batch_for(self, tp):
        sequence = self.next.get(tp, 0)
        writes = [self.history.write(tp, f"{self.name}/{self.id}/{tp}") for _ in range(self.rng.randrange(1, 4))]
        self.next[tp] = sequence + len(writes)
        records = [self.data(write) for write in writes]
        self.left.setdefault(tp, []).append((writes, sequence, records))

    async def round(self):
        burst = self.rng.choice(self.tps) if self.rng.random() < 0.15 else None  # as many as may be on their way
        for _ in range(5 if burst else self.rng.randrange(1, 5)):
            tp = burst or self.rng.choice(self.tps)
            if len(self.left.get(tp, ())) < 5:
                self.batch_for(tp)
        connection, asked = self.kafka.connection(), []
        for tp, batches in self.left.items():
            for writes, sequence, records in batches:
                data = k.batch(records, world().wall_ms(), self.id, self.epoch, sequence)
                self.history.ops += 1
                asked.append((tp, sequence, connection.ask(k.PRODUCE, 7, self.kafka.produce_request([(*tp, data)]))))
        try:
            await asyncio.wait_for(asyncio.gather(*(one for *_, one in asked), return_exceptions=True), 15)
        except TimeoutError:
            connection.close()
        bad = set()
        for tp, sequence, future in asked:
            if not future.done() or future.cancelled() or future.exception() is not None:
                bad.add(tp)
                continue
            [(_, _, error, base)] = self.kafka.produced(k.Answer(future.result()))
            self.tell("produced", tp, sequence, error, base)
            if error in (k.NONE, k.DUPLICATE):
                batches = self.left[tp]
                self.latest[self.id, tp] = max(sequence, self.latest.get((self.id, tp), 0))
                at = next(n for n, one in enumerate(batches) if one[1] == sequence)
                for number, write in enumerate(batches[at][0]):
                    write.outcome = "ok"
                    self.history.acked += 1
                    if error == k.NONE:
                        write.offset = base + number
                del batches[at]
            elif error in RETRIABLE:
                self.kafka.elsewhere(error)
                bad.add(tp)
            elif error == k.OUT_OF_ORDER and tp in bad:
                pass  # one before it failed
            elif error == k.OUT_OF_ORDER and sequence < self.latest.get((self.id, tp), 0):
                # it was refused when nothing was known of this producer yet, and a later one was taken: as with Kafka
                self.universe.count("started behind a refusal")
                self.id = None
                return
            else:
                self.refused(f"produce {tp} sequence {sequence}", error)
                self.id = None
                return
        if bad:
            await self.pause(0.05, 0.3)


class Transactions(Actor):
    """Transactions over several partitions, with an offset in some of them; by protocol 1 or 2. Two may share an id."""

    group = "of-transactions"

    def __init__(self, *args, id="tx"):
        super().__init__(*args)
        self.id, self.owner, self.counts = id, None, 0
        self.second = self.universe.protocol(id)
        self.tps = PLAIN

    async def init(self):
        owner = self.history.owner(self.id)
        while True:
            error, self.producer, self.epoch = await self.kafka.init(self.id, self.rng.choice((3_000, 10_000)))
            if not error:
                break
            self.tell("init", error)
            self.kafka.elsewhere(error)
            if error not in RETRIABLE:
                self.refused("init", error)
            await self.pause()
        owner.given_ns, self.owner, self.next = self.world.now, owner, {}
        self.tell("owner", self.producer, self.epoch)

    async def work(self):
        if self.owner is None:
            await self.init()
        if self.rng.random() < 0.1:
            await self.pause(0.5, 3)
        txn = self.history.txn(self.id, self.owner)
        commits = self.rng.random() < 0.75
        try:
            ready = await self.fill(txn)
            done = await self.end(txn, commits and ready)
        except Gone:
            self.owner = None
            if txn.commit_ns is None:
                txn.outcome = "aborted"  # nobody will ever ask for it
            raise
        if not done:
            self.owner = None
            if txn.commit_ns is None:
                txn.outcome = "aborted"
            await self.pause()
        await self.pause(0.001, 0.2)

    async def fill(self, txn):
        tps = self.rng.sample(self.tps, self.rng.randrange(1, len(self.tps) + 1))
        return await self.add(tps) and await self.send(txn, tps) and await self.add_offset(txn)

    async def add(self, tps):
        return self.second or await self.asked(
            "add", self.kafka.add_partitions, self.id, self.producer, self.epoch, tps
        )

    async def asked(self, what, ask, *args):
        """Ask until it is known; False if the producer cannot go on."""
        self.history.ops += 1
        lost = 0
        while True:
            try:
                error = await ask(*args)
            except Gone:
                lost += 1
                if lost > 3 or self.over:
                    raise
                await self.pause(0.05, 0.5)
                continue
            self.tell(what, *args[3:], error)
            if not error:
                return True
            if error in RETRIABLE:
                self.kafka.elsewhere(error)
                await self.pause(0.01, 0.1)
            elif error in (k.BAD_EPOCH, k.FENCED, k.BAD_STATE, k.BAD_MAPPING, k.OUT_OF_ORDER, k.UNKNOWN_PRODUCER, 120):
                return False
            else:
                self.refused(what, error)
                return False

    async def send(self, txn, tps):
        for _ in range(self.rng.randrange(1, 4)):
            tp = self.rng.choice(tps)
            sequence = self.next.get((self.producer, self.epoch, tp), 0)
            writes = [
                self.history.write(tp, f"{self.id}/{self.producer}/{self.epoch}", txn)
                for _ in range(self.rng.randrange(1, 4))
            ]
            if not await self.sent(tp, writes, sequence):
                return False
            self.next[self.producer, self.epoch, tp] = sequence + len(writes)
        return True

    async def sent(self, tp, writes, sequence, records=None):
        records = records or [self.data(write) for write in writes]
        data = k.batch(records, world().wall_ms(), self.producer, self.epoch, sequence, True)

        async def ask():
            if self.second:
                body = self.kafka.produce_request_2([(*tp, data)], self.id)
                rows = self.kafka.produced_2(await self.kafka.connection().call(k.PRODUCE, 12, body, flexible=True))
            else:
                body = self.kafka.produce_request([(*tp, data)], self.id)
                rows = self.kafka.produced(await self.kafka.connection().call(k.PRODUCE, 7, body))
            [(_, _, error, base)] = rows
            if not error or error == k.DUPLICATE:
                for number, write in enumerate(writes):
                    write.outcome = "ok"
                    self.history.acked += 1
                    write.offset = base + number if not error else None
                return 0
            return error

        return await self.asked(f"sent {tp} {sequence} {[w.value for w in writes]}", ask)

    async def add_offset(self, txn):
        if self.rng.random() < 0.5:
            return True
        self.history.group_commits.append(txn)
        txn.offset = len(self.history.group_commits)
        return await self.offsets(self.group, ("log", 0), txn.offset)

    async def offsets(self, group, tp, offset):
        args = (self.id, self.producer, self.epoch, group)
        if self.second:
            return await self.asked("offsets", self.kafka.txn_offsets_2, *args, tp, offset)
        return await self.asked("group", self.kafka.add_offsets, *args) and await self.asked(
            "offsets", self.kafka.txn_offsets, *args, tp, offset
        )

    async def end(self, txn, commits):
        lost = 0
        while True:
            self.history.ops += 1
            if commits and txn.commit_ns is None:
                txn.commit_ns = self.world.now
            try:
                end = self.kafka.end_2 if self.second else self.kafka.end
                error, producer, epoch = await end(self.id, self.producer, self.epoch, commits)
            except Gone:
                lost += 1
                if lost > 3 or self.over:
                    raise
                await self.pause(0.05, 0.5)
                continue
            self.tell("end", commits, error, producer, epoch, [w.value for w in txn.writes])
            if not error:
                txn.outcome, txn.end_ns = "committed" if commits else "aborted", self.world.now
                self.producer, self.epoch = producer, epoch
                return self.second or not lost  # protocol 1: an earlier request may be on its way still
            if error in RETRIABLE:
                self.kafka.elsewhere(error)
                await self.pause(0.01, 0.1)
                continue
            if error not in (k.BAD_EPOCH, k.FENCED, k.BAD_STATE, k.BAD_MAPPING, 120):
                self.refused("end", error)
            if commits and not lost:
                txn.commit_ns, txn.outcome = None, "aborted"  # it was refused, and asked for once
            return False


class Transformer(Transactions):
    """Consume, transform, produce: each input has one output, whatever happens."""

    def __init__(self, *args):
        super().__init__(*args, id="transform")
        self.position = None

    async def work(self):
        if self.owner is None:
            self.position = None
            await self.init()
        if self.position is None:
            error, offset = await self.kafka.fetch_offset("transform", INPUT)
            if error:
                self.tell("offset", error)
                self.kafka.elsewhere(error)
                return await self.pause()
            self.position = max(0, offset)
        found = await self.kafka.fetch([(INPUT, self.position, 1 << 20)], True, 200)
        error, _, _, aborted, some = found[INPUT]
        if error:
            self.tell("fetch", error)
            self.kafka.elsewhere(error)
            return await self.pause()
        records = [one for one in committed_records(some, aborted) if one[0] >= self.position][:3]
        if not records:
            if some:
                self.position = max(self.position, some[-1].last + 1)
            return await self.pause(0.01, 0.1)
        txn = self.history.txn(self.id, self.owner)
        try:
            if not await self.pass_on(txn, records):
                self.owner = None
                if txn.commit_ns is None:
                    txn.outcome = "aborted"
        except Gone:
            self.owner = None
            if txn.commit_ns is None:
                txn.outcome = "aborted"
            raise

    async def pass_on(self, txn, records):
        writes = []
        for _, data in records:
            write = self.history.write(OUTPUT, f"{self.id}/{self.producer}/{self.epoch}", txn)
            self.history.sources[write.value] = int(data.split(b".", 1)[0])
            writes.append(write)
        key = (self.producer, self.epoch)
        sequence = self.next.get(key, 0)
        after = records[-1][0] + 1
        self.history.offset_asked["transform", INPUT] = max(
            after, self.history.offset_asked.get(("transform", INPUT), 0)
        )
        if not await self.add([OUTPUT]) or not await self.sent(OUTPUT, writes, sequence):
            await self.end(txn, False)
            return False
        self.next[key] = sequence + len(writes)
        if not await self.offsets("transform", INPUT, after):
            await self.end(txn, False)
            return False
        if not await self.end(txn, True):
            return False
        self.position = after
        for write in (
            writes if self.universe.ends_rise else ()
        ):  # who asks from now on finds it: nobody else writes there
            if write.offset is not None:
                key = (OUTPUT, "stable")
                self.history.highs[key] = max(write.offset + 1, self.history.highs.get(key, 0))
        self.history.offset_floor["transform", INPUT] = max(
            after, self.history.offset_floor.get(("transform", INPUT), 0)
        )
        return True


class Reader(Actor):
    """Reads everything there is, as one session until it is killed."""

    def __init__(self, *args):
        super().__init__(*args)
        self.committed = self.rng.random() < 0.6
        self.sessions = None

    async def work(self):
        history = self.history
        if self.sessions is None:
            self.sessions = {}
            for tp in [*PLAIN, INPUT, OUTPUT]:
                first = 0 if self.rng.random() < 0.7 else history.highs.get((tp, "stable"), 0)
                self.sessions[tp] = Session(self.name, tp, self.committed, first)
        limit = self.rng.choice((500, 4000, 1 << 20))
        tps = self.rng.sample(list(self.sessions), self.rng.randrange(1, 6))
        floors = {(tp, what): history.highs.get((tp, what), 0) for tp in tps for what in ("high", "stable")}
        wants = [(tp, self.sessions[tp].position, limit) for tp in tps]
        history.ops += 1
        found = await self.kafka.fetch(
            wants, self.committed, self.rng.choice((0, 100, 500)), self.rng.choice((1000, 1 << 20))
        )
        for tp, (error, high, stable, aborted, some) in found.items():
            if error:
                self.tell("fetch", tp, error)
                self.kafka.elsewhere(error)
                if error not in RETRIABLE:
                    self.refused(f"fetch {tp} at {self.sessions[tp].position}", error)
                await self.pause(0.05, 0.2)
                continue
            if self.universe.ends_rise:
                history.told_end(tp, "high", high, floors[tp, "high"])
                history.told_end(tp, "stable", stable, floors[tp, "stable"])
            self.take(self.sessions[tp], some, aborted, stable if self.committed else high)
        await self.pause(0.001, 0.1)

    def take(self, session, some, aborted, upto):
        if any(not one.crc_ok for one in some):
            self.world.problem("garbage", f"a batch of {session.tp}")
        records = committed_records(some, aborted) if self.committed else [r for one in some for r in one.values]
        for offset, data in records:
            if offset >= session.position:
                if offset >= upto:
                    self.world.problem("early", f"{session.tp} {offset} is not below {upto}")
                session.offsets.append(offset)
                self.history.saw(session.tp, offset, data, self.committed)
        if some:
            self.tell("read", session.tp, session.position, some[-1].last + 1)
            session.position = max(session.position, some[-1].last + 1)


def committed_records(some, aborted):
    """What a reader of committed records makes of batches, as Kafka's consumer does."""
    aborted, gone, found = sorted(aborted, key=lambda one: one[1]), set(), []
    for one in some:
        while aborted and aborted[0][1] <= one.last:
            gone.add(aborted.pop(0)[0])
        if one.control:
            if not one.commits:
                gone.discard(one.producer)
        elif not (one.transactional and one.producer in gone):
            found.extend(one.values)
    return found


class Committer(Actor):
    """Commits rising offsets for a group without members, and asks for them."""

    async def work(self):
        history, key = self.history, (f"plain-{self.name}", ("log", 1))
        floor, asked = history.offset_floor.get(key, -1), history.offset_asked.get(key, 0)
        history.ops += 1
        if self.rng.random() < 0.7:
            history.offset_asked[key] = asked + 1
            error = await self.kafka.commit_offset(*key, asked + 1)
            self.tell("committed", asked + 1, error)
            self.kafka.elsewhere(error)
            if not error:
                history.offset_floor[key] = max(asked + 1, floor)
            elif error not in RETRIABLE:
                self.refused("commit", error)
        else:
            error, offset = await self.kafka.fetch_offset(*key)
            self.tell("offset", offset, error)
            self.kafka.elsewhere(error)
            if not error and not floor <= offset <= history.offset_asked.get(key, 0):
                self.world.problem("committed back", f"{key} is {offset}, acknowledged {floor}, asked {asked}")
        await self.pause(0.001, 0.2)


class Member(Actor):
    """A member of a group: joins, reads what it is given, commits, and goes on where the group was."""

    group = "members"

    def __init__(self, *args):
        super().__init__(*args)
        self.member = ""

    async def work(self):
        error, generation, leader, member, members = await self.kafka.join(self.group, self.member, ["log"])
        self.tell("joined", error, generation, member == leader)
        self.kafka.elsewhere(error)
        self.member = member if error in (0, k.MEMBER_ID_REQUIRED) else "" if error == k.UNKNOWN_MEMBER else self.member
        if error:
            if error not in (k.MEMBER_ID_REQUIRED, k.UNKNOWN_MEMBER, k.REBALANCING, *RETRIABLE):
                self.refused("join", error)
            return await self.pause(0.01, 0.2)
        assigned = {}
        if member == leader:
            for number, one in enumerate(members):
                assigned[one] = struct.pack(">i", number) + b",".join(
                    b"%d" % p for _, p in PLAIN if p % len(members) == number
                )  # fmt: skip
        error, data = await self.kafka.sync(self.group, generation, self.member, assigned)
        if error:
            self.kafka.elsewhere(error)
            return await self.pause(0.01, 0.2)
        mine = [("log", int(one)) for one in data[4:].split(b",") if one]
        await self.serve(generation, mine)

    async def serve(self, generation, mine):
        history, positions = self.history, {}
        for tp in mine:
            floor = history.offset_floor.get((self.group, tp), -1)
            error, offset = await self.kafka.fetch_offset(self.group, tp)
            if error:
                self.kafka.elsewhere(error)
                return await self.pause()
            if not floor <= offset <= history.offset_asked.get((self.group, tp), 0):
                self.world.problem("committed back", f"{self.group} {tp} is {offset}, acknowledged {floor}")
            positions[tp] = max(0, offset)
        until = self.world.now + 3_000_000_000
        while not self.over:
            if self.world.now > until:
                until = self.world.now + 2_000_000_000
                error = await self.kafka.heartbeat(self.group, generation, self.member)
                if error:
                    self.kafka.elsewhere(error)
                    if error == k.UNKNOWN_MEMBER:
                        self.member = ""
                    return self.tell("heartbeat", error)
            for tp in mine:
                found = await self.kafka.fetch([(tp, positions[tp], 4000)], True, 50)
                error, _, _, aborted, some = found[tp]
                if error:
                    self.kafka.elsewhere(error)
                    return await self.pause()
                if not some:
                    continue
                positions[tp] = max(positions[tp], some[-1].last + 1)
                key = (self.group, tp)
                history.ops += 1
                history.offset_asked[key] = max(positions[tp], history.offset_asked.get(key, 0))
                error = await self.kafka.commit_offset(self.group, tp, positions[tp], generation, self.member)
                self.tell("committed", tp, positions[tp], error)
                if error:
                    self.kafka.elsewhere(error)
                    if error == k.UNKNOWN_MEMBER:
                        self.member = ""
                    return await self.pause()
                history.offset_floor[key] = max(positions[tp], history.offset_floor.get(key, 0))
            await self.pause(0.01, 0.2)
