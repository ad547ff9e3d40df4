"""Groups that change their protocol member by member (KIP-848): both kinds of members in one group, and back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.dialogue import Dialogue
from tests.conformance.groups import committed, offset_of
from tests.conformance.mixed import (
    COOPERATIVE,
    EAGER,
    Makes,
    Mixed,
    OldReader,
    kind,
    listed,
    owned,
    settle,
    subscription,
)
from tests.conformance.readers import LEAVE, Reader
from tests.conformance.waiting import until


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


def test_members_change_one_by_one_there_and_back(
    dialogue: Dialogue, both: Mixed, ann: OldReader, bob: Reader, name: str
) -> None:
    settle(ann, bob)
    cid = both.new()
    settle(ann, bob, cid)
    ann.leave()
    settle(bob, cid)
    ann.id = ""
    assert ann.enter() == "none"
    settle(ann, bob, cid)
    assert bob.error(member_epoch=LEAVE) == "none"
    settle(ann, cid)
    assert cid.error(member_epoch=LEAVE) == "none"
    settle(ann)
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
