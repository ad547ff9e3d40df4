"""What a leader may not acknowledge alone: with min.insync.replicas=2 everything that a promotion would take back.

What was acknowledged before and lost was found by the campaign of consistency (`tests/broker/consistency`). What cannot be
copied just now is refused, or waits for the follower if it stands in the store already.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.broker.raw_client import RawClient
from tests.broker.replication.frozen import committed as commit_by
from tests.broker.replication.frozen import replicas_needed
from tests.broker.replication.pairs import FETCHED, LAG_S, Pair, client, commit_of, has, pair, partition, until
from tests.broker.transactions.client import Client, Id
from waterclock import ManualClock
from waterclock.broker import Broker
from waterclock.broker.api.waiting import PATIENCE_S
from waterclock.broker.replication.journal import Journal
from waterclock.broker.wire.errors import Error

SETTINGS = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "300"}


class Alone(NamedTuple):
    """A leader whose follower is out of sync, and what was acknowledged before: a group's offset 1, a producer `n`."""

    both: Pair
    producer: Id


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Alone]:
    with pair(tmp_path, SETTINGS) as both:
        until(lambda: commit(both, 1), "the follower is in sync")  # 0.3 s may pass on a loaded machine
        with Client(both.one.bootstrap) as client:
            producer = client.ready("n")
        both.freeze()
        until(lambda: both.one.statistics().replication.in_sync == 0, "the follower is out of sync")
        yield Alone(both, producer)


def commit(both: Pair, offset: int) -> bool:
    """Whether the leader acknowledged it."""
    return commit_at(both.one, offset)


def commit_at(broker: Broker, offset: int) -> bool:
    with client(broker) as raw:
        try:
            commit_by(raw, offset)
        except AssertionError:
            return False
        return True


def commit_soon(raw: RawClient, offset: int) -> None:
    raw.send("OffsetCommit", 8, **commit_of(offset))


def acknowledged(raw: RawClient) -> bool:
    """Whether the next answer says so."""
    return bool(raw.receive().topics[0].partitions[0].error_code.value == Error.NONE)


def journal(both: Pair) -> Journal:
    found = both.one.inside.leading.journal
    assert found is not None
    return found


def waiting(both: Pair) -> int:
    """How many commits stand in the leader's store and wait for the follower."""
    return both.one.call(lambda: both.one.inside.produces.watched_for(journal(both).partition))


def committed(both: Pair) -> int:
    return committed_at(both.two)


def committed_at(broker: Broker) -> int:
    with RawClient(broker.bootstrap) as raw:
        answer = raw.ask("OffsetFetch", 7, **FETCHED)
    return int(answer.topics[0].partitions[0].committed_offset)


def promote(both: Pair) -> None:
    both.one.cut_power()
    both.thaw()
    both.two.promote()


def test_offsets_are_not_acknowledged_that_a_promotion_takes_back(alone: Alone) -> None:
    acknowledged = 2 if commit(alone.both, 2) else 1
    promote(alone.both)
    assert committed(alone.both) == acknowledged


def test_a_producer_that_was_replaced_stays_so_after_a_promotion(alone: Alone) -> None:
    with Client(alone.both.one.bootstrap) as successor:
        replaced, _ = successor.init("n")
    promote(alone.both)
    with Client(alone.both.two.bootstrap) as zombie:
        added = zombie.add("n", alone.producer, "t")
    assert (replaced, added) != ("NONE", ["NONE"])


def test_a_commit_that_stands_in_the_store_waits_for_the_follower(tmp_path: Path) -> None:
    clock = ManualClock()
    with pair(tmp_path, {"min.insync.replicas": "2"}, clock) as both, client(both.one) as raw:
        both.freeze()
        commit_soon(raw, 2)
        until(lambda: waiting(both) == 1, "it is in the store")
        both.one.advance_s(2 * LAG_S)  # its time is looked at now and then
        until(lambda: both.one.statistics().replication.in_sync == 0, "the follower is out of sync")
        assert (waiting(both), commit(both, 3)) == (1, False)
        both.one.advance_s(2 * PATIENCE_S)
        assert not acknowledged(raw)  # it waited without end
        assert waiting(both) == 1
        both.thaw()
        until(lambda: committed_at(both.one) == 2, "what was given up is kept all the same")
        until(lambda: commit(both, 3), "the follower is in sync")


