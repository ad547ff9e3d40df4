"""Transactions over the wire: what readers see, markers, the last stable offset, the list of aborted ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.batches import TRANSACTIONAL, batch, values
from tests.conformance.dialogue import LATEST, Dialogue, fetch_fields
from tests.conformance.transactions import Transactional, is_marker
from tests.conformance.waiting import until
from tests.conformance.wire import Wire

COMMITTED = {"isolation_level": 1}


@pytest.fixture(params=[False, True], ids=["old", "new"])
def producer(request: pytest.FixtureRequest, dialogue: Dialogue, name: str) -> Transactional:
    """A transactional producer, in each of the two protocols."""
    return Transactional(dialogue, name, new=request.param)


def stable(dialogue: Dialogue, topic: str, offset: int) -> None:
    """Wait until markers have been written: EndTxn is answered before."""
    until(lambda: dialogue.fetch(topic).partition.last_stable_offset == offset)


def test_a_commit_shows_what_was_written(dialogue: Dialogue, topic: str, producer: Transactional) -> None:
    producer.put(topic, b"a", b"b")
    producer.commit()
    stable(dialogue, topic, 3)
    assert values(dialogue.read(topic, **COMMITTED)) == [b"a", b"b"]


def test_an_open_transaction_is_hidden_from_a_reader_of_what_is_committed(
    dialogue: Dialogue, topic: str, producer: Transactional
) -> None:
    dialogue.produce(topic, batch(b"before"))
    producer.put(topic, b"open")
    dialogue.produce(topic, batch(b"behind"))
    assert values(dialogue.read(topic, **COMMITTED)) == [b"before"]
    assert values(dialogue.read(topic)) == [b"before", b"open", b"behind"]
    producer.abort()


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins(
    dialogue: Dialogue, topic: str, producer: Transactional
) -> None:
    dialogue.produce(topic, batch(b"before"))
    producer.put(topic, b"open", b"open")
    answer = dialogue.fetch(topic).partition
    assert (answer.last_stable_offset, answer.high_watermark) == (1, 3)
    producer.commit()
    stable(dialogue, topic, 4)


def test_the_last_offset_for_readers_of_what_is_committed_is_the_last_stable_one(
    dialogue: Dialogue, topic: str, producer: Transactional
) -> None:
    producer.put(topic, b"open")
    assert [dialogue.offset(topic, LATEST, isolation=level).offset for level in (0, 1)] == [1, 0]
    producer.commit()
    stable(dialogue, topic, 2)
    assert [dialogue.offset(topic, LATEST, isolation=level).offset for level in (0, 1)] == [2, 2]


def test_a_marker_takes_an_offset_of_its_own(dialogue: Dialogue, topic: str, producer: Transactional) -> None:
    producer.put(topic, b"a")
    producer.commit()
    stable(dialogue, topic, 2)
    assert dialogue.produce(topic, batch(b"b")).base_offset == 2


@pytest.mark.parametrize(("committed", "mark"), [(True, 1), (False, 0)], ids=["commit", "abort"])
def test_a_marker_is_a_batch_of_one_control_record(
    dialogue: Dialogue, topic: str, producer: Transactional, committed: bool, mark: int
) -> None:
    epoch = producer.epoch
    producer.put(topic, b"a")
    assert producer.end(committed) == "none"
    stable(dialogue, topic, 2)
    marker = dialogue.read(topic, 1)[0]
    (record,) = marker.decoded()
    assert is_marker(marker)
    assert (marker.producer_id, marker.sequence, marker.attributes & TRANSACTIONAL) == (producer.id, -1, TRANSACTIONAL)
    # the key: a version and the kind, each of two bytes
    assert record.key == bytes([0, 0, 0, mark])
    # the new protocol's marker carries the next epoch, which fences whatever comes late
    assert marker.producer_epoch == epoch + producer.new


def test_aborted_records_are_there_and_listed(dialogue: Dialogue, topic: str, producer: Transactional) -> None:
    # The broker takes nothing out: the reader drops what the list names, up to the marker.
    dialogue.produce(topic, batch(b"before"))
    producer.put(topic, b"gone")
    producer.abort()
    stable(dialogue, topic, 3)
    found = dialogue.fetch(topic, **COMMITTED)
    assert values(found.batches) == [b"before", b"gone"]
    assert [(a.producer_id, a.first_offset) for a in found.partition.aborted_transactions] == [(producer.id, 1)]


def test_readers_of_everything_get_no_list_of_aborted_ones(
    dialogue: Dialogue, topic: str, producer: Transactional
) -> None:
    producer.put(topic, b"gone")
    producer.abort()
    stable(dialogue, topic, 2)
    assert dialogue.fetch(topic).partition.aborted_transactions is None


def test_a_committed_transaction_is_not_listed(dialogue: Dialogue, topic: str, producer: Transactional) -> None:
    producer.put(topic, b"a")
    producer.commit()
    stable(dialogue, topic, 2)
    assert dialogue.fetch(topic, **COMMITTED).partition.aborted_transactions in (None, ())


def test_only_what_is_aborted_within_the_bytes_fetched_is_listed(
    dialogue: Dialogue, topic: str, producer: Transactional
) -> None:
    for end in (2, 4):
        producer.put(topic, b"gone")
        producer.abort()
        stable(dialogue, topic, end)
    listed = [dialogue.fetch(topic, at, **COMMITTED).partition.aborted_transactions or () for at in (0, 2, 4)]
    assert [[a.first_offset for a in answer] for answer in listed] == [[0, 2], [2], []]


def test_a_transaction_over_several_partitions_ends_in_all_of_them(
    dialogue: Dialogue, new_topic: Callable[..., str], producer: Transactional
) -> None:
    topics = [new_topic(), new_topic()]
    for topic in topics:
        producer.put(topic, b"a")
    producer.commit()
    for topic in topics:
        stable(dialogue, topic, 2)
        assert values(dialogue.read(topic, **COMMITTED)) == [b"a"]


def test_two_transactions_one_after_another(dialogue: Dialogue, topic: str, producer: Transactional) -> None:
    for payload, end in ((b"a", True), (b"gone", False), (b"b", True)):
        producer.put(topic, payload)
        assert producer.end(end) == "none"
    stable(dialogue, topic, 6)
    found = dialogue.fetch(topic, **COMMITTED)
    assert [a.first_offset for a in found.partition.aborted_transactions] == [2]


def test_a_reader_waiting_for_what_is_committed_is_woken_by_the_commit(
    dialogue: Dialogue, bootstrap: str, topic: str, producer: Transactional
) -> None:
    producer.put(topic, b"a")
    with Wire(bootstrap) as reader:
        reader.send("fetch", 12, **fetch_fields(topic, 0, max_wait=9_000, **COMMITTED))
        assert reader.is_quiet()
        producer.commit()
        assert reader.receive("fetch", 12).responses[0].partitions[0].last_stable_offset == 2


def test_two_producers_on_one_partition_hold_each_other_up(
    dialogue: Dialogue, topic: str, producer: Transactional, name: str
) -> None:
    other = Transactional(dialogue, name + "-other", new=producer.new)
    producer.put(topic, b"slow")
    other.put(topic, b"quick")
    other.commit()
    assert values(dialogue.read(topic, **COMMITTED)) == []
    producer.commit()
    stable(dialogue, topic, 4)
    assert values(dialogue.read(topic, **COMMITTED)) == [b"slow", b"quick"]


def test_what_is_not_transactional_goes_on_beside_an_open_transaction(
    dialogue: Dialogue, topic: str, producer: Transactional
) -> None:
    producer.put(topic, b"open")
    assert [dialogue.produce(topic, batch(b"a")).base_offset for _ in range(3)] == [1, 2, 3]
    producer.abort()


def test_describe_producers_tells_where_an_open_transaction_begins(
    dialogue: Dialogue, topic: str, producer: Transactional
) -> None:
    dialogue.produce(topic, batch(b"before"))
    producer.put(topic, b"open")
    topics = [{"name": topic, "partition_indexes": [0]}]
    answer = dialogue.wire.ask("describe_producers", 0, topics=topics).topics[0].partitions[0].active_producers
    assert [(p.producer_id, p.current_txn_start_offset) for p in answer] == [(producer.id, 1)]
    producer.abort()
