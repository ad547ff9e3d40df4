"""The client of the lessons, confluent-kafka, as plain as it gets: send, and read everything there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

QUIET = {"log_level": 0}
ONE_BY_ONE = {"batch.num.messages": 1, "linger.ms": 0}  # a request for each message
AT_ONCE = {"fetch.wait.max.ms": 10}  # for a reader of few records, who waits for the end most of its time
PATIENCE_S = 30


def producer(bootstrap: str, **settings: Any) -> Producer:
    """A producer without idempotence, unless reported; dots of a setting's name are written as underscores."""
    reported = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": False, "acks": "all", **QUIET, **reported})


def send(producer: Producer, topic: str, values: Iterable[str], **message: Any) -> list[str]:
    """Send all, then wait; what was reported as delivered."""
    delivered: list[str] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is None:
            delivered.append(text(message))

    for value in values:
        producer.produce(topic, value, on_delivery=report, **message)
    flush(producer)
    return delivered


def taken(error: KafkaError | None, message: Message) -> None:
    """The report of a message without which the lesson has no sense: its `flush` raises what was refused."""
    if error is not None:
        raise RuntimeError(f"message {text(message)} was not taken: {error}")


def flush(producer: Producer, patience_s: float = PATIENCE_S) -> None:
    """Wait for the answers to what was sent.

    confluent-kafka 2.16 loses an interrupt that comes while a report is taken, and nothing but such a one.
    """
    try:
        producer.flush(patience_s)
    except SystemError as lost:
        raise KeyboardInterrupt from lost


def read(bootstrap: str, topic: str, *, partitions: int = 1, **settings: Any) -> list[str]:
    """The values of all records that readers may see, from the first to the end."""
    return [text(message) for message in messages(bootstrap, topic, partitions=partitions, **settings)]


def messages(bootstrap: str, topic: str, *, first: int = 0, partitions: int = 1, **settings: Any) -> Iterator[Message]:
    """Every message from offset `first` on to the end."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "lesson", "enable.auto.commit": False,
         "enable.partition.eof": True, **QUIET, **settings}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, first) for partition in range(partitions)])
    try:
        while partitions:
            message = consumer.poll(PATIENCE_S)
            if message is None:
                raise TimeoutError(f"nothing came from {topic} in {PATIENCE_S} s")
            if message.error() is None:
                yield message
            elif message.error().code() == KafkaError._PARTITION_EOF:
                partitions -= 1
            else:
                raise RuntimeError(f"reading {topic}: {message.error()}")
    finally:
        consumer.close()


def text(message: Message) -> str:
    value: bytes = message.value()
    return value.decode()
