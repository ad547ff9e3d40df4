"""Idempotent producers: several batches on their way, sent again in their order."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from tests.simulation.clients.actor import Actor
from tests.simulation.clients.places import INPUT, PLAIN
from tests.simulation.clients.reading import sure
from tests.simulation.kafka import Kafka
from tests.simulation.kafka import codes as k
from tests.simulation.kafka.batches import batch
from tests.simulation.kafka.client import Place, produced
from tests.simulation.kafka.encoding import message
from tests.simulation.promises import Write
from waterclock.simulation.world import world

KeyAndValue = tuple[bytes, bytes | None]
Unanswered = tuple[list[Write], int, list[KeyAndValue]]
KNOWN = 5  # batches: a broker knows as many of a producer (Apache Kafka: NUM_BATCHES_TO_RETAIN) as may be on their way


class Producer(Actor):
    """`left` are the batches of each partition that are not acknowledged: (writes, sequence, records).

    `said` are the last that were acknowledged, with those that are not acknowledged of the same producer id.
    """

    def __init__(self, *args: Any, tps: tuple[Place, ...] = (*PLAIN, INPUT)) -> None:
        self.tps = tps
        super().__init__(*args)

    def begin(self) -> None:
        self.id: int | None = None
        self.latest: dict[tuple[int | None, Place], int] = {}
        self.said: dict[Place, tuple[list[KeyAndValue], int, int, int, int | None, list[Unanswered]]] = {}

    async def work(self) -> None:
        if self.id is None:
            error, producer, epoch = await self.kafka.init(None)
            if error:
                return await self.go_elsewhere("init", error)
            self.id, self.epoch = producer, epoch
            self.next: dict[Place, int] = {}
            self.left: dict[Place, list[Unanswered]] = {}
        self.fill()
        await self.round()
        await self.between(0.2)
        return None

    def fill(self) -> None:
        """More batches; sometimes as many for one partition as may be on their way."""
        burst = self.rng.choice(self.tps) if self.rng.random() < 0.15 else None
        for _ in range(KNOWN if burst else self.rng.randrange(1, 5)):
            tp = burst or self.rng.choice(self.tps)
            if len(self.left.get(tp, ())) < KNOWN:
                self.batch_for(tp)

    def batch_for(self, tp: Place) -> None:
        sequence = self.next.get(tp, 0)
        writes = [self.history.write(tp, f"{self.name}/{self.id}/{tp}") for _ in range(self.rng.randrange(1, 4))]
        self.next[tp] = sequence + len(writes)
        records = [self.data(write) for write in writes]
        self.left.setdefault(tp, []).append((writes, sequence, records))

    async def round(self) -> None:
        """Send all that is not acknowledged, and look at each answer."""
        connection, asked = self.kafka.connection(), []
        for tp, batches in self.left.items():
            for _, sequence, records in batches:
                data = batch(records, world().wall_ms(), self.id, self.epoch, sequence)
                self.history.ops += 1
                body = None, -1, 10_000, [(tp[0], [(tp[1], data)])]
                asked.append((tp, sequence, connection.ask(message("produce"), *body)))
        try:
            await asyncio.wait_for(asyncio.gather(*(one for *_, one in asked), return_exceptions=True), 15)
        except TimeoutError:
            connection.close()
        bad: set[Place] = set()
        for tp, sequence, future in asked:
            if not self.answered(tp, sequence, future, bad):
                self.id = None
                return
        if bad:
            await self.pause(0.05, 0.3)

    def answered(self, tp: Place, sequence: int, future: Any, bad: set[Place]) -> bool:
        """Take one answer; False if this producer cannot go on. `bad`: where a batch is not in yet."""
        if not future.done() or future.cancelled() or future.exception() is not None:
            bad.add(tp)
            return True
        error, base = produced(message("produce").answer(future.result()))
        self.tell("produced", tp, sequence, error, base)
        if error in (k.NONE, k.DUPLICATE):
            self.acknowledged(tp, sequence, base if error == k.NONE else None)
        elif error in k.RETRIABLE:
            self.kafka.elsewhere(error)
            bad.add(tp)
        elif error == k.OUT_OF_ORDER and tp in bad:
            pass  # one before it failed
        elif error == k.OUT_OF_ORDER and sequence < self.latest.get((self.id, tp), 0):
            # it was refused when nothing was known of this producer yet, and a later one was taken: as with Kafka
            self.universe.count("started behind a refusal")
            return False
        else:
            self.refused(f"produce {tp} sequence {sequence}", error)
            return False
        return True

    def acknowledged(self, tp: Place, sequence: int, base: int | None) -> None:
        batches = self.left[tp]
        self.latest[self.id, tp] = max(sequence, self.latest.get((self.id, tp), 0))
        at = next(n for n, one in enumerate(batches) if one[1] == sequence)
        writes, _, records = batches.pop(at)
        self.history.acknowledged(writes, base)
        if self.id is not None and sequence == self.latest[self.id, tp]:
            self.said[tp] = records, self.id, self.epoch, sequence, base, batches

    async def ask_again(self, kafka: Kafka) -> None:
        """In the end: what was acknowledged last is known, and stands there once.

        With five unanswered behind it, those are sent: a broker that has them knows no other, and no client sends it again.
        """
        for tp, (records, *who, sequence, base, batches) in self.said.items():
            behind = [(later, number, None) for _, number, later in batches if number > sequence]
            for sent, number, at in behind if len(behind) == KNOWN else [(records, sequence, base)]:
                ask = partial(kafka.produce, tp, batch(sent, world().wall_ms(), *who, number))
                error, found = await sure(self.universe, kafka, f"again {tp}", ask, k.FINAL)
                if error not in (k.NONE, k.DUPLICATE):
                    self.refused(f"produce {tp} of {[*who, number]} again", error)
                elif not error and at not in (None, found):
                    self.world.problem("misplaced", f"{who} was acknowledged at {tp} {at}, and again at {found}")
