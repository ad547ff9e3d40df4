"""The new group protocol (KIP-848): one heartbeat carries everything, the broker assigns."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.dialogue import Dialogue
from tests.conformance.groups import Member, committed, offset_of
from tests.conformance.readers import LEAVE, LEAVE_STATIC, Reader
from tests.conformance.waiting import until


def settle(*readers: Reader, partitions: int) -> None:
    """Beat in turn until every partition is owned once and nobody has to give any back."""

    def settled() -> bool:
        for reader in readers:
            assert reader.error() == "none"
        owned = [part for reader in readers for part in reader.owned]
        sizes = [len(reader.owned) for reader in readers]
        return len(owned) == len(set(owned)) == partitions and max(sizes) - min(sizes) <= 1

    until(settled)


@pytest.fixture
def four(new_topic: Callable[..., str]) -> str:
    """A topic with four partitions."""
    return new_topic(4)


@pytest.fixture
def reader(dialogue: Dialogue, name: str, four: str) -> Reader:
    """A member that has not joined yet."""
    return Reader(dialogue, name, [four])


def test_the_first_heartbeat_joins(reader: Reader) -> None:
    answer = reader.beat()
    assert (answer.error_code.name, answer.member_id) == ("none", reader.id)
    assert answer.member_epoch > 0
    assert answer.heartbeat_interval.total_seconds() == 0.1  # group.consumer.heartbeat.interval.ms


def test_a_member_alone_gets_every_partition(dialogue: Dialogue, reader: Reader, four: str) -> None:
    settle(reader, partitions=4)
    assert sorted(reader.owned) == [(dialogue.topic_id(four), p) for p in range(4)]


def test_an_assignment_that_is_known_is_not_told_again(reader: Reader) -> None:
    settle(reader, partitions=4)
    assert reader.beat().assignment is None


def test_before_version_1_the_broker_names_the_member(dialogue: Dialogue, reader: Reader, four: str) -> None:
    fields = {"group_id": reader.group, "rebalance_timeout": 5_000, "subscribed_topic_names": [four]}
    answer = dialogue.wire.ask("consumer_group_heartbeat", 0, **fields, topic_partitions=[])
    assert answer.error_code.name == "none"
    assert answer.member_id


def test_since_version_1_a_member_must_name_itself(reader: Reader) -> None:
    assert reader.error(member_id="") == "invalid_request"


def test_two_members_share(dialogue: Dialogue, reader: Reader) -> None:
    other = Reader(dialogue, reader.group, reader.topics)
    settle(reader, partitions=4)
    settle(reader, other, partitions=4)
    assert (len(reader.owned), len(other.owned)) == (2, 2)


def test_a_partition_is_given_only_after_its_owner_gave_it_back(dialogue: Dialogue, reader: Reader) -> None:
    settle(reader, partitions=4)
    kept = list(reader.owned)
    other = Reader(dialogue, reader.group, reader.topics)
    until(lambda: other.beat() and reader.beat().assignment is not None)  # asked to give two back
    assert len(reader.owned) == 2
    given, reader.owned = reader.owned, kept  # it still owns them all
    reader.beat(topic_partitions=reader._owned())
    assert [other.beat() and other.owned for _ in range(3)] == [[]] * 3
    reader.owned = given
    settle(reader, other, partitions=4)


def test_partitions_of_a_member_that_leaves_go_to_the_others(dialogue: Dialogue, reader: Reader) -> None:
    other = Reader(dialogue, reader.group, reader.topics)
    settle(reader, other, partitions=4)
    answer = other.beat(member_epoch=LEAVE)
    assert (answer.error_code.name, answer.member_epoch) == ("none", LEAVE)
    settle(reader, partitions=4)


def test_partitions_of_a_member_that_falls_silent_go_to_the_others(dialogue: Dialogue, reader: Reader) -> None:
    # group.consumer.session.timeout.ms is three seconds here: the broker's setting, not the member's
    other = Reader(dialogue, reader.group, reader.topics)
    settle(reader, other, partitions=4)
    settle(reader, partitions=4)
    assert other.error() == "unknown_member_id"


def test_a_topic_that_is_made_later_is_assigned(dialogue: Dialogue, reader: Reader, name: str) -> None:
    reader.topics = [name + "-later"]
    assert reader.error() == "none"
    dialogue.create_topic(name + "-later", 2)
    settle(reader, partitions=2)


def test_partitions_that_are_added_later_are_assigned(dialogue: Dialogue, reader: Reader, four: str) -> None:
    settle(reader, partitions=4)
    dialogue.wire.ask("create_partitions", 3, topics=[{"name": four, "count": 6, "assignments": None}], timeout=5_000)
    settle(reader, partitions=6)


def test_a_subscription_may_change(reader: Reader, new_topic: Callable[..., str]) -> None:
    settle(reader, partitions=4)
    assert reader.error(subscribed_topic_names=[new_topic(3)]) == "none"
    settle(reader, partitions=3)


def test_a_subscription_may_be_a_pattern(reader: Reader, four: str) -> None:
    # RE2's syntax, resolved by the broker
    reader.topics = []
    assert reader.error(subscribed_topic_regex=four[:6] + ".*" + four[-3:]) == "none"
    settle(reader, partitions=4)


def test_a_pattern_that_is_none_is_refused(reader: Reader) -> None:
    assert reader.error(subscribed_topic_names=None, subscribed_topic_regex="(") == "invalid_regular_expression"


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_member_may_ask_for_an_assignor(reader: Reader, assignor: str) -> None:
    assert reader.error(server_assignor=assignor) == "none"
    until(lambda: reader.described().assignor_name == assignor)


def test_an_assignor_nobody_knows_is_refused(reader: Reader) -> None:
    assert reader.error(server_assignor="alphabet") == "unsupported_assignor"


def test_a_member_nobody_has_is_unknown(reader: Reader) -> None:
    reader.beat()
    assert reader.error(member_id="nobody", member_epoch=1) == "unknown_member_id"


def test_a_heartbeat_to_a_group_nobody_has_is_for_an_unknown_group(reader: Reader) -> None:
    assert reader.error(member_epoch=5, topic_partitions=None) == "group_id_not_found"


@pytest.mark.parametrize("epoch", [99, 3])
def test_a_later_epoch_is_fenced(reader: Reader, epoch: int) -> None:
    settle(reader, partitions=4)
    assert reader.error(member_epoch=epoch) == "fenced_member_epoch"


def test_a_static_name_in_use_is_not_given_twice(dialogue: Dialogue, reader: Reader) -> None:
    reader.instance = "i1"
    settle(reader, partitions=4)
    assert Reader(dialogue, reader.group, reader.topics, "i1").error() == "unreleased_instance_id"


def test_a_static_member_that_leaves_for_a_while_keeps_its_partitions(dialogue: Dialogue, reader: Reader) -> None:
    reader.instance = "i1"
    settle(reader, partitions=4)
    assert reader.beat(member_epoch=LEAVE_STATIC).member_epoch == LEAVE_STATIC
    back = Reader(dialogue, reader.group, reader.topics, "i1")
    back.beat()
    assert len(back.owned) == 4


def test_the_group_is_described(dialogue: Dialogue, reader: Reader, four: str) -> None:
    settle(reader, partitions=4)
    until(lambda: reader.described().group_state == "Stable")
    reply = reader.described()
    assert (reply.error_code.name, reply.assignor_name) == ("none", "uniform")
    assert reply.group_epoch == reply.assignment_epoch == reader.epoch
    (member,) = reply.members
    assert (member.member_id, member.member_epoch, member.client_id) == (reader.id, reader.epoch, "conformance")
    assert member.subscribed_topic_names == (four,)
    assert [(t.topic_name, t.partitions) for t in member.assignment.topic_partitions] == [(four, (0, 1, 2, 3))]


def test_the_group_is_listed_with_its_type(reader: Reader) -> None:
    reader.beat()
    reply = {g.group_id: g for g in reader.dialogue.wire.ask("list_groups", 5).groups}[reader.group]
    assert (reply.protocol_type, reply.group_type) == ("consumer", "consumer")


def test_a_classic_group_is_not_described_so(bootstrap: str, dialogue: Dialogue, name: str) -> None:
    member = Member(bootstrap, name).settle()
    with member.wire:
        reply = dialogue.wire.ask("consumer_group_describe", 1, group_ids=[name]).groups[0]
    assert reply.error_code.name == "group_id_not_found"


def test_a_group_nobody_has_is_not_found(dialogue: Dialogue, reader: Reader) -> None:
    assert reader.described().error_code.name == "group_id_not_found"


def test_a_classic_member_with_bytes_that_say_nothing_may_not_join(bootstrap: str, reader: Reader) -> None:
    # Members of both protocols may share a group (the upgrade of KIP-848), but the broker has to understand them.
    reader.beat()
    member = Member(bootstrap, reader.group)
    with member.wire:
        # Apache Kafka 4.3 stumbles here with UNKNOWN_SERVER_ERROR.
        assert member.join().error_code.name in {"inconsistent_group_protocol", "unknown_server_error"}


def test_offsets_are_committed_with_the_members_epoch(dialogue: Dialogue, reader: Reader, four: str) -> None:
    settle(reader, partitions=4)
    reply = {"group_id": reader.group, "member_id": reader.id, "version": 9}
    assert committed(dialogue.wire, four, 5, generation_id_or_member_epoch=reader.epoch, **reply) == "none"
    assert committed(dialogue.wire, four, 6, generation_id_or_member_epoch=reader.epoch + 1, **reply) == (
        "stale_member_epoch"
    )
    assert offset_of(dialogue.wire, reader.group, four).committed_offset == 5


def test_a_group_is_deleted_only_when_it_is_empty(reader: Reader) -> None:
    reader.beat()
    wire = reader.dialogue.wire
    assert wire.ask("delete_groups", 2, groups_names=[reader.group]).results[0].error_code.name == "non_empty_group"
    reader.beat(member_epoch=LEAVE)
    told = wire.ask("delete_groups", 2, groups_names=[reader.group]).results[0].error_code.name
    assert told in ("none", "group_id_not_found")  # a broker clears an empty one away, now and then by itself
