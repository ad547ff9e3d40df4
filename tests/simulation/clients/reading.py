"""In peace: ask until there is an answer, and read all that a partition holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tests.simulation.kafka import Gone, Kafka
from tests.simulation.kafka.batches import read, value_of
from tests.simulation.kafka.client import EARLIEST, Place
from tests.simulation.kafka.codes import FINAL, OUT_OF_RANGE, UNKNOWN_TOPIC
from tests.simulation.kafka.fetching import Fetched, fetch
from tests.simulation.verdict import Verdict


async def sure(
    universe: Any, kafka: Kafka, what: str, ask: Callable[[], Awaitable[Any]], fine: Iterable[int] = ()
) -> Any:
    """Ask until there is an answer without an error, or with one of `fine`. A topic that is unknown for long is lost."""
    unknown = 0
    while True:
        try:
            answer = await ask()
            error = answer[0] if isinstance(answer, tuple) else answer
            if not error or error in fine:
                return answer
            universe.world.log(what, error)
            kafka.elsewhere(error)
            unknown += error == UNKNOWN_TOPIC
            if unknown > 20:
                universe.world.problem("topic lost", f"{what}: its topic is not known")
                return answer
        except Gone as gone:
            universe.world.log(what, gone)
        await asyncio.sleep(0.3)


async def made(universe: Any, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    """A topic, before the faults begin."""
    kafka = universe.kafka
    await sure(universe, kafka, f"create {name}", lambda: kafka.create_topic(name, partitions, configs or {}), (36,))


async def all_of(universe: Any, kafka: Kafka, tp: Place, committed: bool) -> tuple[int, list[Fetched]]:
    """A log's start, and all that fetches bring: much at once, or a batch at a time, each looked up, from damaged files."""
    found: list[Fetched] = []
    lost, start = await sure(universe, kafka, f"start of {tp}", lambda: kafka.list_offset(tp, EARLIEST))
    if lost:
        return 0, found
    _, end = await sure(universe, kafka, "end", lambda: kafka.end_offset(tp))
    at, idle, most = start, 0, 1 if universe.plan.damaged else 1 << 20

    async def fetch_on() -> Fetched:
        return (await fetch(kafka, [(tp, at, most)], committed, 0))[tp]

    while at < end and idle < 50:
        one = await sure(universe, kafka, "fetch", fetch_on, FINAL)
        if one.error == OUT_OF_RANGE:  # the log's beginning went meanwhile
            _, start = await sure(universe, kafka, "start", lambda: kafka.list_offset(tp, EARLIEST))
            at, idle = max(at, start), idle + 1
            continue
        if one.error:
            universe.world.problem("refused", f"the last fetch of {tp} at {at} was answered {one.error}")
            return start, found
        if any(not batch.crc_ok for batch in one.batches):
            universe.world.problem("garbage", f"a batch of {tp}")
        found.append(one)
        idle = 0 if one.batches else idle + 1
        if one.batches:
            at = one.batches[-1].last + 1
        else:
            await asyncio.sleep(0.1)
    if at < end:
        universe.world.problem("unread", f"a reader of {tp} stays at {at}, and its end is {end}")
    _, start = await sure(universe, kafka, "start", lambda: kafka.list_offset(tp, EARLIEST))
    return start, found


async def values_of(universe: Any, kafka: Kafka, tp: Place, committed: bool) -> list[tuple[int, int]]:
    """(offset, value) of all records that there are."""
    at, records = -1, []
    _, found = await all_of(universe, kafka, tp, committed)
    for one in found:
        some = read(one.batches, one.aborted if committed else None)
        records += [(record.offset, value_of(record)) for record in some if record.offset >= at]
        at = one.batches[-1].last + 1 if one.batches else at
    return records


async def judge(universe: Any, kafka: Kafka, places: Iterable[Place]) -> None:
    """Read these partitions and their groups' offsets, and hold them against the history."""
    history = universe.history
    logs, committed, offsets = {}, {}, {}
    for tp in places:
        logs[tp] = await values_of(universe, kafka, tp, False)
        committed[tp] = await values_of(universe, kafka, tp, True)
    for group, tp in [*history.offset_asked, ("of-transactions", ("log", 0))]:
        if tp in logs:
            _, offsets[group, tp] = await sure(
                universe, kafka, "offset", lambda g=group, t=tp: kafka.fetch_offset(g, t)
            )
    Verdict(history, logs, committed, offsets).check()
