"""Transaction protocol 2 (KIP-890): an epoch for each transaction, and partitions that join by being written to."""

from __future__ import annotations

import pytest

pytest.importorskip("kio")

from tests.broker.transactions.client import Client, Id, Stored, batch, frozen, refusing
from waterclock.broker import Broker
from waterclock.broker.transactions.record import LAST_EPOCH, TransactionRecord, TransactionState


def begun(client: Client, text: str = "a") -> Id:
    producer = client.ready("n")
    assert client.produce("n", "t", batch(text, producer, 0), 12) == ("NONE", 0)
    return producer


def raised(producer: Id) -> Id:
    return Id(producer.producer_id, producer.epoch + 1)


def test_clients_are_told_of_it(client: Client) -> None:
    answer = client.ask(18, 3, client_software_name="c", client_software_version="1")
    assert [(f.name, f.max_version_level) for f in answer.finalized_features] == [("transaction.version", 2)]
    assert answer.finalized_features_epoch >= 0
    assert answer.supported_features == ()  # from 0 on: clients of version 3 take that for a mistake
    newer = client.ask(18, 4, client_software_name="c", client_software_version="1").supported_features
    assert [(f.name, f.min_version, f.max_version) for f in newer] == [("transaction.version", 0, 2)]


def test_a_partition_joins_by_its_first_record(client: Client) -> None:
    producer = begun(client)
    assert client.describe("n").partitions == {"t": [0]}
    assert client.produce("n", "t", batch("b", producer, 0), 12, partition=1) == ("NONE", 0)
    assert client.describe("n").partitions == {"t": [0, 1]}
    assert client.describe("n").state == "Ongoing"


def test_every_end_raises_the_epoch_and_the_marker_has_it(client: Client) -> None:
    producer = begun(client)
    assert client.end("n", producer, version=5) == ("NONE", raised(producer))
    assert client.log("t") == [Stored(0, 0, "a"), Stored(1, 1, "COMMIT")]


def test_the_next_transaction_begins_with_sequence_0_of_the_next_epoch(client: Client) -> None:
    producer = begun(client)
    _, then = client.end("n", producer, version=5)
    assert client.produce("n", "t", batch("b", then, 5), 12)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert client.produce("n", "t", batch("b", then, 0), 12) == ("NONE", 2)
    client.end("n", then, commit=False, version=5)
    assert client.committed("t") == ["a"]


def test_a_late_record_of_the_transaction_before_is_refused(client: Client) -> None:
    producer = begun(client)
    client.end("n", producer, version=5)
    for version in (9, 11, 12):
        assert client.produce("n", "t", batch("late", producer, 1), version)[0] == "INVALID_PRODUCER_EPOCH"


def test_an_end_sent_again_is_told_by_its_epoch(client: Client) -> None:
    producer = begun(client)
    client.end("n", producer, version=5)
    assert client.end("n", producer, version=5) == ("NONE", raised(producer))
    assert client.end("n", producer, commit=False, version=5)[0] == "INVALID_TXN_STATE"
    assert client.end("n", raised(producer), version=5)[0] == "INVALID_TXN_STATE"  # a new one, of nothing
    assert client.end("n", raised(raised(producer)), version=5)[0] == "PRODUCER_FENCED"
    assert client.end("n", producer) == "PRODUCER_FENCED"


@pytest.mark.parametrize("end", [None, True, False])
def test_an_abort_of_nothing_raises_the_epoch(client: Client, end: bool | None) -> None:
    producer = client.ready("n")
    if end is not None:
        client.produce("n", "t", batch("a", producer, 0), 12)
        _, producer = client.end("n", producer, commit=end, version=5)
    before = len(client.log("t"))
    assert client.end("n", producer, commit=True, version=5)[0] == "INVALID_TXN_STATE"
    assert client.end("n", producer, commit=False, version=5) == ("NONE", raised(producer))
    assert client.state("n") == "CompleteAbort"
    assert len(client.log("t")) == before


