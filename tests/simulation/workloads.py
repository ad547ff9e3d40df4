"""The workloads of a universe: what each begins, and what it holds in the end against what its clients were told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation import clients
from tests.simulation.clients import INPUT, OUTPUT, PLAIN, committed_records
from tests.simulation.kafka import Gone, Kafka

TOPICS = {"log": 3, "in": 1, "out": 1}


@dataclass(frozen=True)
class Workload:
    """`share`: how many universes have it."""

    name: str
    share: float
    begin: Callable[[Any], Awaitable[None]]
    verify: Callable[[Any, Kafka], Awaitable[None]]


async def nothing(universe: Any, kafka: Kafka) -> None:
    """What it promises stands in the history, which is checked as a whole."""


async def producers(universe: Any) -> None:
    await topics(universe)
    universe.spawn(clients.Producer, "producer-a")
    universe.spawn(clients.Producer, "producer-b")


async def transactions(universe: Any) -> None:
    await topics(universe)
    universe.spawn(clients.Transactions, "tx-a", id="tx-a")
    universe.spawn(clients.Transactions, "tx-b", id="tx-b")
    if universe.rng.random() < 0.6:
        universe.spawn(clients.Transactions, "tx-c", id="tx-b")


async def transform(universe: Any) -> None:
    await topics(universe)
    universe.spawn(clients.Transformer, "transform-a")
    if universe.rng.random() < 0.4:
        universe.spawn(clients.Transformer, "transform-b")


async def readers(universe: Any) -> None:
    await topics(universe)
    for number in range(universe.rng.randrange(1, 4)):
        universe.spawn(clients.Reader, f"reader-{number}")


async def committer(universe: Any) -> None:
    await topics(universe)
    universe.spawn(clients.Committer, "committer")


async def members(universe: Any) -> None:
    await topics(universe)
    universe.spawn(clients.Member, "member-a")
    universe.spawn(clients.Member, "member-b")


async def topics(universe: Any) -> None:
    """Make the topics that are not there yet."""
    kafka = universe.kafka
    for name, partitions in TOPICS.items():
        while True:
            try:
                error = await kafka.create_topic(name, partitions, {})
            except Gone:
                await asyncio.sleep(0.2)
                continue
            if error in (0, 36):
                break
            await asyncio.sleep(0.2)


async def everything(universe: Any, kafka: Kafka) -> None:
    """End what is open, read everything, and hold it against the history."""
    history = universe.history
    for name in ("tx-a", "tx-b", "transform"):
        await until(universe, lambda name=name: kafka.init(name), kafka)
    logs, committed, offsets = {}, {}, {}
    for tp in [*PLAIN, INPUT, OUTPUT]:
        logs[tp] = await read(universe, kafka, tp, False)
        committed[tp] = await read(universe, kafka, tp, True)
    for group, tp in history.offset_asked:
        offsets[group, tp] = (await until(universe, lambda g=group, t=tp: kafka.fetch_offset(g, t), kafka))[1]
    _, offset = await until(universe, lambda: kafka.fetch_offset("of-transactions", ("log", 0)), kafka)
    check_transactions_offset(universe, offset)
    history.check(logs, committed, offsets)


async def until(universe: Any, ask: Callable[[], Awaitable[Any]], kafka: Kafka) -> Any:
    """Ask until there is an answer without an error."""
    while True:
        try:
            answer = await ask()
            if not answer[0]:
                return answer
            universe.world.log("until", answer[0])
            kafka.elsewhere(answer[0])
        except Gone as gone:
            universe.world.log("until", gone)
        await asyncio.sleep(0.3)


async def read(universe: Any, kafka: Kafka, tp: tuple[str, int], committed: bool) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    at, idle = 0, 0
    _, end = await until(universe, lambda: kafka.end_offset(tp), kafka)
    while at < end and idle < 50:
        error, _, _, aborted, some = (await kafka.fetch([(tp, at, 1 << 20)], committed, 0))[tp]
        if error:
            universe.world.problem("refused", f"the last fetch of {tp} at {at} was answered {error}")
            break
        if any(not one.crc_ok for one in some):
            universe.world.problem("garbage", f"a batch of {tp}")
        records = committed_records(some, aborted) if committed else [r for one in some for r in one.values]
        found += [(offset, int(data.split(b".", 1)[0])) for offset, data in records if offset >= at]
        idle = 0 if some else idle + 1
        if some:
            at = some[-1].last + 1
        else:
            await asyncio.sleep(0.1)
    if at < end:
        universe.world.problem("stalled", f"{tp} is read to {at} of {end}, committed {committed}")
    return found


def check_transactions_offset(universe: Any, offset: int) -> None:
    commits = universe.history.group_commits
    if offset > 0 and (offset > len(commits) or commits[offset - 1].outcome == "aborted"):
        universe.world.problem("committed back", f"the transactions' offset is {offset}, of an aborted one")
    known = commits[offset - 1] if 0 < offset <= len(commits) else None
    for txn in commits:
        if txn.outcome == "committed" and txn.offset > offset and (known is None or _before(known, txn)):
            story = f"the transactions' offset is {offset}, {txn.offset} was committed"
            universe.world.problem("committed back", story)
            break


def _before(one: Any, other: Any) -> bool:
    """Whether one's end is known to lie before the other's commit was asked for."""
    return one.end_ns is not None and one.end_ns < other.commit_ns


WORKLOADS = (
    Workload("producers", 1, producers, everything),
    Workload("transactions", 0.85, transactions, nothing),
    Workload("transform", 0.85, transform, nothing),
    Workload("readers", 0.9, readers, nothing),
    Workload("committer", 0.8, committer, nothing),
    Workload("members", 0.5, members, nothing),
)
