"""Producers of the tests, and the error that these make of Kafka's."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError

from waterclock.errors import WaterclockError
from waterclock.kafka.errors import meaning_of
from waterclock.kafka.settings import base_settings
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.testing import Broker, ManualClock

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
