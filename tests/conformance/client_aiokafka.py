"""aiokafka behind the seam of clients: its loop runs in a thread, so that a group's heartbeats go on between calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from functools import cache
from typing import Any

import aiokafka
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from tests.conformance.clients import (
    Endpoint,
    Message,
    Reader,
    Reading,
    Refused,
    Writing,
    reading_config,
    writing_config,
)

WAIT_S = 30.0


@cache
def loop() -> asyncio.AbstractEventLoop:
    """The one loop of all aiokafka clients."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="aiokafka", daemon=True).start()
    return made


def run(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return asyncio.run_coroutine_threadsafe(work, loop()).result(WAIT_S)
    except KafkaError as error:
        raise Refused(getattr(error, "errno", -1), str(error)) from None


class AiokafkaProducer:
    def __init__(self, endpoint: Endpoint, writing: Writing) -> None:
        self._producer = run(self._started(writing_config(endpoint, writing)))

    async def _started(self, settings: dict[str, Any]) -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
        except BaseException:
            await producer.stop()
            raise
        return producer

    def write(self, topic: str, messages: Iterable[Message]) -> list[int]:
        return list(run(self._write(topic, messages)))

    async def _write(self, topic: str, messages: Iterable[Message]) -> list[int]:
        sent = [
            await self._producer.send(
                topic, m.value, m.key, headers=list(m.headers), partition=m.partition, timestamp_ms=m.timestamp_ms
            )
            for m in messages
        ]
        return [given.offset if (given := await each) else -1 for each in sent]

    def begin(self) -> None:
        run(self._producer.begin_transaction())

    def offer(self, reader: Reader, topic: str, partition: int, offset: int) -> None:
        assert isinstance(reader, AiokafkaReader)
        given = {aiokafka.TopicPartition(topic, partition): OffsetAndMetadata(offset, "")}
        run(self._producer.send_offsets_to_transaction(given, reader.group))

    def commit(self) -> None:
        run(self._producer.commit_transaction())

    def abort(self) -> None:
        run(self._producer.abort_transaction())

    def close(self) -> None:
        run(self._producer.stop())


class AiokafkaReader:
    def __init__(self, endpoint: Endpoint, reading: Reading) -> None:
        self.group = reading.group
        self._consumer = run(self._started(endpoint, reading))

    async def _started(self, endpoint: Endpoint, reading: Reading) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(**reading_config(endpoint, reading))
        if reading.topics:
            consumer.subscribe(reading.topics)
        else:
            consumer.assign([aiokafka.TopicPartition(t, p) for t, p in reading.partitions])
        try:
            await consumer.start()
        except BaseException:
            await consumer.stop()
            raise
        return consumer

    def poll(self) -> list[Message]:
        return [
            Message(m.value, m.key, tuple(m.headers), m.timestamp, m.partition, m.offset)
            for found in run(self._consumer.getmany(timeout_ms=100)).values()
            for m in found
        ]

    def assignment(self) -> set[tuple[str, int]]:
        return {(p.topic, p.partition) for p in self._consumer.assignment()}

    def commit(self) -> None:
        run(self._consumer.commit())

    def committed(self, topic: str, partition: int) -> int:
        given = run(self._consumer.committed(aiokafka.TopicPartition(topic, partition)))
        return -1 if given is None else int(given)

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        place = aiokafka.TopicPartition(topic, partition)
        first, last = run(self._consumer.beginning_offsets([place])), run(self._consumer.end_offsets([place]))
        return first[place], last[place]

    def at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        place = aiokafka.TopicPartition(topic, partition)
        given = run(self._consumer.offsets_for_times({place: timestamp_ms}))[place]
        return -1 if given is None else int(given.offset)

    def close(self) -> None:
        run(self._consumer.stop())
