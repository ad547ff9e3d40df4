"""One request in flight, without idempotence: which clients keep the order when the first is refused, and sent again.

docs/broker.md says of `max.in.flight=1` what librdkafka does, and that with other clients one in flight is enough.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker.replication.pairs import until
from waterclock.testing import Broker, Error

LETTERS = list("ABCDEFGH")
AHEAD_MS = (
    200  # so late comes the answer to a message ahead, and with it the refusal: what may be on its way is, by then
)


@pytest.fixture(autouse=True)
def _what_clients_leave_behind_is_theirs() -> Iterator[None]:
    """A client's socket that the garbage collector closes is not our warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


def kafka_python(bootstrap: str, topic: str, values: list[str], in_flight: int) -> None:
    import kafka

    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=False, batch_size=0, linger_ms=0, retries=5,
        max_in_flight_requests_per_connection=in_flight,
    )  # fmt: skip
    try:
        for sent in [producer.send(topic, value.encode(), partition=0) for value in values]:
            sent.get(30)
    finally:
        producer.close(timeout=10)


def aiokafka(bootstrap: str, topic: str, values: list[str], in_flight: int) -> None:
    """It has no such setting: one batch of a partition is in flight, always."""
    import aiokafka

    async def send() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=False, max_batch_size=1, linger_ms=0
        )
        await producer.start()
        try:
            await asyncio.gather(*[await producer.send(topic, value.encode(), partition=0) for value in values])
        finally:
            await producer.stop()

    assert in_flight == 1
    asyncio.run(send())


def confluent(bootstrap: str, topic: str, values: list[str], in_flight: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": False, "log_level": 0,
            "batch.num.messages": 1, "linger.ms": 0, "max.in.flight": in_flight,
        }
    )  # fmt: skip
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


Send = Callable[[str, str, list[str], int], Any]


def stored_after_a_refusal(send: Send, in_flight: int) -> list[str]:
    """What the partition holds, in order, after the first of eight requests was refused once."""
    with Broker() as broker:
        broker.create_topic("orders")
        late = broker.faults.delay("Produce", AHEAD_MS, times=1, topic="orders")
        with late, broker.faults.answer("Produce", Error.NOT_LEADER_OR_FOLLOWER, topic="orders") as refused:
            send(broker.bootstrap, "orders", ["ahead", *LETTERS], in_flight)
            assert (late.met, refused.met) == (1, 1)
        assert broker.statistics().records_in == 1 + len(LETTERS)
        return values(broker)[1:]


def values(broker: Broker) -> list[str]:
    from confluent_kafka import Consumer, TopicPartition

    consumer, found = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "all", "log_level": 0}), []
    consumer.assign([TopicPartition("orders", 0, 0)])

    def everything() -> bool:
        found.extend(message.value().decode() for message in consumer.consume(100, 0.1))
        return len(found) == 1 + len(LETTERS)

    until(everything)
    consumer.close()
    return found


@pytest.mark.parametrize("send", [aiokafka, kafka_python])
def test_with_other_clients_one_in_flight_is_enough(send: Send) -> None:
    assert stored_after_a_refusal(send, 1) == LETTERS


def test_librdkafka_sends_one_more_than_its_one_in_flight() -> None:
    assert stored_after_a_refusal(confluent, 1) == ["B", "A", *LETTERS[2:]]


def test_kafka_python_with_five_in_flight_does_not_keep_the_order() -> None:
    """The test above would notice."""
    stored = stored_after_a_refusal(kafka_python, 5)
    assert sorted(stored) == LETTERS != stored
