"""Transactional producers: transactions over several partitions, by protocol 1 or 2. Two may share an id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from tests.simulation.clients.actor import Actor
from tests.simulation.clients.places import PLAIN
from tests.simulation.kafka import Gone
from tests.simulation.kafka import codes as k
from tests.simulation.kafka.batches import batch
from tests.simulation.kafka.client import Place
from tests.simulation.promises import Owner, Txn, Write
from waterclock.simulation.world import world

REPLACED = (k.BAD_EPOCH, k.FENCED, k.BAD_STATE, k.BAD_MAPPING, k.ABORTABLE)


class Transactions(Actor):
    """With an offset in some of the transactions. `owner` is this incarnation, None if there is none."""

    group = "of-transactions"

    def __init__(self, *args: Any, id: str = "tx") -> None:
        self.id = id
        super().__init__(*args)

    def begin(self) -> None:
        self.owner: Owner | None = None
        self.second: bool = self.universe.protocol(self.id)
        self.producer = self.epoch = -1
        self.next: dict[Any, int] = {}

    async def init(self) -> None:
        owner = self.history.owner(self.id)
        while True:
            error, self.producer, self.epoch = await self.kafka.init(self.id, self.rng.choice((3_000, 10_000)))
            if not error:
                break
            self.tell("init", error)
            self.kafka.elsewhere(error)
            if error not in k.RETRIABLE:
                self.refused("init", error)
            await self.pause()
        owner.given_ns, self.owner, self.next = self.world.now, owner, {}
        self.tell("owner", self.producer, self.epoch)

    async def work(self) -> None:
        if self.owner is None:
            await self.init()
        if self.rng.random() < 0.1:
            await self.pause(0.5, 3)
        txn = self.history.txn(self.id, self.owner)
        commits = self.rng.random() < 0.75
        if not await self.whole(txn, lambda: self.filled_and_ended(txn, commits)):
            await self.pause()
        await self.between(0.2)

    async def whole(self, txn: Txn, pass_through: Callable[[], Awaitable[bool]]) -> bool:
        """Go through a transaction; where it comes to nothing, the next one has a new owner."""
        done = False
        try:
            done = await pass_through()
        finally:
            if not done and self.process.alive:
                self.owner = None
                if txn.commit_ns is None:
                    txn.outcome = "aborted"  # nobody will ever ask for it
        return done

    async def filled_and_ended(self, txn: Txn, commits: bool) -> bool:
        tps = self.rng.sample(self.tps, self.rng.randrange(1, len(self.tps) + 1))
        ready = await self.add(tps) and await self.send(txn, tps) and await self.add_offset(txn)
        return await self.end(txn, commits and ready)

    tps = PLAIN

    async def add(self, tps: Iterable[Place]) -> bool:
        return self.second or await self.asked(
            "add", self.kafka.add_partitions, self.id, self.producer, self.epoch, tps
        )

    async def asked(self, what: str, ask: Callable[..., Awaitable[int]], *args: Any) -> bool:
        """Ask until it is known; False if the producer cannot go on."""
        self.history.ops += 1
        lost = 0
        while True:
            try:
                error = await ask(*args)
            except Gone:
                lost += 1
                await self.lost(lost)
                continue
            self.tell(what, *args[3:], error)
            if not error:
                return True
            if error not in k.RETRIABLE:
                if error not in (*REPLACED, k.OUT_OF_ORDER, k.UNKNOWN_PRODUCER):
                    self.refused(what, error)
                return False
            self.kafka.elsewhere(error)
            await self.pause(0.01, 0.1)

    async def lost(self, times: int) -> None:
        """An answer was lost: wait, and give up after a few."""
        if times > 3 or self.over:
            raise Gone(f"lost {times} times")
        await self.pause(0.05, 0.5)

    async def send(self, txn: Txn, tps: list[Place]) -> bool:
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

    async def sent(self, tp: Place, writes: list[Write], sequence: int) -> bool:
        records = [self.data(write) for write in writes]
        data = batch(records, world().wall_ms(), self.producer, self.epoch, sequence, True)

        async def ask() -> int:
            error, base = await self.kafka.produce(tp, data, self.id, self.second)
            if error not in (k.NONE, k.DUPLICATE):
                return error
            self.history.acknowledged(writes, base if error == k.NONE else None)
            return 0

        return await self.asked(f"sent {tp} {sequence} {[w.value for w in writes]}", ask)

    async def add_offset(self, txn: Txn) -> bool:
        if self.rng.random() < 0.5:
            return True
        self.history.group_commits.append(txn)
        txn.offset = len(self.history.group_commits)
        return await self.offsets(self.group, ("log", 0), txn.offset)

    async def offsets(self, group: str, tp: Place, offset: int) -> bool:
        args = (self.id, self.producer, self.epoch, group)
        if not self.second and not await self.asked("group", self.kafka.add_offsets, *args):
            return False
        return await self.asked("offsets", partial(self.kafka.txn_offsets, self.second), *args, tp, offset)

    async def end(self, txn: Txn, commits: bool) -> bool:
        """End it, and ask until that is known; False if this owner cannot go on.

        Of two brokers, one that says that it cannot, or is no coordinator, may have written the end down for the other one:
        as Kafka's does, whose own errors NOT_ENOUGH_REPLICAS_AFTER_APPEND and NOT_LEADER_OR_FOLLOWER are told so.
        """
        lost, is_doubtful = 0, False
        while True:
            self.history.ops += 1
            if commits and txn.commit_ns is None:
                txn.commit_ns = self.world.now
            try:
                told = await self.kafka.end(self.second, self.id, self.producer, self.epoch, commits)
                error, producer, epoch = told
            except Gone:
                lost += 1
                await self.lost(lost)
                continue
            self.tell("end", commits, error, producer, epoch, [w.value for w in txn.writes])
            if not error:
                txn.outcome, txn.end_ns = "committed" if commits else "aborted", self.world.now
                self.producer, self.epoch = producer, epoch
                return self.second or not lost  # protocol 1: an earlier request may be on its way still
            if error not in k.RETRIABLE:
                self.end_refused(txn, commits and not (lost or is_doubtful), error)
                return False
            is_doubtful |= self.universe.plan.pair and error in (k.NOT_AVAILABLE, k.NOT_COORDINATOR)
            self.kafka.elsewhere(error)
            await self.pause(0.01, 0.1)

    def end_refused(self, txn: Txn, once: bool, error: int) -> None:
        if error not in REPLACED:
            self.refused("end", error)
        if once:
            txn.commit_ns, txn.outcome = None, "aborted"  # it was refused, and asked for once
