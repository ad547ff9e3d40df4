"""Logs whose beginning goes: by age, by size, and by DeleteRecords.

What lies before an acknowledged deletion never comes back; what nobody told to go is there; a log's start only rises.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.clients.actor import Actor
from tests.simulation.clients.producers import Producer
from tests.simulation.clients.reading import all_of, made
from tests.simulation.kafka import Kafka
from tests.simulation.kafka import codes as k
from tests.simulation.kafka.batches import Batch, read, value_of
from tests.simulation.kafka.client import EARLIEST, Place
from tests.simulation.kafka.fetching import fetch
from tests.simulation.promises import Write
from waterclock.simulation.world import MS, NS

AGED: Place = ("aged", 0)
SIZED: Place = ("sized", 0)
TRIMMED: tuple[Place, ...] = (("trimmed", 0), ("trimmed", 1))
AGE_MS, SIZE = 1500, 60_000
SKEW_MS = 500  # of a client's clock, at most


class Starts:
    """What is known of logs' starts. `floor`: acknowledged deletions; `asked`: up to where deletion was asked for."""

    def __init__(self) -> None:
        self.floor: dict[Place, int] = {}
        self.asked: dict[Place, int] = {}
        self.told: dict[Place, int] = {}
        self.written_ns: dict[int, int] = {}  # when a value was made

    def at_most(self, tp: Place) -> int:
        return self.asked.get(tp, 0)


class TrimmedWriter(Producer):
    def data(self, write: Write) -> tuple[bytes, bytes | None]:
        self.history.part(Starts).written_ns[write.value] = self.world.now
        return super().data(write)


class Trimmer(Actor):
    """Deletes records, now and then."""

    async def work(self) -> None:
        starts, tp = self.history.part(Starts), self.rng.choice(TRIMMED)
        error, end = await self.kafka.end_offset(tp)
        if error:
            return await self.go_elsewhere("end", error)
        before = self.rng.randrange(starts.at_most(tp) // 2, end + 1) if end >= starts.at_most(tp) // 2 else end
        starts.asked[tp] = max(before, starts.at_most(tp))
        self.history.ops += 1
        error, start = await self.kafka.delete_records(tp, before)
        self.tell("deleted", tp, before, error, start)
        if error == 0:
            if start < before:
                self.world.problem("deleted back", f"{tp}: {before} was to be deleted, the start is {start}")
            starts.floor[tp] = max(before, starts.floor.get(tp, 0))
        elif error in (*k.RETRIABLE, k.OUT_OF_RANGE):  # out of range: a leader's high watermark may lag
            return await self.go_elsewhere("delete", error)
        else:
            self.refused("delete", error)
        return await self.pause(0.1, 2)


class TrimmedReader(Actor):
    """Reads on, and begins anew at the start where it has fallen behind it."""

    def begin(self) -> None:
        self.positions: dict[Place, int] = {}
        self.starts = self.history.part(Starts)

    async def work(self) -> None:
        tp = self.rng.choice(self.universe.trimmed)
        floor, told = self.starts.floor.get(tp, 0), self.starts.told.get(tp, 0)
        error, start = await self.kafka.list_offset(tp, EARLIEST)
        if error:
            return await self.go_elsewhere("start", error)
        self.check_start(tp, start, floor, told)
        at = max(start, self.positions.get(tp, 0))
        found = (await fetch(self.kafka, [(tp, at, 5000)], False, 50))[tp]
        if found.error == k.OUT_OF_RANGE:
            self.positions.pop(tp, None)  # it was trimmed meanwhile
            return await self.pause()
        if found.error:
            return await self.go_elsewhere("fetch", found.error)
        self.check_start(tp, self.kafka.starts[tp], floor, told)
        for record in read(found.batches, None):
            if record.offset >= at:
                self.history.saw(tp, record, False)
        self.positions[tp] = found.batches[-1].last + 1 if found.batches else at
        return await self.pause(0.01, 0.2)

    def check_start(self, tp: Place, start: int, floor: int, told: int) -> None:
        """`floor` and `told` are what was known when it was asked for."""
        if start < floor:
            self.world.problem("deleted back", f"{tp} begins at {start}, {floor} was acknowledged as deleted")
        if self.universe.ends_rise:
            if start < told:
                self.world.problem("start back", f"{tp} begins at {start}, began at {told}")
            self.starts.told[tp] = max(start, self.starts.told.get(tp, 0))


def began(universe: Any, places: tuple[Place, ...], name: str) -> None:
    universe.spawn(TrimmedWriter, f"{name}-writer", tps=places)
    universe.trimmed = (*getattr(universe, "trimmed", ()), *places)
    universe.spawn(TrimmedReader, f"{name}-reader")


async def retention(universe: Any) -> None:
    rolled = {"segment.ms": universe.rng.choice(("200", "1000", "604800000"))}
    await made(universe, "aged", 1, {"retention.ms": str(AGE_MS), **rolled})
    await made(universe, "sized", 1, {"retention.ms": "-1", "retention.bytes": str(SIZE), **rolled})
    began(universe, (AGED, SIZED), "retained")


async def deletions(universe: Any) -> None:
    await made(universe, "trimmed", 2, {"segment.ms": universe.rng.choice(("200", "604800000"))})
    began(universe, TRIMMED, "trimmed")
    universe.spawn(Trimmer, "trimmer")


async def what_is_left(universe: Any, kafka: Kafka, tp: Place) -> tuple[int, list[Batch]]:
    """A log's start and its batches, with nothing missing behind the start."""
    start, found = await all_of(universe, kafka, tp, False)
    batches = [batch for one in found for batch in one.batches]
    there = {record.offset: value_of(record) for record in read(batches, None)}
    for write in universe.history.writes.values():
        behind = write.tp == tp and write.offset is not None and write.offset >= start
        if behind and there.get(write.offset) != write.value:
            story = f"{write.value}, acknowledged at {tp} {write.offset}: {there.get(write.offset)} stands there"
            universe.world.problem("lost", f"{story}, the log begins at {start}")
    return start, batches


async def deleted(universe: Any, kafka: Kafka) -> None:
    starts, problem = universe.history.part(Starts), universe.world.problem
    for tp in TRIMMED:
        start, _ = await what_is_left(universe, kafka, tp)
        if start < starts.floor.get(tp, 0):
            problem("deleted back", f"{tp} begins at {start}, {starts.floor[tp]} was acknowledged as deleted")
        if start > starts.at_most(tp):
            problem("lost", f"{tp} begins at {start}, up to {starts.at_most(tp)} was told to go")


async def retained(universe: Any, kafka: Kafka) -> None:
    history, problem = universe.history, universe.world.problem
    start, batches = await what_is_left(universe, kafka, SIZED)
    if start and sum(batch.size for batch in batches) < SIZE:
        problem("lost", f"{SIZED} begins at {start}, and has less than the {SIZE} bytes that it may keep")
    start, _ = await what_is_left(universe, kafka, AGED)
    if "date" in universe.faults:
        return  # how old a record was for the broker is not known
    for write in history.writes.values():
        age_ns = universe.world.now - history.part(Starts).written_ns.get(write.value, 0)
        young = age_ns < (AGE_MS - SKEW_MS) * MS
        if write.tp == AGED and write.outcome == "ok" and young and (write.offset or start) < start:
            problem("lost", f"{write.value} at {AGED} {write.offset} is {age_ns / NS} s old, the log begins at {start}")
