"""WriteTxnMarkers: what an operator's end of a transaction does to a partition, and which is refused. KIP-664."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.batches import values
from tests.conformance.dialogue import LATEST, Dialogue
from tests.conformance.transactions import Transactional, is_marker


def marked(
    dialogue: Dialogue, topic: str, producer: int, epoch: int, *, commit: bool = False, coordinator_epoch: int = 0,
    partition: int = 0, protocol: int | None = None,
) -> str:  # fmt: skip
    """The error's name; with a `protocol` by version 2, which says it."""
    one: dict[str, Any] = {
        "producer_id": producer, "producer_epoch": epoch, "transaction_result": commit,
        "coordinator_epoch": coordinator_epoch, "topics": [{"name": topic, "partition_indexes": [partition]}],
    }  # fmt: skip
    more = {} if protocol is None else {"transaction_version": protocol}
    answer = dialogue.wire.ask("write_txn_markers", 1 if protocol is None else 2, markers=[{**one, **more}])
    assert [row.producer_id for row in answer.markers] == [producer]
    return str(answer.markers[0].topics[0].partitions[0].error_code.name)


@pytest.fixture
def hanging(dialogue: Dialogue, topic: str, name: str) -> Transactional:
    """A producer with a transaction open in `topic`, from offset 0 on."""
    producer = Transactional(dialogue, name)
    producer.put(topic, b"open")
    return producer


def end(dialogue: Dialogue, topic: str) -> int:
    """The end of what is committed."""
    return int(dialogue.offset(topic, LATEST, isolation=1).offset)


@pytest.mark.parametrize("protocol", [None, 0, 1])
def test_an_open_transaction_is_aborted_in_the_partition(
    dialogue: Dialogue, topic: str, hanging: Transactional, protocol: int | None
) -> None:
    assert end(dialogue, topic) == 0
    assert marked(dialogue, topic, hanging.id, hanging.epoch, protocol=protocol) == "none"
    assert end(dialogue, topic) == 2
    aborted = dialogue.fetch(topic, isolation_level=1).partition.aborted_transactions
    assert [(one.producer_id, one.first_offset) for one in aborted] == [(hanging.id, 0)]
    assert [is_marker(found) for found in dialogue.read(topic)] == [False, True]
    states = dialogue.wire.ask("describe_producers", 0, topics=[{"name": topic, "partition_indexes": [0]}])
    assert [one.current_txn_start_offset for one in states.topics[0].partitions[0].active_producers] == [-1]


def test_it_may_be_committed_too(dialogue: Dialogue, topic: str, hanging: Transactional) -> None:
    assert marked(dialogue, topic, hanging.id, hanging.epoch, commit=True) == "none"
    assert not dialogue.fetch(topic, isolation_level=1).partition.aborted_transactions
    assert values(dialogue.read(topic, isolation_level=1)) == [b"open"]


def test_a_later_epoch_ends_it_and_an_earlier_one_is_refused(
    dialogue: Dialogue, topic: str, hanging: Transactional
) -> None:
    assert marked(dialogue, topic, hanging.id, hanging.epoch + 1) == "none"
    assert end(dialogue, topic) == 2
    assert marked(dialogue, topic, hanging.id, hanging.epoch) == "invalid_producer_epoch"


def test_for_protocol_2_the_epoch_must_be_a_later_one(dialogue: Dialogue, topic: str, hanging: Transactional) -> None:
    assert marked(dialogue, topic, hanging.id, hanging.epoch, protocol=2) == "invalid_producer_epoch"
    assert end(dialogue, topic) == 0
    assert marked(dialogue, topic, hanging.id, hanging.epoch + 1, protocol=2) == "none"
    assert end(dialogue, topic) == 2


def test_an_earlier_coordinators_marker_is_refused(dialogue: Dialogue, topic: str, hanging: Transactional) -> None:
    assert marked(dialogue, topic, hanging.id, hanging.epoch, coordinator_epoch=5) == "none"
    assert marked(dialogue, topic, hanging.id, hanging.epoch, coordinator_epoch=4) == "transaction_coordinator_fenced"


def test_a_marker_where_nothing_is_open_is_written_all_the_same(dialogue: Dialogue, topic: str) -> None:
    assert marked(dialogue, topic, 1_000_000, 3) == "none"
    assert [is_marker(found) for found in dialogue.read(topic)] == [True]


@pytest.mark.parametrize("partition", [0, 7])
def test_what_is_not_there_is_unknown(dialogue: Dialogue, topic: str, name: str, partition: int) -> None:
    wanted = topic if partition else f"{name}-no"
    assert marked(dialogue, wanted, 1, 0, partition=partition) == "unknown_topic_or_partition"
