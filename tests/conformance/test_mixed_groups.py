"""Groups that change their protocol member by member (KIP-848): both kinds of members in one group, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.dialogue import Dialogue
from tests.conformance.groups import committed, offset_of
from tests.conformance.mixed import COOPERATIVE, EAGER, OldReader, assignment, subscription
from tests.conformance.test_consumer_groups import LEAVE, LEAVE_STATIC, Reader
from tests.conformance.waiting import until


@pytest.fixture
def four(new_topic: Callable[..., str]) -> str:
    """A topic with four partitions."""
    return new_topic(4)


Makes = Callable[..., OldReader]


@pytest.fixture
def old(bootstrap: str, name: str, four: str) -> Iterator[Makes]:
    """Makes members of the classic protocol, which have not joined yet."""
    made: list[OldReader] = []

    def make(instance: str | None = None, **fields: Any) -> OldReader:
        made.append(OldReader(bootstrap, name, four, instance, **fields))
        return made[-1]

    yield make
    for one in made:
        one.wire.__exit__()


@pytest.fixture
def ann(old: Makes) -> OldReader:
    """The only member of a classic group, with all four partitions."""
    one = old()
    assert one.enter() == "none"
    assert len(one.owned) == 4
    return one


@pytest.fixture
def bob(dialogue: Dialogue, name: str, four: str) -> Reader:
    """A member of the new protocol, which has not joined yet."""
    return Reader(dialogue, name, [four])


def owned(*members: Any) -> list[int]:
    return sorted(number for member in members for _, number in member.owned)


def settle(*members: Any, partitions: int = 4) -> None:
    """All go on until the partitions are shared, and nobody is to do anything."""

    def settled() -> bool:
        quiet = [error == "none" for error in [m.follow() if isinstance(m, OldReader) else m.error() for m in members]]
        sizes = [len(member.owned) for member in members]
        together = owned(*members)
        assert len(together) <= partitions, "a partition is owned by two"
        return all(quiet) and together == list(range(partitions)) and max(sizes) - min(sizes) <= 1

    until(settled)


def listed(dialogue: Dialogue, group: str) -> Any:
    (row,) = [row for row in dialogue.wire.ask("list_groups", 5).groups if row.group_id == group]
    return row


def kind(dialogue: Dialogue, group: str) -> str:
    return str(listed(dialogue, group).group_type)


@pytest.mark.parametrize("way", [EAGER, COOPERATIVE])
def test_a_classic_group_takes_a_member_of_the_new_protocol(
    dialogue: Dialogue, old: Makes, bob: Reader, way: str
) -> None:
    ann = old(way=way)
    ann.enter()
    assert bob.error() == "none"
    assert bob.owned == []
    settle(ann, bob)
    assert (len(ann.owned), ann.generation) == (2, bob.epoch)
    assert kind(dialogue, bob.group) == "consumer"


def test_the_new_member_is_an_epoch_further(ann: OldReader, bob: Reader) -> None:
    bob.beat()
    assert bob.epoch == ann.generation + 1


def test_nobody_leads_a_group_of_both(ann: OldReader, bob: Reader) -> None:
    bob.beat()
    until(lambda: ann.heartbeat() == "rebalance_in_progress")
    joined = ann.join(protocols=[{"name": EAGER, "metadata": subscription(ann.topics)}])
    assert (joined.error_code.name, joined.leader, joined.members) == ("none", "", ())
    assert (joined.generation_id, joined.protocol_type, joined.protocol_name) == (bob.epoch, "consumer", EAGER)


def test_a_cooperative_member_stays_in_its_generation_until_it_has_let_go(old: Makes, bob: Reader) -> None:
    ann = old(way=COOPERATIVE)
    ann.enter()
    before = ann.generation
    bob.beat()
    until(lambda: ann.heartbeat() == "rebalance_in_progress")
    assert ann.enter() == "none"
    assert (ann.generation, len(ann.owned)) == (before, 2)
    assert ann.heartbeat() == "rebalance_in_progress"
    assert (bob.beat().error_code.name, bob.owned) == ("none", [])
    assert ann.enter() == "none"
    assert (ann.generation, len(ann.owned)) == (bob.epoch, 2)
    assert ann.heartbeat() == "none"


def test_a_classic_member_hears_when_what_it_waits_for_is_free(dialogue: Dialogue, bob: Reader, old: Makes) -> None:
    settle(bob)
    kept = list(bob.owned)
    ann = old()
    assert ann.enter() == "none"
    assert ann.owned == []
    until(lambda: bob.beat() and len(bob.owned) == 2)  # it is told to let go of two
    given, bob.owned = bob.owned, kept
    bob.beat()
    assert ann.heartbeat() == "none"
    bob.owned = given
    bob.beat()
    assert ann.heartbeat() == "rebalance_in_progress"
    settle(ann, bob)


def test_when_the_last_of_the_new_protocol_leaves_the_group_is_a_classic_one(
    dialogue: Dialogue, ann: OldReader, bob: Reader
) -> None:
    bob.beat()
    settle(ann, bob)
    before = ann.generation
    assert bob.error(member_epoch=LEAVE) == "none"
    row = listed(dialogue, bob.group)
    assert (row.group_type, row.group_state) == ("classic", "PreparingRebalance")
    assert ann.heartbeat() == "rebalance_in_progress"
    assert ann.enter() == "none"
    assert (owned(ann), ann.generation) == ([0, 1, 2, 3], before + 1)
    assert ann.described().group_state == "Stable"


def test_when_the_session_of_the_last_of_the_new_protocol_ends_likewise(
    dialogue: Dialogue, ann: OldReader, bob: Reader
) -> None:
    bob.beat()
    settle(ann, bob)
    until(lambda: kind(dialogue, bob.group) == "classic")
    settle(ann)


def test_while_one_of_the_new_protocol_is_there_the_group_is_of_the_new_one(
    dialogue: Dialogue, ann: OldReader, bob: Reader
) -> None:
    bob.beat()
    settle(ann, bob)
    assert ann.leave().members[0].error_code.name == "none"
    settle(bob)
    assert kind(dialogue, bob.group) == "consumer"


def test_three_change_one_by_one_there_and_back(
    dialogue: Dialogue, old: Makes, bootstrap: str, name: str, four: str
) -> None:
    members: list[Any] = [old()]
    members[0].enter()
    for _ in range(2):
        # a reader's own group needs a leader that divides: here all go to the first, so these come with the new protocol
        members.append(Reader(dialogue, name, [four]))
        settle(*members)
    for _ in range(2):
        fresh = old()
        assert fresh.enter() == "none"
        gone = members.pop()
        assert gone.error(member_epoch=LEAVE) == "none"
        members.insert(0, fresh)
        if any(isinstance(member, Reader) for member in members):
            settle(*members)
    assert kind(dialogue, name) == "classic"


def test_who_waits_in_a_rebalance_is_told_to_join_again(ann: OldReader, old: Makes, bob: Reader) -> None:
    said = [{"name": EAGER, "metadata": subscription(ann.topics)}]
    cid = old()
    cid.ask_to_join(protocols=said)
    cid.joined()
    cid.ask_to_join(protocols=said)
    until(lambda: ann.heartbeat() == "rebalance_in_progress")
    bob.beat()
    assert cid.joined().error_code.name == "rebalance_in_progress"
    assert cid.enter() == "none"
    settle(ann, bob, cid)


def test_the_session_of_a_classic_member_is_its_own(old: Makes, bob: Reader) -> None:
    ann = old(session_timeout=500)
    ann.enter()
    bob.beat()
    until(lambda: bob.beat() and [m.member_id for m in bob.described().members] == [bob.id])
    assert ann.heartbeat() == "unknown_member_id"
    settle(bob)


def test_who_is_told_to_join_again_and_does_not_is_out(old: Makes, bob: Reader) -> None:
    ann = old(rebalance_timeout=500)
    ann.enter()
    bob.beat()
    until(lambda: bob.beat() and ann.heartbeat() == "unknown_member_id")
    settle(bob)


def test_who_joins_and_does_not_ask_for_its_share_is_out(old: Makes, bob: Reader) -> None:
    settle(bob)
    ann = old(rebalance_timeout=500)
    ann.join(protocols=[{"name": EAGER, "metadata": subscription(ann.topics)}])
    until(lambda: bob.beat() and ann.heartbeat() == "unknown_member_id")
    settle(bob)


def test_the_members_are_described_with_their_types(dialogue: Dialogue, ann: OldReader, bob: Reader) -> None:
    bob.beat()
    settle(ann, bob)
    rows = {member.member_id: member for member in bob.described().members}
    assert {who: row.member_type for who, row in rows.items()} == {ann.id: 0, bob.id: 1}
    assert {row.member_epoch for row in rows.values()} == {bob.epoch}
    assert rows[ann.id].subscribed_topic_names == tuple(ann.topics)
    (assigned,) = rows[ann.id].assignment.topic_partitions
    assert sorted(assigned.partitions) == ann.numbers
    reply = dialogue.wire.ask("describe_groups", 6, groups=[bob.group]).groups[0]
    assert (reply.error_code.name, reply.group_state) == ("group_id_not_found", "Dead")


def test_a_member_of_the_new_protocol_has_no_place_in_the_classic_ones_requests(ann: OldReader, bob: Reader) -> None:
    bob.beat()
    settle(ann, bob)
    assert ann.heartbeat(member_id=bob.id) == "unknown_member_id"
    assert ann.heartbeat(generation_id=ann.generation + 1) == "illegal_generation"
    assert ann.heartbeat(generation_id=ann.generation - 1) == "illegal_generation"
    assert ann.heartbeat(member_id="nobody") == "unknown_member_id"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"generation_id": 99}, "illegal_generation"),
        ({"member_id": "nobody"}, "unknown_member_id"),
        ({"protocol_name": "sticky"}, "inconsistent_group_protocol"),
        ({"protocol_type": "connect"}, "inconsistent_group_protocol"),
        ({"group_instance_id": "nobody"}, "unknown_member_id"),
    ],
)
def test_what_is_wrong_in_sync_group(ann: OldReader, bob: Reader, said: dict[str, Any], error: str) -> None:
    bob.beat()
    settle(ann, bob)
    fields = ann._identity(generation_id=ann.generation, protocol_type="consumer", protocol_name=EAGER)
    assert ann.wire.ask("sync_group", 5, **{**fields, **said}, assignments=[]).error_code.name == error


def test_sync_group_tells_of_a_rebalance(ann: OldReader, bob: Reader) -> None:
    bob.beat()
    assert ann.share().error_code.name == "rebalance_in_progress"


def test_offsets_are_committed_by_generation_and_by_epoch(
    dialogue: Dialogue, ann: OldReader, bob: Reader, four: str
) -> None:
    bob.beat()
    settle(ann, bob)
    assert ann.commit(four, 5) == "none"
    assert ann.commit(four, 6, generation_id_or_member_epoch=ann.generation + 1) == "illegal_generation"
    named = {"group_id": bob.group, "member_id": bob.id}
    assert committed(dialogue.wire, four, 7, version=9, generation_id_or_member_epoch=bob.epoch, **named) == "none"
    later = {"generation_id_or_member_epoch": bob.epoch + 1, **named}
    assert committed(dialogue.wire, four, 8, version=9, **later) == "stale_member_epoch"
    assert committed(dialogue.wire, four, 8, generation_id_or_member_epoch=bob.epoch, **named) == "unsupported_version"
    assert offset_of(dialogue.wire, bob.group, four).committed_offset == 7


def test_offsets_are_fetched_by_generation_and_by_epoch(dialogue: Dialogue, ann: OldReader, bob: Reader) -> None:
    bob.beat()
    settle(ann, bob)
    asked = {"group_id": bob.group, "topics": [], "member_id": ann.id, "member_epoch": ann.generation}
    answer = dialogue.wire.ask("offset_fetch", 9, groups=[asked])
    assert answer.groups[0].error_code.name == "none"
    asked = {**asked, "member_epoch": ann.generation + 1}
    assert dialogue.wire.ask("offset_fetch", 9, groups=[asked]).groups[0].error_code.name == "illegal_generation"


def test_offsets_outlive_both_changes(dialogue: Dialogue, ann: OldReader, bob: Reader, four: str) -> None:
    assert ann.commit(four, 5) == "none"
    bob.beat()
    assert offset_of(dialogue.wire, bob.group, four).committed_offset == 5
    settle(ann, bob)
    bob.beat(member_epoch=LEAVE)
    assert offset_of(dialogue.wire, bob.group, four).committed_offset == 5


# What may not be


@pytest.mark.parametrize("metadata", [b"", subscription(["t"])[:-2]])
def test_a_group_whose_bytes_say_nothing_stays_classic(
    dialogue: Dialogue, old: Makes, bob: Reader, metadata: bytes
) -> None:
    ann = old()
    ann.join(protocols=[{"name": EAGER, "metadata": metadata}])
    ann.share(**{ann.id: assignment([(bob.topics[0], 0)])})
    assert bob.error() == "group_id_not_found"
    assert kind(dialogue, bob.group) == "classic"


def test_a_group_with_an_assignor_of_its_own_stays_classic(dialogue: Dialogue, old: Makes, bob: Reader) -> None:
    ann = old()
    ann.join(protocols=[{"name": EAGER, "metadata": subscription(ann.topics)}])
    ann.share(**{ann.id: assignment([(bob.topics[0], 0)], b"its own")})
    assert bob.error() == "group_id_not_found"
    assert ann.heartbeat() == "none"
    assert kind(dialogue, bob.group) == "classic"


def test_a_group_of_another_type_stays_what_it_is(dialogue: Dialogue, old: Makes, bob: Reader) -> None:
    ann = old(protocol_type="connect")
    ann.join(protocols=[{"name": EAGER, "metadata": subscription(ann.topics)}])
    assert bob.error() == "group_id_not_found"
    assert listed(dialogue, bob.group).protocol_type == "connect"


def test_a_classic_member_must_speak_what_the_others_do(ann: OldReader, bob: Reader, old: Makes) -> None:
    bob.beat()
    said = subscription(ann.topics)
    for fields in (
        {"protocols": [{"name": "other", "metadata": said}]},
        {"protocols": [{"name": EAGER, "metadata": said}], "protocol_type": "connect"},
    ):
        assert old().join(**fields).error_code.name == "inconsistent_group_protocol"


def test_a_classic_member_shows_the_id_that_it_was_given(bob: Reader, old: Makes) -> None:
    bob.beat()
    ann = old()
    ann.ask_to_join(protocols=[{"name": EAGER, "metadata": subscription(ann.topics)}])
    answer = ann.joined()
    assert answer.error_code.name == "member_id_required"
    assert answer.member_id


def test_a_member_that_comes_back_by_the_other_protocol_is_the_same(ann: OldReader, bob: Reader) -> None:
    bob.beat()
    other = Reader(bob.dialogue, bob.group, bob.topics)
    other.id = ann.id
    assert other.error() == "none"
    assert {row.member_id: row.member_type for row in bob.described().members} == {ann.id: 1, bob.id: 1}


# Static members


def test_a_static_member_comes_back_by_the_new_protocol_with_its_partitions(
    dialogue: Dialogue, old: Makes, bob: Reader
) -> None:
    ann = old("i1")
    ann.enter()
    bob.instance = "i1"
    assert bob.error() == "none"
    assert owned(bob) == [0, 1, 2, 3]
    assert ann.heartbeat() == "fenced_instance_id"
    assert ann.share().error_code.name == "fenced_instance_id"
    assert kind(dialogue, bob.group) == "consumer"


def test_and_back_by_the_classic_one_without_a_rebalance(dialogue: Dialogue, old: Makes, bob: Reader) -> None:
    bob.instance = "i1"
    settle(bob)
    ann = old("i1")
    assert ann.enter() == "none"
    assert (owned(ann), ann.generation) == ([0, 1, 2, 3], bob.epoch)
    row = listed(dialogue, bob.group)
    assert (row.group_type, row.group_state) == ("classic", "Stable")
    assert ann.heartbeat() == "none"


def test_a_static_member_that_subscribes_otherwise_when_it_comes_back_makes_a_rebalance(
    dialogue: Dialogue, old: Makes, bob: Reader, new_topic: Callable[..., str]
) -> None:
    bob.instance = "i1"
    settle(bob)
    ann = old("i1")
    ann.topics = [new_topic(2)]
    ann.enter(2)
    until(lambda: ann.enter(2) == "none" and ann.heartbeat() == "none" and len(ann.owned) == 2)
    assert kind(dialogue, bob.group) == "classic"


def test_a_static_member_changes_beside_another(dialogue: Dialogue, old: Makes, bob: Reader, four: str) -> None:
    ann, cid = old("i1"), Reader(dialogue, bob.group, [four], "i2")
    ann.enter()
    settle(ann, cid)
    bob.instance = "i1"
    before = owned(ann)
    assert bob.error() == "none"
    assert owned(bob) == before
    settle(bob, cid)
    assert cid.error(member_epoch=LEAVE_STATIC) == "none"
    dan = old("i2")
    assert dan.enter() == "none"
    settle(bob, dan)


# LeaveGroup


def leave(dialogue: Dialogue, group: str, *rows: tuple[str, str | None], version: int = 5) -> Any:
    members = [{"member_id": member, "group_instance_id": instance} for member, instance in rows]
    fields = {"members": members} if version >= 3 else {"member_id": rows[0][0]}
    return dialogue.wire.ask("leave_group", version, group_id=group, **fields)


def test_a_member_of_the_new_protocol_is_put_out_by_its_id(dialogue: Dialogue, bob: Reader) -> None:
    settle(bob)
    reply = leave(dialogue, bob.group, (bob.id, None))
    assert reply.error_code.name == "none"
    assert [(m.member_id, m.group_instance_id, m.error_code.name) for m in reply.members] == [(bob.id, None, "none")]
    assert listed(dialogue, bob.group).group_state == "Empty"
    assert bob.error() == "unknown_member_id"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_too(dialogue: Dialogue, bob: Reader, version: int) -> None:
    settle(bob)
    assert leave(dialogue, bob.group, ("nobody", None), version=version).error_code.name == "unknown_member_id"
    assert leave(dialogue, bob.group, (bob.id, None), version=version).error_code.name == "none"
    assert bob.error() == "unknown_member_id"


def test_a_static_member_of_the_new_protocol_is_put_out_by_its_instance(dialogue: Dialogue, bob: Reader) -> None:
    bob.instance = "i1"
    settle(bob)
    reply = leave(dialogue, bob.group, ("", "i1"))
    assert [(m.member_id, m.group_instance_id, m.error_code.name) for m in reply.members] == [("", "i1", "none")]
    assert bob.described().group_state == "Empty"
    assert bob.error() == "unknown_member_id"


def test_each_of_several_has_an_error_of_its_own(dialogue: Dialogue, bob: Reader, four: str) -> None:
    bob.instance = "i1"
    other, third = (Reader(dialogue, bob.group, [four]) for _ in range(2))
    settle(bob, other, third)
    rows = [
        ("nobody", None),
        ("", "i9"),
        ("nobody", "i1"),
        (other.id, None),
        (other.id, "i1"),
        (bob.id, "i1"),
        ("", None),
    ]
    reply = leave(dialogue, bob.group, *rows)
    unknown, fenced = "unknown_member_id", "fenced_instance_id"
    errors = [unknown, unknown, fenced, "none", fenced, "none", unknown]
    assert [m.error_code.name for m in reply.members] == errors
    assert [m.member_id for m in bob.described().members] == [third.id]
    settle(third)


def test_a_static_member_is_put_out_by_its_id_alone(dialogue: Dialogue, bob: Reader) -> None:
    bob.instance = "i1"
    settle(bob)
    assert leave(dialogue, bob.group, (bob.id, None)).members[0].error_code.name == "none"
    assert bob.described().group_state == "Empty"


def test_who_is_put_out_gives_its_partitions_to_the_others(dialogue: Dialogue, bob: Reader, four: str) -> None:
    other = Reader(dialogue, bob.group, [four])
    settle(bob, other)
    leave(dialogue, bob.group, (bob.id, None))
    settle(other)


def test_when_all_of_the_new_protocol_are_put_out_the_group_is_a_classic_one(
    dialogue: Dialogue, ann: OldReader, bob: Reader, four: str
) -> None:
    other = Reader(dialogue, bob.group, [four])
    settle(ann, bob, other)
    leave(dialogue, bob.group, (bob.id, None), (other.id, None))
    assert kind(dialogue, bob.group) == "classic"
    settle(ann)


def test_who_was_put_out_may_come_again(dialogue: Dialogue, bob: Reader) -> None:
    settle(bob)
    leave(dialogue, bob.group, (bob.id, None))
    bob.epoch, bob.owned = 0, []
    settle(bob)
