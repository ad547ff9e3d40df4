"""Topics made and read as a whole, by who looks at what clients have done."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from tests.simulation.confluent.requests import Gone, Kafka, offset_of, partitions
from tests.simulation.kafka.batches import Batch, Record, read, sound


class Whole(NamedTuple):
    """A partition up to its last stable offset: from `first` on; `aborted` are (producer, first offset)."""

    first: int
    batches: list[Batch]
    aborted: set[tuple[int, int]]

    @property
    def records(self) -> list[Record]:
        """What a reader of committed records gets."""
        return [one for one in read(self.batches, self.aborted) if one.offset >= self.first]

    @property
    def transactions(self) -> list[list[Record]]:
        """The records of each transaction that was committed, in the order of their markers."""
        found, is_open = list[list[Record]](), dict[int, list[Record]]()
        for one in self.batches:
            if one.commits is None:
                is_open.setdefault(one.producer, []).extend(one.records)
            elif (records := is_open.pop(one.producer, None)) and one.commits:
                found.append(records)
        return found


async def until_done(ask_it: Any) -> Any:
    while True:
        try:
            answer = await ask_it()
            if not answer[0]:
                return answer
        except Gone:
            pass
        await asyncio.sleep(0.2)


async def make(kafka: Kafka, topic: str, count: int) -> tuple[int]:
    code = await kafka.create_topic(topic, count, {})
    return (0 if code == 36 else code,)


async def count_of(kafka: Kafka, topic: str) -> int:
    """How many partitions it has: none, if it is not there or nobody says."""
    try:
        return (await partitions(kafka, topic))[1]
    except Gone:
        return 0


async def whole(kafka: Kafka, place: tuple[str, int]) -> Whole:
    _, end = await until_done(lambda: offset_of(kafka, place, -1, True))
    _, first = await until_done(lambda: offset_of(kafka, place, -2, True))
    found, at = Whole(first, [], set()), first
    while at < end:
        topics = [(place[0], [(place[1], -1, at, -1, 1 << 20)])]
        try:
            answer = await kafka.ask("fetch", -1, 100, 1, 1 << 22, 1, 0, -1, topics, [], "")
        except Gone:
            continue
        came = answer.topics[0].partitions[0]
        batches = sound(came.records or b"")
        found.batches.extend(one for one in batches if one.last >= at)
        found.aborted.update(came.aborted)
        at = batches[-1].last + 1 if batches else at
    return found
