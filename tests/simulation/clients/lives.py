"""Topics that are made, deleted and made again under one name: each life has an id of its own, and its own records alone.

A name whose last request may be done or not is left as it is, and another one goes on: a late request changes nothing else.
"""

from __future__ import annotations

import itertools
from typing import Any

from tests.simulation.clients.actor import Actor
from tests.simulation.clients.reading import sure, values_of
from tests.simulation.kafka import Kafka
from tests.simulation.kafka import codes as k
from tests.simulation.kafka.batches import batch
from waterclock.simulation.world import world

NOT_HERE = frozenset((6, 41))  # not the leader, not the controller: nothing was done


class Name:
    """A topic's name through its lives. `there`: whether it is there now; None if nobody knows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.there: bool | None = False
        self.ids: list[bytes] = []
        self.written: list[int] = []  # in this life
        self.acknowledged: dict[int, int] = {}  # value: offset, in this life


class Names:
    def __init__(self) -> None:
        self.all: list[Name] = []
        self.values = itertools.count(1)


class Lives(Actor):
    """Leads one name through its lives."""

    def begin(self) -> None:
        self.names, self.now = self.history.part(Names), Name("")
        self.now.there = None

    async def work(self) -> None:
        if self.now.there is None:
            self.now = Name(f"life-{self.name}-{len(self.names.all)}")
            self.names.all.append(self.now)
        await self.known("make", self.make)
        if self.now.there:
            for _ in range(self.rng.randrange(4)):
                await self.write()
            await self.look()
            if self.rng.random() < 0.8:
                await self.known("delete", self.delete)
                await self.look()
        await self.between(0.3)

    async def known(self, what: str, deed: Any) -> None:
        """Make or delete it; where the outcome is not known the name is left."""
        before, self.now.there = self.now.there, None
        if before == (what == "make"):
            self.now.there = before
            return
        while not self.over:
            self.history.ops += 1
            error = await deed()
            self.tell(what, self.now.name, error)
            if error not in NOT_HERE:
                break
            await self.go_elsewhere(what, error)
        else:
            self.now.there = before
            return
        if not error:
            self.now.there = what == "make"
        elif error not in k.RETRIABLE:
            self.refused(f"{what} {self.now.name}", error)

    async def make(self) -> int:
        error, number = await self.kafka.make_topic(self.now.name, 1, {})
        if not error:
            if number in self.now.ids:
                self.world.problem("same id", f"{self.now.name} has the id of an earlier life, {number.hex()}")
            self.now.ids.append(number)
            self.now.written, self.now.acknowledged = [], {}
        return error

    async def delete(self) -> int:
        return await self.kafka.delete_topic(self.now.name)

    async def write(self) -> None:
        values = [next(self.names.values) for _ in range(self.rng.randrange(1, 4))]
        self.now.written += values
        data = batch([(b"", b"%d." % value) for value in values], world().wall_ms())
        error, base = await self.kafka.produce((self.now.name, 0), data)
        if not error:
            self.now.acknowledged.update(zip(values, itertools.count(base), strict=False))
        elif error not in k.RETRIABLE or (error == k.UNKNOWN_TOPIC and self.universe.ends_rise):
            self.refused(f"produce to {self.now.name}", error)

    async def look(self) -> None:
        """Whether who leads says so too."""
        error, number = await self.kafka.topic_id(self.now.name)
        if self.universe.ends_rise:
            judge(self.now, error, number, self.world.problem)


def judge(name: Name, error: int, number: bytes, problem: Any) -> None:
    """What is told of a name whose state is known."""
    if name.there and (error or number != name.ids[-1]):
        problem(
            "topic lost", f"{name.name} was made as {name.ids[-1].hex()}, and is told as {number.hex()}, error {error}"
        )
    if name.there is False and error != k.UNKNOWN_TOPIC:
        problem("topic back", f"{name.name} was deleted, and is told as {number.hex()}, error {error}")


async def begin(universe: Any) -> None:
    universe.spawn(Lives, "lives-a")
    universe.spawn(Lives, "lives-b")


async def verify(universe: Any, kafka: Kafka) -> None:
    problem = universe.world.problem
    for name in universe.history.part(Names).all:
        error, number = await sure(
            universe, kafka, "topic", lambda name=name: kafka.topic_id(name.name), (k.UNKNOWN_TOPIC,)
        )
        judge(name, error, number, problem)
        if name.there and not error:
            found = await values_of(universe, kafka, (name.name, 0), False)
            for value, offset in name.acknowledged.items():
                if (offset, value) not in found:
                    problem("lost", f"{value}, acknowledged at {name.name} {offset}: {found[:9]} is there")
            if strange := [value for _, value in found if value not in name.written]:
                problem("phantom", f"{strange[:9]} in {name.name} were not written in this life")
