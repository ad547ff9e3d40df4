"""Changes of topics, settings, ACLs and users while too few brokers are in sync: which error says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.admin import SET, TOPIC, create
from tests.broker.replication.pairs import LAG_S, Pair, pair, until
from tests.conformance.acls import acl, filter_of
from tests.conformance.wire import Wire
from waterclock import ManualClock
from waterclock.broker.api.waiting import ERRORS, PATIENCE_S, Overdue

SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "300",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
CREDENTIAL = {"name": "alice", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"salted"}
CONFIG = {"name": "retention.ms", "config_operation": SET, "value": "7"}


def config(wire: Wire) -> Any:
    asked = {"resource_type": TOPIC, "resource_name": "t", "configs": [CONFIG]}
    return wire.ask("incremental_alter_configs", 1, resources=[asked]).responses[0]


def grown(wire: Wire) -> Any:
    topics = [{"name": "t", "count": 2, "assignments": None}]
    return wire.ask("create_partitions", 3, topics=topics, timeout=5000).results[0]


def deleted(wire: Wire) -> Any:
    return wire.ask("delete_topics", 6, topics=[{"name": "t", "topic_id": None}], timeout=5000).responses[0]


def granted(wire: Wire) -> Any:
    return wire.ask("create_acls", 3, creations=[acl("read", "topic", "t").creation()]).results[0]


def taken_away(wire: Wire) -> Any:
    result = wire.ask("delete_acls", 3, filters=[filter_of()]).filter_results[0]
    return result.matching_acls[0] if result.matching_acls else result


def user(wire: Wire) -> Any:
    return wire.ask("alter_user_scram_credentials", 0, deletions=[], upsertions=[CREDENTIAL]).results[0]


CHANGES: dict[str, Callable[[Wire], Any]] = {
    "a topic": lambda wire: create(wire, "new"),
    "partitions": grown,
    "a setting": config,
    "an acl": granted,
    "an acl taken away": taken_away,
    "a user": user,
    "a deletion": deleted,
}


def offset(wire: Wire) -> Any:
    rows = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    given = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    answer = wire.ask("offset_commit", 8, **given, topics=[{"name": "t", "partitions": rows}])
    return answer.topics[0].partitions[0]


def transaction(wire: Wire) -> Any:
    return wire.ask(
        "init_producer_id", 4, transactional_id="n", transaction_timeout=1000, producer_id=-1, producer_epoch=-1
    )


def member(wire: Wire) -> Any:
    given = {"group_id": "c", "member_id": "m" * 22, "member_epoch": 0, "rebalance_timeout": 6000}
    return wire.ask("consumer_group_heartbeat", 0, **given, subscribed_topic_names=("t",), topic_partitions=())


WAITING = {**CHANGES, "an offset": offset, "a producer": transaction, "a member": member}


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path, SETTINGS) as both:
        with Wire(both.one.bootstrap) as wire:
            assert granted(wire).error_code.name == "none"
        both.freeze()
        until(lambda: both.one.statistics().replication.in_sync == 0, "the follower is out of sync")
        yield both


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_too_few_would_keep_is_answered_with_what_clients_try_again(change: str, alone: Pair) -> None:
    """KAFKA_STORAGE_ERROR ends Kafka Streams. Of Apache Kafka, whose controllers are too few, a client hears a timeout."""
    with Wire(alone.one.bootstrap) as wire:
        row = CHANGES[change](wire)
        assert row.error_code.name == "request_timed_out"
        assert "fewer brokers are in sync than min.insync.replicas asks for" in row.error_message
        alone.thaw()
        until(lambda: CHANGES[change](wire).error_code.name == "none", "the follower is back")


@pytest.mark.parametrize("change", WAITING)
def test_who_waits_when_the_follower_drops_out_is_answered_in_time(change: str, tmp_path: Path) -> None:
    """It waited until the follower came back, which may be never."""
    clock = ManualClock()
    with (
        pair(tmp_path, SETTINGS | {"replica.lag.time.max.ms": "30000"}, clock) as both,
        Wire(both.one.bootstrap) as wire,
    ):
        assert granted(wire).error_code.name == "none"
        both.freeze()
        rows: list[Any] = []
        asking = threading.Thread(target=lambda: rows.append(WAITING[change](wire)))
        asking.start()
        until(lambda: both.one.call(lambda: both.one.inside.produces.statistics().delayed), "it waits for the follower")
        both.one.advance_s(2 * LAG_S)  # its time is looked at now and then
        until(lambda: both.one.statistics().replication.in_sync == 0, "the follower is out of sync")
        both.one.advance_s(PATIENCE_S + 1)
        asking.join(PATIENCE_S)
        error = "request_timed_out" if change in CHANGES else "coordinator_not_available"
        assert [row.error_code.name for row in rows] == [error]
        both.thaw()
        with Wire(both.one.bootstrap) as another:
            until(lambda: create(another, "after").error_code.name == "none", "the follower is back")
        assert wire.ask("metadata", 9, topics=None).cluster_id  # the late answer goes nowhere
        assert both.one.call(lambda: sum(one.unsent for one in both.one.inside.listener.connections)) == 0


def test_who_waits_for_the_other_members_of_a_group_goes_on_waiting(alone: Pair) -> None:
    assert not {11, 14} & ERRORS.keys()  # JoinGroup, SyncGroup


def test_while_enough_are_in_sync_nobody_is_given_up() -> None:
    """Who makes thousands of topics waits longer."""
    now_ns = [0]
    request: Any = SimpleNamespace(slot=SimpleNamespace(parts=None, gone=False), key=8)
    overdue = Overdue(lambda: False, lambda: now_ns[0], lambda: None)
    overdue.watch(request)
    now_ns[0] = 10**12
    overdue.look()
    assert (request.slot.parts, len(overdue)) == (None, 1)


def test_a_request_that_is_answered_or_gone_is_not_kept(tmp_path: Path) -> None:
    requests: list[Any] = [SimpleNamespace(slot=SimpleNamespace(parts=None, gone=False), key=8) for _ in range(5)]
    overdue = Overdue(lambda: False, lambda: 0, lambda: None)
    for request in requests:
        overdue.watch(request)
    for request in requests[:2]:
        request.slot.parts = []
    requests[3].slot.gone = True
    overdue.watch(requests[4])
    assert len(overdue) == 4
    overdue.look()
    assert len(overdue) == 3
