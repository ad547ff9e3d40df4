"""A compacted topic: the last that is there of each key, in the end and for each reader, is acknowledged last or later.

Each key has one writer, whose values are numbered. A value of None is a tombstone.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.clients.actor import Actor
from tests.simulation.clients.producers import Producer
from tests.simulation.clients.reading import all_of, made
from tests.simulation.kafka import Kafka
from tests.simulation.kafka.batches import read, value_of
from tests.simulation.kafka.client import EARLIEST, Place
from tests.simulation.kafka.fetching import Fetched, fetch
from tests.simulation.promises import Write

PLACES: tuple[Place, ...] = (("compacted", 0), ("compacted", 1))
Found = list[tuple[int, int | None]]  # a key's (offset, value)


class Keys:
    """What was written of each key of a partition, in its order; `dead` are the tombstones."""

    def __init__(self) -> None:
        self.writes: dict[tuple[Place, bytes], list[Write]] = {}
        self.dead: set[int] = set()

    def floors(self) -> dict[tuple[Place, bytes], int]:
        """The last acknowledged value of each key."""
        last = {key: [w.value for w in writes if w.outcome == "ok"] for key, writes in self.writes.items()}
        return {key: values[-1] for key, values in last.items() if values}

    def check(self, tp: Place, found: dict[bytes, Found], floors: dict[tuple[Place, bytes], int], problem: Any) -> None:
        for key in found:
            if (tp, key) not in self.writes:
                problem("phantom", f"key {key!r} in {tp}")
        for (place, key), writes in self.writes.items():
            if place == tp:
                there = self._numbered(tp, key, writes, found.get(key, []), problem)
                self._last(tp, key, writes, there, floors.get((tp, key), 0), problem)

    def _numbered(self, tp: Place, key: bytes, writes: list[Write], found: Found, problem: Any) -> list[int]:
        """The values that are there: in their order, at the offsets at which they were acknowledged."""
        known, there = {w.value: w for w in writes}, [0]
        for offset, value in found:
            if value is None:
                value = next(
                    (
                        w.value
                        for w in writes
                        if w.value > there[-1] and w.value in self.dead and w.offset in (None, offset)
                    ),
                    0,
                )
            if value not in known or value <= there[-1]:
                problem("unordered", f"{value} of {key!r} at {tp} {offset} stands behind {there[-1]}")
            elif known[value].offset not in (None, offset):
                problem("misplaced", f"{value} of {key!r}, acknowledged at {tp} {known[value].offset}, is at {offset}")
            there.append(value)
        return there

    def _last(self, tp: Place, key: bytes, writes: list[Write], there: list[int], floor: int, problem: Any) -> None:
        gone = any(w.value in self.dead for w in writes if w.value >= floor)
        if there[-1] < floor and not (gone and there == [0]):
            problem("lost", f"{floor} of {key!r} in {tp} is acknowledged, the last that is there is {there[-1]}")


class KeyWriter(Producer):
    """Four keys for each producer id, so that nobody else writes them."""

    def begin(self) -> None:
        super().begin()
        self.keys = self.history.part(Keys)

    def data(self, write: Write) -> tuple[bytes, bytes | None]:
        key = f"{self.name}/{self.id}/{self.rng.randrange(4)}".encode()
        self.keys.writes.setdefault((write.tp, key), []).append(write)
        if self.rng.random() < 0.2:
            self.keys.dead.add(write.value)
            return key, None
        return key, super().data(write)[1]


class KeyReader(Actor):
    """Reads a partition from its beginning to its end, again and again. It is at the end when it was there before it asked:
    what a compaction takes from before its eyes has its later value behind them."""

    async def work(self) -> None:
        keys, tp = self.history.part(Keys), self.rng.choice(PLACES)
        floors = keys.floors()
        error, at = await self.kafka.list_offset(tp, EARLIEST)
        found: list[Fetched] = []
        while not error:
            error, end = await self.kafka.end_offset(tp)
            if error or at >= end:
                break
            while at < end and not error:
                one = (await fetch(self.kafka, [(tp, at, self.rng.choice((2000, 1 << 20)))], False, 50))[tp]
                error, at = one.error, one.batches[-1].last + 1 if one.batches else at
                found.append(one)
                await self.pause(0.0001, 0.02)
                if self.over:
                    return None
        if error:
            return await self.go_elsewhere("compacted", error)
        if self.universe.ends_rise:
            keys.check(tp, by_key(found), floors, self.world.problem)
        return await self.pause()


def by_key(found: list[Fetched]) -> dict[bytes, Found]:
    keys: dict[bytes, Found] = {}
    at = -1
    for one in found:
        for record in read(one.batches, None):
            if record.offset > at:
                at, value = record.offset, None if record.value is None else value_of(record)
                keys.setdefault(record.key or b"", []).append((at, value))
    return keys


async def begin(universe: Any) -> None:
    rng = universe.rng
    configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": rng.choice(("0.01", "0.5")),
        "delete.retention.ms": rng.choice(("0", "500", "86400000")),
        "segment.ms": rng.choice(("200", "1000", "604800000")),
    }
    await made(universe, "compacted", 2, configs)
    for name in ("keys-a", "keys-b"):
        universe.spawn(KeyWriter, name, tps=PLACES)
    universe.spawn(KeyReader, "keys-reader")


async def verify(universe: Any, kafka: Kafka) -> None:
    keys = universe.history.part(Keys)
    for tp in PLACES:
        _, found = await all_of(universe, kafka, tp, False)
        keys.check(tp, by_key(found), keys.floors(), universe.world.problem)
