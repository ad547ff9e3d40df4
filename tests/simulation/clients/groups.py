"""Groups of every kind on one topic: by KIP-848, static members of the classic protocol, and both protocols in one."""

from __future__ import annotations

from typing import Any

from tests.simulation.clients.members import Member, NewMember
from tests.simulation.clients.producers import Producer
from tests.simulation.clients.reading import judge, made
from tests.simulation.kafka import Kafka
from tests.simulation.kafka.client import Place

PLACES: tuple[Place, ...] = tuple(("work", number) for number in range(4))
SETTINGS = {"group.consumer.session.timeout.ms": "8000", "group.consumer.heartbeat.interval.ms": "500"}


async def begin(universe: Any) -> None:
    await made(universe, "work", len(PLACES))
    universe.spawn(Producer, "work-writer", tps=PLACES)
    named = {"topic": "work", "partitions": len(PLACES)}
    kinds = universe.rng.sample(("new", "static", "mixed"), universe.rng.randrange(1, 4))
    for number in range(3 if "new" in kinds else 0):
        universe.spawn(NewMember, f"new-{number}", group="new", **named)
    for number in range(2 if "static" in kinds else 0):
        universe.spawn(Member, f"static-{number}", group="static", instance=f"i{number}", **named)
    for number in range(2 if "mixed" in kinds else 0):
        universe.spawn(NewMember, f"mixed-new-{number}", group="mixed", **named)
        universe.spawn(Member, f"mixed-old-{number}", group="mixed", **named)


async def verify(universe: Any, kafka: Kafka) -> None:
    await judge(universe, kafka, PLACES)
