"""What a user sees of groups and of transactions and does with them, right by right: those that are there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.acls import CLUSTER, DENY, OPERATIONS, PREFIXED, Acl, Granting, acl, settled
from tests.conformance.batches import batch
from tests.conformance.dialogue import Dialogue, produce_fields
from tests.conformance.test_consumer_groups import LEAVE, Reader
from tests.conformance.transactions import Transactional
from tests.conformance.waiting import until
from tests.conformance.wire import Wire

OF_TOPIC, OF_GROUP = "topic_authorization_failed", "group_authorization_failed"
OF_TRANSACTION, OF_CLUSTER = "transactional_id_authorization_failed", "cluster_authorization_failed"


def bits(*operations: str) -> int:
    return sum(1 << OPERATIONS[one] for one in operations)


@pytest.fixture
def topics(root: Dialogue, name: str) -> tuple[str, str]:
    """Two topics that are there."""
    return root.create_topic(name), root.create_topic(name + "b")


def commit(wire: Wire, group: str, *topics: str, offset: int = 5) -> list[str]:
    """The errors of committing an offset for each topic."""
    rows = [{"name": one, "partitions": [{"partition_index": 0, "committed_offset": offset}]} for one in topics]
    answer = wire.ask("offset_commit", 9, group_id=group, generation_id_or_member_epoch=-1, topics=rows)
    return [one.partitions[0].error_code.name for one in sorted(answer.topics, key=lambda one: str(one.name))]


def test_offsets_are_committed_for_topics_that_may_be_read(
    alice: Wire, topics: tuple[str, str], name: str, granting: Granting
) -> None:
    granting.create(acl("read", "group", name), acl("read", "topic", topics[0]))
    assert settled(lambda: commit(alice, name, *topics), ["none", OF_TOPIC]) == ["none", OF_TOPIC]


def offsets(wire: Wire, group: str, *topics: str) -> dict[str, tuple[str, int]]:
    """Error and offset of each topic; of all, if none is named."""
    rows = [{"name": one, "partition_indexes": [0]} for one in topics] or None
    answer = wire.ask("offset_fetch", 8, groups=[{"group_id": group, "topics": rows}]).groups[0]
    assert answer.error_code == 0, answer
    found = {one.name: one.partitions[0] for one in answer.topics}
    return {topic: (part.error_code.name, part.committed_offset) for topic, part in found.items()}


def test_offsets_are_told_of_topics_that_may_be_described(
    alice: Wire, topics: tuple[str, str], name: str, granting: Granting, root: Dialogue
) -> None:
    assert commit(root.wire, name, *topics) == ["none", "none"]
    granting.create(acl("describe", "group", name), acl("describe", "topic", topics[0]))
    wanted = {topics[0]: ("none", 5), topics[1]: (OF_TOPIC, -1)}
    assert settled(lambda: offsets(alice, name, *topics), wanted) == wanted
    assert offsets(alice, name) == {topics[0]: ("none", 5)}
    assert len(offsets(root.wire, name)) == 2


@pytest.mark.parametrize("version", [1, 2, 7])
def test_in_old_versions_the_group_s_error_stands_where_it_was_looked_for(
    alice: Wire, topics: tuple[str, str], name: str, version: int
) -> None:
    wanted = [{"name": topics[0], "partition_indexes": [0]}]
    answer = alice.ask("offset_fetch", version, group_id=name, topics=wanted)
    if version < 2:
        assert answer.topics[0].partitions[0].error_code.name == OF_GROUP
    else:
        assert (answer.error_code.name, answer.topics) == (OF_GROUP, ())


def test_offsets_are_deleted_of_topics_that_may_be_read(
    alice: Wire, topics: tuple[str, str], name: str, granting: Granting, root: Dialogue
) -> None:
    assert commit(root.wire, name, *topics) == ["none", "none"]
    granting.create(acl("delete", "group", name), acl("read", "topic", topics[0]))
    wanted = [{"name": one, "partitions": [{"partition_index": 0}]} for one in topics]

    def deleted() -> dict[str, str]:
        answer = alice.ask("offset_delete", 0, group_id=name, topics=wanted)
        return {one.name: one.partitions[0].error_code.name for one in answer.topics}

    both = {topics[0]: "none", topics[1]: OF_TOPIC}
    assert settled(deleted, both) == both
    assert offsets(root.wire, name) == {topics[1]: ("none", 5)}


def listed(wire: Wire) -> set[str]:
    return {group.group_id for group in wire.ask("list_groups", 5).groups}


def test_groups_are_listed_that_may_be_described(
    alice: Wire, topics: tuple[str, str], name: str, granting: Granting, root: Dialogue
) -> None:
    commit(root.wire, name, topics[0])
    commit(root.wire, name + "b", topics[0])
    granting.create(acl("describe", "group", name))
    assert settled(lambda: listed(alice), {name}) == {name}
    granting.create(acl("describe", "cluster", CLUSTER))
    assert until(lambda: {name, name + "b"} <= listed(alice))


def test_rights_on_a_group_are_told_as_bits(
    alice: Wire, topics: tuple[str, str], name: str, granting: Granting, root: Dialogue
) -> None:
    commit(root.wire, name, topics[0])

    def told(wire: Wire) -> int:
        answer = wire.ask("describe_groups", 6, groups=[name], include_authorized_operations=True)
        return int(answer.groups[0].authorized_operations)

    granting.create(acl("read", "group", name))
    assert settled(lambda: told(alice), bits("read", "describe")) == bits("read", "describe")
    assert told(root.wire) == bits("read", "delete", "describe", "describe configs", "alter configs")


def test_of_several_groups_those_are_described_and_deleted_that_may(alice: Wire, name: str, granting: Granting) -> None:
    granting.create(acl("delete", "group", name))
    both = [name, name + "b"]

    def described() -> dict[str, str]:
        groups = alice.ask("describe_groups", 6, groups=both).groups
        return {one.group_id: one.error_code.name for one in groups}

    wanted = dict(zip(both, ("group_id_not_found", OF_GROUP), strict=True))
    assert settled(described, wanted) == wanted
    rows = alice.ask("delete_groups", 2, groups_names=both).results
    assert {one.group_id: one.error_code.name for one in rows} == wanted


def test_a_member_of_the_new_protocol_may_describe_what_it_names(
    alice: Wire, topics: tuple[str, str], name: str, granting: Granting, root: Dialogue
) -> None:
    granting.create(acl("read", "group", name), acl("describe", "topic", topics[0]))
    until(lambda: Dialogue(alice).find_coordinator(name, 0).error_code == 0)
    both = Reader(Dialogue(alice), name, list(topics))
    assert settled(both.error, OF_TOPIC) == OF_TOPIC
    one = Reader(Dialogue(alice), name, [topics[0]])
    assert settled(one.error, "none") == "none"
    one.beat(member_epoch=LEAVE)


def test_a_pattern_is_of_topics_that_may_be_described(
    alice: Wire, topics: tuple[str, str], name: str, granting: Granting, root: Dialogue
) -> None:
    granting.create(acl("read", "group", name), acl("describe", "topic", topics[0]))
    until(lambda: Dialogue(alice).find_coordinator(name, 0).error_code == 0)
    reader = Reader(Dialogue(alice), name, [])
    assert reader.error(subscribed_topic_names=None, subscribed_topic_regex=f"{name}.*") == "none"
    until(lambda: reader.error() == "none" and reader.owned)
    assert reader.owned == [(root.topic_id(topics[0]), 0)]
    reader.beat(member_epoch=LEAVE)


def test_a_group_of_topics_that_may_not_be_described_is_not(
    alice: Wire, topics: tuple[str, str], name: str, granting: Granting, root: Dialogue
) -> None:
    member = Reader(root, name, [topics[0]])
    until(lambda: member.error() == "none" and member.owned)
    granting.create(acl("describe", "group", name))

    def told() -> tuple[str, int]:
        group = alice.ask("consumer_group_describe", 1, group_ids=[name]).groups[0]
        return group.error_code.name, len(group.members)

    assert settled(told, (OF_TOPIC, 0)) == (OF_TOPIC, 0)
    granting.create(acl("describe", "topic", topics[0]))
    assert settled(told, ("none", 1)) == ("none", 1)
    member.beat(member_epoch=LEAVE)


def test_a_producer_s_id_is_given_to_whoever_may_write_anywhere(alice: Wire, name: str, granting: Granting) -> None:
    def given() -> str:
        answer = alice.ask("init_producer_id", 4, transactional_id=None, producer_id=-1, producer_epoch=-1)
        return str(answer.error_code.name)

    def under(*acls: Acl) -> None:
        granting.clear()
        granting.create(*acls)

    write = acl("write", "topic", name)
    deny = write._replace(permission=DENY)
    begins = {"name": name[:3], "pattern": PREFIXED}
    assert given() == OF_CLUSTER
    for acls, wanted in (
        ([write], "none"),
        ([write, deny], OF_CLUSTER),
        ([write, deny._replace(name=name + "b")], "none"),
        ([write, deny._replace(**begins)], OF_CLUSTER),
        ([write._replace(**begins)], "none"),
        ([write._replace(**begins), deny], "none"),
        ([write._replace(**begins), deny._replace(**begins)], OF_CLUSTER),
        ([write, deny._replace(name="*")], OF_CLUSTER),
        ([write._replace(name="*"), deny], "none"),
        ([acl("all", "topic", name)], "none"),
        ([acl("read", "topic", name)], OF_CLUSTER),
        ([acl("idempotent write", "cluster", CLUSTER)], "none"),
    ):
        under(*acls)
        assert (acls, settled(given, wanted)) == (acls, wanted)


def test_a_transaction_takes_the_right_to_its_id_and_to_what_is_in_it(
    alice: Wire, topics: tuple[str, str], name: str, granting: Granting, root: Dialogue
) -> None:
    granting.create(acl("write", "transactional id", name), acl("write", "topic", topics[0]))
    until(lambda: Dialogue(alice).find_coordinator(name, 1).error_code == 0)
    producer = Transactional(Dialogue(alice), name)
    assert producer.add(topics[1]) == OF_TOPIC
    fields = {f"v3_and_below_{key}": value for key, value in producer._who.items()}
    both = [{"name": one, "partitions": [0]} for one in topics]
    answer = alice.ask("add_partitions_to_txn", 3, v3_and_below_topics=both, **fields).results_by_topic_v3_and_below
    rows = {one.name: one.results_by_partition[0].partition_error_code.name for one in answer}
    assert rows == {topics[0]: "operation_not_attempted", topics[1]: OF_TOPIC}
    producer.put(topics[0], b"a")
    asked = {"group_id": name, **producer._who}
    assert alice.ask("add_offsets_to_txn", 3, **asked).error_code.name == OF_GROUP
    granting.create(acl("read", "group", name), acl("read", "topic", topics[0]))
    until(lambda: commit(alice, name, topics[0]) == ["none"])
    assert producer.offer(name, topics[0], 1) == "none"
    offers = [{"name": one, "partitions": [{"partition_index": 0, "committed_offset": 1}]} for one in topics]
    answer = alice.ask("txn_offset_commit", 3, topics=offers, generation_id=-1, **asked)
    rows = {one.name: one.partitions[0].error_code.name for one in answer.topics}
    assert rows == {topics[0]: "none", topics[1]: OF_TOPIC}
    assert producer.end(True) == "none"


def test_nobody_writes_in_a_transaction_that_is_not_its_own(
    alice: Wire, topics: tuple[str, str], name: str, granting: Granting, root: Dialogue
) -> None:
    producer = Transactional(root, name)
    granting.create(acl("write", "topic", topics[0]))

    def wrote(sent: Any, transaction: str | None) -> str:
        fields = {**produce_fields(topics[0], sent), "transactional_id": transaction}
        answer = alice.ask("produce", 11, **fields).responses[0].partition_responses[0]
        return str(answer.error_code.name)

    assert settled(lambda: wrote(batch(b"x"), None), "none") == "none"
    assert wrote(producer.batch(topics[0], b"x"), name) == OF_TRANSACTION
    assert wrote(producer.batch(topics[0], b"x"), None) == OF_TRANSACTION
    assert wrote(batch(b"x"), name) == "none"


def test_transactions_are_listed_that_may_be_described_with_the_topics_that_may(
    alice: Wire, topics: tuple[str, str], name: str, granting: Granting, root: Dialogue
) -> None:
    producer, other = Transactional(root, name), Transactional(root, name + "b")
    for topic in topics:
        producer.put(topic, b"a")
    granting.create(acl("describe", "transactional id", name))

    def told() -> set[str]:
        return {
            one.transactional_id for one in alice.ask("list_transactions", 1, duration_filter=-1).transaction_states
        }

    assert settled(told, {name}) == {name}
    assert {name, other.name} <= {
        one.transactional_id for one in root.wire.ask("list_transactions", 1, duration_filter=-1).transaction_states
    }

    def described() -> list[str]:
        state = alice.ask("describe_transactions", 0, transactional_ids=[name]).transaction_states[0]
        return sorted(one.topic for one in state.topics)

    assert described() == []
    granting.create(acl("describe", "topic", topics[1]))
    assert settled(described, [topics[1]]) == [topics[1]]
    assert producer.end(False) == "none"
