"""Transactions under protocol 1, request by request: what Apache Kafka 4.3.1 answered to the same sentences."""

from __future__ import annotations

import pytest

pytest.importorskip("kio")

from tests.broker.transactions.client import Client, Id, Stored, batch, frozen
from waterclock.broker import Broker


def test_a_committed_transaction_is_read_when_its_end_is_answered(client: Client) -> None:
    producer = client.begun()
    assert client.committed("t") == []
    assert client.end("n", producer) == "NONE"
    assert client.committed("t") == ["a"]
    assert client.log("t") == [Stored(0, 0, "a"), Stored(1, 0, "COMMIT")]


def test_an_aborted_transaction_is_passed_over_by_readers_of_committed_records(client: Client) -> None:
    producer = client.begun()
    assert client.end("n", producer, commit=False) == "NONE"
    assert client.log("t") == [Stored(0, 0, "a"), Stored(1, 0, "ABORT")]
    row = client.fetch("t", committed=True)
    assert [(a.producer_id, a.first_offset) for a in row.aborted_transactions] == [(producer.producer_id, 0)]
    assert client.committed("t") == []


def test_an_open_transaction_holds_back_what_comes_after_it(client: Client) -> None:
    producer = client.begun()
    assert client.produce(None, "t", batch("plain", Id(-1, -1), -1, False)) == ("NONE", 1)
    row = client.fetch("t", committed=True)
    assert (row.high_watermark, row.last_stable_offset) == (2, 0)
    client.end("n", producer)
    assert client.fetch("t", committed=True).last_stable_offset == 3
    assert client.committed("t") == ["a", "plain"]


