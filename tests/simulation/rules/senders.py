"""Who writes events into the topic that a pipeline reads: out of order, twice, late, with gaps; heartbeats, tombstones and
rubbish among them; some in transactions, of which some are aborted.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.rules.oracle import Row
from tests.simulation.confluent.requests import Gone, Kafka
from tests.simulation.kafka.batches import Record, encoded
from waterclock.simulation.world import MS

INPUT, HEARTBEAT = "rule-events", "waterclock-heartbeat"
S = 1_000_000  # microseconds
BASE_US = 1_700_000_000 * S
CLOSING = "9999-12-31T00:00:00Z"
TYPES, KEYS = ("ask", "pay", "stop", "other"), ("a", "b", "c", "d", "e", "f")
TIMES = ("time", "deliver", "promised")
_1970 = datetime(1970, 1, 1, tzinfo=UTC)


def text_of(us: int) -> str:
    return (_1970 + timedelta(microseconds=us)).isoformat()


def us_of(text: str) -> int:
    return (datetime.fromisoformat(text) - _1970) // timedelta(microseconds=1)


def value_of(row: Row) -> bytes:
    said = {name: value for name, value in row._asdict().items() if value not in (None, "")}
    return json.dumps(said | {name: text_of(said[name]) for name in TIMES if name in said}).encode()


class Sender:
    """Sends until the universe is quiet."""

    def __init__(self, universe: Any, process: Any, name: str, pipeline: Any) -> None:
        self.universe, self.world, self.process, self.name = universe, universe.world, process, name
        self.rng, self.pipeline = self.world.stream(f"sender {name}"), pipeline
        self.kafka = Kafka(process, universe.network, universe.where)
        self.done, self.most = False, self.rng.choice((1, 3, 10))
        self._producer: tuple[int, int] | None = None  # id and epoch, of transactions
        self._sequences: dict[int, int] = {}
        self.aborts = self.rng.choice((None, 0.0, 0.3))  # None: no transactions

    async def run(self) -> None:
        pause = self.rng.choice((0.02, 0.1, 0.3))
        while not self.universe.quiet:
            try:
                await self._send()
            except Gone as gone:
                self.world.log(self.name, "gone", gone)
                self._producer = None
                await asyncio.sleep(0.2)
            await asyncio.sleep(self.rng.uniform(0, pause))
        self.kafka.close()
        self.universe.finished(self)

    async def _send(self) -> None:
        records: dict[int, list[Record]] = {}
        for number, record in self.pipeline.events(self.rng, self.rng.randrange(1, self.most + 1)):
            now_ms = self.world.wall_shift_ms + self.world.now // MS
            records.setdefault(number, []).append(record._replace(timestamp_ms=now_ms))
        if not records:
            return
        if self.aborts is None:
            await self._put(records, -1, -1)
        elif await self._begin(sorted(records)):
            assert self._producer is not None
            if await self._put(records, *self._producer):
                await self._end(self.rng.random() >= self.aborts)

    async def _begin(self, numbers: list[int]) -> bool:
        if self._producer is None:
            answer = await self.kafka.ask("init_producer_id.4", self.name.split(".")[0], 3_000, -1, -1)
            if not await self._is_good(answer.error):
                return False
            self._producer = answer.producer, answer.epoch
            self._sequences.clear()
        places = [(INPUT, number) for number in numbers]
        return await self._is_good(await self.kafka.add_partitions(self.name.split(".")[0], *self._producer, places))

    async def _put(self, records: dict[int, list[Record]], producer: int, epoch: int) -> bool:
        rows = []
        for number, some in records.items():
            first = self._sequences.get(number, 0) if producer >= 0 else -1
            self._sequences[number] = first + len(some)
            rows.append((number, encoded(some, producer, epoch, first, producer >= 0)))
        name = self.name.split(".")[0] if producer >= 0 else None
        answer = await self.kafka.ask("produce", name, -1, 10_000, [(INPUT, rows)])
        return await self._is_good(max(one.error for one in answer.topics[0].partitions))

    async def _end(self, commits: bool) -> None:
        assert self._producer is not None
        code = 51
        while code == 51:
            code, *_ = await self.kafka.end(False, self.name.split(".")[0], *self._producer, commits)
        await self._is_good(code)

    async def _is_good(self, code: int) -> bool:
        """Whoever has an error begins anew."""
        if code:
            self.kafka.elsewhere(code)
            self._producer = None
            await asyncio.sleep(0.1)
        return not code


class Events:
    """What happens, in the senders' order: for each key a time and a number that go on."""

    def __init__(self, partitions: int, by_key: bool, disorder: int) -> None:
        self._partitions, self._by_key, self._disorder = partitions, by_key, disorder
        self._at = dict.fromkeys(KEYS, BASE_US)
        self._numbers = dict.fromkeys(KEYS, 0)
        self._count = 0
        self._later: list[tuple[int, Record]] = []  # held back: they come out of order

    def some(self, rng: Any, count: int) -> list[tuple[int, Record]]:
        """Records and their partitions."""
        found = [one for _ in range(count) for one in self._next(rng)]
        while self._later and rng.random() < 0.3:
            found.append(self._later.pop(rng.randrange(len(self._later))))
        return found

    def _next(self, rng: Any) -> list[tuple[int, Record]]:
        kind = rng.choices(("event", "beat", "row", "tombstone", "rubbish"), (88, 6, 2, 2, 2))[0]
        number = rng.randrange(self._partitions)
        if kind == "beat":
            at = max(self._at.values()) - rng.randrange(10) * S
            return [(number, Record(0, 0, None, None, [(HEARTBEAT, text_of(at).encode())]))]
        if kind == "row":
            return [(number, Record(0, 0, None, value_of(Row(None, max(self._at.values()))), []))]
        if kind in ("tombstone", "rubbish"):
            self._count += 1
            value = (
                None if kind == "tombstone" else rng.choice((b'{"key": "a"}', b"rubbish", b'{"key": 5, "time": "x"}'))
            )
            return [(number, Record(0, 0, b"x", value, []))]
        return self._event(rng)

    def _event(self, rng: Any) -> list[tuple[int, Record]]:
        key = rng.choice(KEYS)
        self._count += 1
        self._at[key] += rng.randrange(-4, 12) * S
        self._numbers[key] = max(1, self._numbers[key] + rng.choice((1, 1, 1, 1, 1, 2, 3, 0)))
        near = [None, *(self._at[key] + rng.randrange(-10, 40) * S for _ in range(2))]
        row = Row(key, self._at[key], f"e{self._count}", self._numbers[key], rng.choice(TYPES), rng.choice(near),
                  rng.choice(near), rng.choice((None, 1, 2, 3)))  # fmt: skip
        number = KEYS.index(key) % self._partitions if self._by_key else rng.randrange(self._partitions)
        copies = [
            (number, Record(0, 0, key.encode(), value_of(row), [])) for _ in range(rng.choice((1, 1, 1, 1, 0, 2)))
        ]
        if rng.random() < 0.2:
            self._later += copies
            return []
        return copies
