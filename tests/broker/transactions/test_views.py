"""What is told of producers and transactions, and the records that the coordinator is made of."""

from __future__ import annotations

import pytest

pytest.importorskip("kio")

from tests.broker.transactions.client import Client, Described, Id, batch
from waterclock.broker import Broker
from waterclock.broker.groups.offsets import CommittedOffset
from waterclock.broker.transactions.ledger import Transaction
from waterclock.broker.transactions.record import BEFORE, LAST_EPOCH, TransactionRecord, TransactionState, follows


def listed(client: Client, **asked: object) -> list[str]:
    fields = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1, "transactional_id_pattern": None}
    answer = client.ask(66, 2, **{**fields, **asked})
    assert answer.error_code == 0
    return [row.transactional_id for row in answer.transaction_states]


def test_a_transaction_is_described_from_its_beginning_to_its_end(broker: Broker, client: Client) -> None:
    producer = client.ready("n", 5000)
    assert client.describe("n") == Described("Empty", 5000, -1, producer, {})
    now_ms = broker.call(lambda: broker.inside.clock.wall_ms())
    client.add("n", producer, "t", 1)
    assert client.describe("n") == Described("Ongoing", 5000, now_ms, producer, {"t": [1]})
    client.end("n", producer)
    assert client.describe("n") == Described("CompleteCommit", 5000, now_ms, producer, {})


def test_an_unknown_name_is_told_so(client: Client) -> None:
    assert client.state("nobody") == "TRANSACTIONAL_ID_NOT_FOUND"
    assert client.state("") == "INVALID_REQUEST"


def test_transactions_are_listed_by_state_producer_age_and_name(broker: Broker, client: Client) -> None:
    old = client.ready("orders-1")
    client.add("orders-1", old, "t")
    broker.advance_s(10)
    client.add("orders-2", client.ready("orders-2"), "t")
    client.ready("fines")
    assert listed(client) == ["orders-1", "orders-2", "fines"]
    assert listed(client, state_filters=("Empty",)) == ["fines"]
    assert listed(client, producer_id_filters=(old.producer_id,)) == ["orders-1"]
    assert listed(client, state_filters=("Ongoing",), duration_filter=9_999) == ["orders-1"]
    assert listed(client, state_filters=("Ongoing",), duration_filter=10_000) == []
    assert listed(client, transactional_id_pattern="orders-.*") == ["orders-1", "orders-2"]
    assert listed(client, transactional_id_pattern="orders") == []
    assert listed(client, transactional_id_pattern="") == ["orders-1", "orders-2", "fines"]


def test_a_state_that_there_is_not_is_named(client: Client) -> None:
    client.ready("n")
    answer = client.ask(66, 0, state_filters=("Ongoing", "Foo"), producer_id_filters=())
    assert (answer.unknown_state_filters, answer.transaction_states) == (("Foo",), ())


@pytest.mark.parametrize("pattern", ["((", "*", r"(a)\1", "(?=a)a", "a" * 32_768])
def test_a_pattern_that_kafka_refuses_is_refused(client: Client, pattern: str) -> None:
    answer = client.ask(
        66, 2, state_filters=(), producer_id_filters=(), duration_filter=-1, transactional_id_pattern=pattern
    )
    assert answer.error_code.name == "invalid_regular_expression"


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "a*a*a*a*a*a*a*a*a*b"])
def test_no_pattern_keeps_the_broker_busy(client: Client, pattern: str) -> None:
    client.ready("a" * 30)
    assert listed(client, transactional_id_pattern=pattern) == []


def test_producers_of_a_partition_are_told(client: Client) -> None:
    producer = client.ready("n")
    client.add("n", producer, "t")
    client.produce(None, "t", batch("plain", client.ready(None), 0, False))
    client.produce("n", "t", batch("a", producer, 0, count=3))
    rows = client.producers("t").active_producers
    reply = [(r.producer_id, r.producer_epoch, r.last_sequence, r.current_txn_start_offset) for r in rows]
    assert reply == [(1, 0, 0, -1), (0, 0, 2, 1)]
    client.end("n", producer)
    last = client.producers("t").active_producers[1]
    assert (last.coordinator_epoch, last.current_txn_start_offset) == (0, -1)