def test_the_end_of_committed_records_is_the_last_stable_offset(client: Client) -> None:
    producer = client.begun()
    asked = ({"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1},)
    topics = ({"name": "t", "partitions": asked},)

    def end(level: int) -> int:
        answer = client.ask(2, 5, replica_id=-1, isolation_level=level, topics=topics)
        offset: int = answer.topics[0].partitions[0].offset
        return offset

    assert (end(0), end(1)) == (1, 0)
    client.end("n", producer)
    assert (end(0), end(1)) == (2, 2)


def test_a_reader_that_waits_for_committed_records_is_answered_by_the_end(broker: Broker, client: Client) -> None:
    producer = client.begun()
    reader = Client(broker.bootstrap)
    reader.fetch_soon("t", committed=True, max_wait_ms=60_000)
    assert client.state("n") == "Ongoing"
    assert reader.quiet()
    client.end("n", producer)
    assert reader.receive(1, 12).responses[0].partitions[0].last_stable_offset == 2
    reader.close()


def test_every_partition_of_a_transaction_gets_a_marker_with_or_without_records(client: Client) -> None:
    producer = client.ready("n")
    assert client.add("n", producer, "t", 0, 1) == ["NONE", "NONE"]
    client.end("n", producer)
    assert client.log("t", 0) == client.log("t", 1) == [Stored(0, 0, "COMMIT")]


def test_the_next_transaction_begins_with_the_same_epoch(client: Client) -> None:
    producer = client.begun()
    client.end("n", producer)
    assert client.add("n", producer, "t") == ["NONE"]
    assert client.produce("n", "t", batch("b", producer, 1)) == ("NONE", 2)
    client.end("n", producer)
    assert client.committed("t") == ["a", "b"]


def test_what_is_aborted_of_two_producers_is_told_apart(client: Client) -> None:
    first, second = client.ready("n"), client.ready("m")
    for sequence in range(2):
        for name, producer in (("n", first), ("m", second)):
            client.add(name, producer, "t")
            client.produce(name, "t", batch(f"{name}{sequence}", producer, sequence))
    client.end("n", first)
    client.end("m", second, commit=False)
    assert client.committed("t") == ["n0", "n1"]


def test_partitions_are_added_by_their_producer_only(client: Client) -> None:
    old = client.ready("n")
    producer = client.ready("n")
    assert client.add("n", old, "t") == ["PRODUCER_FENCED"]
    assert client.add("n", old, "t", version=1) == ["INVALID_PRODUCER_EPOCH"]
    assert client.add("n", Id(producer.producer_id, producer.epoch + 1), "t") == ["PRODUCER_FENCED"]
    assert client.add("n", Id(777, 0), "t") == ["INVALID_PRODUCER_ID_MAPPING"]
    assert client.add("nobody", producer, "t") == ["INVALID_PRODUCER_ID_MAPPING"]
    assert client.add("", producer, "t") == ["INVALID_REQUEST"]
    assert client.state("n") == "Empty"


def test_partitions_are_added_all_or_none(client: Client) -> None:
    producer = client.ready("n")
    assert client.add("n", producer, "nowhere") == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert client.add("n", producer, "t", 0, 9) == ["OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert client.state("n") == "Empty"


def test_partitions_of_several_transactions_are_added_or_asked_for_at_once(client: Client) -> None:
    producers = {name: client.ready(name) for name in ("n", "m")}
    rows = ({"name": "t", "partitions": (0,)},)

    def asked(name: str, verify: bool) -> dict[str, object]:
        producer = producers[name]
        return {"transactional_id": name, "producer_id": producer.producer_id, "producer_epoch": producer.epoch,
                "verify_only": verify, "topics": rows}  # fmt: skip

    answer = client.ask(24, 5, transactions=(asked("n", False), asked("m", True)))
    codes = [
        r.topic_results[0].results_by_partition[0].partition_error_code.name for r in answer.results_by_transaction
    ]
    assert codes == ["none", "transaction_abortable"]
    assert client.ask(24, 5, transactions=(asked("n", True),)).error_code == 0
    assert (client.state("n"), client.state("m")) == ("Ongoing", "Empty")


def test_records_go_only_where_the_transaction_has_added_the_partition(client: Client) -> None:
    producer = client.begun()
    data = batch("b", producer, 0)
    assert client.produce("n", "t", data, version=10, partition=1)[0] == "INVALID_TXN_STATE"
    assert client.produce("n", "t", data, version=11, partition=1)[0] == "TRANSACTION_ABORTABLE"
    client.add("n", producer, "t", 1)
    assert client.produce("n", "t", data, partition=1) == ("NONE", 0)


def test_records_are_taken_from_the_transactions_producer_only(client: Client) -> None:
    producer = client.begun()
    for version in (9, 11, 12):
        assert (
            client.produce("n", "t", batch("b", Id(producer.producer_id, 1), 0), version)[0] == "INVALID_PRODUCER_EPOCH"
        )
        assert client.produce("n", "t", batch("b", Id(777, 0), 0), version)[0] == "INVALID_PRODUCER_ID_MAPPING"
        assert client.produce("nobody", "t", batch("b", producer, 1), version)[0] == "INVALID_PRODUCER_ID_MAPPING"
    assert len(client.log("t")) == 1


def test_records_in_and_out_of_a_transaction_do_not_mix(client: Client) -> None:
    producer = client.begun()
    assert client.produce("n", "t", batch("b", producer, 1, False))[0] == "INVALID_TXN_STATE"
    assert client.produce(None, "t", batch("b", producer, 1, False))[0] == "INVALID_TXN_STATE"
    assert client.produce(None, "t", batch("b", producer, 1))[0] == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    assert client.produce("n", "t", batch("plain", Id(-1, -1), -1, False)) == ("NONE", 1)


def test_after_the_end_no_record_belongs_to_the_transaction_any_more(client: Client) -> None:
    producer = client.begun()
    client.end("n", producer)
    assert client.produce("n", "t", batch("late", producer, 1))[0] == "TRANSACTION_ABORTABLE"
    assert client.committed("t") == ["a"]


@pytest.mark.parametrize(
    ("commit", "same", "other"), [(True, "NONE", "INVALID_TXN_STATE"), (False, "INVALID_TXN_STATE", "NONE")]
)
def test_an_end_asked_for_again_is_answered_as_it_was(client: Client, commit: bool, same: str, other: str) -> None:
    producer = client.begun()
    assert client.end("n", producer, commit) == "NONE"
    assert client.end("n", producer, True) == same
    assert client.end("n", producer, False) == other
    assert len(client.log("t")) == 2


def test_a_transaction_that_has_not_begun_cannot_be_ended(client: Client) -> None:
    producer = client.ready("n")
    assert client.end("n", producer, True) == client.end("n", producer, False) == "INVALID_TXN_STATE"


def test_a_transaction_is_ended_by_its_producer_only(client: Client) -> None:
    old = client.ready("n")
    producer = client.ready("n")
    client.add("n", producer, "t")
    assert client.end("n", old) == "PRODUCER_FENCED"
    assert client.end("n", old, version=1) == "INVALID_PRODUCER_EPOCH"
    assert client.end("n", Id(777, 0)) == "INVALID_PRODUCER_ID_MAPPING"
    assert client.end("nobody", producer) == "INVALID_PRODUCER_ID_MAPPING"
    assert client.end("", producer) == "INVALID_REQUEST"


def test_a_decision_whose_markers_are_not_durable_is_not_answered_yet(
    broker: Broker, client: Client, other: Client
) -> None:
    producer = client.begun()
    frozen(broker, True)
    client.end_soon("n", producer)
    other.until("PrepareCommit")
    assert client.quiet()
    assert other.end("n", producer) == "CONCURRENT_TRANSACTIONS"
    assert other.end("n", producer, commit=False) == "INVALID_TXN_STATE"
    assert other.add("n", producer, "t") == ["CONCURRENT_TRANSACTIONS"]
    assert other.init("n")[0] == "CONCURRENT_TRANSACTIONS"
    assert other.produce("n", "t", batch("late", producer, 1))[0] == "NOT_ENOUGH_REPLICAS"
    frozen(broker, False)
    assert client.receive(26, 4).error_code == 0
    assert other.committed("t") == ["a"]


def test_while_a_decision_is_being_written_everybody_else_is_told_to_wait(
    broker: Broker, client: Client, other: Client
) -> None:
    producer = client.begun()
    store, held = broker.inside.store, []
    commit = store.commit
    store.commit = lambda *change: held.append(change)  # type: ignore[method-assign]
    client.end_soon("n", producer)
    while not held:
        pass
    assert other.state("n") == "Ongoing"
    assert other.end("n", producer, commit=False) == "CONCURRENT_TRANSACTIONS"
    assert other.end("n", producer, version=5)[0] == "CONCURRENT_TRANSACTIONS"
    assert other.add("n", producer, "t", 1) == ["CONCURRENT_TRANSACTIONS"]
    assert other.init("n")[0] == "CONCURRENT_TRANSACTIONS"
    assert other.produce("n", "t", batch("late", producer, 1))[0] == "NOT_ENOUGH_REPLICAS"
    store.commit = commit  # type: ignore[method-assign]
    commit(*held[0])
    assert client.receive(26, 4).error_code == 0
    assert other.committed("t") == ["a"]


def test_an_end_waits_for_the_followers_in_sync(broker: Broker, client: Client) -> None:
    producer = client.begun()
    partition = broker.call(lambda: broker.inside.topics.partition("t", 0))
    watermarks, replicas = broker.inside.watermarks, broker.inside.replicas
    raise_high = replicas.raise_high
    replicas.raise_high = lambda partition: None  # type: ignore[method-assign]  # a follower has not fetched the marker yet
    client.end_soon("n", producer)
    while broker.call(lambda: partition.durable) != 2:
        pass
    assert client.quiet()
    broker.call(lambda: (raise_high(partition), watermarks.changed([partition])))
    assert client.receive(26, 4).error_code == 0


def test_a_transaction_over_a_topic_that_was_deleted_ends_all_the_same(client: Client) -> None:
    client.create("gone")
    producer = client.begun()
    client.add("n", producer, "gone")
    client.ask(20, 3, topic_names=("gone",), timeout=1000)
    assert client.end("n", producer) == "NONE"
    assert client.committed("t") == ["a"]


def test_a_topic_deleted_while_its_marker_waits_for_the_disk_holds_nobody_up(
    broker: Broker, client: Client, other: Client
) -> None:
    producer = client.begun()
    frozen(broker, True)
    client.end_soon("n", producer)
    other.until("PrepareCommit")
    other.ask(20, 3, topic_names=("t",), timeout=1000)
    assert client.receive(26, 4).error_code == 0
