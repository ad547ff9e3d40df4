"""What all clients of the stand-in ask, and how librdkafka tells errors."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tests.simulation.kafka import Gone, Kafka

AWAY = frozenset((5, 6, 7, 13, 14, 15, 16, 19, 20, 51, 56))  # the same may be asked again


def error(code: int, **kinds: bool) -> KafkaError:
    """librdkafka's or Kafka's."""
    return KafkaError(code, KafkaError(code).str(), **kinds)


def raised(code: int, **kinds: bool) -> KafkaException:
    return KafkaException(error(code, **kinds))


async def partitions(kafka: Kafka, topic: str) -> tuple[int, int]:
    """The error that Kafka has of a topic, and how many partitions there are."""
    (found,) = (await topics(kafka, [topic])).values()
    return found.error, len(found.partitions)


async def metadata(kafka: Kafka, names: list[str] | None) -> Any:
    """Of these topics, or of all; and who the brokers are."""
    return await kafka.ask("metadata", None if names is None else [(bytes(16), name) for name in names], 0, 0, 0)


async def topics(kafka: Kafka, names: list[str] | None) -> dict[str, Any]:
    return {one.name: one for one in (await metadata(kafka, names)).topics}


async def offset_of(kafka: Kafka, place: tuple[str, int], when: int, committed: bool) -> tuple[int, int]:
    """An error, and the offset of a moment: -1 is the end, -2 the beginning."""
    code, offset = await kafka.list_offset(place, when, committed)
    if code in (6, 16):
        kafka.close()
    return code, offset


__all__ = ["AWAY", "Gone", "Kafka", "error", "metadata", "offset_of", "partitions", "raised", "topics"]
