"""What readers of committed records see of several topics, read on little by little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from waterclock.kafka.settings import base_settings
from waterclock.testing import Broker

QUICK = {"reconnect.backoff.ms": 20}  # librdkafka holds back a new client's second connection for half of it


class Seen(NamedTuple):
    """A record as a reader of committed records sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


class Reader:
    """Reads on in some topics, to the end of what is committed, whenever it is asked."""

    def __init__(self, broker: Broker, topics: list[str]) -> None:
        reading = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
        self._consumer = Consumer({**base_settings(broker.bootstrap, QUICK), **reading, "fetch.wait.max.ms": 5})
        known = self._consumer.list_topics(timeout=10).topics
        self._at = {(topic, number): 0 for topic in topics for number in known[topic].partitions}

    def news(self) -> dict[str, list[Seen]]:
        """What came since the last time, by topic; of each partition in its order."""
        found: dict[str, list[Seen]] = {topic: [] for topic, _ in self._at}
        self._consumer.assign([TopicPartition(topic, number, at) for (topic, number), at in self._at.items()])
        for message in self._until_the_ends():
            topic, number = message.topic() or "", message.partition() or 0
            self._at[topic, number] = (message.offset() or 0) + 1
            found[topic].append(_seen(message))
        return found

    def _until_the_ends(self) -> Iterator[Message]:
        ends: set[tuple[str | None, int | None]] = set()
        while len(ends) < len(self._at):
            message = self._consumer.poll(10)
            assert message is not None
            if (error := message.error()) is None:
                yield message
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends.add((message.topic(), message.partition()))

    def close(self) -> None:
        self._consumer.close()


def _seen(message: Message) -> Seen:
    place = message.partition() or 0, message.offset() or 0
    return Seen(*place, message.key(), message.value(), message.headers() or [], message.timestamp()[1])
