"""Producers with sequences: duplicates, gaps, epochs, and what DescribeProducers tells of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.batches import Batch, batch, values
from tests.conformance.dialogue import Dialogue


@pytest.fixture
def producer(dialogue: Dialogue) -> int:
    """The id of a producer without a transactional id."""
    return int(new_producer(dialogue).producer_id)


def new_producer(dialogue: Dialogue, version: int = 4) -> Any:
    return dialogue.init_producer(None, version=version)


def sent(producer: int, sequence: int, *payload: bytes, epoch: int = 0) -> Batch:
    return batch(*(payload or (b"v",))).but(producer_id=producer, producer_epoch=epoch, sequence=sequence)


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own_and_epoch_zero(dialogue: Dialogue, version: int) -> None:
    first, second = new_producer(dialogue, version), new_producer(dialogue, version)
    assert first.producer_id != second.producer_id
    assert (first.error_code.name, first.producer_epoch, second.producer_epoch) == ("none", 0, 0)


def test_a_sequence_counts_records(dialogue: Dialogue, topic: str, producer: int) -> None:
    assert dialogue.produce(topic, sent(producer, 0, b"a", b"b", b"c")).base_offset == 0
    assert dialogue.produce(topic, sent(producer, 3, b"d")).base_offset == 3


def test_a_duplicate_answers_with_its_first_offset_and_appends_nothing(
    dialogue: Dialogue, topic: str, producer: int
) -> None:
    dialogue.produce(topic, batch(b"before"))
    answer = [dialogue.produce(topic, sent(producer, 0, b"a", b"b")) for _ in range(3)]
    assert [(t.error_code.name, t.base_offset) for t in answer] == [("none", 1)] * 3
    assert values(dialogue.read(topic)) == [b"before", b"a", b"b"]


def test_the_last_five_batches_are_known_as_duplicates(dialogue: Dialogue, topic: str, producer: int) -> None:
    for sequence in range(6):
        dialogue.produce(topic, sent(producer, sequence))
    answer = [dialogue.produce(topic, sent(producer, sequence)) for sequence in range(1, 6)]
    assert [(t.error_code.name, t.base_offset) for t in answer] == [("none", offset) for offset in range(1, 6)]


def test_a_duplicate_older_than_five_batches_is_out_of_order(dialogue: Dialogue, topic: str, producer: int) -> None:
    for sequence in range(6):
        dialogue.produce(topic, sent(producer, sequence))
    assert dialogue.produce(topic, sent(producer, 0)).error_code.name == "out_of_order_sequence_number"


def test_a_gap_is_out_of_order(dialogue: Dialogue, topic: str, producer: int) -> None:
    dialogue.produce(topic, sent(producer, 0))
    answer = dialogue.produce(topic, sent(producer, 2))
    assert (answer.error_code.name, answer.base_offset) == ("out_of_order_sequence_number", -1)
    assert dialogue.produce(topic, sent(producer, 1)).base_offset == 1


def test_part_of_a_batch_again_is_out_of_order(dialogue: Dialogue, topic: str, producer: int) -> None:
    dialogue.produce(topic, sent(producer, 0, b"a", b"b", b"c"))
    assert dialogue.produce(topic, sent(producer, 1, b"b")).error_code.name == "out_of_order_sequence_number"


def test_a_producer_nobody_has_seen_here_may_begin_anywhere(dialogue: Dialogue, topic: str, producer: int) -> None:
    # Its earlier batches may have been deleted by retention, and its state with them (KIP-360).
    assert dialogue.produce(topic, sent(producer, 40)).error_code.name == "none"


def test_a_sequence_goes_on_at_zero_behind_its_largest_number(dialogue: Dialogue, topic: str, producer: int) -> None:
    dialogue.produce(topic, sent(producer, 2**31 - 2))
    assert dialogue.produce(topic, sent(producer, 2**31 - 1)).base_offset == 1
    assert dialogue.produce(topic, sent(producer, 0)).base_offset == 2


def test_a_batch_may_reach_over_the_largest_number(dialogue: Dialogue, topic: str, producer: int) -> None:
    dialogue.produce(topic, sent(producer, 2**31 - 1, b"a", b"b", b"c"))
    assert dialogue.produce(topic, sent(producer, 2)).base_offset == 3


def test_sequences_are_counted_by_partition(dialogue: Dialogue, new_topic: Any, producer: int) -> None:
    topic = new_topic(2)
    assert dialogue.produce(topic, sent(producer, 0), partition=0).base_offset == 0
    assert dialogue.produce(topic, sent(producer, 0), partition=1).base_offset == 0


def test_two_producers_do_not_disturb_each_other(dialogue: Dialogue, topic: str, producer: int) -> None:
    other = new_producer(dialogue).producer_id
    offsets = [dialogue.produce(topic, sent(p, s)).base_offset for s in (0, 1) for p in (producer, other)]
    assert offsets == [0, 1, 2, 3]


def test_a_newer_epoch_begins_at_zero(dialogue: Dialogue, topic: str, producer: int) -> None:
    dialogue.produce(topic, sent(producer, 0))
    assert dialogue.produce(topic, sent(producer, 0, epoch=1)).base_offset == 1


def test_a_newer_epoch_that_does_not_begin_at_zero_is_out_of_order(
    dialogue: Dialogue, topic: str, producer: int
) -> None:
    dialogue.produce(topic, sent(producer, 0))
    assert dialogue.produce(topic, sent(producer, 1, epoch=1)).error_code.name == "out_of_order_sequence_number"


def test_an_older_epoch_is_fenced(dialogue: Dialogue, topic: str, producer: int) -> None:
    dialogue.produce(topic, sent(producer, 0, epoch=1))
    assert dialogue.produce(topic, sent(producer, 1, epoch=0)).error_code.name == "invalid_producer_epoch"


def test_a_producer_without_transactions_that_asks_for_a_higher_epoch_gets_a_new_id(
    dialogue: Dialogue, producer: int
) -> None:
    # Only a transactional id ties an id to a producer; without one what it had is not looked at.
    answer = dialogue.init_producer(None, producer_id=producer, producer_epoch=0)
    assert (answer.error_code.name, answer.producer_epoch) == ("none", 0)
    assert answer.producer_id != producer


def described(dialogue: Dialogue, topic: str, partition: int = 0) -> Any:
    topics = [{"name": topic, "partition_indexes": [partition]}]
    return dialogue.wire.ask("describe_producers", 0, topics=topics).topics[0].partitions[0]


def test_describe_producers_tells_the_last_sequence(dialogue: Dialogue, topic: str, producer: int) -> None:
    dialogue.produce(topic, sent(producer, 0, b"a", b"b"))
    (answer,) = described(dialogue, topic).active_producers
    assert (answer.producer_id, answer.producer_epoch, answer.last_sequence) == (producer, 0, 1)
    assert (answer.current_txn_start_offset, answer.coordinator_epoch) == (-1, -1)


def test_describe_producers_of_a_topic_without_any_is_empty(dialogue: Dialogue, topic: str) -> None:
    dialogue.produce(topic, batch(b"a"))
    assert described(dialogue, topic).active_producers == ()


def test_describe_producers_of_an_unknown_partition_is_an_error(dialogue: Dialogue, topic: str) -> None:
    assert described(dialogue, topic, 5).error_code.name == "unknown_topic_or_partition"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_transaction_timeout_must_be_within_bounds(dialogue: Dialogue, name: str, timeout_ms: int) -> None:
    # transaction.max.timeout.ms is 15 minutes
    answer = dialogue.wire.ask("init_producer_id", 4, transactional_id=name, transaction_timeout=timeout_ms)
    assert (answer.error_code.name, answer.producer_id) == ("invalid_transaction_timeout", -1)


def test_an_empty_transactional_id_is_refused(dialogue: Dialogue) -> None:
    answer = dialogue.wire.ask("init_producer_id", 4, transactional_id="", transaction_timeout=1000)
    assert answer.error_code.name == "invalid_request"
