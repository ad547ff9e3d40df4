"""A consumer: what it is assigned is fetched in the process's loop, and handed out in `poll` and `consume`.

Rule 1: what is waiting for a partition that was taken away, or is read from another offset now, is thrown away.
Rule 2: callbacks come in `poll` and `consume`, in their order among the records.
Rule 3: a group has a connection of its own, as its coordinator has: a fetch that waits holds no heartbeat back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition

from tests.simulation.confluent.admin import listed
from tests.simulation.confluent.group import Membership
from tests.simulation.confluent.producer import GroupMetadata
from tests.simulation.confluent.requests import AWAY, Gone, Kafka, error, offset_of, raised
from tests.simulation.confluent.waiting import begun, me
from tests.simulation.kafka.batches import read, sound
from tests.simulation.kafka.encoding import by_topic
from waterclock.simulation.threads import Event
from waterclock.simulation.world import NS, world

Place = tuple[str, int]
CREATED = 1  # who gave the timestamp
OUT_OF_RANGE = 1
_QUEUED = 5_000


class Position:
    """Where a partition is read; `ended` is where its end was told."""

    def __init__(self, offset: int) -> None:
        self.offset, self.ended, self.low, self.high = offset, -1, -1, -1
        self.is_paused = self.is_lost = False


class Consumer:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings, self._process, self._world = settings, me(), world()
        self._kafka = Kafka(self._process, self._world.network, self._process.where)
        self._asking = Kafka(self._process, self._world.network, self._process.where)
        self._places: dict[Place, Position] = {}
        self._came: deque[tuple[Position | None, Message | Callable[[], object]]] = deque()
        self._waiting: Event | None = None
        self._changed = asyncio.Event()
        self._is_closed = self._fetches = self._was_away = False
        self.membership: Membership | None = None

    # What is read

    def assign(self, places: Iterable[TopicPartition]) -> None:
        self._places.clear()
        self.incremental_assign(places)

    def incremental_assign(self, places: Iterable[TopicPartition]) -> None:
        self._places.update({(one.topic, one.partition): Position(one.offset) for one in places})
        self._changed.set()
        if not self._fetches:
            self._fetches = True
            begun(self._process, self._fetch_on())

    def incremental_unassign(self, places: Iterable[TopicPartition]) -> None:
        for one in places:
            self._places.pop((one.topic, one.partition), None)

    def unassign(self) -> None:
        self._places.clear()

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*place) for place in self._places]

    def pause(self, places: Iterable[TopicPartition]) -> None:
        self._set_paused(places, True)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        self._set_paused(places, False)

    def _set_paused(self, places: Iterable[TopicPartition], paused: bool) -> None:
        """What has come of it and was not handed out is fetched again."""
        for one in places:
            if (old := self._places.get((one.topic, one.partition))) is not None and old.is_paused is not paused:
                first = next((m.offset() for p, m in self._came if p is old and m.error() is None), old.offset)
                self._places[one.topic, one.partition] = new = Position(first)
                new.is_paused, new.ended, new.low, new.high = paused, old.ended, old.low, old.high
        self._changed.set()

    def poll(self, timeout: float = -1.0) -> Message | None:
        return next(iter(self._taken(1, timeout)), None)

    def consume(self, num_messages: int = 1, timeout: float = -1.0) -> list[Message]:
        return self._taken(num_messages, timeout)

    def _taken(self, most: int, timeout_s: float) -> list[Message]:
        found, until = list[Message](), self._world.now + round(timeout_s * NS)
        while most:
            while self._came and len(found) < most:
                position, one = self._came.popleft()
                if not isinstance(one, Message):
                    one()
                elif position is None or self._places.get((one.topic(), one.partition())) is position:
                    found.append(one)
            if found or self._world.now >= until:
                break
            self._waiting = Event()
            self._waiting.wait((until - self._world.now) / NS)
        return found

    def put(self, one: Message | Callable[[], object], position: Position | None = None) -> None:
        """To be handed out, or called, in `poll`."""
        self._came.append((position, one))
        if self._waiting is not None:
            self._waiting.set()

    def note(self, code: int) -> None:
        """What librdkafka says of its connections."""
        if (hear := self._settings.get("error_cb")) is not None:  # else it goes to a log
            self.put(lambda: hear(error(code)))

    # The loop's side

    async def _fetch_on(self) -> None:
        while not self._is_closed:
            wants = [(place, one) for place, one in self._places.items() if not (one.is_paused or one.is_lost)]
            self._changed.clear()
            if not wants or len(self._came) > _QUEUED:
                await self._rest(0.05 if wants else 60.0)
                continue
            try:
                await self._fetch(wants)
                self._was_away = False
            except Gone:
                self.note(KafkaError._TRANSPORT)
                if not self._was_away:
                    self._was_away = True
                else:
                    self.note(KafkaError._ALL_BROKERS_DOWN)
                await asyncio.sleep(0.1)

    async def _rest(self, longest_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), longest_s)

    async def _fetch(self, wants: Sequence[tuple[Place, Position]]) -> None:
        began_ns, most = self._world.now, self._settings.get("fetch.message.max.bytes", 1 << 20)
        try:
            answer = await self._fetched(wants, most)
        finally:
            self._process.was_silent(began_ns)
        asked = dict(wants)
        for topic in answer.topics:
            for one in topic.partitions:
                place = topic.name, one.number
                if self._places.get(place) is asked[place] and not asked[place].is_paused:
                    self._came_of(place, asked[place], one, self._is_committed)
        if any(one.error for topic in answer.topics for one in topic.partitions):
            await asyncio.sleep(0.1)

    @property
    def _is_committed(self) -> bool:
        return bool(self._settings.get("isolation.level", "read_committed") == "read_committed")

    async def _fetched(self, wants: Sequence[tuple[Place, Position]], most: int) -> Any:
        topics = by_topic((topic, (number, -1, one.offset, -1, most)) for (topic, number), one in wants)
        wait_ms = int(self._settings.get("fetch.wait.max.ms", 500))
        asked = (-1, wait_ms, 1, 50 << 20, self._is_committed, 0, -1, topics, [], "")
        return await self._kafka.ask("fetch", *asked, timeout_s=20.0)

    def _came_of(self, place: Place, position: Position, came: Any, is_committed: bool) -> None:
        code = came.error
        if code == OUT_OF_RANGE:
            position.is_lost = True
            self._tell(position, Message(*place, position.offset, error=error(KafkaError._AUTO_OFFSET_RESET)))
            return
        if code:
            self._kafka.elsewhere(code)
            if code not in (*AWAY, 3):
                self._tell(position, Message(*place, position.offset, error=error(code)))
            return
        position.low = came.start
        position.high = end = came.stable if is_committed else came.high
        batches = sound(came.records or b"")
        for one in read(batches, came.aborted if is_committed else None):
            if one.offset >= position.offset:
                self._process.saw_read(*place, one)
                stamp = CREATED, one.timestamp_ms
                made = Message(*place, one.offset, one.key, one.value, one.headers or None, timestamp=stamp)
                self._tell(position, made)
        position.offset = max(position.offset, batches[-1].last + 1) if batches else position.offset
        if position.offset >= end and position.ended != position.offset and self._settings.get("enable.partition.eof"):
            position.ended = position.offset
            self._tell(position, Message(*place, position.offset, error=error(KafkaError._PARTITION_EOF)))

    def _tell(self, position: Position, message: Message) -> None:
        self.put(message, position)

    # Questions

    def list_topics(self, topic: str | None = None, timeout: float = -1.0) -> Any:
        return listed(self._process, self._asking, topic, timeout)

    def offsets_for_times(self, places: Sequence[TopicPartition], timeout: float = -1.0) -> list[Any]:
        return [self._offset(one.topic, one.partition, one.offset, timeout) for one in places]

    def _offset(self, topic: str, number: int, when: int, timeout_s: float) -> Any:
        future = begun(self._process, offset_of(self._asking, (topic, number), when, self._is_committed))
        try:
            code, offset = future.result(timeout_s)
        except (Gone, TimeoutError):
            raise raised(KafkaError._TRANSPORT, retriable=True) from None
        if code in AWAY:
            raise raised(KafkaError._TIMED_OUT, retriable=True)
        if code:  # only librdkafka's own code gives a place its error
            return SimpleNamespace(topic=topic, partition=number, offset=offset, error=error(code))
        return TopicPartition(topic, number, offset)

    def get_watermark_offsets(
        self, one: TopicPartition, timeout: float = -1.0, cached: bool = False
    ) -> tuple[int, int]:
        if not cached:
            low, high = (self._offset(one.topic, one.partition, when, timeout).offset for when in (-2, -1))
            return low, high
        position = self._places.get((one.topic, one.partition))
        return (-1001, -1001) if position is None else (position.low, position.high)

    # The group

    def subscribe(self, topics: Sequence[str], **hear: Callable[..., object]) -> None:
        (topic,) = topics
        self.membership = Membership(self, self._settings, topic, hear)
        self.membership.begin()

    def unsubscribe(self) -> None:
        if self.membership is not None:
            self.membership.leave()
            self.membership = None

    def memberid(self) -> str:
        return "" if self.membership is None else self.membership.member

    def consumer_group_metadata(self) -> GroupMetadata:
        group, one = self._settings["group.id"], self.membership
        return GroupMetadata(group, "", -1, None) if one is None else GroupMetadata(
            group, one.member, one.generation, self._settings.get("group.instance.id"))  # fmt: skip

    def close(self) -> None:
        self._is_closed = True
        self.unsubscribe()
        self._changed.set()
        begun(self._process, self._hang_up())

    async def _hang_up(self) -> None:
        self._kafka.close(), self._asking.close()
