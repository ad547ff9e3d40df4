"""Faults on purpose: what the next request meets, and what it leaves behind. Time is turned by hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.conformance.waiting import until
from waterclock.broker import Broker, Error
from waterclock.clock import ManualClock
from waterclock.errors import UsageError

ZERO = timedelta(0)


def waiting_answers(broker: Broker) -> int:
    return broker.call(lambda: sum(len(c.slots) for c in broker.inside.listener.connections))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(clock=ManualClock(), settings={"log.message.timestamp.after.max.ms": str(2**62)}) as broker:
        broker.create_topic("orders", 2)
        broker.create_topic("others")
        yield broker


# An answer with an error


def test_an_answered_error_does_nothing_else_and_the_next_request_is_served(broker: Broker, client: RawClient) -> None:
    fault = broker.faults.answer("Produce", Error.NOT_LEADER_OR_FOLLOWER)
    assert client.produce("orders", b"a") == (6, -1)
    assert client.produce("orders", b"b") == (0, 0)
    assert fault.met == 1


def test_an_error_is_answered_as_often_as_was_asked(broker: Broker, client: RawClient) -> None:
    broker.faults.answer("Produce", Error.NOT_ENOUGH_REPLICAS, times=2)
    assert [client.produce("orders", b"a")[0] for _ in range(3)] == [19, 19, 0]


def test_without_a_number_an_error_is_answered_until_it_is_cleared(broker: Broker, client: RawClient) -> None:
    with broker.faults.answer("Produce", Error.NOT_ENOUGH_REPLICAS, times=None) as fault:
        assert [client.produce("orders", b"a")[0] for _ in range(5)] == [19] * 5
    assert client.produce("orders", b"a") == (0, 0)
    assert fault.met == 5


def test_an_error_for_one_topic_leaves_the_others_alone(broker: Broker, client: RawClient) -> None:
    broker.faults.answer("Produce", Error.NOT_LEADER_OR_FOLLOWER, topic="orders")
    assert client.produce("others", b"a") == (0, 0)
    assert client.produce("orders", b"a") == (6, -1)


def test_a_topic_is_known_where_a_request_names_it_by_its_id(broker: Broker, client: RawClient) -> None:
    topic_id = client.ask("Metadata", 12, topics=[{"name": "orders", "topic_id": None}],
                          include_topic_authorized_operations=False).topics[0].topic_id  # fmt: skip
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]
    fields: dict[str, Any] = {"max_wait": ZERO, "min_bytes": 0, "forgotten_topics_data": []}
    broker.faults.answer("Fetch", Error.KAFKA_STORAGE_ERROR, topic="orders")
    answer = client.ask("Fetch", 13, topics=[{"topic_id": topic_id, "partitions": rows}], **fields)
    row = answer.responses[0].partitions[0]
    assert (answer.error_code.value, row.partition_index, row.error_code.value) == (0, 0, 56)


def test_an_error_stands_at_every_partition_that_was_asked_for(broker: Broker, client: RawClient) -> None:
    broker.faults.answer("ListOffsets", Error.NOT_LEADER_OR_FOLLOWER)
    topics = [{"name": "orders", "partitions": [{"partition_index": p, "timestamp": -1} for p in (1, 0)]}]
    answer = client.ask("ListOffsets", 4, replica_id=-1, isolation_level=0, topics=topics)
    rows = [(p.partition_index, p.error_code.value, p.offset) for p in answer.topics[0].partitions]
    assert rows == [(1, 6, -1), (0, 6, -1)]


def test_an_error_to_a_producer_that_wants_no_answer_closes_its_connection(broker: Broker, client: RawClient) -> None:
    broker.faults.answer("Produce", Error.NOT_LEADER_OR_FOLLOWER)
    client.send_produce("orders", b"a", acks=0)
    assert client.closed()


def test_of_two_faults_the_one_set_first_meets_the_request(broker: Broker, client: RawClient) -> None:
    broker.faults.answer("Produce", Error.NOT_LEADER_OR_FOLLOWER)
    broker.faults.answer("Produce", Error.NOT_ENOUGH_REPLICAS)
    assert [client.produce("orders", b"a")[0] for _ in range(3)] == [6, 19, 0]


# A dropped connection


def test_dropped_before_nothing_is_appended(broker: Broker, client: RawClient) -> None:
    broker.faults.drop("Produce")
    client.send_produce("orders", b"a")
    assert client.closed()
    with RawClient(broker.bootstrap) as other:
        assert other.end("orders") == 0


def test_dropped_after_what_was_sent_is_there_and_durable_and_the_client_cannot_know(
    broker: Broker, client: RawClient
) -> None:
    broker.faults.drop("Produce", after=True)
    client.send_produce("orders", b"a")
    assert client.closed()
    with RawClient(broker.bootstrap) as other:
        assert other.end("orders") == 1
        assert other.produce("orders", b"b") == (0, 1)


def test_dropped_after_without_an_answer_due_the_connection_is_closed_all_the_same(
    broker: Broker, client: RawClient
) -> None:
    broker.faults.drop("Produce", after=True)
    client.send_produce("orders", b"a", acks=0)
    assert client.closed()


# A late answer


def test_a_late_answer_is_sent_when_its_time_has_come_and_the_deed_is_done_at_once(
    broker: Broker, client: RawClient
) -> None:
    with broker.faults.delay("Produce", 250):
        client.send_produce("orders", b"a", acks=1)
        with RawClient(broker.bootstrap) as other:
            until(lambda: other.end("orders") == 1)
        broker.advance_s(0.249)
        assert waiting_answers(broker) == 1
        broker.advance_s(0.001)
        assert client.produced() == (0, 0)


def test_behind_a_late_answer_the_later_ones_of_its_connection_wait(broker: Broker, client: RawClient) -> None:
    broker.faults.delay("Produce", 250, times=1)
    client.send_produce("orders", b"a", acks=1)
    client.send_produce("orders", b"b", acks=1)
    until(lambda: broker.statistics().records_in == 2)
    assert waiting_answers(broker) == 2
    broker.advance_s(0.25)
    assert [client.produced(), client.produced()] == [(0, 0), (0, 1)]
    assert client.produce("orders", b"c", acks=1) == (0, 2)


def test_a_late_answer_to_a_client_that_is_gone_is_dropped(broker: Broker) -> None:
    broker.faults.delay("Produce", 250)
    with RawClient(broker.bootstrap) as gone:
        gone.send_produce("orders", b"a", acks=1)
        until(lambda: broker.statistics().records_in == 1)
    until(lambda: broker.statistics().connections == 0)
    broker.advance_s(0.25)
    with RawClient(broker.bootstrap) as other:
        until(lambda: other.end("orders") == 1)


# A disk that hangs


def test_while_a_flush_is_frozen_acks_1_is_answered_and_acks_all_waits(broker: Broker, client: RawClient) -> None:
    with broker.faults.freeze("orders", 0):
        assert client.produce("orders", b"a", acks=1) == (0, 0)
        client.send_produce("orders", b"b", acks=-1)
        until(lambda: broker.statistics().purgatories["produce"].delayed == 1)
        with RawClient(broker.bootstrap) as reader:
            assert reader.end("orders") == 0
    assert client.produced() == (0, 1)
    assert client.end("orders") == 2


def test_acks_all_on_a_frozen_partition_times_out(broker: Broker, client: RawClient) -> None:
    broker.faults.freeze("orders")
    client.send_produce("orders", b"a")
    until(lambda: broker.statistics().purgatories["produce"].delayed == 1)
    broker.advance_s(10)
    assert client.produced() == (7, -1)


def test_other_partitions_are_flushed_while_one_is_frozen(broker: Broker, client: RawClient) -> None:
    broker.faults.freeze("orders", 0)
    assert client.produce("orders", b"a", partition=1) == (0, 0)


def test_thaw_lets_a_frozen_flush_go_on(broker: Broker, client: RawClient) -> None:
    fault = broker.faults.freeze("orders")
    client.send_produce("orders", b"a")
    broker.faults.thaw("orders", 0)
    assert client.produced() == (0, 0)
    fault.clear()


# A power cut


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as broker:
        broker.create_topic("orders")
        yield broker


def test_a_power_cut_takes_what_was_not_on_the_disk_and_nothing_else(on_disk: Broker) -> None:
    with RawClient(on_disk.bootstrap) as client:
        assert client.produce("orders", b"kept") == (0, 0)
        on_disk.faults.freeze("orders")
        assert client.produce("orders", b"lost", acks=1) == (0, 1)
    on_disk.cut_power()
    on_disk.start()
    with RawClient(on_disk.bootstrap) as client:
        assert client.end("orders") == 1
        assert client.produce("orders", b"after") == (0, 1)


def test_after_a_power_cut_the_broker_starts_again_where_clients_look_for_it(on_disk: Broker) -> None:
    before = on_disk.bootstrap
    on_disk.cut_power()
    assert on_disk.start().bootstrap == before


def test_a_power_cut_needs_a_folder_to_start_from_again(broker: Broker) -> None:
    with pytest.raises(UsageError, match=r"give the broker a folder, Broker\(data=...\)"):
        broker.cut_power()


# The end of a fault


def test_clear_takes_all_faults_away(broker: Broker, client: RawClient) -> None:
    broker.faults.answer("Produce", Error.NOT_LEADER_OR_FOLLOWER, times=None)
    broker.faults.drop("Metadata", times=None)
    broker.faults.freeze("orders")
    broker.faults.clear()
    assert client.produce("orders", b"a") == (0, 0)
    assert broker.call(lambda: broker.inside.table.intercept) is None


def test_a_fault_that_has_met_its_requests_costs_the_next_ones_nothing(broker: Broker, client: RawClient) -> None:
    broker.faults.answer("Produce", Error.NOT_LEADER_OR_FOLLOWER)
    client.produce("orders", b"a")
    assert broker.call(lambda: broker.inside.table.intercept) is None


def test_a_fault_may_be_cleared_twice_and_leaves_the_others(broker: Broker, client: RawClient) -> None:
    first = broker.faults.answer("Produce", Error.NOT_LEADER_OR_FOLLOWER)
    broker.faults.answer("Produce", Error.NOT_ENOUGH_REPLICAS)
    first.clear()
    first.clear()
    assert client.produce("orders", b"a") == (19, -1)


# Mistakes


@pytest.mark.parametrize(
    ("mistake", "reply"),
    [
        (lambda faults: faults.answer("Prodcue", Error.NOT_LEADER_OR_FOLLOWER), "did you mean 'Produce'?"),
        (lambda faults: faults.answer("xyz", Error.NOT_LEADER_OR_FOLLOWER), "take Kafka's name for it"),
        (lambda faults: faults.answer("Produce", 4711), "4711 is not one of waterclock.broker.Error"),
        (lambda faults: faults.drop("Produce", times=0), "times must be 1 or more, or None for any number, got 0"),
        (lambda faults: faults.delay("Produce", -1), "ms must be 0 or more, got -1"),
        (lambda faults: faults.drop("Heartbeat", topic="orders"), "names no topic; leave `topic` out"),
    ],
)
def test_a_wrong_argument_is_named_with_the_remedy(broker: Broker, mistake: Any, reply: str) -> None:
    with pytest.raises(ValueError, match=r"^\w+[:= ]") as caught:
        mistake(broker.faults)
    assert reply in str(caught.value)


def test_freezing_what_is_not_there_says_what_to_do(broker: Broker) -> None:
    with pytest.raises(UsageError, match="there is no topic 'gone' to freeze: create it first"):
        broker.faults.freeze("gone")
    with pytest.raises(UsageError, match="topic 'orders' has partitions 0 to 1, got 2"):
        broker.faults.freeze("orders", 2)


def test_faults_of_a_broker_that_is_not_running_say_so() -> None:
    with pytest.raises(RuntimeError, match="the broker is not running"):
        _ = Broker().faults
