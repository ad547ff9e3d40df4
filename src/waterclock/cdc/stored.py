"""What was committed last to a partition: the position of a capture, or whatever else its last record says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from waterclock.cdc.position import Position
from waterclock.errors import EnvironmentMissing
from waterclock.kafka import library
from waterclock.kafka.errors import words_of
from waterclock.kafka.settings import READING

_PATIENCE_S = 30.0
_FIRST_LOOK = 64  # so many records from the end on: the last one nearly always lies there


def last_position(settings: Mapping[str, Any], state_topic: str, patience_s: float = _PATIENCE_S) -> Position | None:
    """The position that was committed last; None if there is none yet. EnvironmentMissing if nobody answers."""
    found = last_record(settings, TopicPartition(state_topic, 0), patience_s)
    return None if found is None else Position.parsed(found)


def last_record(settings: Mapping[str, Any], place: TopicPartition, patience_s: float = _PATIENCE_S) -> bytes | None:
    """The value of a partition's last committed record; None if it has none. EnvironmentMissing if nobody answers."""
    consumer = library.Consumer(
        {
            **settings,
            **READING,
            "group.id": f"{place.topic}.reader",  # the client wants one: nothing is committed under it
            "fetch.wait.max.ms": 10,  # at the end there is nothing to wait for: nobody writes
            "auto.offset.reset": "earliest",
        }
    )
    try:
        low, high = consumer.get_watermark_offsets(place, timeout=patience_s)
        for start in (max(low, high - _FIRST_LOOK), low):
            consumer.assign([TopicPartition(place.topic, place.partition, start)])
            found = list(_records(consumer, patience_s))
            if found or start == low:
                return found[-1] if found else None
    except KafkaException as error:
        raise EnvironmentMissing(f"The position in {place.topic} cannot be read: {words_of(error)}.") from None
    finally:
        consumer.close()
    return None


def _records(consumer: library.Consumer, patience_s: float) -> Iterator[bytes]:
    while True:
        message = consumer.poll(patience_s)
        if message is None:
            raise EnvironmentMissing("Kafka does not answer while the last position is read. Is it still running?")
        if message.error() is None:
            yield message.value()
        elif message.error().code() == KafkaError._PARTITION_EOF:
            return
        else:
            raise KafkaException(message.error())
