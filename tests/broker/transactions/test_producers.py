"""InitProducerId: who gets which id and epoch, who is fenced, and when a transaction runs out of time."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("kio")

from tests.broker.transactions.client import Client, Id, Stored, batch, refusing
from waterclock import ManualClock
from waterclock.broker import Broker
from waterclock.broker.transactions.record import LAST_EPOCH, TransactionRecord

DAY_S = 86_400.0


def test_an_idempotent_producer_gets_an_id_of_its_own(client: Client) -> None:
    assert client.init(None) == ("NONE", Id(0, 0))
    assert client.init(None, version=0) == ("NONE", Id(1, 0))


@pytest.mark.parametrize("version", range(6))
def test_every_version_is_answered(client: Client, version: int) -> None:
    assert client.init("n", version=version)[0] == "NONE"


def test_ids_are_never_handed_out_twice_whatever_happens(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
            seen += [client.ready(None).producer_id for _ in range(3)]
    assert seen == [0, 1, 2, 1000, 1001, 1002]


def test_who_asks_for_the_first_id_beyond_a_block_gets_it(broker: Broker, client: Client) -> None:
    client.ready(None)
    broker.call(lambda: setattr(broker.inside.transactions.ids, "next_id", 999))
    assert [client.ready(None).producer_id for _ in range(2)] == [999, 1000]


@pytest.mark.parametrize("timeout_ms", [0, -5, 900_001])
def test_a_timeout_is_above_0_and_at_most_what_the_broker_allows(client: Client, timeout_ms: int) -> None:
    assert client.init("n", timeout_ms)[0] == "INVALID_TRANSACTION_TIMEOUT"


def test_a_name_that_is_empty_and_half_an_id_are_refused(client: Client) -> None:
    assert client.init("")[0] == "INVALID_REQUEST"
    assert client.init("n", last=Id(5, -1))[0] == client.init("n", last=Id(-1, 5))[0] == "INVALID_REQUEST"


def test_each_new_producer_of_a_name_fences_the_one_before(client: Client) -> None:
    first = client.ready("n")
    assert client.ready("n") == Id(first.producer_id, first.epoch + 1)
    assert client.init("n", last=first)[0] == "PRODUCER_FENCED"
    assert client.init("n", last=first, version=3)[0] == "INVALID_PRODUCER_EPOCH"


def test_a_producer_may_raise_its_own_epoch_and_ask_again(client: Client) -> None:
    first = client.ready("n")
    error, second = client.init("n", last=first)
    assert (error, second) == ("NONE", Id(first.producer_id, first.epoch + 1))
    assert client.init("n", last=first) == ("NONE", second)  # the answer was lost
    assert client.init("n", last=second)[1].epoch == second.epoch + 1
    assert client.init("n", last=first)[0] == "PRODUCER_FENCED"


def test_a_producer_that_nobody_knows_is_fenced_unless_the_name_is_new(client: Client) -> None:
    client.ready("n")
    assert client.init("n", last=Id(777, 0))[0] == "PRODUCER_FENCED"
    assert client.init("m", last=Id(777, 9)) == ("NONE", Id(1, 0))


def test_a_new_producer_aborts_what_the_one_before_left_open(client: Client) -> None:
    old = client.ready("n")
    client.add("n", old, "t")
    client.produce("n", "t", batch("a", old, 0))
    assert client.init("n")[0] == "CONCURRENT_TRANSACTIONS"  # now it is aborted
    error, new = client.init("n")
    assert (error, new) == ("NONE", Id(old.producer_id, old.epoch + 2))
    assert client.log("t") == [Stored(0, 0, "a"), Stored(1, 1, "ABORT")]
    assert client.end("n", old) == "PRODUCER_FENCED"
    assert client.produce("n", "t", batch("zombie", old, 1))[0] == "INVALID_PRODUCER_EPOCH"
    assert client.committed("t") == []


@pytest.mark.parametrize("last", [False, True])
def test_when_epochs_are_used_up_another_id_begins(broker: Broker, client: Client, last: bool) -> None:
    old = client.ready("n")
    _set(broker, TransactionRecord(60_000, old.producer_id, LAST_EPOCH, LAST_EPOCH - 1))
    used = Id(old.producer_id, LAST_EPOCH)
    assert client.init("n", last=Id(old.producer_id, 7))[0] == "PRODUCER_FENCED"
    error, new = client.init("n", last=used if last else None)
    assert (error, new) == ("NONE", Id(1, 0))
    if last:
        assert client.init("n", last=used) == ("NONE", new)  # the answer was lost
    assert client.ready("n") == Id(1, 1)


def _set(broker: Broker, record: TransactionRecord) -> None:
    broker.call(lambda: setattr(broker.inside.transactions.ledger.by_name["n"], "record", record))


# Time


def test_a_transaction_is_aborted_at_the_moment_of_its_timeout(broker: Broker, client: Client) -> None:
    producer = client.ready("n", timeout_ms=5000)
    broker.advance_s(100)  # it has not begun
    client.add("n", producer, "t")
    client.produce("n", "t", batch("a", producer, 0))
    broker.advance_s(4.999)
    assert client.state("n") == "Ongoing"
    broker.advance_s(0.001)
    client.until("CompleteAbort")
    assert client.log("t") == [Stored(0, 0, "a"), Stored(1, 1, "ABORT")]
    assert client.describe("n").producer == Id(producer.producer_id, 1)


def test_more_partitions_do_not_make_a_transaction_longer(broker: Broker, client: Client) -> None:
    client.create("u")
    producer = client.ready("n", timeout_ms=5000)
    client.add("n", producer, "t")
    began_ms = client.describe("n").started_ms
    broker.advance_s(4)
    client.add("n", producer, "u")
    assert client.describe("n").started_ms == began_ms  # what a restart would count from
    broker.advance_s(1)
    client.until("CompleteAbort")


def test_the_next_transaction_has_its_own_time(broker: Broker, client: Client) -> None:
    producer = client.ready("n", timeout_ms=5000)
    client.add("n", producer, "t")
    broker.advance_s(4)
    client.end("n", producer)
    client.add("n", producer, "t")
    broker.advance_s(4.999)
    assert client.state("n") == "Ongoing"
    broker.advance_s(0.001)
    client.until("CompleteAbort")
    statistics = broker.call(broker.inside.transactions.purgatory.statistics)
    assert (statistics.completed, statistics.expired, statistics.watched) == (1, 1, 0)


def test_a_zombie_whose_transaction_ran_out_of_time_is_fenced(broker: Broker, client: Client) -> None:
    producer = client.ready("n", timeout_ms=1000)
    client.add("n", producer, "t")
    broker.advance_s(1)
    client.until("CompleteAbort")
    assert client.add("n", producer, "t") == ["PRODUCER_FENCED"]
    assert {client.produce("n", "t", batch("z", producer, 0), v)[0] for v in (9, 11, 12)} == {"INVALID_PRODUCER_EPOCH"}
    assert client.end("n", producer) == "PRODUCER_FENCED"
    assert client.end("n", producer, version=5)[0] == "INVALID_TXN_STATE"
    assert client.init("n", last=producer) == ("NONE", Id(producer.producer_id, 1))  # it may begin anew


def test_an_abort_that_the_store_refuses_is_tried_again(broker: Broker, client: Client) -> None:
    producer = client.ready("n", timeout_ms=1000)
    client.add("n", producer, "t")
    with refusing(broker, "commit"):
        broker.advance_s(1)
        assert client.state("n") == "PrepareEpochFence"
        assert client.add("n", producer, "t") == ["PRODUCER_FENCED"]
        assert client.init("n")[0] == "COORDINATOR_NOT_AVAILABLE"
    broker.advance_s(1)
    client.until("CompleteAbort")
    assert client.log("t") == [Stored(0, 1, "ABORT")]


def test_an_end_that_the_store_refuses_has_not_happened(broker: Broker, client: Client) -> None:
    producer = client.begun()
    with refusing(broker, "commit"):
        assert client.end("n", producer) == "COORDINATOR_NOT_AVAILABLE"
    assert client.committed("t") == []
    assert client.end("n", producer) == "NONE"
    assert client.committed("t") == ["a"]


def test_a_name_whose_first_producer_the_store_refused_is_nobodys(broker: Broker, client: Client) -> None:
    store = broker.inside.store
    put, store.put = store.put, lambda room, key, value, then: then(False)  # type: ignore[method-assign]
    assert client.init("n")[0] == "COORDINATOR_NOT_AVAILABLE"
    nobody = Id(-1, -1)
    assert client.add("n", nobody, "t") == ["INVALID_PRODUCER_ID_MAPPING"]
    assert client.end("n", nobody) == "INVALID_PRODUCER_ID_MAPPING"
    assert client.produce("n", "t", batch("x", nobody, 0), 12)[0] == "INVALID_PRODUCER_ID_MAPPING"
    assert client.state("n") == "TRANSACTIONAL_ID_NOT_FOUND"
    store.put = put  # type: ignore[method-assign]
    assert client.init("n") == ("NONE", Id(0, 0))


def test_a_marker_that_the_disk_refuses_is_tried_again(broker: Broker, client: Client, other: Client) -> None:
    producer = client.begun()
    partition = broker.call(lambda: broker.inside.topics.partition("t", 0))
    real, partition.active_for = partition.active_for, _full
    client.end_soon("n", producer)
    other.until("PrepareCommit")
    partition.active_for = real
    assert client.quiet()
    broker.advance_s(1)
    assert client.receive(26, 4).error_code == 0
    assert client.committed("t") == ["a"]


def _full(size: int, timestamp: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_name_that_nobody_uses_is_forgotten_after_its_time(tmp_path: Path) -> None:
    clock = ManualClock()
    with (
        Broker(tmp_path, clock=clock, settings={"transactional.id.expiration.ms": "10000"}) as broker,
        Client(broker.bootstrap) as client,
    ):
        client.create("t")
        producer = client.ready("n")
        broker.advance_s(9)
        client.add("n", producer, "t")
        client.end("n", producer)
        broker.advance_s(9.999)
        client.ready("m")  # the store has done all that it was asked before
        assert client.state("n") == "CompleteCommit"
        broker.advance_s(0.001)
        client.until("TRANSACTIONAL_ID_NOT_FOUND")
        assert client.add("n", producer, "t") == ["INVALID_PRODUCER_ID_MAPPING"]
    with Broker(tmp_path, clock=clock) as broker:
        assert list(broker.call(lambda: broker.inside.transactions.ledger.by_name)) == ["m"]


def test_a_name_with_an_open_transaction_is_not_forgotten(tmp_path: Path) -> None:
    with (
        Broker(clock=ManualClock(), settings={"transactional.id.expiration.ms": "1000"}) as broker,
        Client(broker.bootstrap) as client,
    ):
        client.create("t")
        client.add("n", client.ready("n"), "t")
        broker.advance_s(30)
        client.ready("m")  # the store has done all that it was asked before
        assert client.state("n") == "Ongoing"
        assert "n" in broker.call(lambda: broker.inside.store.load("transaction"))