def test_a_journal_that_began_anew_acknowledges_nothing_before_the_follower_has_its_beginning(tmp_path: Path) -> None:
    with pair(tmp_path) as both, client(both.one) as raw:
        both.freeze()
        commit_soon(raw, 2)
        until(lambda: waiting(both) == 1, "it is in the store")
        led, before = journal(both), journal(both).partition.start
        both.one.call(led.begin_anew)
        until(lambda: led.partition.start > before and led.partition.durable > led.partition.start, "it has begun anew")
        both.one.call(lambda: both.one.inside.leading.replicas.fetched(led.partition, led.partition.start))
        assert waiting(both) == 1
        both.thaw()
        assert acknowledged(raw)


def test_a_promoted_leader_alone_takes_nothing_that_two_must_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pair(tmp_path, {"min.insync.replicas": "2"}) as both:
        assert commit(both, 1)
        both.one.close()
        both.two.promote()
        with caplog.at_level(logging.WARNING), client(both.two) as raw:
            assert raw.produce("t", b"x") == (Error.NOT_ENOUGH_REPLICAS, -1)
            assert not commit_at(both.two, 2)
            with pytest.raises(OSError, match="too few replicas are in sync"):
                both.two.create_topic("u")
        assert (committed(both), has(both.two, "u")) == (1, False)
        assert caplog.text.count("are refused until the follower is back") == 1
        both.again("one").start()
        until(lambda: commit_at(both.two, 2), "the follower is in sync")
        assert "is taken again" in caplog.text
        both.synced(both.two)
        until(lambda: both.two.call(lambda: both.two.inside.replicas.in_sync(partition(both.two))) == (2, 1))
        with client(both.two) as raw:
            assert raw.produce("t", b"x") == (Error.NONE, 0)


@pytest.fixture
def widowed(tmp_path: Path) -> Iterator[Pair]:
    """A leader that was started anew after its follower had gone for good, and the follower's time is up."""
    with pair(tmp_path, SETTINGS) as both:
        assert commit(both, 1)
        both.two.close()
        both.one.close()
        both.again("one").start()
        until(lambda: both.one.statistics().replication.in_sync == 0, "its time is up")
        assert not commit(both, 2)
        yield both


def test_a_leader_whose_follower_is_gone_serves_and_takes_another(widowed: Pair, tmp_path: Path) -> None:
    with client(widowed.one) as raw:
        assert raw.end("t") == 0
    with Broker(tmp_path / "three", settings=widowed.settings, follow=widowed.one.bootstrap):
        until(lambda: commit(widowed, 3), "the new follower is in sync")


def test_a_leader_whose_follower_is_gone_goes_on_alone_where_one_is_enough(widowed: Pair) -> None:
    with client(widowed.one) as raw:
        assert replicas_needed(raw, 1)
    assert commit(widowed, 3)


@pytest.mark.parametrize("ends", ["closed", "deposed", "power cut"])
def test_who_waits_while_the_leader_ends_hears_nothing_but_the_end(
    tmp_path: Path, ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pair(tmp_path) as both, client(both.one) as committing, client(both.one) as ending:
        with Client(both.one.bootstrap) as by_hand:
            producer = by_hand.ready("n")
            assert by_hand.add("n", producer, "t") == ["NONE"]
        both.freeze()
        commit_soon(committing, 2)
        fields: dict[str, Any] = {"transactional_id": "n", "producer_id": producer[0], "producer_epoch": producer[1]}
        ending.send("EndTxn", 3, **fields, committed=True)
        until(lambda: waiting(both) == 2, "both are in the store")
        end(both, ends)
        assert (committing.closed(), ending.closed()) == (True, True)
        assert [record for record in caplog.records if record.exc_info] == []


def end(both: Pair, how: str) -> None:
    if how == "deposed":
        both.two.promote()
        until(lambda: not both.one.leads, "the old leader has heard")
    elif how == "closed":
        both.one.close()
    else:
        both.one.cut_power()


def test_a_topic_that_waits_for_the_follower_is_not_made_when_the_broker_ends(tmp_path: Path) -> None:
    made: Future[None] = Future()

    def make() -> None:
        try:
            both.one.create_topic("u")
        except OSError as error:
            made.set_exception(error)
        else:
            made.set_result(None)

    with pair(tmp_path) as both:
        both.freeze()
        threading.Thread(target=make).start()
        until(lambda: waiting(both) == 1, "it is in the store")
        both.one.close()
        with pytest.raises(OSError, match="or the broker ended"):
            made.result(20)


def test_a_deposed_leader_takes_nothing(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        both.one.call(lambda: setattr(journal(both).partition, "deposed", True))
        assert not commit(both, 1)
