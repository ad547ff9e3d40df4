"""Idempotence: what is sent twice is there once, in the order in which it was sent."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.transactions.client import Client, Id, batch
from waterclock import ManualClock
from waterclock.broker import Broker
from waterclock.broker.api.produce import AGAIN
from waterclock.broker.log.batch import SEQUENCES, header_of
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.producers import Producers
from waterclock.broker.log.segment import Segment
from waterclock.broker.wire.errors import Error


def sent(client: Client, producer: Id, *sequences: int, count: int = 1) -> list[tuple[str, int]]:
    return [client.produce(None, "t", batch(str(s), producer, s, False, count)) for s in sequences]


def test_each_of_the_last_five_batches_is_known_again(client: Client) -> None:
    producer = client.ready(None)
    first = sent(client, producer, *range(7))
    assert first == [("NONE", offset) for offset in range(7)]
    assert sent(client, producer, *range(2, 7)) == first[2:]
    assert sent(client, producer, 1, 0) == [("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)] * 2
    assert [s.text for s in client.log("t")] == [str(n) for n in range(7)]


def test_a_gap_is_refused_and_changes_nothing(client: Client) -> None:
    producer = client.ready(None)
    sent(client, producer, 0)
    assert sent(client, producer, 2) == [("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)]
    assert sent(client, producer, 1, 2) == [("NONE", 1), ("NONE", 2)]


def test_a_batch_that_repeats_another_only_in_part_is_out_of_order(client: Client) -> None:
    producer = client.ready(None)
    sent(client, producer, 0, count=3)
    assert sent(client, producer, 0, count=2) == [("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)]
    assert sent(client, producer, 1, count=3) == [("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)]
    assert sent(client, producer, 3) == [("NONE", 3)]


def test_a_producer_nobody_knows_may_begin_anywhere(client: Client) -> None:
    assert sent(client, client.ready(None), 57, 58) == [("NONE", 0), ("NONE", 1)]


def refuse_one(broker: Broker, error: Error, patch: pytest.MonkeyPatch) -> None:
    """The next batch is refused: by a disk, by too few replicas, or since its bytes have changed on their way."""
    left = [1]

    def once(real: Callable[..., Any], refusal: Callable[[], Any]) -> Callable[..., Any]:
        def method(*arguments: Any) -> Any:
            left[0] -= 1
            return refusal() if left[0] >= 0 else real(*arguments)

        return method

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if error is Error.KAFKA_STORAGE_ERROR:
        patch.setattr(Segment, "append", once(Segment.append, full))
    elif error is Error.CORRUPT_MESSAGE:
        patch.setattr(Partition, "checked", once(Partition.checked, lambda: (error, None)))
    else:
        replicas = broker.inside.replicas
        patch.setattr(replicas, "refused", once(replicas.refused, lambda: error))


@pytest.mark.parametrize("error", sorted(AGAIN))
def test_of_two_batches_on_their_way_the_second_is_not_taken_where_the_first_is_refused(
    error: Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a producer that nobody knew it was, and the first one then was out of order for ever."""
    with Broker() as broker, Client(broker.bootstrap) as client:
        client.create("t")
        producer = client.ready(None)
        refuse_one(broker, error, monkeypatch)
        assert sent(client, producer, 0, 1, 2) == [(error.name, -1), *[("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)] * 2]
        assert sent(client, producer, 0, 1, 2) == [("NONE", 0), ("NONE", 1), ("NONE", 2)]


@pytest.mark.parametrize("first", [3, SEQUENCES - 1])
def test_one_that_was_sent_before_the_first_refusal_comes_first(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several batches on their way the broker led only from the second one on: that one was the first to be refused,
    the first one came again, was out of order, those behind it were taken, and it was out of order for ever."""
    with Broker() as broker, Client(broker.bootstrap) as client:
        client.create("t")
        producer = client.ready(None)
        order = [(first + more) % SEQUENCES for more in range(4)]
        for refused in (order[1], order[0]):
            with monkeypatch.context() as patch:
                refuse_one(broker, Error.NOT_ENOUGH_REPLICAS, patch)
                assert sent(client, producer, refused) == [("NOT_ENOUGH_REPLICAS", -1)]
            if refused == order[1]:
                assert sent(client, producer, *order[2:]) == [("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)] * 2
        assert sent(client, producer, order[1]) == [("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)]
        assert sent(client, producer, *order) == [("NONE", offset) for offset in range(4)]


def test_a_producer_that_gave_up_what_was_refused_goes_on_once_nothing_can_be_on_its_way_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker() as broker, Client(broker.bootstrap) as client:
        client.create("t")
        producer = client.ready(None)
        refuse_one(broker, Error.KAFKA_STORAGE_ERROR, monkeypatch)
        refused = [error for error, _ in sent(client, producer, *range(5))]
        assert refused == ["KAFKA_STORAGE_ERROR"] + ["OUT_OF_ORDER_SEQUENCE_NUMBER"] * 4
        assert sent(client, producer, 5, 6) == [("NONE", 0), ("NONE", 1)]
        again = Id(client.ready(None).producer_id, 0)
        refuse_one(broker, Error.KAFKA_STORAGE_ERROR, monkeypatch)
        sent(client, again, 0)
        assert sent(client, Id(again.producer_id, 1), 0) == [("NONE", 2)]  # with an epoch of its own


def test_what_is_awaited_of_a_producer_is_forgotten_as_producers_are() -> None:
    producers = Producers()
    for number in range(3):
        data = batch("a", Id(number, 0), 0, False)
        producers.refused(header_of(data))
    producers.forget(1 << 62)
    later = header_of(batch("a", Id(0, 0), 1, False))
    assert producers.check(later) == (Error.NONE, None)


def test_a_new_epoch_begins_with_sequence_0_and_ends_the_old_one(client: Client) -> None:
    old = client.ready(None)
    new = Id(old.producer_id, old.epoch + 1)
    sent(client, old, 0, 1)
    assert sent(client, new, 2) == [("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)]
    assert sent(client, new, 0) == [("NONE", 2)]
    assert sent(client, old, 2) == [("INVALID_PRODUCER_EPOCH", -1)]


def test_sequences_go_on_with_0_after_the_last_one(client: Client) -> None:
    producer = client.ready(None)
    assert sent(client, producer, SEQUENCES - 2, count=2) == [("NONE", 0)]
    assert sent(client, producer, 0) == [("NONE", 2)]
    assert sent(client, producer, SEQUENCES - 2, count=2) == [("NONE", 0)]


def test_a_batch_over_the_end_of_the_sequences_is_known_again(client: Client) -> None:
    producer = client.ready(None)
    assert sent(client, producer, SEQUENCES - 1, count=3) == [("NONE", 0)]
    assert sent(client, producer, SEQUENCES - 1, count=3) == [("NONE", 0)]
    assert sent(client, producer, 2) == [("NONE", 3)]


def test_what_was_sent_before_a_stop_is_known_after_it(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        producer = client.ready(None)
        sent(client, producer, 0, 1, 2)
    for remove in (False, True):
        if remove:  # a crash: no snapshot, the log is walked
            for snapshot in tmp_path.rglob("*.snapshot"):
                snapshot.unlink()
        with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
            assert sent(client, producer, 1, 2) == [("NONE", 1), ("NONE", 2)]
            assert sent(client, producer, 4) == [("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)]


def test_a_producer_that_is_not_heard_of_for_a_day_is_forgotten() -> None:
    settings = {"connections.max.idle.ms": "1000000000"}
    with Broker(clock=ManualClock(), settings=settings) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        producer = client.ready(None)
        sent(client, producer, 0, 1)
        broker.advance_s(85_200)
        assert len(client.producers("t").active_producers) == 1
        broker.advance_s(1_800)
        assert client.producers("t").active_producers == ()
        assert sent(client, producer, 57) == [("NONE", 2)]
