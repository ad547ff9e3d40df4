"""A leader and its follower in sync: what acks=all waits for, what readers see, and when the follower does not count."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient, batch
from tests.broker.replication.pairs import (
    LAG_S,
    Pair,
    client,
    end,
    following,
    high,
    log_bytes,
    pair,
    partition,
    until,
    visible,
)
from waterclock import ManualClock
from waterclock.broker import Broker
from waterclock.broker.wire.errors import Error


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def both(tmp_path: Path, clock: ManualClock) -> Iterator[Pair]:
    with pair(tmp_path, clock=clock) as brokers:
        yield brokers


def send(raw: RawClient, value: bytes, acks: int = -1, timeout_s: float = 10.0) -> None:
    rows = [{"index": 0, "records": batch(value)}]
    topics = [{"name": "t", "partition_data": rows}]
    raw.send("Produce", 9, acks=acks, timeout=timedelta(seconds=timeout_s), topic_data=topics)


def test_a_follower_has_what_was_acknowledged_byte_for_byte(both: Pair) -> None:
    with client(both.one) as raw:
        for number in range(5):
            assert raw.produce("t", b"%d" % number) == (Error.NONE, number)
        assert end(both.two) == 5
        assert log_bytes(both.two) == log_bytes(both.one)


def test_acks_all_waits_for_the_follower_and_readers_do_too(both: Pair) -> None:
    both.freeze()
    with client(both.one) as raw, client(both.one) as other:
        send(raw, b"x")
        assert other.produce("t", b"y", acks=1)[0] == Error.NONE  # after x: by now that is appended
        until(lambda: both.one.call(lambda: partition(both.one).durable) == 2)
        assert (high(both.one), visible(both.one), other.end("t")) == (0, 0, 0)
        both.thaw()
        assert raw.produced() == (Error.NONE, 0)
    until(lambda: high(both.one) == 2)
    assert visible(both.one) > 0


def test_a_frozen_follower_makes_acks_all_time_out(both: Pair) -> None:
    both.freeze()
    with client(both.one) as raw:
        send(raw, b"x", timeout_s=10)
        until(lambda: end(both.one) == 1)
        both.one.advance_s(9.999)
        assert both.one.statistics().purgatories["produce"].delayed == 1
        both.one.advance_s(0.001)
        assert raw.produced() == (Error.REQUEST_TIMED_OUT, -1)
        assert high(both.one) == 0


def test_what_the_store_keeps_waits_for_the_follower_too(both: Pair) -> None:
    both.freeze()
    said: list[bool] = []
    both.one.call(lambda: both.one.inside.store.put("probe", "k", 1, said.append))
    until(lambda: both.one.call(lambda: both.one.inside.store.load("probe")) == {"k": 1})
    until(lambda: both.one.call(lambda: both.one.inside.leading.journal.partition.durable) > 1)  # type: ignore[union-attr]
    assert said == []
    both.thaw()
    until(lambda: said == [True])
    until(lambda: both.two.call(lambda: following(both.two).store.load("probe")) == {"k": 1})


def test_a_wait_ends_when_the_follower_is_out_of_sync(both: Pair) -> None:
    both.freeze()
    with client(both.one) as raw:
        send(raw, b"x", timeout_s=600)
        until(lambda: both.one.call(lambda: partition(both.one).durable) == 1)
        both.one.advance_s(LAG_S)
        assert high(both.one) == 0
        both.one.advance_s(LAG_S / 2)  # the next look at who lags
        assert raw.produced() == (Error.NONE, 0)
        assert both.one.call(lambda: both.one.inside.replicas.in_sync(partition(both.one))) == (1,)
        both.thaw()
        both.synced()
        assert both.one.call(lambda: both.one.inside.replicas.in_sync(partition(both.one))) == (1, 2)


def test_min_insync_replicas_refuses_before_the_append_and_after(tmp_path: Path) -> None:
    clock = ManualClock()
    with pair(tmp_path, {"min.insync.replicas": "2"}, clock) as both:
        both.freeze()
        with client(both.one) as raw, client(both.one) as other:
            send(raw, b"waits", timeout_s=600)
            until(lambda: both.one.call(lambda: partition(both.one).durable) == 1)
            both.one.advance_s(LAG_S * 1.5)
            assert raw.produced() == (Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)
            assert other.produce("t", b"refused") == (Error.NOT_ENOUGH_REPLICAS, -1)
            assert other.produce("t", b"one ack", acks=1) == (Error.NONE, 1)
            until(lambda: both.one.call(lambda: partition(both.one).durable) == 2)
            assert (high(both.one), visible(both.one)) == (0, 0)  # KIP-966: nobody reads what might be lost
            both.thaw()
            until(lambda: high(both.one) == 2)
            assert other.produce("t", b"again") == (Error.NONE, 2)


def test_a_single_broker_is_enough_for_itself_whatever_min_insync_says(tmp_path: Path) -> None:
    with Broker(tmp_path, settings={"min.insync.replicas": "2"}) as broker, client(broker) as raw:
        broker.create_topic("t")
        assert raw.produce("t", b"x") == (Error.NONE, 0)


def test_a_second_follower_is_refused_while_the_first_is_there(both: Pair, tmp_path: Path) -> None:
    with Broker(tmp_path / "three", follow=both.one.bootstrap) as three:
        until(lambda: "another broker follows it" in following(three).fetcher.says.last)
        with client(both.one) as raw:
            assert raw.produce("t", b"x") == (Error.NONE, 0)
        assert end(both.two) == 1
        both.two.close()
        both.two = three
        both.one.advance_s(LAG_S * 1.5)
        both.synced()
        assert log_bytes(three) == log_bytes(both.one)


def test_a_client_that_calls_itself_a_replica_is_a_client(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, client(broker) as raw:
        broker.create_topic("t")
        raw.produce("t", b"x")
        rows = [{"partition": 0, "current_leader_epoch": 99, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
        for topic in ("t", "__waterclock_store"):
            raw.ask(
                "Fetch", 11, replica_id=2, max_wait=timedelta(0), min_bytes=1, session_id=0, session_epoch=-1,
                topics=[{"topic": topic, "partitions": rows}], rack_id="", isolation_level=0, max_bytes=1 << 20,
                forgotten_topics_data=[],
            )  # fmt: skip
        assert broker.leads
        assert broker.statistics().replication.peer == ""
        assert raw.produce("t", b"y") == (Error.NONE, 1)


def test_after_its_restart_a_leader_waits_for_the_follower_that_it_had(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        with client(both.one) as raw:
            raw.produce("t", b"everywhere")
            both.freeze()
            raw.produce("t", b"here alone", acks=1)
            until(lambda: both.one.call(lambda: partition(both.one).durable) == 2)
        both.one.close()
        both.again("one").start()
        assert high(both.one) == 1
        with client(both.one) as raw:
            topics = [
                {"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]}
            ]
            answer = raw.ask("ListOffsets", 5, replica_id=-1, isolation_level=0, topics=topics)
            assert answer.topics[0].partitions[0].error_code.value == Error.OFFSET_NOT_AVAILABLE
            both.thaw()
            until(lambda: high(both.one) == 2)
            assert raw.end("t") == 2


def test_the_follower_says_who_leads_and_refuses_the_rest(both: Pair) -> None:
    with client(both.two) as raw:
        assert raw.produce("t", b"x") == (Error.NOT_LEADER_OR_FOLLOWER, -1)
        said = raw.ask("Metadata", 4, topics=[{"name": "t"}], allow_auto_topic_creation=True)
        assert said.controller_id == 1
        assert {(b.node_id, f"{b.host}:{b.port}") for b in said.brokers} == {
            (1, both.one.bootstrap),
            (2, both.two.bootstrap),
        }
        assert said.topics[0].partitions[0].leader_id == 1
        found = raw.ask("FindCoordinator", 4, key_type=0, coordinator_keys=["g"])
        assert found.coordinators[0].node_id == 1
        unknown = raw.ask("Metadata", 4, topics=[{"name": "unknown"}], allow_auto_topic_creation=True)
        assert unknown.topics[0].error_code.value == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_follower_knows_the_apis_of_a_leader(both: Pair) -> None:
    leader = both.one.call(lambda: both.one.inside.table.ranges())
    assert both.two.call(lambda: both.two.inside_follower.table.ranges()) == leader


def test_statistics_tell_who_leads_and_how_far_the_follower_is(both: Pair) -> None:
    led, followed = both.one.statistics().replication, both.two.statistics().replication
    assert (led.leads, led.peer, led.in_sync, led.lag) == (True, both.two.bootstrap, 2, 0)
    assert (followed.leads, followed.peer) == (False, both.one.bootstrap)
    assert (followed.in_sync, followed.lag) == (None, None)
    assert both.two.statistics().topics == 1


def test_deleted_records_are_answered_when_they_cannot_come_back_with_the_follower(both: Pair) -> None:
    with client(both.one) as raw, client(both.one) as other:
        for number in range(3):
            assert other.produce("t", b"%d" % number) == (Error.NONE, number)
        both.freeze()
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 2}]}]
        raw.send("DeleteRecords", 2, topics=topics, timeout=timedelta(seconds=600))
        until(lambda: both.one.call(lambda: partition(both.one).memo.saved) == 2)
        assert both.one.statistics().purgatories["delete records"].delayed == 1
        both.thaw()
        (row,) = raw.receive().topics[0].partitions
        assert (row.error_code, row.low_watermark) == (Error.NONE, 2)
    assert both.two.call(lambda: partition(both.two).memo.saved) == 2


def test_nobody_waits_for_a_follower_that_is_out_of_sync(both: Pair) -> None:
    with client(both.one) as raw, client(both.one) as other:
        assert other.produce("t", b"0") == (Error.NONE, 0)
        both.freeze()
        both.one.advance_s(LAG_S * 1.5)
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}]
        raw.send("DeleteRecords", 2, topics=topics, timeout=timedelta(seconds=600))
        (row,) = raw.receive().topics[0].partitions
        assert (row.error_code, row.low_watermark) == (Error.NONE, 1)
