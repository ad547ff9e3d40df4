"""A log whose last records are lost, though it goes on behind them: whoever reads comes to its end all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("confluent_kafka")
pytest.importorskip("aiokafka")

import aiokafka
import confluent_kafka

from tests.broker.raw_client import RawClient
from tests.broker.replication.pairs import partition
from waterclock.broker import Broker
from waterclock.broker.log.batch import MAGIC, header_of
from waterclock.broker.log.records import MOST_OFFSETS, empty

KEPT, END = 3, 1000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Three records, and nothing from there to offset 1000."""
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
        with RawClient(broker.bootstrap) as client:
            for number in range(KEPT):
                client.produce("t", b"%d" % number)
        broker.call(lambda: partition(broker).resume(END))
        with RawClient(broker.bootstrap) as client:
            client.produce("t", b"new")  # so that the end is seen by readers, and what is lost lies before it
        broker.call(lambda: partition(broker).resume(2 * END))
        broker.call(lambda: setattr(partition(broker), "high", 2 * END))
        yield broker


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_librdkafka_comes_to_its_end(broker: Broker, level: str) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True,
            "isolation.level": level, "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    values = []
    while not (message := consumer.poll(20)).error():
        values.append(message.value())
    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
    assert message.offset() == 2 * END
    assert values == [b"0", b"1", b"2", b"new"]
    consumer.close()


def test_aiokafka_comes_to_its_end(broker: Broker) -> None:
    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        place = aiokafka.TopicPartition("t", 0)
        consumer.assign([place])
        values = []
        async with asyncio.timeout(20):
            while await consumer.position(place) < 2 * END:
                for some in (await consumer.getmany(timeout_ms=100)).values():
                    values += [record.value for record in some]
        await consumer.stop()
        return values

    assert asyncio.run(read()) == [b"0", b"1", b"2", b"new"]


def test_a_gap_longer_than_a_batch_reaches_is_passed_in_steps() -> None:
    head = header_of(empty(5, 5 + 2 * MOST_OFFSETS, 3))
    assert (head.base, head.last, head.leader_epoch, head.magic, head.records) == (5, 4 + MOST_OFFSETS, 3, MAGIC, 0)
