"""WriteTxnMarkers: who may, what is said of it, and what is left of a transaction whose marker an operator wrote."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.transactions.client import Client, Id, batch
from tests.conformance.wire import Wire
from waterclock.broker import Broker
from waterclock.broker.log.partition import Partition
from waterclock.broker.settings import AUTHORIZER
from waterclock.broker.wire.errors import Error


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with closing(Client(broker.bootstrap)) as client:
        yield client


def marked(broker: Broker, producer: Id, topics: tuple[str, ...] = ("t",)) -> list[str]:
    """The errors of an ABORT marker in each topic's first partition."""
    rows: list[dict[str, Any]] = [{"name": topic, "partition_indexes": [0]} for topic in topics]
    one = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "transaction_result": False}
    with Wire(broker.bootstrap) as wire:
        answer = wire.ask("write_txn_markers", 1, markers=[{**one, "coordinator_epoch": 0, "topics": rows}])
    return [row.partitions[0].error_code.name for row in answer.markers[0].topics]


def test_whoever_may_neither_alter_the_cluster_nor_act_in_it_writes_no_marker() -> None:
    with Broker(settings={"authorizer.class.name": AUTHORIZER}) as broker:
        broker.create_topic("t")
        assert marked(broker, Id(1, 0), ("t", "unknown")) == ["cluster_authorization_failed"] * 2
        assert broker.call(lambda: broker.inside.topics.by_name["t"].partitions[0].end) == 0


def test_what_was_aborted_is_said_and_its_coordinator_ends_the_transaction_all_the_same(
    broker: Broker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    producer = client.ready("n")
    client.add("n", producer, "t")
    client.produce("n", "t", batch("a", producer, 0))
    with caplog.at_level(logging.WARNING):
        assert marked(broker, producer) == ["none"]
    said = f"t-0: the transaction of producer {producer.producer_id} that was open from offset 0 on was aborted"
    assert [record.getMessage() for record in caplog.records] == [f"{said} by an operator"]
    assert client.state("n") == "Ongoing"
    assert client.end("n", producer) == "NONE"
    assert client.committed("t") == []
    client.add("n", producer, "t")
    assert client.produce("n", "t", batch("b", producer, 1)) == ("NONE", 3)
    assert client.end("n", producer) == "NONE"
    assert client.committed("t") == ["b"]


def test_of_several_partitions_each_has_its_own_answer(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("full")
    real = Partition.mark

    def mark(partition: Partition, data: bytearray) -> tuple[Error, int]:
        return (Error.KAFKA_STORAGE_ERROR, -1) if partition.topic == "full" else real(partition, data)

    monkeypatch.setattr(Partition, "mark", mark)
    assert marked(broker, Id(1, 0), ("t", "full", "unknown")) == [
        "none", "kafka_storage_error", "unknown_topic_or_partition",
    ]  # fmt: skip
