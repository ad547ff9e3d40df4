"""The committed records of one partition, from one offset to another, beside any group.

Rule 1: only what is committed is seen, whatever the settings say; nothing is committed, and no group is joined.
Rule 2: a reading ends where it was to end, or with an error: records that do not come are no end.
Rule 3: librdkafka looks for the group's coordinator all the same. Who has no right to the group hears so, and reads on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from waterclock.clock import Clock
from waterclock.errors import ConnectionLost, UsageError
from waterclock.kafka.errors import is_refusal
from waterclock.kafka.partitions import Partition
from waterclock.kafka.settings import READING

PATIENCE_S: Final = 30.0
_AT_ONCE: Final = 1000
_SOON: Final = {"fetch.wait.max.ms": 10}  # the end is asked for after the last record
HARMLESS: Final = (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError.GROUP_AUTHORIZATION_FAILED)  # rule 3


def committed(
    settings: Mapping[str, Any],
    partition: Partition,
    start: int,
    end: int,
    clock: Clock,
    patience_s: float = PATIENCE_S,
) -> Iterator[Message]:
    """The records from `start` to before `end`; ConnectionLost if none comes for `patience_s`, UsageError if Kafka
    refuses them."""
    if start >= end:
        return
    consumer = Consumer({**_SOON, **settings, **READING, "group.id": settings.get("group.id", "unused")})
    consumer.assign([TopicPartition(*partition, start)])
    try:
        yield from _until(consumer, partition[0], end, clock, patience_s)
    finally:
        consumer.close()


def _until(consumer: Consumer, topic: str, end: int, clock: Clock, patience_s: float) -> Iterator[Message]:
    until_s = clock.monotonic_s() + patience_s
    while clock.monotonic_s() < until_s:
        first = consumer.poll(0.5)
        for message in [] if first is None else [first, *consumer.consume(_AT_ONCE, 0)]:
            until_s = clock.monotonic_s() + patience_s
            error = message.error()
            if error is None and message.offset() < end:
                yield message
            elif error is not None and is_refusal(error):
                raise UsageError(f"Kafka refuses to have {topic} read: {error.str()}. Look at the rights.")
            elif error is not None and error.code() not in HARMLESS:
                raise ConnectionLost(f"{topic} cannot be read: {error.str()}.")
            if (message.offset() or 0) >= (end - 1 if error is None else end):
                return
    raise ConnectionLost(f"Kafka does not give the records of {topic}.")
