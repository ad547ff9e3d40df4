"""What a reader of committed messages finds in a topic."""

from __future__ import annotations

from collections import defaultdict

from confluent_kafka import Consumer, KafkaError, TopicPartition

from waterclock.testing import Broker


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
