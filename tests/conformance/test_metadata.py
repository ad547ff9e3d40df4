"""Metadata, DescribeCluster and FindCoordinator: who is there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.dialogue import GROUP, TRANSACTION, Dialogue
from tests.conformance.waiting import until
from tests.conformance.wire import Wire

NOT_ASKED = -(2**31)


@pytest.mark.parametrize("version", range(14))
def test_a_topic_is_told_in_every_version(wire: Wire, topic: str, version: int) -> None:
    answer = wire.ask("metadata", version, topics=[{"name": topic}])
    (reply,) = answer.topics
    (part,) = reply.partitions
    assert (reply.error_code.name, reply.name, part.error_code.name, part.partition_index) == ("none", topic, "none", 0)
    assert part.leader_id in {b.node_id for b in answer.brokers}
    assert part.leader_id in part.replica_nodes
    assert part.leader_id in part.isr_nodes


def test_the_broker_is_told_as_it_was_reached(wire: Wire, bootstrap: str) -> None:
    (broker,) = wire.ask("metadata", 12, topics=[]).brokers
    assert f"{broker.host}:{broker.port}" == bootstrap


def test_the_controller_is_one_of_the_brokers(wire: Wire) -> None:
    answer = wire.ask("metadata", 12, topics=[])
    assert answer.controller_id in {b.node_id for b in answer.brokers}
    assert answer.cluster_id


def test_null_asks_for_all_topics_and_an_empty_list_for_none(wire: Wire, topic: str) -> None:
    assert topic in {t.name for t in wire.ask("metadata", 12, topics=None).topics}
    assert wire.ask("metadata", 12, topics=[]).topics == ()


def test_in_version_0_an_empty_list_asks_for_all(wire: Wire, topic: str) -> None:
    assert topic in {t.name for t in wire.ask("metadata", 0, topics=[]).topics}


def test_partitions_are_told_with_leader_epoch_and_no_one_offline(dialogue: Dialogue, new_topic: Any) -> None:
    reply = dialogue.metadata(new_topic(3)).partitions
    assert sorted(p.partition_index for p in reply) == [0, 1, 2]
    assert {(p.leader_epoch, p.offline_replicas) for p in reply} == {(0, ())}


def test_a_topic_has_an_id_that_it_keeps(dialogue: Dialogue, topic: str) -> None:
    first = dialogue.topic_id(topic)
    assert first.int != 0
    assert dialogue.topic_id(topic) == first


def test_a_topic_made_again_under_its_name_has_another_id(dialogue: Dialogue, topic: str) -> None:
    first = dialogue.topic_id(topic)
    dialogue.wire.ask("delete_topics", 6, topics=[{"name": topic}], timeout=5_000)
    until(lambda: dialogue.metadata(topic).error_code != 0)
    dialogue.create_topic(topic)
    assert dialogue.topic_id(topic) != first


def test_a_topic_is_found_by_its_id(dialogue: Dialogue, topic: str) -> None:
    asked = [{"name": None, "topic_id": dialogue.topic_id(topic)}]
    (reply,) = dialogue.wire.ask("metadata", 12, topics=asked).topics
    assert (reply.error_code.name, reply.name) == ("none", topic)


def test_an_id_nobody_has_is_an_unknown_topic_id(dialogue: Dialogue, topic: str) -> None:
    real = dialogue.topic_id(topic)
    asked = [{"name": None, "topic_id": type(real)(int=real.int ^ 1)}]
    assert dialogue.wire.ask("metadata", 12, topics=asked).topics[0].error_code.name == "unknown_topic_id"


def test_a_topic_is_made_where_the_asker_allows_it(wire: Wire, name: str) -> None:
    asked = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    wire.ask("metadata", 12, **asked)
    until(lambda: wire.ask("metadata", 12, **asked).topics[0].error_code == 0)
    assert len(wire.ask("metadata", 12, **asked).topics[0].partitions) == 1  # num.partitions


def test_no_topic_is_made_where_the_asker_does_not_allow_it(dialogue: Dialogue, name: str) -> None:
    assert [dialogue.metadata(name).error_code.name for _ in range(3)] == ["unknown_topic_or_partition"] * 3


@pytest.mark.parametrize("bad", ["a b", "ä", "a/b", ".", "..", "x" * 250, "a\0b"])
def test_a_name_that_cannot_be_is_invalid(wire: Wire, bad: str) -> None:
    reply = wire.ask("metadata", 12, topics=[{"name": bad}], allow_auto_topic_creation=True).topics[0]
    assert reply.error_code.name == "invalid_topic_exception"


def test_known_and_unknown_topics_are_told_together(wire: Wire, topic: str, name: str) -> None:
    asked = [{"name": topic}, {"name": name}]
    reply = wire.ask("metadata", 12, topics=asked, allow_auto_topic_creation=False).topics
    assert {t.name: t.error_code.name for t in reply} == {topic: "none", name: "unknown_topic_or_partition"}


def test_rights_are_told_only_where_asked_for(wire: Wire, topic: str) -> None:
    asked = [{"name": topic}]
    without = wire.ask("metadata", 12, topics=asked).topics[0]
    having = wire.ask("metadata", 12, topics=asked, include_topic_authorized_operations=True).topics[0]
    assert without.topic_authorized_operations == NOT_ASKED
    assert having.topic_authorized_operations & (1 << 3)  # read


def test_the_topic_of_offsets_is_internal(dialogue: Dialogue, name: str) -> None:
    dialogue.find_coordinator(name, GROUP)
    reply = {t.name: t.is_internal for t in dialogue.wire.ask("metadata", 12, topics=None).topics}
    assert reply.get("__consumer_offsets", True)  # who keeps offsets elsewhere has no such topic
    assert not any(internal for topic, internal in reply.items() if not topic.startswith("__"))


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described_as_metadata_tell_it(wire: Wire, version: int) -> None:
    reply, other = wire.ask("describe_cluster", version, endpoint_type=1), wire.ask("metadata", 12, topics=[])
    assert (reply.error_code.name, reply.cluster_id) == ("none", other.cluster_id)
    assert {(b.broker_id, b.host, b.port) for b in reply.brokers} == {
        (b.node_id, b.host, b.port) for b in other.brokers
    }
    assert reply.controller_id in {b.broker_id for b in reply.brokers}


def test_controllers_are_not_told_by_a_broker(wire: Wire) -> None:
    reply = wire.ask("describe_cluster", 1, endpoint_type=2)
    assert reply.error_code.name in {"mismatched_endpoint_type", "unsupported_endpoint_type"}


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_of_a_group_is_found_in_every_version(
    wire: Wire, name: str, bootstrap: str, version: int
) -> None:
    answer = wire.ask("find_coordinator", version, key=name, key_type=GROUP, coordinator_keys=[name])
    reply = answer.coordinators[0] if version >= 4 else answer
    assert (reply.error_code.name, f"{reply.host}:{reply.port}") == ("none", bootstrap)


def test_the_coordinator_of_transactions_is_found(dialogue: Dialogue, name: str, bootstrap: str) -> None:
    reply = dialogue.find_coordinator(name, TRANSACTION)
    assert (reply.key, reply.error_code.name, f"{reply.host}:{reply.port}") == (name, "none", bootstrap)


def test_coordinators_of_several_groups_are_found_at_once(wire: Wire, name: str) -> None:
    keys = [name, name + "-other"]
    reply = wire.ask("find_coordinator", 4, key_type=GROUP, coordinator_keys=keys).coordinators
    assert [(c.key, c.error_code.name) for c in reply] == [(key, "none") for key in keys]


def test_a_kind_of_coordinator_nobody_knows_is_refused(wire: Wire, name: str) -> None:
    reply = wire.ask("find_coordinator", 4, key_type=7, coordinator_keys=[name]).coordinators[0]
    assert reply.error_code.name == "invalid_request"
