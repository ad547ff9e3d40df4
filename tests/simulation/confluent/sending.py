"""What a producer sends: batches of each partition, again and again, and the reports of what became of them.

Rule 1: one batch of a partition is on its way at a time, with its number in the row. It is sent again until
    `delivery.timeout.ms` (without it: as long as the transaction may last), or `retries` answers; then its records have
    failed, and the transaction can only be aborted. If some of them may have been written, the next one has a new epoch.
    Of a topic that is unknown they fail after `topic.metadata.propagation.max.ms`; if the transaction did not have it yet,
    at once.
Rule 2: a refused batch leaves a gap in the numbers: the next transaction finds it out.
Rule 3: reports are made in `poll`, `flush`, `commit_transaction` and `abort_transaction`.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message

from tests.simulation.confluent.admin import listed
from tests.simulation.confluent.requests import AWAY, Gone, Kafka, error, partitions, raised
from tests.simulation.confluent.waiting import Calls, begun, me
from tests.simulation.kafka.batches import Record, encoded
from tests.simulation.kafka.encoding import by_topic
from waterclock.simulation.threads import Event
from waterclock.simulation.world import MS, NS, world

Place = tuple[str, int]
FENCED = (47, 90)
ANEW = (45, 49, 59)  # with another epoch
UNKNOWN = 3
DELAY, SLOW = 0.01, 1.0  # of `retry.backoff.ms`, as the relay sets it


class Outgoing(NamedTuple):
    topic: str
    partition: int
    record: Record
    hear: Callable[..., object] | None


class Batch:
    def __init__(self, some: list[Outgoing], sequence: int, until_ns: int) -> None:
        self.some, self.sequence, self.until_ns = some, sequence, until_ns
        self.tries, self.may_stand, self.is_unknown = 0, False, False


class Sending:
    """A producer's records: where they go, and what becomes of them."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings, self._process, self._world = settings, me(), world()
        self._kafka = Kafka(self._process, self._world.network, self._process.where)
        self._name = settings["transactional.id"]
        self._propagation_ns = settings.get("topic.metadata.propagation.max.ms", 30_000) * MS
        self._id = self._epoch = -1
        self._sequences: dict[Place, int] = {}
        self._added: dict[Place, None] = {}
        self._queue: dict[
            str | Place, deque[Outgoing]
        ] = {}  # by topic at first: in their order, partitions named or not
        self._batches: dict[Place, Batch] = {}
        self._reports: deque[tuple[Callable[..., object], KafkaError | None, Message]] = deque()
        self._counts: dict[str, int] = {}
        self._state, self._why = "new", 0
        self._is_offsets, self._bumps, self._sends, self._backoff = False, False, False, DELAY
        self._waiters: list[Event] = []
        self._calls = Calls(self._process)

    # Records

    def produce(
        self, topic: str, value: bytes | None = None, key: bytes | None = None, partition: int = -1,
        callback: Any = None, on_delivery: Any = None, timestamp: int = 0, headers: Any = None,
    ) -> None:  # fmt: skip
        if self._state == "fatal":
            raise raised(KafkaError._FATAL)
        if self._state != "open":
            raise raised(KafkaError._STATE)
        record = Record(0, timestamp or self._process.wall_ms(), key, value, list(headers or ()))
        self._process.saw_produced(topic, record)
        one = Outgoing(topic, partition, record, on_delivery or callback or self._settings.get("on_delivery"))
        self._queue.setdefault(topic, deque()).append(one)
        if not self._sends:
            self._sends = True
            begun(self._process, self._send_all())

    def poll(self, timeout: float = 0.0) -> int:
        if not self._reports and timeout:
            self._wait(timeout)
        return self._tell()

    def flush(self, timeout: float = -1.0) -> int:
        until = self._world.now + round(timeout * NS)
        while self._left and (timeout < 0 or self._world.now < until):
            self._tell()
            if self._left:
                self._wait(10.0 if timeout < 0 else (until - self._world.now) / NS)
        self._tell()
        return self._left

    @property
    def _left(self) -> int:
        waiting = sum(map(len, self._queue.values())) + sum(len(batch.some) for batch in self._batches.values())
        return waiting + len(self._reports)

    def list_topics(self, topic: str | None = None, timeout: float = -1.0) -> Any:
        found = listed(self._process, self._kafka, topic, timeout)
        self._counts.update({name: len(one.partitions) for name, one in found.topics.items() if one.partitions})
        return found

    def _wait(self, timeout_s: float) -> None:
        event = Event()
        self._waiters.append(event)
        event.wait(timeout_s)

    def _rouse(self) -> None:
        waiters, self._waiters = self._waiters, []
        for event in waiters:
            event.set()

    def _tell(self) -> int:
        count = 0
        while self._reports:
            hear, why, message = self._reports.popleft()
            count += 1
            hear(why, message)
        return count

    def _report(self, some: Sequence[Outgoing], code: int, base: int = -1001, place: Place | None = None) -> None:
        only_errors = self._settings.get("delivery.report.only.error", False)
        for number, one in enumerate(some):
            if one.hear is None or (only_errors and not code):
                continue
            why, offset = error(code) if code else None, base + number if base >= 0 else base
            partition = one.partition if place is None else place[1]
            message = Message(one.topic, partition, offset, one.record.key, one.record.value, one.record.headers, why)
            self._reports.append((one.hear, why, message))
        self._rouse()

    # The sender

    async def _send_all(self) -> None:
        try:
            await asyncio.sleep(0.0002)
            while self._state == "open" and (self._queue or self._batches):
                if await self._find_places():
                    self._fill()
                    if await self._add(list(self._batches)):
                        await self._exchange()
                        continue
                await self._pause()
        finally:
            self._sends = False
            self._rouse()

    async def _pause(self) -> None:
        await asyncio.sleep(self._backoff)
        self._backoff = min(SLOW, 2 * self._backoff)
        for place, batch in list(self._batches.items()):
            if self._world.now >= batch.until_ns:
                self._fail_batch(place, KafkaError._MSG_TIMED_OUT)

    async def _find_places(self) -> bool:
        """Give each record a partition; False if Kafka does not say."""
        for topic in [name for name in self._queue if isinstance(name, str)]:
            if topic not in self._counts and not await self._count(topic):
                return False
            for one in self._queue.pop(topic, ()):
                number, key = one.partition, one.record.key
                if number < 0:
                    count = self._counts[topic]
                    number = self._world.stream("places").randrange(count) if key is None else zlib.crc32(key) % count
                self._queue.setdefault((topic, number), deque()).append(one)
        return True

    async def _count(self, topic: str) -> bool:
        until = self._world.now + self._propagation_ns
        while self._state == "open":
            try:
                code, count = await partitions(self._kafka, topic)
            except Gone:
                return False
            if not code and count:
                self._counts[topic] = count
                return True
            if self._world.now >= until:
                self._report(self._queue.pop(topic), KafkaError._UNKNOWN_TOPIC)
                self._break(KafkaError._UNKNOWN_TOPIC)
                return False
            await asyncio.sleep(0.1)
        return False

    def _fill(self) -> None:
        for place in [one for one in self._queue if isinstance(one, tuple) and one not in self._batches]:
            queue, some, size = self._queue[place], [], 0
            while queue and (
                not some or size + len(queue[0].record.value or b"") < self._settings.get("batch.size", 1 << 20)
            ):
                size += len(queue[0].record.value or b"") + 100
                some.append(queue.popleft())
            if not queue:
                del self._queue[place]
            at_most = self._settings["transaction.timeout.ms"]
            until_ns = self._world.now + self._settings.get("delivery.timeout.ms", at_most) * MS
            sequence = self._sequences.get(place, 0)
            self._sequences[place] = sequence + len(some)
            self._batches[place] = Batch(some, sequence, until_ns)

    async def _add(self, places: Sequence[Place]) -> bool:
        """Name partitions that the transaction did not have yet."""
        new = [place for place in places if place not in self._added]
        if not new:
            return True
        asked = (self._name, self._id, self._epoch, by_topic(new))
        try:
            answer = await self._kafka.ask("add_partitions_to_txn", *asked)
        except Gone:
            return False
        code = next((one.error for topic in answer.topics for one in topic.partitions if one.error not in (0, 55)), 0)
        if not code:
            self._added.update(dict.fromkeys(new))
            return True
        if code == 51:
            await asyncio.sleep(0.02)
        elif code in AWAY:
            self._kafka.elsewhere(code)
        else:
            self._judge(code)  # a topic that is gone too: the client does not ask again
        return False

    async def _exchange(self) -> None:
        """Send all batches, and hear of them."""
        sent = dict(self._batches)
        data = by_topic((topic, (number, self._bytes(batch))) for (topic, number), batch in sent.items())
        try:
            self._kafka.connection()
        except Gone:
            return await self._pause()
        for batch in sent.values():
            batch.may_stand = True
        try:
            answer = await self._kafka.ask("produce", self._name, -1, 10_000, data)
        except Gone:
            for place, batch in sent.items():
                self._try_again(place, batch, KafkaError._TRANSPORT)
            return await self._pause()
        for topic in answer.topics:
            for one in topic.partitions:
                self._answered((topic.name, one.number), sent[topic.name, one.number], one.error, one.base)
        if self._batches:
            await self._pause()
        return None

    def _bytes(self, batch: Batch) -> bytes:
        return encoded([one.record for one in batch.some], self._id, self._epoch, batch.sequence, True)

    def _answered(self, place: Place, batch: Batch, code: int, base: int) -> None:
        if self._batches.get(place) is not batch:
            return
        if code in (0, 46):
            self._backoff = DELAY
            del self._batches[place]
            self._report(batch.some, 0, base, place)
        elif code in (*AWAY, UNKNOWN):
            batch.may_stand &= code in (7, 20)  # what else is refused is not written
            if code == UNKNOWN and not batch.is_unknown:
                batch.is_unknown, batch.until_ns = True, min(batch.until_ns, self._world.now + self._propagation_ns)
            self._kafka.elsewhere(code)
            self._try_again(place, batch, code)
        else:
            batch.may_stand = code in ANEW
            self._fail_batch(place, code)

    def _try_again(self, place: Place, batch: Batch, code: int) -> None:
        if self._batches.get(place) is not batch:
            return
        batch.tries += 1
        if batch.tries > self._settings.get("retries", 1 << 30) or self._world.now >= batch.until_ns:
            self._fail_batch(place, code if self._world.now < batch.until_ns else KafkaError._MSG_TIMED_OUT)

    def _fail_batch(self, place: Place, code: int) -> None:
        batch = self._batches.pop(place)
        self._report(batch.some, code, place=place)
        self._bumps |= batch.may_stand
        self._judge(code)

    # What an error means

    def _judge(self, code: int) -> None:
        """What an error means for the transaction."""
        if code in FENCED:
            self._state, self._why = "fatal", KafkaError._FENCED
        elif code in (48, 53):
            self._state, self._why = "fatal", code
        else:
            self._bumps |= code in ANEW
            self._break(code)
        self._rouse()

    def _break(self, code: int) -> None:
        if self._state == "open":
            self._state, self._why = "abortable", code
            self._world.log(self._process.name, self._name, "can only be aborted", code)
