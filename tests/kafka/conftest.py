"""What the tests of Kafka's ground floor need: confluent-kafka, our broker to talk to, producers of transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("confluent_kafka", reason="it comes with the extra kafka")
pytest.importorskip("kio", reason="it comes with the extra broker")

from tests.kafka.reader import Make, committed, producer_of

if TYPE_CHECKING:
    from waterclock.kafka.transactions import TransactionalProducer
    from waterclock.testing import Broker, ManualClock


@pytest.fixture
def make(kafka_broker: Broker, kafka_topic: str) -> Iterator[Make]:
    """Makes producers under the name of the topic; they are closed when the test is over."""
    made: list[TransactionalProducer] = []

    def of(clock: ManualClock | None = None) -> TransactionalProducer:
        made.append(producer_of(kafka_broker, kafka_topic, clock))
        return made[-1]

    yield of
    for producer in made:
        producer.close()


@pytest.fixture
def producer(make: Make, kafka_topic: str) -> TransactionalProducer:
    """Steps 1 and 2 are done."""
    made = make()
    made.fence(kafka_topic)
    made.begin()
    return made


@pytest.fixture
def values(kafka_broker: Broker, kafka_topic: str) -> Callable[[], list[bytes]]:
    """What a reader of committed messages finds in the topic."""
    return lambda: [value for _, value in committed(kafka_broker, kafka_topic)[0]]
