"""Transactions as people use them: with librdkafka's client and with aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("kio")
confluent_kafka = pytest.importorskip("confluent_kafka")

from tests.broker.transactions.client import Client  # noqa: E402
from waterclock.broker import Broker  # noqa: E402

PATIENCE_S = 20.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker, Client(broker.bootstrap) as client:
        client.create("in")
        client.create("out", 2)
        yield broker


def producer_of(broker: Broker, name: str) -> Any:
    return confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0}, logger=None
    )


def read(broker: Broker, topic: str, count: int, level: str = "read_committed") -> list[str]:
    """The first `count` values of a topic."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": level}
    )
    parts = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(2 if topic == "out" else 1)]
    consumer.assign(parts)
    values: list[str] = []
    while len(values) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, values
        assert message.error() is None
        values.append(message.value().decode())
    consumer.close()
    return sorted(values)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(broker: Broker) -> None:
    producer = producer_of(broker, "n")
    producer.init_transactions(PATIENCE_S)
    for number in range(6):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce("out", f"{number}-{partition}", partition=partition)
        if number % 3 == 1:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    kept = [f"{n}-{p}" for n in (0, 2, 3, 5) for p in range(2)]
    assert read(broker, "out", len(kept)) == kept
    assert read(broker, "out", 12, "read_uncommitted") == [f"{n}-{p}" for n in range(6) for p in range(2)]


def test_a_zombie_is_fenced(broker: Broker) -> None:
    zombie, successor = producer_of(broker, "n"), producer_of(broker, "n")
    zombie.init_transactions(PATIENCE_S)
    zombie.begin_transaction()
    zombie.produce("out", "zombie", partition=0)
    zombie.flush(PATIENCE_S)
    successor.init_transactions(PATIENCE_S)
    successor.begin_transaction()
    successor.produce("out", "successor", partition=0)
    successor.commit_transaction(PATIENCE_S)
    with pytest.raises(confluent_kafka.KafkaException) as error:
        zombie.commit_transaction(PATIENCE_S)
    assert error.value.args[0].fatal()
    assert read(broker, "out", 1) == ["successor"]


def test_consume_transform_produce_does_each_record_once(broker: Broker) -> None:
    source = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for number in range(5):
        source.produce("in", str(number))
    source.flush(PATIENCE_S)
    for abort in (True, False):  # the first run gives up after its transaction was written
        _transform(broker, abort)
    assert read(broker, "out", 5) == [f"{n}'" for n in range(5)]


def _transform(broker: Broker, abort: bool) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "group.id": "g", "isolation.level": "read_committed",
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    consumer.subscribe(["in"])
    producer = producer_of(broker, "transform")
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for _ in range(5):
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        producer.produce("out", message.value().decode() + "'", partition=0)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
    if abort:
        producer.abort_transaction(PATIENCE_S)
    else:
        producer.commit_transaction(PATIENCE_S)
    committed = consumer.committed(consumer.assignment(), PATIENCE_S)
    assert [c.offset for c in committed] == [confluent_kafka.OFFSET_INVALID if abort else 5]
    consumer.close()


def test_an_idempotent_producer_writes_each_record_once_in_order(broker: Broker) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0}
    )
    for number in range(500):
        producer.produce("in", f"{number:03}")
    assert producer.flush(PATIENCE_S) == 0
    assert read(broker, "in", 500) == [f"{n:03}" for n in range(500)]


def test_aiokafkas_transactions_work(broker: Broker) -> None:
    aiokafka = pytest.importorskip("aiokafka")

    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="a")
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait("out", b"kept", partition=0)
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"dropped", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait("out", b"kept too", partition=1)
        await producer.stop()

    asyncio.run(main())
    assert read(broker, "out", 2) == ["kept", "kept too"]
