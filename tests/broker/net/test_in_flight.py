"""Many requests in flight, on one connection or to two brokers of one process: each is served once, in order."""

from __future__ import annotations

import struct
from contextlib import closing
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.net.test_limits import plug, read
from tests.broker.raw_client import RawClient
from tests.broker.record_batches import stored
from tests.conformance.waiting import until
from waterclock.broker import Broker
from waterclock.broker.log.partition import Partition
from waterclock.broker.net.connection import MOST_SLOTS

MANY = 3 * MOST_SLOTS


def everything(broker: Broker, topic: str) -> list[Any]:
    def read_all() -> bytes:
        partition = broker.inside.topics.partition(topic, 0)
        assert partition is not None
        found = partition.read(0, 64 << 20, partition.high)
        return found.read() if found is not None else b""

    return stored(broker.call(read_all))


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_three_thousand_produces_sent_in_one_go_are_stored_once_and_in_order(acks: int) -> None:
    """What could not be served at once was kept as bytes, into which the offset could not be written: the connection
    closed, and a client sent everything again."""
    with Broker() as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t")
        with client.in_one_go():
            for n in range(MANY):
                client.send_produce("t", b"%d" % n, acks=acks)
        if acks:
            assert [client.produced() for _ in range(MANY)] == [(0, n) for n in range(MANY)]
        until(lambda: client.end("t") == MANY)  # without acks=all it is not durable yet
        batches = everything(broker, "t")
        assert [batch.base for batch in batches] == list(range(MANY))
        assert all(b"%d" % n in batch.raw for n, batch in enumerate(batches))


def test_a_request_that_another_broker_of_the_process_reads_meanwhile_does_not_change_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker() as one, Broker() as two, RawClient(one.bootstrap) as client, RawClient(two.bootstrap) as other:
        one.create_topic("t")
        two.create_topic("t")
        ours = one.call(lambda: one.inside.topics.partition("t", 0))
        append = Partition.append

        def interrupted(partition: Partition, *arguments: Any) -> Any:
            if partition is ours:  # its request lies where it was read into
                assert other.produce("t", b"theirs") == (0, 0)
            return append(partition, *arguments)

        monkeypatch.setattr(Partition, "append", interrupted)
        assert client.produce("t", b"ours  ") == (0, 0)
        assert [b"ours  " in batch.raw for batch in everything(one, "t")] == [True]
        assert [b"theirs" in batch.raw for batch in everything(two, "t")] == [True]


@pytest.mark.long(seconds=5)
def test_a_client_of_the_wire_gets_its_answers_in_order_with_thousands_in_flight() -> None:
    with Broker() as broker, closing(plug(broker.bootstrap)) as plugged:
        plugged.sendall(b"".join(struct.pack(">ihhih", 10, 18, 0, n, -1) for n in range(20_000)))
        first = read(plugged, 4)
        size = struct.unpack(">i", first)[0]
        numbers = [struct.unpack_from(">i", read(plugged, size))[0]]
        numbers += [struct.unpack_from(">i", read(plugged, size + 4), 4)[0] for _ in range(19_999)]
        assert numbers == list(range(20_000))


@pytest.mark.long(seconds=6)
def test_a_real_client_with_everything_in_flight_stores_each_record_once() -> None:
    confluent = pytest.importorskip("confluent_kafka")
    failed: list[Any] = []
    with Broker() as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t")
        producer = confluent.Producer({
            "bootstrap.servers": broker.bootstrap, "max.in.flight.requests.per.connection": 1_000_000,
            "enable.idempotence": False, "batch.num.messages": 1, "linger.ms": 0, "acks": -1,
        })  # fmt: skip
        for n in range(20_001):
            producer.produce("t", b"%d" % n, partition=0, on_delivery=lambda error, _: error and failed.append(error))
        assert producer.flush(60) == 0
        assert (failed, client.end("t")) == ([], 20_001)


@pytest.mark.long(seconds=8)
def test_a_python_client_with_everything_in_flight_stores_each_record_once() -> None:
    kafka = pytest.importorskip("kafka")
    with Broker() as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t")
        producer = kafka.KafkaProducer(
            bootstrap_servers=broker.bootstrap, acks="all", enable_idempotence=False, batch_size=0, linger_ms=0,
            max_in_flight_requests_per_connection=1_000_000,
        )  # fmt: skip
        for sent in [producer.send("t", b"%d" % n, partition=0) for n in range(5001)]:
            sent.get(60)
        producer.close(timeout=10)
        assert client.end("t") == 5001
