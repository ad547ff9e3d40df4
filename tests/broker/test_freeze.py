"""`faults.freeze` at a follower: it copies nothing, leaves the in-sync set, and catches up when it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("kio", reason="the broker needs waterclock[broker]")

from tests.broker.raw_client import RawClient
from tests.broker.replication.pairs import LAG_S, Pair, client, end, log_bytes, pair, partition, until, values
from waterclock import ManualClock
from waterclock.broker.wire.errors import Error
from waterclock.errors import UsageError


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path, clock=ManualClock()) as brokers:
        yield brokers


def in_sync(both: Pair) -> tuple[int, ...]:
    return both.one.call(lambda: both.one.inside.replicas.in_sync(partition(both.one)))


def write(both: Pair, raw: RawClient, value: bytes) -> None:
    """With acks=1: durable at the leader when this returns."""
    assert raw.produce("t", value, acks=1)[0] == Error.NONE
    until(lambda: both.one.call(lambda: partition(both.one).durable == partition(both.one).end))


def test_a_frozen_follower_copies_nothing_leaves_the_in_sync_set_and_catches_up(both: Pair) -> None:
    with client(both.one) as raw:
        with both.two.faults.freeze():
            write(both, raw, b"while it is frozen")
            assert in_sync(both) == (1, 2)
            both.one.advance_s(LAG_S * 1.5)  # replica.lag.time.max.ms, and the next look at who lags
            assert in_sync(both) == (1,)
            assert raw.produce("t", b"acks=all waits for it no longer") == (Error.NONE, 1)
            assert end(both.two) == 0
        both.synced()
    assert in_sync(both) == (1, 2)
    assert log_bytes(both.two) == log_bytes(both.one) != b""


def test_what_is_on_its_way_when_a_follower_is_frozen_does_not_come(both: Pair) -> None:
    for number in range(20):  # the fetch that waits at the leader is answered by what is written
        with client(both.one) as raw, both.two.faults.freeze():
            write(both, raw, b"%d" % number)
            assert end(both.two) == number
        both.synced()
    assert values(both.two) == [b"%d" % number for number in range(20)]


def test_a_frozen_follower_asks_for_nothing(both: Pair) -> None:
    def fetches_after_a_second() -> int:
        both.one.advance_s(1)  # the fetch that waits at the leader is answered
        for _ in range(50):  # time for both to go on with it
            both.two.call(lambda: None)
            both.one.call(lambda: None)
        return both.one.statistics().requests["Fetch"]

    both.two.faults.freeze()
    asked = fetches_after_a_second()
    assert [fetches_after_a_second() for _ in range(3)] == [asked] * 3


def test_thaw_and_clear_let_a_follower_go_on(both: Pair) -> None:
    with client(both.one) as raw:
        for number, go_on in enumerate((both.two.faults.thaw, both.two.faults.clear)):
            both.two.faults.freeze()
            write(both, raw, b"x")
            assert end(both.two) == number
            go_on()
            both.synced()
            assert end(both.two) == number + 1


def test_a_frozen_follower_answers_its_clients_and_can_be_promoted(both: Pair) -> None:
    frozen = both.two.faults.freeze()
    with client(both.one) as raw:
        write(both, raw, b"lost")
    with client(both.two) as raw:
        assert raw.ask("Metadata", 4, topics=[], allow_auto_topic_creation=False).controller_id == 1
    both.one.cut_power()
    both.two.promote()
    frozen.clear()  # it went with the follower
    assert values(both.two) == []
    with client(both.two) as raw:
        assert raw.produce("t", b"of the new leader") == (Error.NONE, 0)


def test_a_follower_is_frozen_as_a_whole_only(both: Pair) -> None:
    with pytest.raises(UsageError, match=r"copies all topics together, 't' too: call freeze\(\)"):
        both.two.faults.freeze("t")
    with pytest.raises(UsageError, match="without a topic"):
        both.two.faults.thaw("t", 0)


def test_other_faults_meet_a_followers_clients_too(both: Pair) -> None:
    with client(both.two) as raw, both.two.faults.answer("Metadata", Error.LEADER_NOT_AVAILABLE) as fault:
        said = raw.ask("Metadata", 4, topics=[{"name": "t"}], allow_auto_topic_creation=False)
        assert said.topics[0].error_code.value == Error.LEADER_NOT_AVAILABLE
        assert fault.met == 1


def test_without_a_topic_a_leader_holds_back_the_flushes_of_all(both: Pair) -> None:
    both.one.create_topic("u")
    with client(both.one) as raw:
        with both.one.faults.freeze():
            for topic in ("t", "u"):
                assert raw.produce(topic, b"x", acks=1)[0] == Error.NONE
            frozen = both.one.call(lambda: [p.topic for p in both.one.inside.flusher.frozen])
            assert sorted(frozen) == ["t", "u"]
            assert [both.one.call(lambda t=t: partition(both.one, t).durable) for t in ("t", "u")] == [0, 0]
        until(lambda: [both.one.call(lambda t=t: partition(both.one, t).durable) for t in ("t", "u")] == [1, 1])


def test_a_partition_without_its_topic_is_refused(both: Pair) -> None:
    with pytest.raises(ValueError, match="partition=0 needs its topic"):
        both.one.faults.freeze(partition=0)
