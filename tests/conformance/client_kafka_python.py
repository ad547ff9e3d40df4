"""kafka-python behind the seam of clients."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

import kafka
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
from tests.conformance.waiting import until

WAIT_S = 20.0


def refused(error: KafkaError) -> Refused:
    return Refused(getattr(error, "errno", -1), str(error))


class KafkaPythonProducer:
    def __init__(self, endpoint: Endpoint, writing: Writing) -> None:
        self._producer = kafka.KafkaProducer(**writing_config(endpoint, writing))
        if writing.transactional_id:
            self._producer.init_transactions()

    def write(self, topic: str, messages: Iterable[Message]) -> list[int]:
        try:
            sent = [
                self._producer.send(
                    topic, m.value, m.key, headers=list(m.headers), partition=m.partition, timestamp_ms=m.timestamp_ms
                )
                for m in messages
            ]
            self._producer.flush(WAIT_S)
            return [each.get(WAIT_S).offset for each in sent]
        except KafkaError as error:
            raise refused(error) from None

    def begin(self) -> None:
        self._producer.begin_transaction()

    def offer(self, reader: Reader, topic: str, partition: int, offset: int) -> None:
        assert isinstance(reader, KafkaPythonReader)
        given = {kafka.TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        self._call(self._producer.send_offsets_to_transaction, given, reader.consumer.group_metadata())

    def _call(self, method: Any, *arguments: Any) -> None:
        try:
            method(*arguments)
        except KafkaError as error:
            raise refused(error) from None

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=1)


class KafkaPythonReader:
    def __init__(self, endpoint: Endpoint, reading: Reading) -> None:
        self.consumer = kafka.KafkaConsumer(**reading_config(endpoint, reading))
        self._poll_ms = 1000 if reading.topics else 100  # in a group: not less, see docs/broker.md
        if reading.topics:
            for topic in reading.topics:  # or it divides among nobody, see there
                until(partial(self.consumer.partitions_for_topic, topic))
            self.consumer.subscribe(reading.topics)
        else:
            self.consumer.assign([kafka.TopicPartition(t, p) for t, p in reading.partitions])
            self.consumer.seek_to_beginning()

    def poll(self) -> list[Message]:
        return [
            Message(m.value, m.key, tuple(m.headers), m.timestamp, m.partition, m.offset)
            for found in self.consumer.poll(timeout_ms=self._poll_ms).values()
            for m in found
        ]

    def assignment(self) -> set[tuple[str, int]]:
        return {(p.topic, p.partition) for p in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit()

    def committed(self, topic: str, partition: int) -> int:
        given = self.consumer.committed(kafka.TopicPartition(topic, partition))
        return -1 if given is None else int(getattr(given, "offset", given))

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        place = kafka.TopicPartition(topic, partition)
        return self.consumer.beginning_offsets([place])[place], self.consumer.end_offsets([place])[place]

    def at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        place = kafka.TopicPartition(topic, partition)
        given = self.consumer.offsets_for_times({place: timestamp_ms})[place]
        return -1 if given is None else int(given.offset)

    def close(self) -> None:
        self.consumer.close()
