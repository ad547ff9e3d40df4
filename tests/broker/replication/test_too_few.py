"""Changes of topics, settings, ACLs and users while too few brokers are in sync: which error says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.admin import SET, TOPIC, create
from tests.broker.replication.pairs import Pair, pair, until
from tests.conformance.acls import acl, filter_of
from tests.conformance.wire import Wire

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
    return wire.ask("delete_acls", 3, filters=[filter_of()]).filter_results[0].matching_acls[0]


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
