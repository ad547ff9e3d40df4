"""Who sends requests to relays: their own encoding of headers, and no word of the product's."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.confluent.requests import Gone, Kafka
from tests.simulation.kafka.batches import Headers, Record, encoded
from waterclock.simulation.world import MS

INPUT, TARGETS, ABSENT = "delays", ("to-a", "to-b"), "nowhere"
PARTS = 2  # of the second target
FAR_MS = (
    1_000_000,
    4_000_000,
    9_000_000,
    100_000_000,
)  # on the disk, and for laps to move: in the end the date jumps there


class Sender:
    """Sends requests until the universe is quiet. What its answer says is told to `promises`."""

    def __init__(self, universe: Any, process: Any, name: str, promises: Any, partitions: int) -> None:
        self.universe, self.world, self.process, self.name = universe, universe.world, process, name
        self.promises, self.partitions = promises, partitions
        self.rng = self.world.stream(f"sender {name}")
        self.kafka = Kafka(process, universe.network, universe.where)
        self.value, self.done = 0, False
        self.most = self.rng.choice((1, 3, 10))

    async def run(self) -> None:
        pause = self.rng.choice((0.02, 0.1, 0.5))
        while not self.universe.quiet:
            try:
                await self._send()
            except Gone as gone:
                self.world.log(self.name, "gone", gone)
                await asyncio.sleep(0.2)
            await asyncio.sleep(self.rng.uniform(0, pause))
        self.kafka.close()
        self.universe.finished(self)

    async def _send(self) -> None:
        number = self.rng.randrange(self.partitions)
        records = [self._record(number) for _ in range(self.rng.randrange(1, self.most + 1))]
        error, base = await self.kafka.produce((INPUT, number), encoded(records))
        if error:
            self.kafka.elsewhere(error)
            await asyncio.sleep(0.1)
            return
        for count, one in enumerate(records):
            self.promises.acknowledged(number, base + count, one)

    def _record(self, number: int) -> Record:
        self.value += 1
        now_ms = self.world.wall_shift_ms + self.world.now // MS + self.process.skew_ms
        value, key = b"%s.%d" % (self.name.encode(), self.value), self.rng.choice((None, b"ann", b"bob"))
        return Record(0, now_ms, key, value, list(self._headers(number, now_ms)))

    def _headers(self, number: int, now_ms: int) -> Headers:
        rng, id = self.rng, b"p%d-%d" % (number, self.rng.randrange(6))
        kind = rng.choices(("plain", "named", "cancel", "replace", "bad", "absent"), (50, 20, 12, 8, 2, 2))[0]
        if kind == "cancel":
            return [("delay-action", b"cancel"), ("delay-id", id)]
        if kind == "bad":
            return [("deliver-to", b"to-a"), ("deliver-at", b"soon")]
        after_ms = rng.choice(
            (0, rng.randrange(50), *[rng.randrange(3_000)] * 3, rng.randrange(9_000), rng.choice(FAR_MS))
        )
        target = ABSENT if kind == "absent" else rng.choice(TARGETS)
        when = ("delay", b"%d" % after_ms) if rng.random() < 0.5 else ("deliver-at", b"%d" % (now_ms + after_ms))
        named = [("delay-id", id)] if kind in ("named", "replace") else []
        action = [("delay-action", b"replace")] if kind == "replace" else []
        return [("deliver-to", target.encode()), when, *named, *action, ("trace", b"%d" % self.value)]
