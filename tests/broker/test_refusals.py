"""A disk that refuses while the broker runs: who waits is told, and what comes after is served."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.broker.record_batches import TRANSACTIONAL, Rec, batch, end_marker
from tests.broker.transactions.client import Client
from tests.broker.transactions.client import batch as transactional
from waterclock.broker import Broker
from waterclock.broker.log import snapshot
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.net.outgoing import Slice
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.wire.errors import Error
from waterclock.clock import ManualClock

LIMIT = timedelta(seconds=10)
SETTINGS = {"log.message.timestamp.after.max.ms": str(2**62), "log.segment.bytes": "300"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(clock=ManualClock(), settings=SETTINGS) as broker:
        broker.create_topic("t")
        yield broker


def refuse(*arguments: Any) -> NoReturn:
    raise OSError(5, "Input/output error")


def waiting_fetches(broker: Broker) -> int:
    return broker.statistics().purgatories["fetch"].delayed


# Reading


def test_a_read_that_fails_when_a_long_poll_is_answered_is_told_to_its_client(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    fields: dict[str, Any] = {"max_wait": timedelta(hours=1), "min_bytes": 1, "forgotten_topics_data": []}
    client.send("Fetch", 12, topics=[{"topic": "t", "partitions": partitions}], **fields)
    while not waiting_fetches(broker):
        pass
    monkeypatch.setattr(Slice, "read", refuse)
    with RawClient(broker.bootstrap) as other:
        assert other.produce("t", b"v") == (0, 0)
    try:
        row = client.receive().responses[0].partitions[0]
    except ConnectionError:
        return
    assert row.error_code.value == Error.KAFKA_STORAGE_ERROR


# Flushing


def delete_topic(bootstrap: str, name: str) -> int:
    with RawClient(bootstrap) as client:
        answer = client.ask("DeleteTopics", 5, topic_names=[name], timeout=LIMIT)
    error: int = answer.responses[0].error_code.value
    return error


def test_a_topic_may_be_deleted_while_a_new_segment_of_it_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    flush, there, deleted, failures = os.fdatasync, ["t"], list[int](), list[OSError]()
    monkeypatch.setattr("waterclock.broker.log.durable.flush_failed", failures.append)
    with Broker(settings=SETTINGS) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t")
        broker.create_topic("other")
        assert client.produce("t", b"x" * 100) == (0, 0)

        def slow(fd: int) -> None:
            if there:
                deleted.append(delete_topic(broker.bootstrap, there.pop()))
            flush(fd)

        monkeypatch.setattr(os, "fdatasync", slow)
        client.produce("t", b"y" * 200, acks=1)  # goes into a segment of its own
        while not deleted:
            pass
        for _ in range(4):  # one for each thread that flushes
            assert client.produce("other", b"z")[0] == 0
    assert (deleted, failures) == ([0], [])


def with_an_aborted_transaction(folder: Path) -> Partition:
    partition = open_partition("t", 0, str(folder), TopicSettings(Settings()))
    for data in (batch([Rec(b"k", b"v", 0)], producer=(7, 0, 0), attributes=TRANSACTIONAL), end_marker(7, 0, False, 0)):
        assert partition.mark(bytearray(data))[0] == Error.NONE
    files = partition.unflushed()
    for segment, _ in files:
        segment.flush()
    partition.flushed(partition.end, files)
    return partition


def test_no_snapshot_vouches_for_aborted_transactions_whose_flush_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = with_an_aborted_transaction(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        partition.take_snapshot()
    for _ in range(2):
        partition.take_snapshot()
    assert snapshot.offsets(os.listdir(tmp_path)) == []
    (tmp_path / f"{0:020}.aborted").write_bytes(b"")  # as a power cut would leave it
    again = open_partition("t", 0, str(tmp_path), TopicSettings(Settings()))
    assert [row.producer_id for row in again.aborted.between(0, 2)] == [7]


# Keeping


def create(client: RawClient, name: str) -> int:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    answer = client.ask("CreateTopics", 4, topics=[topic], timeout=LIMIT, validate_only=False)
    error: int = answer.topics[0].error_code.value
    return error


def test_a_topic_that_the_journal_refuses_is_refused_and_can_be_made_later(broker: Broker, client: RawClient) -> None:
    broker.call(lambda: broker.inside.store.journal(refuse))
    assert create(client, "n") == Error.KAFKA_STORAGE_ERROR
    assert not broker.call(lambda: broker.inside.topics.making)
    broker.call(lambda: broker.inside.store.journal(None))
    assert create(client, "n") == Error.NONE


def test_an_end_of_a_transaction_that_the_journal_refuses_can_be_asked_for_again(broker: Broker) -> None:
    client = Client(broker.bootstrap)
    producer = client.ready("n")
    assert client.add("n", producer, "t", 0) == ["NONE"]
    assert client.produce("n", "t", transactional("a", producer, 0))[0] == "NONE"
    broker.call(lambda: broker.inside.store.journal(refuse))
    assert client.end("n", producer) != "NONE"
    broker.call(lambda: broker.inside.store.journal(None))
    assert client.end("n", producer) == "NONE"
    assert client.committed("t") == ["a"]
    client.close()
