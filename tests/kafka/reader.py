"""What the tests of Kafka's clients share: what a reader of committed messages finds in a topic, producers of transactions,
and the error that these make of Kafka's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, TopicPartition

from waterclock.errors import WaterclockError
from waterclock.kafka.errors import meaning_of
from waterclock.kafka.settings import base_settings
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.testing import Broker, ManualClock


def committed(broker: Broker, topic: str) -> dict[int, list[tuple[bytes, bytes]]]:
    """partition -> what a reader of committed messages gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    count = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
    found: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
    ended: set[int] = set()
    while len(ended) < count:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is None:
            found[message.partition()].append((message.key(), message.value()))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return found


Make = Callable[..., TransactionalProducer]


class Failed(WaterclockError):
    """The error that these tests make of Kafka's."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.meaning, self.code = meaning_of(error), error.code()


def producer_of(broker: Broker, name: str, clock: ManualClock | None = None) -> TransactionalProducer:
    return TransactionalProducer(base_settings(broker.bootstrap, {}), name, Failed, clock)


def send(producer: TransactionalProducer, topic: str, *values: bytes) -> None:
    """Step 3, and its records have arrived: there is something to be thrown away."""
    for value in values:
        producer.send(topic, value)
    assert producer.producer.flush(10) == 0


Values = Callable[[], list[bytes]]
