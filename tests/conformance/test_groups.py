"""The classic group protocol: joining, generations, leaders, sessions, and who is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.dialogue import Dialogue
from tests.conformance.groups import Member
from tests.conformance.waiting import until
from tests.conformance.wire import Wire


@pytest.fixture
def member(bootstrap: str, name: str) -> Iterator[Callable[..., Member]]:
    """Make members of one group: `member()`, `member(instance="a", session_timeout=400)`."""
    made: list[Member] = []

    def make(**fields: Any) -> Member:
        made.append(Member(bootstrap, name, **fields))
        return made[-1]

    yield make
    for each in made:
        with each.wire:
            pass


Make = Callable[..., Member]


def rebalanced(old: Member, *others: Member) -> None:
    """The others ask to join, and the old one joins them as soon as it hears of it."""
    for other in others:
        other.ask_to_join()
    until(lambda: old.heartbeat() == "rebalance_in_progress")
    assert old.join().error_code == 0


def test_a_new_member_must_show_the_id_that_it_was_given(member: Make) -> None:
    # KIP-394: a client that gives up while joining leaves no ghost behind.
    one = member()
    one.ask_to_join()
    answer = one.joined()
    assert (answer.error_code.name, answer.generation_id) == ("member_id_required", -1)
    assert answer.member_id.startswith("member-")  # the client's id, then a random part
    one.ask_to_join()
    assert one.joined().error_code.name == "none"


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_a_new_member_is_in_at_once(member: Make, version: int) -> None:
    one = member()
    one.ask_to_join(version)
    assert one.joined().error_code.name == "none"


@pytest.mark.parametrize("version", range(4, 10))
def test_the_first_member_leads_the_first_generation(member: Make, version: int) -> None:
    answer = member().join(version)
    assert (answer.error_code.name, answer.generation_id, answer.protocol_name) == ("none", 1, "range")
    assert answer.leader == answer.member_id
    assert [(m.member_id, m.metadata) for m in answer.members] == [(answer.member_id, b"mine")]


def test_the_leaders_assignment_comes_back_to_each_member(member: Make) -> None:
    one, two = member().settle(), member()
    two.ask_to_join()
    two.joined()
    rebalanced(one, two)
    assert two.joined().error_code.name == "none"
    reply = one.sync(**{one.id: b"first", two.id: b"second"})
    assert (reply.assignment, reply.protocol_type, reply.protocol_name) == (b"first", "consumer", "range")
    assert two.sync().assignment == b"second"


def test_only_the_leader_is_told_who_the_members_are(member: Make) -> None:
    one, two = member().settle(), member()
    two.ask_to_join()
    two.joined()
    two.ask_to_join()
    until(lambda: one.heartbeat() == "rebalance_in_progress")
    answers = [one.join(), two.joined()]
    assert {a.generation_id for a in answers} == {2}
    assert sorted(len(a.members) for a in answers) == [0, 2]


def test_a_member_that_the_leader_forgets_gets_an_empty_assignment(member: Make) -> None:
    one = member()
    one.join()
    assert one.sync().assignment == b""


def test_a_follower_waits_for_the_leaders_assignment(member: Make) -> None:
    one, two = member().settle(), member()
    two.ask_to_join()
    two.joined()
    rebalanced(one, two)
    two.joined()
    fields = two._identity(generation_id=two.generation, protocol_type="consumer", protocol_name="range")
    two.wire.send("sync_group", 5, **fields)
    assert two.wire.is_quiet()
    one.sync(**{two.id: b"second"})
    assert two.wire.receive("sync_group", 5).assignment == b"second"


def test_a_heartbeat_tells_that_others_are_joining(member: Make) -> None:
    one, two = member().settle(), member()
    assert one.heartbeat() == "none"
    two.ask_to_join()
    two.joined()
    two.ask_to_join()
    until(lambda: one.heartbeat() == "rebalance_in_progress")
    assert one.join().error_code == 0


def test_a_member_that_does_not_join_again_in_time_is_left_out(member: Make) -> None:
    one, two = member(rebalance_timeout=400).settle(), member(rebalance_timeout=400)
    answer = two.join()
    assert (answer.error_code.name, answer.generation_id, len(answer.members)) == ("none", 2, 1)
    assert one.heartbeat() == "unknown_member_id"


def test_a_member_without_heartbeats_is_out_when_its_session_ends(member: Make) -> None:
    one = member(session_timeout=400).settle()
    until(lambda: one.described().group_state == "Empty")
    assert one.heartbeat() == "unknown_member_id"


def test_heartbeats_keep_a_session(member: Make) -> None:
    lively, silent = member(session_timeout=1000).settle(), Member(member().address, "silent-" + member().group)
    with silent.wire:
        silent.join(session_timeout=1300)
        # as long as the other one's longer session lasts
        until(lambda: lively.heartbeat() != "none" or silent.described().group_state == "Empty")
    assert lively.heartbeat() == "none"


def test_a_member_that_leaves_is_gone_at_once(member: Make) -> None:
    one = member().settle()
    answer = one.leave()
    assert (answer.error_code.name, answer.members[0].error_code.name) == ("none", "none")
    assert one.heartbeat() == "unknown_member_id"
    assert one.described().group_state in (
        "Empty",
        "Dead",
    )  # a group of nobody that keeps nothing goes at the next look


def test_leaving_makes_the_others_join_again(member: Make) -> None:
    one, two = member().settle(), member()
    two.ask_to_join()
    two.joined()
    rebalanced(one, two)
    two.joined()
    one.sync()
    two.sync()
    two.leave()
    until(lambda: one.heartbeat() == "rebalance_in_progress")
    answer = one.join()
    assert (answer.generation_id, len(answer.members)) == (3, 1)


def test_an_id_nobody_has_may_not_leave(member: Make) -> None:
    one = member().settle()
    assert one.leave(member_id="nobody").members[0].error_code.name == "unknown_member_id"


def test_another_generation_is_illegal(member: Make) -> None:
    one = member().settle()
    assert one.heartbeat(generation_id=one.generation + 1) == "illegal_generation"
    one.generation += 1
    assert one.sync().error_code.name == "illegal_generation"


def test_an_id_nobody_has_is_unknown_everywhere(member: Make) -> None:
    one = member().settle()
    one.id = "nobody"
    assert one.heartbeat() == "unknown_member_id"
    assert one.sync().error_code.name == "unknown_member_id"
    assert one.join().error_code.name == "unknown_member_id"


def test_a_group_nobody_has_knows_no_member(member: Make) -> None:
    one = member()
    one.id, one.generation = "nobody", 1
    assert one.heartbeat() == "unknown_member_id"


def test_a_member_that_joins_again_unchanged_keeps_the_generation_unless_it_leads(member: Make) -> None:
    # The leader may have a reason (new partitions): its join always begins a new generation.
    one = member().settle()
    assert one.join().generation_id == 2


@pytest.mark.parametrize("timeout_ms", [1, 299, 1_800_001])
def test_a_session_timeout_must_be_within_bounds(member: Make, timeout_ms: int) -> None:
    # group.min.session.timeout.ms (here 300) to group.max.session.timeout.ms (30 minutes)
    assert member(session_timeout=timeout_ms).join().error_code.name == "invalid_session_timeout"


def test_a_group_without_a_name_is_refused(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        fields = {"session_timeout": 10_000, "protocol_type": "consumer", "protocols": [{"name": "range"}]}
        assert wire.ask("join_group", 7, group_id="", **fields).error_code.name == "invalid_group_id"


def test_a_member_without_protocols_does_not_fit(member: Make) -> None:
    assert member(protocols=[]).join().error_code.name == "inconsistent_group_protocol"


def test_a_member_without_a_protocol_in_common_does_not_fit(member: Make) -> None:
    member().settle()
    assert member(protocols=[{"name": "other"}]).join().error_code.name == "inconsistent_group_protocol"


def test_a_member_of_another_type_does_not_fit(member: Make) -> None:
    member().settle()
    assert member(protocol_type="connect").join().error_code.name == "inconsistent_group_protocol"


def test_the_protocol_is_one_that_all_members_have(member: Make) -> None:
    both = [{"name": "fancy", "metadata": b"f"}, {"name": "range", "metadata": b"r"}]
    one, two = member(protocols=both), member()
    assert one.join().protocol_name == "fancy"
    two.ask_to_join()
    two.joined()
    one.wire.ask(
        "sync_group", 3, group_id=one.group, generation_id=one.generation, member_id=one.id, group_instance_id=None
    )
    rebalanced(one, two)
    assert two.joined().protocol_name == "range"


def test_a_sync_with_another_protocol_does_not_fit(member: Make) -> None:
    one = member()
    one.join()
    fields = one._identity(generation_id=one.generation, protocol_type="consumer", protocol_name="other")
    assert one.wire.ask("sync_group", 5, **fields).error_code.name == "inconsistent_group_protocol"


def test_a_group_is_described_with_its_members(member: Make) -> None:
    one = member().settle()
    reply = one.described()
    assert (reply.error_code.name, reply.group_state, reply.protocol_type) == ("none", "Stable", "consumer")
    assert reply.protocol_data == "range"
    (seen,) = reply.members
    assert (seen.member_id, seen.client_id, seen.member_metadata, seen.member_assignment) == (
        one.id, "member", b"mine", b"all",
    )  # fmt: skip
    assert "127.0.0.1" in seen.client_host


def test_a_group_nobody_has_is_described_as_dead(dialogue: Dialogue, member: Make) -> None:
    # Since version 6 with an error (KIP-1043), before without.
    group = member().group
    reply = [dialogue.wire.ask("describe_groups", v, groups=[group]).groups[0] for v in (5, 6)]
    assert [t.group_state for t in reply] == ["Dead", "Dead"]
    assert [t.error_code.name for t in reply] == ["none", "group_id_not_found"]


def test_groups_are_listed_with_their_states_and_types(member: Make) -> None:
    one = member().settle()
    reply = {g.group_id: g for g in one.wire.ask("list_groups", 5).groups}[one.group]
    assert (reply.protocol_type, reply.group_state, reply.group_type) == ("consumer", "Stable", "classic")


def test_the_list_of_groups_is_filtered(member: Make) -> None:
    one = member().settle()

    def is_listed(**filters: Any) -> bool:
        return one.group in {g.group_id for g in one.wire.ask("list_groups", 5, **filters).groups}

    assert is_listed(states_filter=["Stable"])
    assert is_listed(states_filter=["stable"])
    assert not is_listed(states_filter=["Empty"])
    assert is_listed(types_filter=["classic"])
    assert not is_listed(types_filter=["consumer"])


def test_a_group_with_members_is_not_deleted(member: Make) -> None:
    one = member().settle()
    answer = one.wire.ask("delete_groups", 2, groups_names=[one.group])
    assert answer.results[0].error_code.name == "non_empty_group"


def test_an_empty_group_is_deleted(member: Make) -> None:
    one = member().settle()
    one.leave()
    reply = [one.wire.ask("delete_groups", 2, groups_names=[one.group]).results[0] for _ in range(2)]
    assert [t.error_code.name for t in reply] == ["none", "group_id_not_found"]