def test_producers_of_a_partition_that_is_not_there_are_asked_in_vain(client: Client) -> None:
    assert client.producers("nowhere").error_code.name == "unknown_topic_or_partition"
    assert client.producers("t", 9).error_code.name == "unknown_topic_or_partition"


# Records


def test_the_table_of_states_is_kafkas() -> None:
    steps = {(before, after) for after, some in BEFORE.items() for before in some}
    assert (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT) in steps
    assert not any(
        follows(TransactionState.PREPARE_COMMIT, after)
        for after in TransactionState
        if after is not TransactionState.COMPLETE_COMMIT
    )
    assert not any(
        follows(TransactionState.PREPARE_ABORT, after)
        for after in TransactionState
        if after is not TransactionState.COMPLETE_ABORT
    )
    assert not any(follows(TransactionState.DEAD, after) for after in TransactionState)
    assert {before for before in TransactionState if follows(before, TransactionState.EMPTY)} == {
        TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT,
    }  # fmt: skip


def test_a_step_that_the_table_does_not_have_is_a_fault() -> None:
    transaction = Transaction("n", TransactionRecord(1000, 1, 0))
    with pytest.raises(RuntimeError, match="from Empty to CompleteCommit"):
        transaction.become(TransactionRecord(1000, 1, 0, state=TransactionState.COMPLETE_COMMIT))


def test_a_record_comes_back_from_the_store_as_it_was() -> None:
    record = TransactionRecord(
        1000,
        5,
        3,
        2,
        4,
        -1,
        TransactionState.ONGOING,
        {("t", 0): None},
        {"g:1": {("t", 1): CommittedOffset(7, 1, "x", 9)}},
        10,
        11,
        2,
    )
    assert TransactionRecord.of(record.kept()) == record


def test_a_decided_record_leaves_its_offsets_to_the_groups() -> None:
    record = TransactionRecord(
        1000, 5, 3, state=TransactionState.ONGOING, offsets={"g": {("t", 1): CommittedOffset(7, 1, "", 9)}}
    )
    assert TransactionRecord.of(record.decided(True, 1, -1, 0).kept()).offsets == {}


@pytest.mark.parametrize(("epoch", "exhausted"), [(LAST_EPOCH - 1, False), (LAST_EPOCH, True), (LAST_EPOCH + 1, True)])
def test_the_last_epoch_is_left_to_markers(epoch: int, exhausted: bool) -> None:
    assert TransactionRecord(1000, 5, epoch).exhausted is exhausted


@pytest.mark.parametrize(
    ("record", "known", "unknown"),
    [
        (TransactionRecord(1000), [Id(5, 9)], []),
        (TransactionRecord(1000, 5, 7), [Id(5, 7)], [Id(5, 6), Id(5, 8), Id(4, 7)]),
        (TransactionRecord(1000, 5, 7, last_epoch=6), [Id(5, 7), Id(5, 6)], [Id(5, 5), Id(4, 6)]),
        (
            TransactionRecord(1000, 5, 0, LAST_EPOCH, previous_id=4),
            [Id(5, 0), Id(4, LAST_EPOCH)],
            [Id(4, 3), Id(3, LAST_EPOCH)],
        ),
        (TransactionRecord(1000, 5, 0, previous_id=4), [Id(5, 0)], [Id(4, LAST_EPOCH)]),  # claimed by a successor
    ],
)
def test_a_producer_is_known_by_what_it_is_or_was_before_its_last_step(
    record: TransactionRecord, known: list[Id], unknown: list[Id]
) -> None:
    assert [one for one in known + unknown if record.knows(one)] == known  # type: ignore[arg-type]
