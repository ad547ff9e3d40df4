"""LeaveGroup of members of the new protocol: what an operator does for a process that will not come back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.dialogue import Dialogue
from tests.conformance.groups import committed
from tests.conformance.mixed import (
    OldReader,
    kind,
    listed,
    settle,
)
from tests.conformance.readers import Reader

# LeaveGroup


def leave(dialogue: Dialogue, group: str, *rows: tuple[str, str | None], version: int = 5) -> Any:
    members = [{"member_id": member, "group_instance_id": instance} for member, instance in rows]
    fields = {"members": members} if version >= 3 else {"member_id": rows[0][0]}
    return dialogue.wire.ask("leave_group", version, group_id=group, **fields)


def settle_for_good(bob: Reader, topic: str) -> None:
    """Have an offset committed too: a broker clears an empty group away that has none, now and then by itself."""
    settle(bob)
    member = {"group_id": bob.group, "member_id": bob.id, "generation_id_or_member_epoch": bob.epoch}
    assert committed(bob.dialogue.wire, topic, 0, version=9, **member) == "none"


def test_a_member_of_the_new_protocol_is_put_out_by_its_id(dialogue: Dialogue, bob: Reader, four: str) -> None:
    settle_for_good(bob, four)
    reply = leave(dialogue, bob.group, (bob.id, None))
    assert reply.error_code.name == "none"
    assert [(m.member_id, m.group_instance_id, m.error_code.name) for m in reply.members] == [(bob.id, None, "none")]
    assert listed(dialogue, bob.group).group_state == "Empty"
    assert bob.error() == "unknown_member_id"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_too(dialogue: Dialogue, bob: Reader, four: str, version: int) -> None:
    settle_for_good(bob, four)
    assert leave(dialogue, bob.group, ("nobody", None), version=version).error_code.name == "unknown_member_id"
    assert leave(dialogue, bob.group, (bob.id, None), version=version).error_code.name == "none"
    assert bob.error() == "unknown_member_id"


def test_a_static_member_of_the_new_protocol_is_put_out_by_its_instance(
    dialogue: Dialogue, bob: Reader, four: str
) -> None:
    bob.instance = "i1"
    settle_for_good(bob, four)
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
