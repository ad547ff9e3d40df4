"""Static members (KIP-345): a name that outlives the process, and who may use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.groups import Member
from tests.conformance.waiting import until


@pytest.fixture
def member(bootstrap: str, name: str) -> Iterator[Member]:
    """The static member `i1`, settled alone in its group."""
    one = Member(bootstrap, name, "i1").settle()
    with one.wire:
        yield one


@pytest.fixture
def successor(bootstrap: str, member: Member) -> Iterator[Member]:
    """Another process with the same name, which has not joined yet."""
    two = Member(bootstrap, member.group, "i1")
    with two.wire:
        yield two


def test_a_static_member_is_in_at_once(bootstrap: str, name: str) -> None:
    one = Member(bootstrap, name, "i1")
    with one.wire:
        one.ask_to_join()
        answer = one.joined()
    assert answer.error_code.name == "none"
    assert answer.member_id.startswith("i1-")  # its own name, then a random part
    assert [m.group_instance_id for m in answer.members] == ["i1"]


def test_a_successor_takes_the_place_without_a_rebalance(member: Member, successor: Member) -> None:
    answer = successor.join()
    assert (answer.error_code.name, answer.generation_id) == ("none", member.generation)
    assert answer.member_id != member.id
    assert successor.sync().assignment == b"all"
    assert successor.described().group_state == "Stable"


def test_a_successor_of_the_leader_does_not_assign_again(member: Member, successor: Member) -> None:
    # Since version 9 (KIP-814) it is told so; before, it was told of another leader.
    answer = successor.join(9)
    assert answer.skip_assignment
    assert (answer.leader, len(answer.members)) == (answer.member_id, 1)


def test_before_version_9_a_successor_of_the_leader_hears_of_the_old_leader(member: Member, successor: Member) -> None:
    old = member.id
    answer = successor.join(7)
    assert (answer.leader, answer.members) == (old, ())


def test_the_one_replaced_is_fenced(member: Member, successor: Member) -> None:
    successor.join()
    assert member.heartbeat() == "fenced_instance_id"
    assert member.sync().error_code.name == "fenced_instance_id"
    assert member.join().error_code.name == "fenced_instance_id"


def test_the_one_replaced_may_not_commit(member: Member, successor: Member, topic: str) -> None:
    successor.join()
    assert member.commit(topic, 1) == "fenced_instance_id"


def test_the_one_replaced_may_not_leave(member: Member, successor: Member) -> None:
    successor.join()
    assert member.leave().members[0].error_code.name == "fenced_instance_id"


def test_a_static_name_that_nobody_has_is_unknown(member: Member) -> None:
    member.instance = "i9"
    assert member.heartbeat() == "unknown_member_id"


def test_a_static_member_leaves_by_its_name(member: Member) -> None:
    # What an operator does for a process that will not come back.
    answer = member.leave(member_id="")
    assert answer.members[0].error_code.name == "none"
    assert member.described().group_state == "Empty"


def test_several_members_leave_in_one_request(bootstrap: str, member: Member) -> None:
    names = [{"member_id": "", "group_instance_id": instance} for instance in ("i1", "i9")]
    answer = member.wire.ask("leave_group", 5, group_id=member.group, members=names)
    assert [m.error_code.name for m in answer.members] == ["none", "unknown_member_id"]


def test_a_static_member_is_described_with_its_name(member: Member) -> None:
    assert [m.group_instance_id for m in member.described().members] == ["i1"]


def test_a_static_member_that_stays_away_is_out_when_its_session_ends(bootstrap: str, name: str) -> None:
    one = Member(bootstrap, name, "i1", session_timeout=400).settle()
    with one.wire:
        until(lambda: one.described().group_state == "Empty")


def test_a_successor_that_subscribes_otherwise_makes_no_rebalance(member: Member, successor: Member) -> None:
    # Only the choice of the protocol counts, not what stands in it: a known trap.
    answer = successor.join(protocols=[{"name": "range", "metadata": b"other"}])
    assert (answer.error_code.name, answer.generation_id) == ("none", member.generation)


def test_a_successor_with_another_protocol_makes_a_rebalance(member: Member, successor: Member) -> None:
    both = [{"name": "other", "metadata": b"mine"}, {"name": "range", "metadata": b"mine"}]
    answer = successor.join(protocols=both)
    assert (answer.error_code.name, answer.generation_id) == ("none", member.generation + 1)
