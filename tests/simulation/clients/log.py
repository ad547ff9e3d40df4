"""The log's workloads: what they begin on topics that they share, and the one check of all of them."""

from __future__ import annotations

from typing import Any

from tests.simulation.clients.committer import Committer
from tests.simulation.clients.members import Member
from tests.simulation.clients.places import INPUT, OUTPUT, PLAIN
from tests.simulation.clients.producers import Producer
from tests.simulation.clients.readers import Reader
from tests.simulation.clients.reading import judge, made, sure
from tests.simulation.clients.transactions import Transactions
from tests.simulation.clients.transform import Transformer
from tests.simulation.kafka import Kafka

TOPICS = {"log": 3, "in": 1, "out": 1}


class Judged:
    """Whether these topics were looked at."""

    done = False


async def topics(universe: Any) -> None:
    for name, partitions in TOPICS.items():
        await made(universe, name, partitions)


async def producers(universe: Any) -> None:
    await topics(universe)
    universe.spawn(Producer, "producer-a")
    universe.spawn(Producer, "producer-b")


async def transactions(universe: Any) -> None:
    await topics(universe)
    universe.spawn(Transactions, "tx-a", id="tx-a")
    universe.spawn(Transactions, "tx-b", id="tx-b")
    if universe.rng.random() < 0.6:
        universe.spawn(Transactions, "tx-c", id="tx-b")


async def transform(universe: Any) -> None:
    await topics(universe)
    universe.spawn(Transformer, "transform-a")
    if universe.rng.random() < 0.4:
        universe.spawn(Transformer, "transform-b")


async def readers(universe: Any) -> None:
    await topics(universe)
    for number in range(universe.rng.randrange(1, 4)):
        universe.spawn(Reader, f"reader-{number}")


async def committer(universe: Any) -> None:
    await topics(universe)
    for number in range(universe.rng.choice((1, 1, 2, 3))):  # what one commits goes to the disk with what others do
        universe.spawn(Committer, f"committer-{number}")


async def members(universe: Any) -> None:
    await topics(universe)
    for name in ("member-a", "member-b"):
        universe.spawn(Member, name, group="members", topic="log", partitions=3)


async def judged(universe: Any, kafka: Kafka) -> None:
    """End what is open, read everything, and hold it against the history; once for all of these workloads."""
    judged = universe.history.part(Judged)
    if not judged.done:
        judged.done = True
        for name in sorted({"transform", *(owner.name for owner in universe.history.owners)}):
            await sure(universe, kafka, f"init of {name}", lambda name=name: kafka.init(name))
        await judge(universe, kafka, [*PLAIN, INPUT, OUTPUT])
