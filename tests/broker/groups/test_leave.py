"""Members that leave, and static members that come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.groups.clients import LEAVE, Person, Turned, people, stable_group
from waterclock.broker.wire.errors import Error


@pytest.fixture
def static(served: Turned) -> Iterator[list[Person]]:
    """Two static members, ann leading, in a stable group."""
    some = [Person(served, "ann", instance="desk-1"), Person(served, "bob", instance="desk-2")]
    first = some[0].takes(some[0].joins())
    assert first.leader == some[0].member
    answer = some[1].joins()
    some[0].takes(some[0].joins())
    some[1].takes(answer)
    shares = {person.member: person.client_id.encode() for person in some}
    for person in some:
        assert person.syncs(shares).get().error_code == 0
    yield some
    for person in some:
        person.close()


def leave(client: Any, *members: tuple[str, str | None], version: int = 5) -> Any:
    rows = [{"member_id": member, "group_instance_id": instance, "reason": None} for member, instance in members]
    return client.ask(LEAVE, version, group_id="g", members=rows, member_id=members[0][0])


def test_a_rebalance_ends_when_the_one_that_it_waited_for_leaves(served: Turned) -> None:
    with people(served, "ann", "bob", "cid") as (ann, bob, cid):
        stable_group(ann, bob)
        answer = cid.comes()
        other = ann.joins()
        assert answer.waiting
        assert bob.leaves() == Error.NONE
        assert cid.takes(answer).generation_id == ann.takes(other).generation_id


def test_several_leave_at_once_each_with_its_own_error(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann, bob)
        answer = leave(ann, (ann.member, None), ("made up", None), (bob.member, None), ("", "made up"))
        assert answer.error_code == Error.NONE
        assert [row.error_code for row in answer.members] == [0, Error.UNKNOWN_MEMBER_ID, 0, Error.UNKNOWN_MEMBER_ID]
        assert ann.state("g") == "Empty"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_the_answers_error_is_the_members(served: Turned, version: int) -> None:
    with people(served, "ann") as (ann,):
        stable_group(ann)
        assert leave(ann, ("made up", None), version=version).error_code == Error.UNKNOWN_MEMBER_ID
        assert leave(ann, (ann.member, None), version=version).error_code == Error.NONE


def test_nobody_leaves_a_group_without_a_name(served: Turned) -> None:
    with people(served, "ann", group="") as (ann,):
        answer = ann.ask(LEAVE, 5, group_id="", members=[])
        assert (answer.error_code, answer.members) == (Error.INVALID_GROUP_ID, ())


def test_an_id_given_out_can_leave(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann)
        bob.member = bob.joins().get().member_id
        assert bob.leaves() == Error.NONE
        assert bob.joins().get().error_code == Error.UNKNOWN_MEMBER_ID


def test_a_static_member_comes_back_without_a_rebalance(static: list[Person]) -> None:
    ann, bob = static
    old, bob.member = bob.member, ""
    again = bob.joins().get()
    assert (again.error_code, again.generation_id, again.leader) == (0, ann.generation, ann.member)
    assert again.member_id != old
    bob.member = again.member_id
    assert bob.syncs().get().assignment == b"bob"
    assert ann.beats() == Error.NONE


def test_who_waits_with_the_old_member_id_is_fenced_at_once(served: Turned, static: list[Person]) -> None:
    ann, bob = static
    answer = bob.joins(protocols={"range": b"news"})
    assert answer.waiting
    twin = Person(served, "bob", instance="desk-2")
    other = twin.joins()
    assert answer.get().error_code == Error.FENCED_INSTANCE_ID
    ann.takes(ann.joins())
    assert twin.takes(other).generation_id == ann.generation
    twin.close()


def test_a_static_member_that_comes_back_during_the_division_calls_it_off(served: Turned, static: list[Person]) -> None:
    ann, bob = static
    answer = ann.joins()
    bob.takes(bob.joins())
    ann.takes(answer)
    share = bob.syncs()
    ann.member = ""
    ann.joins()
    assert share.get().error_code == Error.REBALANCE_IN_PROGRESS


def test_a_static_member_that_misses_a_rebalance_stays_until_its_session_ends(served: Turned) -> None:
    ann, bob = Person(served, "ann", instance="desk-1"), Person(served, "bob", instance="desk-2")
    said = {"session": 100_000, "rebalance": 8_000}
    ann.takes(ann.joins(**said))
    answer = bob.joins(**said)
    ann.takes(ann.joins(**said))
    bob.takes(answer)
    ann.syncs().get()
    answer = ann.joins(**said)
    served.advance_ms(8_000)
    assert {member.group_instance_id for member in ann.takes(answer).members} == {"desk-1", "desk-2"}
    assert bob.beats() == Error.ILLEGAL_GENERATION
    for person in (ann, bob):
        person.close()


def test_a_rebalance_in_which_no_static_member_joined_waits_once_more(served: Turned) -> None:
    ann, bob = Person(served, "ann", instance="desk-1"), Person(served, "bob")
    ann.takes(ann.joins(session=100_000, rebalance=8_000))
    ann.syncs().get()
    bob.comes(rebalance=8_000, session=6_000)
    twin = Person(served)
    twin.member = bob.member
    twin.leaves()
    served.advance_ms(8_000)
    assert ann.state("g") == "PreparingRebalance"
    served.advance_ms(7_999)
    assert ann.takes(ann.joins()).generation_id == 2
    for person in (ann, bob, twin):
        person.close()