def test_an_end_that_is_being_written_is_told_from_a_new_one(broker: Broker, client: Client, other: Client) -> None:
    producer = begun(client)
    frozen(broker, True)
    client.end_soon("n", producer, version=5)
    other.until("PrepareCommit")
    assert other.end("n", producer, version=5)[0] == "CONCURRENT_TRANSACTIONS"
    assert other.end("n", producer, commit=False, version=5)[0] == "INVALID_TXN_STATE"
    assert other.end("n", raised(producer), version=5)[0] == "PRODUCER_FENCED"
    frozen(broker, False)
    assert client.receive(26, 5).producer_epoch == 1


def test_the_last_epoch_ends_with_another_producer_id(broker: Broker, client: Client) -> None:
    producer = _at_epoch(broker, client, LAST_EPOCH)
    client.produce("n", "t", batch("a", producer, 0), 12)
    error, then = client.end("n", producer, version=5)
    assert (error, then.epoch) == ("NONE", 0)
    assert then.producer_id != producer.producer_id
    assert client.log("t")[-1] == Stored(1, LAST_EPOCH + 1, "COMMIT")
    assert client.end("n", producer, version=5) == ("NONE", then)  # sent again
    assert client.end("n", producer, commit=False, version=5)[0] == "INVALID_TXN_STATE"
    assert client.produce("n", "t", batch("b", then, 0), 12) == ("NONE", 2)
    assert client.end("n", then, version=5)[0] == "NONE"
    assert client.committed("t") == ["a", "b"]


def test_a_producer_shut_out_at_the_last_epoch_is_followed_by_another_id(broker: Broker, client: Client) -> None:
    producer = _at_epoch(broker, client, LAST_EPOCH)
    client.produce("n", "t", batch("a", producer, 0), 12)
    assert client.init("n")[0] == "CONCURRENT_TRANSACTIONS"
    assert client.log("t")[-1] == Stored(1, LAST_EPOCH + 1, "ABORT")
    error, then = client.init("n")
    assert (error, then.epoch) == ("NONE", 0)
    assert then.producer_id != producer.producer_id


def _at_epoch(broker: Broker, client: Client, epoch: int) -> Id:
    """A producer that has used up the epochs before."""
    producer = client.ready("n")

    def age() -> None:
        transaction = broker.inside.transactions.ledger.by_name["n"]
        transaction.record = TransactionRecord(60_000, producer.producer_id, epoch, state=TransactionState.EMPTY)

    broker.call(age)
    return Id(producer.producer_id, epoch)


def test_a_record_is_acknowledged_when_the_store_knows_of_its_partition(
    broker: Broker, client: Client, other: Client
) -> None:
    producer = client.ready("n")
    store, held = broker.inside.store, []
    put = store.put
    store.put = lambda *change: held.append(change)  # type: ignore[method-assign]
    client.produce_soon("n", "t", batch("a", producer, 0), 12)
    while other.fetch("t").high_watermark != 1:
        pass
    assert client.quiet()
    store.put = put  # type: ignore[method-assign]
    for change in held:
        put(*change)
    assert client.produced(12) == ("NONE", 0)


def test_a_record_whose_partition_the_store_refused_is_sent_again(
    broker: Broker, client: Client, other: Client
) -> None:
    producer = client.ready("n")
    with refusing(broker, "put"):
        client.produce_soon("n", "t", batch("a", producer, 0), 12)
        while other.fetch("t").high_watermark != 1:
            pass
    broker.advance_s(10)
    assert client.produced(12) == ("REQUEST_TIMED_OUT", -1)
    assert client.produce("n", "t", batch("a", producer, 0), 12) == ("NONE", 0)
    assert broker.call(lambda: broker.inside.store.load("transaction"))["n"]["partitions"] == [["t", 0]]
    assert [s.text for s in client.log("t")] == ["a"]
