"""Offsets of consumer groups within transactions: committed with the records, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("kio")

from tests.broker.transactions.client import Client, Id, batch, refusing
from waterclock import ManualClock
from waterclock.broker import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(clock=ManualClock(), settings={"offset.metadata.max.bytes": "3"}) as broker:
        yield broker


def begun(client: Client, offset: int = 7) -> Id:
    """A producer with an open transaction that holds an offset of the group g."""
    producer = client.ready("n")
    assert client.add_offsets("n", producer, "g") == "NONE"
    assert client.commit_offset("n", producer, "g", "t", offset) == "NONE"
    return producer


def test_offsets_are_seen_when_the_transaction_is_committed(client: Client) -> None:
    producer = begun(client)
    assert client.offset("g", "t") == ("UNSTABLE_OFFSET_COMMIT", -1)
    assert client.offset("g", "t", stable=False) == ("NONE", -1)
    assert client.end("n", producer) == "NONE"
    assert client.offset("g", "t") == ("NONE", 7)


def test_offsets_of_an_aborted_transaction_are_never_seen(client: Client) -> None:
    producer = begun(client)
    client.end("n", producer)
    client.add_offsets("n", producer, "g")
    client.commit_offset("n", producer, "g", "t", 9)
    client.end("n", producer, commit=False)
    assert client.offset("g", "t") == ("NONE", 7)


def test_offsets_of_a_transaction_that_runs_out_of_time_are_let_go(broker: Broker, client: Client) -> None:
    begun(client)
    broker.advance_s(60)
    while client.offset("g", "t") != ("NONE", -1):
        pass


def test_what_takes_part_later_leaves_the_offsets_alone(client: Client) -> None:
    producer = begun(client)
    client.add("n", producer, "t")
    client.add_offsets("n", producer, "h")
    client.commit_offset("n", producer, "h", "t", 8)
    client.end("n", producer)
    assert (client.offset("g", "t"), client.offset("h", "t")) == (("NONE", 7), ("NONE", 8))


def test_the_last_offset_of_several_counts(client: Client) -> None:
    producer = begun(client, 7)
    client.commit_offset("n", producer, "g", "t", 5)
    client.end("n", producer)
    assert client.offset("g", "t") == ("NONE", 5)


def test_a_group_takes_part_before_its_offsets_do(client: Client) -> None:
    producer = client.ready("n")
    reply = [client.commit_offset("n", producer, "g", "t", 7, version) for version in (2, 3, 4)]
    assert reply == ["INVALID_TXN_STATE", "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"]
    assert client.state("n") == "Empty"


def test_under_protocol_2_a_group_joins_with_its_offsets(client: Client) -> None:
    producer = client.ready("n")
    assert client.commit_offset("n", producer, "g", "t", 7, version=5) == "NONE"
    assert client.state("n") == "Ongoing"
    assert client.end("n", producer, version=5)[0] == "NONE"
    assert client.offset("g", "t") == ("NONE", 7)


def test_offsets_are_taken_from_the_transactions_producer_only(client: Client) -> None:
    old = client.ready("n")
    producer = client.ready("n")
    assert client.add_offsets("n", old, "g") == "PRODUCER_FENCED"
    assert client.add_offsets("n", old, "g", version=1) == "INVALID_PRODUCER_EPOCH"
    assert client.add_offsets("nobody", producer, "g") == "INVALID_PRODUCER_ID_MAPPING"
    for version in (3, 4, 5):
        assert client.commit_offset("n", old, "g", "t", 7, version) == "INVALID_PRODUCER_EPOCH"
        assert client.commit_offset("n", Id(777, 0), "g", "t", 7, version) == "INVALID_PRODUCER_ID_MAPPING"


def test_a_member_that_the_group_does_not_know_commits_nothing(client: Client) -> None:
    producer = begun(client)
    assert client.commit_offset("n", producer, "g", "t", 9, generation=5, member="m") == "UNKNOWN_MEMBER_ID"
    assert (
        client.commit_offset("n", producer, "new", "t", 9, version=5, generation=5, member="m") == "ILLEGAL_GENERATION"
    )
    client.end("n", producer)
    assert client.offset("g", "t") == ("NONE", 7)


def test_what_is_wrong_with_one_partition_is_told_of_that_one(client: Client) -> None:
    producer = begun(client)
    assert client.commit_offset("n", producer, "g", "nowhere", 7) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert client.commit_offset("n", producer, "", "t", 7) == "INVALID_GROUP_ID"
    row = {"committed_leader_epoch": -1, "committed_offset": 8}
    rows = (
        {**row, "partition_index": 0, "committed_metadata": "four"},
        {**row, "partition_index": 2, "committed_metadata": ""},
    )
    answer = client.ask(28, 3, transactional_id="n", group_id="g", producer_id=producer.producer_id,
                        producer_epoch=producer.epoch, generation_id=-1, member_id="", group_instance_id=None,
                        topics=({"name": "t", "partitions": rows},))  # fmt: skip
    assert [p.error_code.name for p in answer.topics[0].partitions] == [
        "offset_metadata_too_large",
        "unknown_topic_or_partition",
    ]


def test_offsets_are_acknowledged_when_they_are_durable(broker: Broker, client: Client) -> None:
    producer = client.ready("n")
    client.add_offsets("n", producer, "g")
    with refusing(broker, "put"):
        assert client.commit_offset("n", producer, "g", "t", 7) == "COORDINATOR_NOT_AVAILABLE"
    assert client.commit_offset("n", producer, "g", "t", 7) == "NONE"
    kept = broker.call(lambda: broker.inside.store.load("transaction"))["n"]["offsets"]
    assert [row[:3] for row in kept["g"]] == [["t", 0, 7]]


def test_a_decision_and_its_offsets_are_one_commit_of_the_store(broker: Broker, client: Client) -> None:
    producer = begun(client)
    store = broker.inside.store
    commit, seen = store.commit, []

    def noted(changes: list[object], then: object) -> None:
        seen.append([change.namespace for change in changes])  # type: ignore[attr-defined]
        commit(changes, then)  # type: ignore[arg-type]

    store.commit = noted  # type: ignore[method-assign, assignment]
    assert client.end("n", producer) == "NONE"
    assert seen == [["transaction", "offset"]]


def test_a_transaction_of_one_partition_costs_two_commits_of_the_store(broker: Broker, client: Client) -> None:
    producer = client.ready("n")
    store = broker.inside.store
    commit, count = store.commit, []
    store.commit = lambda *change: (count.append(1), commit(*change))  # type: ignore[method-assign, assignment]
    for sequence in range(3):
        client.add("n", producer, "t")
        client.produce("n", "t", batch("a", producer, sequence))
        client.end("n", producer)
    assert len(count) == 6
