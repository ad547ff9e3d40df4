"""Transactions over a stop, a crash between any two steps of an end, and what a crash leaves between store and log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("kio")

from tests.broker.transactions.client import Client, Id, Stored, batch
from tests.broker.transactions.stopping_broker import STEPS
from waterclock import ManualClock
from waterclock.broker import Broker
from waterclock.broker.log.batch import marker
from waterclock.broker.log.partition import Partition
from waterclock.broker.transactions.record import LAST_EPOCH, TransactionRecord
from waterclock.clock import SystemClock


@pytest.mark.parametrize(
    ("step", "commit", "protocol"),
    [(s, True, p) for s in STEPS for p in (1, 2)] + [("between 1 and 2", False, 1), ("in 3", False, 2)],
)
def test_a_kill_at_any_step_of_an_end_leaves_all_of_it_or_nothing(
    tmp_path: Path, step: str, commit: bool, protocol: int
) -> None:
    version = 4 if protocol == 1 else 5
    command = [sys.executable, "-m", "tests.broker.transactions.stopping_broker", str(tmp_path), step]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        client = Client(process.stdout.readline().strip())
        client.create("t", 2)
        producer = client.ready("n")
        client.add("n", producer, "t", 0, 1)
        for partition in range(2):
            assert client.produce("n", "t", batch("a", producer, 0), partition=partition)[0] == "NONE"
        assert client.commit_offset("n", producer, "g", "t", 7, version=5) == "NONE"
        with pytest.raises(ConnectionResetError):
            client.end("n", producer, commit, version)
        client.close()
        assert process.wait(10) == -9
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        if step == "before 1":
            assert client.state("n") == "Ongoing"
            assert client.offset("g", "t") == ("UNSTABLE_OFFSET_COMMIT", -1)
        else:
            assert client.state("n") == ("CompleteCommit" if commit else "CompleteAbort")
        answer = client.end("n", producer, commit, version)  # its producer asks again, as it was not answered
        then = Id(producer.producer_id, producer.epoch + 1) if protocol == 2 else producer
        assert answer == ("NONE" if protocol == 1 else ("NONE", then))
        for partition in range(2):
            word = "COMMIT" if commit else "ABORT"
            assert client.log("t", partition) == [Stored(0, producer.epoch, "a"), Stored(1, then.epoch, word)]
            assert client.committed("t", partition) == (["a"] if commit else [])
        assert client.offset("g", "t") == ("NONE", 7 if commit else -1)
        _goes_on(client, then, protocol)


def _goes_on(client: Client, producer: Id, protocol: int) -> None:
    """The next transaction of the same producer."""
    client.add("n", producer, "t", 0)
    assert client.produce("n", "t", batch("next", producer, 2 - protocol)) == ("NONE", 2)
    assert client.end("n", producer) == "NONE"
    assert client.committed("t")[-1] == "next"


def test_an_open_transaction_goes_on_after_a_clean_stop(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        producer = client.begun()
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        assert client.fetch("t", committed=True).last_stable_offset == 0
        assert client.produce("n", "t", batch("b", producer, 1)) == ("NONE", 1)
        assert client.end("n", producer) == "NONE"
        assert client.committed("t") == ["a", "b"]


def test_a_timeout_goes_on_with_what_was_left_of_it(tmp_path: Path) -> None:
    clock = ManualClock()
    with Broker(tmp_path, clock=clock) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        producer = client.ready("n", timeout_ms=5000)
        client.add("n", producer, "t")
        broker.advance_s(3)
    with Broker(tmp_path, clock=clock) as broker, Client(broker.bootstrap) as client:
        broker.advance_s(1.999)
        assert client.state("n") == "Ongoing"
        broker.advance_s(0.001)
        client.until("CompleteAbort")


def test_a_timeout_that_passed_while_nothing_ran_aborts_at_the_start(tmp_path: Path) -> None:
    clock = ManualClock()
    with Broker(tmp_path, clock=clock) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        client.add("n", client.ready("n", timeout_ms=5000), "t")
    clock.advance_s(60)
    with Broker(tmp_path, clock=clock) as broker, Client(broker.bootstrap) as client:
        broker.advance_s(0.001)
        client.until("CompleteAbort")


def test_a_date_that_was_set_back_makes_no_timeout_longer(tmp_path: Path) -> None:
    ahead = ManualClock()
    ahead.advance_s(3600)
    with Broker(tmp_path, clock=ahead) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        client.add("n", client.ready("n", timeout_ms=5000), "t")
    with Broker(tmp_path, clock=ManualClock()) as broker, Client(broker.bootstrap) as client:
        broker.advance_s(4.999)
        assert client.state("n") == "Ongoing"
        broker.advance_s(0.001)
        client.until("CompleteAbort")


def test_what_was_aborted_is_told_after_a_restart(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        producer = client.ready("n")
        for sequence, commit in enumerate((False, True, False)):
            client.add("n", producer, "t")
            client.produce("n", "t", batch(str(sequence), producer, sequence))
            client.end("n", producer, commit)
    for _ in range(2):
        with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
            assert client.committed("t") == ["1"]
            rows = client.fetch("t", committed=True).aborted_transactions
            assert [row.first_offset for row in rows] == [0, 4]


def test_a_snapshot_and_a_walk_of_the_log_tell_the_same_of_producers(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        producer = client.begun()
        client.end("n", producer)
        client.produce(None, "t", batch("i", client.ready(None), 0, False))
        client.add("n", producer, "t")
        client.produce("n", "t", batch("b", producer, 1))
        reply = client.producers("t").active_producers
    assert [(p.coordinator_epoch, p.last_sequence, p.current_txn_start_offset) for p in reply] == [
        (0, 1, 3),
        (-1, 0, -1),
    ]
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        assert client.producers("t").active_producers == reply
    for snapshot in tmp_path.rglob("*.snapshot"):
        snapshot.unlink()
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        assert client.producers("t").active_producers == reply


def test_a_producer_that_was_not_answered_goes_on_where_its_record_is(tmp_path: Path) -> None:
    # Protocol 2: the record is in the log, the crash came before the store knew that its partition takes part. The
    # record sent again is a duplicate there; aborted at the start it would be lost with a commit that says it is not.
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        producer = client.ready("n")
        broker.inside.store.put = lambda *change: None  # type: ignore[method-assign]
        client.produce_soon("n", "t", batch("a", producer, 0), 12)
        with Client(broker.bootstrap) as other:
            while other.fetch("t").high_watermark != 1:
                pass
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        assert client.describe("n").partitions == {"t": [0]}
        assert client.produce("n", "t", batch("a", producer, 0), 12) == ("NONE", 0)
        assert client.end("n", producer, version=5)[0] == "NONE"
        assert client.committed("t") == ["a"]


def test_the_first_record_of_the_next_transaction_is_not_committed_with_the_one_before(tmp_path: Path) -> None:
    # Protocol 2: the store still says PrepareCommit, the log has a record of the next epoch already.
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        producer = client.ready("n")
        client.produce("n", "t", batch("a", producer, 0), 12)
        _, then = client.end("n", producer, version=5)
        broker.inside.store.put = lambda *change: None  # type: ignore[method-assign]
        client.produce_soon("n", "t", batch("b", then, 0), 12)
        with Client(broker.bootstrap) as other:
            while other.fetch("t").high_watermark != 3:
                pass
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        assert client.state("n") == "Ongoing"
        assert client.committed("t") == ["a"]
        assert client.end("n", then, commit=False, version=5)[0] == "NONE"
        assert client.committed("t") == ["a"]


def test_the_first_record_of_the_next_producer_id_is_known_after_a_crash(tmp_path: Path) -> None:
    # The same, where the transaction before has used up the epochs of its producer id.
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        old = client.ready("n")
        last = TransactionRecord(60_000, old.producer_id, LAST_EPOCH)
        broker.call(lambda: setattr(broker.inside.transactions.ledger.by_name["n"], "record", last))
        client.produce("n", "t", batch("a", last.id, 0), 12)
        _, then = client.end("n", Id(*last.id), version=5)
        broker.inside.store.put = lambda *change: None  # type: ignore[method-assign]
        client.produce_soon("n", "t", batch("b", then, 0), 12)
        with Client(broker.bootstrap) as other:
            while other.fetch("t").high_watermark != 3:
                pass
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        assert client.produce("n", "t", batch("b", then, 0), 12) == ("NONE", 2)
        assert client.end("n", then, version=5)[0] == "NONE"
        assert client.committed("t") == ["a", "b"]


def test_a_transaction_in_a_log_that_nobody_can_end_is_aborted_at_the_start(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        client.ready("n")
        partition = broker.call(lambda: broker.inside.topics.partition("t", 0))
        broker.call(lambda: _append(partition, batch("x", Id(777, 3), 0)))
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        assert client.log("t") == [Stored(0, 3, "x"), Stored(1, 3, "ABORT")]
        assert client.committed("t") == []
        assert client.fetch("t", committed=True).last_stable_offset == 2


def test_a_transaction_of_an_epoch_that_is_over_is_aborted_at_the_start(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        old, _ = client.ready("n"), client.ready("n")
        partition = broker.call(lambda: broker.inside.topics.partition("t", 0))
        broker.call(lambda: _append(partition, batch("x", old, 0)))
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        assert client.log("t") == [Stored(0, 0, "x"), Stored(1, 0, "ABORT")]
        assert client.state("n") == "Empty"


def test_a_broker_closed_while_the_store_decides_ends_the_transaction_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        producer = client.begun()
        store = broker.inside.store
        commit, held = store.commit, []
        store.commit = lambda *change: held.append(change)  # type: ignore[method-assign]
        client.end_soon("n", producer)
        while not held:
            pass
        close = store.close
        store.close = lambda: (commit(*held[0]), close())  # type: ignore[method-assign, assignment, func-returns-value]
    assert caplog.records == []
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        assert [s.text for s in client.log("t")] == ["a", "COMMIT"]


def test_a_marker_is_not_written_twice(tmp_path: Path) -> None:
    # The store says PrepareCommit until the next transaction begins: a start looks into the log for the marker.
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        producer = client.begun()
        client.end("n", producer)
    for _ in range(3):
        with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
            assert [s.text for s in client.log("t")] == ["a", "COMMIT"]
            assert client.state("n") == "CompleteCommit"


def test_a_marker_carries_what_it_is_made_of(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        partition = broker.call(lambda: broker.inside.topics.partition("t", 0))
        assert broker.call(lambda: partition.mark(marker(9, 4, True, 3, SystemClock().wall_ms()))) == (0, 0)
        reply = client.producers("t").active_producers[0]
        assert (reply.producer_id, reply.producer_epoch, reply.coordinator_epoch, reply.last_sequence) == (9, 4, 3, -1)


def _append(partition: Partition, data: bytes) -> None:
    assert partition.append(memoryview(bytearray(data)), SystemClock().wall_ms())[0] == 0
