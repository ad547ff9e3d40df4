"""Offsets of groups: committing, fetching, deleting, and within transactions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.dialogue import GROUP, Dialogue
from tests.conformance.groups import Member, committed, offset_of
from tests.conformance.transactions import Transactional
from tests.conformance.waiting import until
from tests.conformance.wire import Wire


@pytest.fixture
def group(dialogue: Dialogue, name: str) -> str:
    """A group without members."""
    dialogue.find_coordinator(name, GROUP)
    return name


@pytest.mark.parametrize("version", range(2, 10))
def test_a_commit_is_fetched_again(wire: Wire, topic: str, group: str, version: int) -> None:
    assert committed(wire, topic, 42, version=version, group_id=group, metadata="note") == "none"
    reply = offset_of(wire, group, topic)
    assert (reply.error_code.name, reply.committed_offset, reply.metadata) == ("none", 42, "note")
    # Since version 6 the leader epoch of the last record read is kept beside it.
    assert reply.committed_leader_epoch == (3 if version >= 6 else -1)


def test_the_newest_version_names_topics_by_id(dialogue: Dialogue, topic: str, group: str) -> None:
    part = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    topics = [{"topic_id": dialogue.topic_id(topic), "partitions": [part]}]
    fields = {"group_id": group, "generation_id_or_member_epoch": -1, "topics": topics}
    answer = dialogue.wire.ask("offset_commit", 10, **fields)
    assert answer.topics[0].partitions[0].error_code.name == "none"
    asked = [{"topic_id": topics[0]["topic_id"], "partition_indexes": [0]}]
    wanted = {"group_id": group, "member_epoch": -1, "topics": asked}
    reply = dialogue.wire.ask("offset_fetch", 10, groups=[wanted]).groups[0].topics[0].partitions[0]
    assert (reply.error_code.name, reply.committed_offset) == ("none", 7)


@pytest.mark.parametrize("version", range(1, 8))
def test_an_offset_is_fetched_in_the_versions_for_one_group(wire: Wire, topic: str, group: str, version: int) -> None:
    committed(wire, topic, 5, group_id=group)
    answer = wire.ask("offset_fetch", version, group_id=group, topics=[{"name": topic, "partition_indexes": [0]}])
    assert answer.topics[0].partitions[0].committed_offset == 5


def test_without_a_commit_the_offset_is_minus_one(wire: Wire, topic: str, group: str) -> None:
    reply = offset_of(wire, group, topic)
    assert (reply.error_code.name, reply.committed_offset, reply.metadata) == ("none", -1, "")
    assert reply.committed_leader_epoch == -1


def test_all_offsets_of_a_group_are_fetched_without_naming_topics(
    wire: Wire, new_topic: Callable[..., str], group: str
) -> None:
    topics = {new_topic(): 3, new_topic(): 4}
    for topic, offset in topics.items():
        committed(wire, topic, offset, group_id=group)
    answer = wire.ask("offset_fetch", 9, groups=[{"group_id": group, "topics": None, "member_epoch": -1}])
    assert {t.name: t.partitions[0].committed_offset for t in answer.groups[0].topics} == topics


def test_offsets_of_two_groups_are_fetched_in_one_request(wire: Wire, topic: str, group: str) -> None:
    committed(wire, topic, 1, group_id=group)
    wanted = [{"name": topic, "partition_indexes": [0]}]
    groups = [{"group_id": g, "topics": wanted, "member_epoch": -1} for g in (group, group + "-other")]
    answer = wire.ask("offset_fetch", 9, groups=groups)
    assert [g.topics[0].partitions[0].committed_offset for g in answer.groups] == [1, -1]


def test_a_later_commit_replaces_an_earlier_one_even_with_a_lower_offset(wire: Wire, topic: str, group: str) -> None:
    for offset in (9, 4):
        committed(wire, topic, offset, group_id=group)
    assert offset_of(wire, group, topic).committed_offset == 4


def test_the_offset_of_an_unknown_topic_is_not_kept(wire: Wire, name: str, group: str) -> None:
    assert committed(wire, name, 1, group_id=group) == "unknown_topic_or_partition"
    assert offset_of(wire, group, name).committed_offset == -1


def test_the_offset_of_an_unknown_partition_is_not_kept(wire: Wire, topic: str, group: str) -> None:
    assert committed(wire, topic, 1, partition=9, group_id=group) == "unknown_topic_or_partition"


@pytest.mark.parametrize(("size", "error"), [(4096, "none"), (4097, "offset_metadata_too_large")])
def test_a_note_beside_an_offset_has_a_longest_length(
    wire: Wire, topic: str, group: str, size: int, error: str
) -> None:
    assert committed(wire, topic, 1, group_id=group, metadata="m" * size) == error


def test_a_member_commits_with_its_generation(bootstrap: str, topic: str, group: str) -> None:
    member = Member(bootstrap, group).settle()
    with member.wire:
        assert member.commit(topic, 1) == "none"
        assert member.commit(topic, 2, generation_id_or_member_epoch=99) == "illegal_generation"
        assert member.commit(topic, 2, member_id="nobody") == "unknown_member_id"
        assert offset_of(member.wire, group, topic).committed_offset == 1


def test_who_is_no_member_may_not_commit_for_a_group_with_members(
    bootstrap: str, wire: Wire, topic: str, group: str
) -> None:
    member = Member(bootstrap, group).settle()
    with member.wire:
        assert committed(wire, topic, 1, group_id=group) == "unknown_member_id"


def test_a_group_nobody_has_knows_no_generation(wire: Wire, topic: str, group: str) -> None:
    reply = {"generation_id_or_member_epoch": 3, "member_id": "nobody"}
    assert committed(wire, topic, 1, group_id=group, **reply) == "illegal_generation"


def test_a_commit_while_members_are_joining_is_told_to_join_first(bootstrap: str, topic: str, group: str) -> None:
    one = Member(bootstrap, group)
    with one.wire:
        one.join()  # not synced: the assignment is awaited
        assert one.commit(topic, 1) == "rebalance_in_progress"


def test_commits_make_a_group_that_is_listed_as_empty(wire: Wire, topic: str, group: str) -> None:
    committed(wire, topic, 1, group_id=group)
    reply = {g.group_id: g for g in wire.ask("list_groups", 5).groups}[group]
    assert (reply.group_state, reply.protocol_type) == ("Empty", "")


def deleted(wire: Wire, group: str, topic: str, partition: int = 0) -> str:
    topics = [{"name": topic, "partitions": [{"partition_index": partition}]}]
    answer = wire.ask("offset_delete", 0, group_id=group, topics=topics)
    if answer.error_code:
        return str(answer.error_code.name)
    return str(answer.topics[0].partitions[0].error_code.name)


def test_an_offset_is_deleted(wire: Wire, topic: str, group: str) -> None:
    committed(wire, topic, 1, group_id=group)
    assert deleted(wire, group, topic) == "none"
    assert offset_of(wire, group, topic).committed_offset == -1


def test_an_offset_of_a_topic_that_is_read_is_not_deleted(bootstrap: str, topic: str, group: str) -> None:
    # The metadata of the consumer protocol: version 0, one topic, no user data.
    subscribed = b"\0\0\0\0\0\1" + len(topic).to_bytes(2) + topic.encode() + b"\xff\xff\xff\xff"
    member = Member(bootstrap, group, protocols=[{"name": "range", "metadata": subscribed}]).settle()
    with member.wire:
        member.commit(topic, 1)
        assert deleted(member.wire, group, topic) == "group_subscribed_to_topic"


def test_offsets_of_a_group_nobody_has_are_not_deleted(wire: Wire, topic: str, group: str) -> None:
    assert deleted(wire, group, topic) == "group_id_not_found"


def test_offsets_go_with_their_group(wire: Wire, topic: str, group: str) -> None:
    committed(wire, topic, 1, group_id=group)
    assert wire.ask("delete_groups", 2, groups_names=[group]).results[0].error_code.name == "none"
    assert offset_of(wire, group, topic).committed_offset == -1


def test_offsets_go_with_their_topic(wire: Wire, topic: str, group: str) -> None:
    committed(wire, topic, 1, group_id=group)
    wire.ask("delete_topics", 6, topics=[{"name": topic}], timeout=5_000)
    until(lambda: offset_of(wire, group, topic).committed_offset == -1)


@pytest.fixture(params=[False, True], ids=["old", "new"])
def producer(request: pytest.FixtureRequest, dialogue: Dialogue, name: str) -> Transactional:
    return Transactional(dialogue, name, new=request.param)


def test_an_offset_in_a_transaction_counts_from_its_commit_on(
    wire: Wire, topic: str, group: str, producer: Transactional
) -> None:
    assert producer.offer(group, topic, 8) == "none"
    assert offset_of(wire, group, topic).committed_offset == -1
    producer.commit()
    until(lambda: offset_of(wire, group, topic).committed_offset == 8)
    assert offset_of(wire, group, topic).metadata == "within"


def test_an_offset_in_an_aborted_transaction_never_counts(
    wire: Wire, topic: str, group: str, producer: Transactional
) -> None:
    committed(wire, topic, 1, group_id=group)
    producer.offer(group, topic, 8)
    producer.abort()
    until(lambda: offset_of(wire, group, topic, stable=True).error_code.name == "none")
    assert offset_of(wire, group, topic).committed_offset == 1


def test_who_wants_stable_offsets_is_told_of_an_open_transaction(
    wire: Wire, topic: str, group: str, producer: Transactional
) -> None:
    # KIP-447: a member that takes over must not begin before the last one's transaction has ended.
    producer.offer(group, topic, 8)
    assert offset_of(wire, group, topic, stable=True).error_code.name == "unstable_offset_commit"
    assert offset_of(wire, group, topic, stable=False).error_code.name == "none"
    producer.commit()
    until(lambda: offset_of(wire, group, topic, stable=True).error_code.name == "none")


def test_an_offset_in_a_transaction_is_refused_to_an_old_generation(
    bootstrap: str, topic: str, group: str, producer: Transactional
) -> None:
    member = Member(bootstrap, group).settle()
    with member.wire:
        reply = {"member_id": member.id, "generation_id": member.generation}
        assert producer.offer(group, topic, 1, **{**reply, "generation_id": 0}) == "illegal_generation"
        assert producer.offer(group, topic, 1, **{**reply, "member_id": "nobody"}) == "unknown_member_id"
        assert producer.offer(group, topic, 1, **reply) == "none"
        producer.abort()
