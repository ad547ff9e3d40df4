"""A follower promoted: what is lost and what is not, the old leader shut out, and who leads after any restart."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.replication.pairs import (
    FETCHED,
    Pair,
    client,
    commit_of,
    end,
    following,
    has,
    high,
    log_bytes,
    partition,
    until,
    values,
)
from tests.broker.transactions.client import Client, batch
from waterclock.broker import Broker
from waterclock.broker.replication.leader import KnownFollower
from waterclock.broker.replication.tenure import depose
from waterclock.broker.wire.errors import Error
from waterclock.errors import UsageError


def test_what_acks_all_acknowledged_is_at_the_new_leader_and_what_acks_1_did_may_be_lost(both: Pair) -> None:
    with client(both.one) as raw:
        safe = [b"all %d" % n for n in range(10) if raw.produce("t", b"all %d" % n)[0] == Error.NONE]
        both.freeze()
        risky = [b"one %d" % n for n in range(10) if raw.produce("t", b"one %d" % n, acks=1)[0] == Error.NONE]
    assert len(safe) == len(risky) == 10
    both.one.cut_power()
    both.thaw()
    both.two.promote()
    there = values(both.two)
    assert [value for value in safe if value not in there] == []
    assert len([value for value in risky if value not in there]) == 10
    assert high(both.two) == 10


def test_the_old_leader_comes_back_as_a_follower_and_cuts_its_tail(both: Pair) -> None:
    with client(both.one) as raw:
        raw.produce("t", b"both have it")
        both.freeze()
        raw.produce("t", b"only the old one", acks=1)
    both.one.close()
    both.thaw()
    both.two.promote()
    with client(both.two) as raw:
        assert raw.produce("t", b"of the new leader", acks=1) == (Error.NONE, 1)
    both.again("one").start()
    assert not both.one.leads
    both.synced(both.two)
    assert values(both.one) == [b"both have it", b"of the new leader"]
    assert log_bytes(both.one) == log_bytes(both.two)
    assert both.one.call(lambda: partition(both.one).memo.epochs) == [(0, 0), (1, 1)]


def test_an_old_leader_that_still_runs_is_deposed_and_who_waits_there_is_told(both: Pair) -> None:
    both.freeze()
    with client(both.one) as raw:
        raw.send_produce("t", b"waits in vain")
        until(lambda: end(both.one) == 1)
        both.two.promote()
        assert raw.produced() == (Error.NOT_LEADER_OR_FOLLOWER, -1)
    until(lambda: not both.one.leads)
    both.synced(both.two)
    assert log_bytes(both.one) == log_bytes(both.two) == b""
    with client(both.one) as raw:
        assert raw.produce("t", b"x") == (Error.NOT_LEADER_OR_FOLLOWER, -1)


def follows(broker: Broker) -> bool:
    return not broker.leads


def test_leadership_goes_to_and_fro(both: Pair) -> None:
    for count in range(6):
        leader, follower = (both.one, both.two) if count % 2 == 0 else (both.two, both.one)
        with client(leader) as raw:
            assert raw.produce("t", b"%d" % count) == (Error.NONE, count)
        follower.promote()
        until(partial(follows, leader))
        both.synced(follower)
    assert values(both.two) == values(both.one) == [b"%d" % count for count in range(6)]
    epochs = both.one.call(lambda: partition(both.one).memo.epochs)
    assert epochs == [(count, count) for count in range(6)] + [(6, 6)]
    assert log_bytes(both.one) == log_bytes(both.two)


def test_no_two_leaders_ever_have_the_same_epoch(both: Pair) -> None:
    follower = following(both.two)

    def next_epoch(node: int, known: int) -> int:
        follower.identity.node = node
        partition(both.two).memo.epochs = [(known, 0)]
        return follower.replica.next_epoch()

    expected = {(1, 0): 2, (1, 1): 2, (1, 2): 4, (2, 0): 1, (2, 1): 3, (2, 2): 3}
    assert {asked: both.two.call(partial(next_epoch, *asked)) for asked in expected} == expected
    follower.identity.node = 2


def test_who_was_promoted_leads_after_a_restart_whatever_it_was_told_to_follow(both: Pair) -> None:
    both.one.close()
    both.two.promote()
    both.two.close()
    both.again("two", follow=both.one.bootstrap).start()
    assert both.two.leads


def test_who_was_deposed_follows_after_a_restart_even_while_nobody_leads(both: Pair) -> None:
    both.two.promote()
    until(lambda: not both.one.leads)
    both.one.close()
    both.two.close()
    both.again("one").start()
    assert not both.one.leads
    both.again("two").start()
    assert both.two.leads
    both.synced(both.two)


def test_a_leader_of_an_older_epoch_deposes_nobody(both: Pair) -> None:
    both.two.promote()
    until(lambda: not both.one.leads)
    both.synced(both.two)
    both.two.close()
    both.one.promote()  # in epoch 2, and the other has not heard
    until(lambda: both.one.leads)
    with client(both.one) as raw:
        name = KnownFollower("127.0.0.1:1", "0" * 32).name()
        for epoch in (1, 2):
            asyncio.run(depose(both.one.bootstrap, 2, name, epoch))
            assert raw.produce("t", b"x", acks=1)[0] == Error.NONE
    asyncio.run(depose(both.one.bootstrap, 2, name, 3))
    until(lambda: not both.one.leads)


def test_who_leads_already_cannot_be_promoted(both: Pair) -> None:
    with pytest.raises(UsageError, match="is the leader already"):
        both.one.promote()


def test_who_has_copied_nothing_leads_only_where_that_is_accepted(tmp_path: Path) -> None:
    with Broker(tmp_path, follow="127.0.0.1:1") as broker:
        with pytest.raises(UsageError, match="has copied nothing yet"):
            broker.promote()
        broker.promote(unclean=True)
        assert broker.leads
        broker.create_topic("t")


def test_elect_leaders_promotes_a_follower_and_is_not_needed_at_a_leader(both: Pair) -> None:
    asked: dict[str, Any] = {
        "election_type": 0, "timeout": timedelta(seconds=10), "topic_partitions": [{"topic": "t", "partitions": (0,)}],
    }  # fmt: skip

    def error(broker: Broker) -> int:
        with client(broker) as raw:
            answer = raw.ask("ElectLeaders", 2, **asked)
            row = answer.replica_election_results[0].partition_result[0]
            assert answer.error_code.value == Error.NONE
            return int(row.error_code.value)

    assert error(both.one) == Error.ELECTION_NOT_NEEDED
    assert error(both.two) == Error.NONE
    until(lambda: both.two.leads)
    assert error(both.two) == Error.ELECTION_NOT_NEEDED


def test_settings_offsets_and_topics_are_at_the_new_leader(both: Pair) -> None:
    with client(both.one) as raw:
        change = {"name": "retention.ms", "config_operation": 0, "value": "123456789"}
        resources = [{"resource_type": 2, "resource_name": "t", "configs": [change]}]
        raw.ask("IncrementalAlterConfigs", 1, resources=resources, validate_only=False)
        raw.ask("OffsetCommit", 8, **commit_of(7))
    both.one.create_topic("later", partitions=3)
    both.one.cut_power()
    both.two.promote()
    assert both.two.call(lambda: both.two.inside.topics.by_name["t"].settings["retention.ms"]) == 123456789
    assert both.two.statistics().partitions == 4
    with client(both.two) as raw:
        answer = raw.ask("OffsetFetch", 7, **FETCHED)
        assert answer.topics[0].partitions[0].committed_offset == 7
        assert raw.produce("later", b"x", partition=2) == (Error.NONE, 0)


def test_a_producer_is_known_and_its_transaction_goes_on_at_the_new_leader(both: Pair) -> None:
    with Client(both.one.bootstrap) as first:
        producer = first.begun()
    both.one.cut_power()
    both.two.promote()
    second = Client(both.two.bootstrap)
    assert second.state("n") == "Ongoing"
    assert second.produce("n", "t", batch("a", producer, 0)) == ("NONE", 0)  # it was not answered: no duplicate
    assert second.produce("n", "t", batch("b", producer, 1)) == ("NONE", 1)
    assert second.committed("t") == []
    assert second.end("n", producer) == "NONE"
    assert second.committed("t") == ["a", "b"]
    second.close()


def test_the_old_leader_stays_on_the_list_of_brokers_while_it_is_missing(both: Pair) -> None:
    """librdkafka gives up a broker that is not on the list, and with it a transaction's offsets that it wanted to send
    there: a client that waits for each message stood still."""
    both.one.cut_power()
    both.two.promote()
    with client(both.two) as raw:
        said = raw.ask("Metadata", 4, topics=[{"name": "t"}], allow_auto_topic_creation=False)
    ports = {int(broker.bootstrap.split(":")[1]) for broker in (both.one, both.two)}
    assert {broker.port for broker in said.brokers} == ports
    row = said.topics[0].partitions[0]
    assert (said.controller_id, set(row.replica_nodes), set(row.isr_nodes)) == (2, {1, 2}, {2})


def test_who_is_connected_to_the_follower_stays_connected_and_is_served_by_the_leader_it_becomes(both: Pair) -> None:
    """A client that loses both brokers at once forgets them, and what it wanted to send there."""
    with client(both.two) as raw:
        assert raw.produce("t", b"x")[0] == Error.NOT_LEADER_OR_FOLLOWER
        both.one.cut_power()
        both.two.promote()
        assert raw.produce("t", b"x") == (Error.NONE, 0)


def test_a_topic_that_only_the_old_leader_had_is_gone_when_it_follows(both: Pair) -> None:
    both.two.close()
    both.one.call(lambda: both.one.inside.replicas.drop_laggards())
    both.one.call(lambda: both.one.inside.topics.create("unknown to the other".replace(" ", "-"), 1, {}))
    until(lambda: len(both.one.call(lambda: both.one.inside.store.load("topic"))) == 2)
    both.one.close()
    both.again("two").start()
    both.two.promote()
    both.again("one").start()
    both.synced(both.two)
    until(lambda: not has(both.one, "unknown-to-the-other"))
