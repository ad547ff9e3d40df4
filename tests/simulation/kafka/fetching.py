"""Fetch, with its sessions (KIP-227)."""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.kafka.batches import Batch, batches
from tests.simulation.kafka.client import Kafka, Place
from tests.simulation.kafka.encoding import by_topic

Wants = list[tuple[Place, int, int]]  # partition, offset, bytes


class Fetched(NamedTuple):
    """What a fetch says of a partition; `aborted` are (producer, first offset)."""

    error: int
    high: int
    stable: int
    aborted: list[tuple[int, int]]
    batches: list[Batch]


class FetchSession:
    """Of incremental fetches: what the broker remembers of what is wanted."""

    def __init__(self) -> None:
        self.id = self.epoch = 0
        self.known: dict[Place, tuple[int, int]] = {}

    def change(self, wants: Wants) -> tuple[Wants, list[Place]]:
        """What of these the broker does not know yet, and what it is to forget."""
        now = {tp: (offset, limit) for tp, offset, limit in wants}
        if not self.epoch:
            self.known = {}
        new = [(tp, *now[tp]) for tp in now if self.known.get(tp) != now[tp]]
        gone = [tp for tp in self.known if tp not in now]
        self.known = now
        return new, gone

    def told(self, error: int, number: int) -> None:
        self.id, self.epoch = (0, 0) if error or not number else (number, self.epoch + 1)


async def fetch(
    kafka: Kafka,
    wants: Wants,
    committed: bool,
    wait_ms: int = 500,
    most: int = 1 << 20,
    session: FetchSession | None = None,
) -> dict[Place, Fetched]:
    """What there is of `wants`. In a session: what changed."""
    new, gone = (wants, []) if session is None else session.change(wants)
    number, epoch = (0, -1) if session is None else (session.id, session.epoch)
    rows = by_topic((tp[0], (tp[1], -1, offset, -1, limit)) for tp, offset, limit in new)
    asked = (-1, wait_ms, 1, most, committed, number, epoch, rows, by_topic(gone), "")
    answer = await kafka.ask("fetch", *asked, timeout_s=20.0)
    if session is not None:
        session.told(answer.error, answer.session)
    if answer.error:
        return {tp: Fetched(answer.error, -1, -1, [], []) for tp, *_ in wants}
    found = {}
    for topic in answer.topics:
        for one in topic.partitions:
            came = Fetched(one.error, one.high, one.stable, one.aborted, batches(one.records or b""))
            found[topic.name, one.number] = came
            kafka.starts[topic.name, one.number] = one.start
    return found
