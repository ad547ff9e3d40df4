"""How long it takes to begin a transactional producer, on our broker."""

from __future__ import annotations

import time

from tests.kafka.test_transactions import producer_of
from waterclock.testing import Broker


def test_who_names_a_topic_does_not_wait_half_a_second_for_the_coordinator(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """One in five did."""
    took_s = []
    for number in range(25):
        producer = producer_of(kafka_broker, f"{kafka_topic}-{number}")
        began_s = time.monotonic()
        producer.fence(kafka_topic)
        took_s.append(time.monotonic() - began_s)
    assert sorted(took_s)[-2] < 0.45
