"""JoinGroup and SyncGroup: every edge of the classic state table that a member's word takes."""

from __future__ import annotations

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.groups.clients import JOIN, Person, Turned, people, stable_group
from waterclock.broker.wire.errors import Error


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_and_sync_is_answered(served: Turned, version: int) -> None:
    with people(served, "ann") as (ann,):
        joined = ann.takes(ann.comes(version=version))
        assert joined.protocol_name == "range"
        assert ann.syncs({ann.member: b"all"}, version=min(version, 5)).get().assignment == b"all"


def test_an_error_has_no_protocol_as_each_version_says_that(served: Turned) -> None:
    with people(served, "ann") as (ann,):
        ann.member = "made up"
        assert ann.joins(version=6).get().protocol_name == ""
        assert ann.joins(version=7).get().protocol_name is None


def test_a_member_without_an_id_gets_one_and_the_group_stays_empty(served: Turned) -> None:
    with people(served, "ann") as (ann,):
        answer = ann.joins().get()
        assert answer.error_code == Error.MEMBER_ID_REQUIRED
        assert answer.member_id.startswith("ann-")
        assert ann.state("g") == "Empty"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"session": 5_999}, Error.INVALID_SESSION_TIMEOUT),
        ({"session": 1_800_001}, Error.INVALID_SESSION_TIMEOUT),
        ({"kind": ""}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {}}, Error.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_join_that_cannot_be_is_refused(served: Turned, said: dict[str, object], error: Error) -> None:
    with people(served, "ann") as (ann,):
        assert ann.joins(**said).get().error_code == error


def test_a_group_must_have_a_name_and_a_member_id_must_be_known(served: Turned) -> None:
    with people(served, "ann", group="") as (ann,):
        assert ann.joins().get().error_code == Error.INVALID_GROUP_ID
        assert ann.syncs().get().error_code == Error.INVALID_GROUP_ID
        assert ann.beats() == Error.INVALID_GROUP_ID
    with people(served, "bob") as (bob,):
        bob.member = "bob-made-up"
        assert bob.joins().get().error_code == Error.UNKNOWN_MEMBER_ID
        assert bob.syncs().get().error_code == Error.UNKNOWN_MEMBER_ID
        assert bob.beats() == Error.UNKNOWN_MEMBER_ID
        assert bob.leaves() == Error.UNKNOWN_MEMBER_ID
        assert bob.listed() == []


def test_a_second_member_begins_a_rebalance_that_ends_when_the_first_has_joined_again(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann)
        answer = bob.comes()
        assert answer.waiting
        assert ann.state("g") == "PreparingRebalance"
        assert ann.beats() == Error.REBALANCE_IN_PROGRESS
        assert ann.syncs().get().error_code == Error.REBALANCE_IN_PROGRESS
        leads, follows = ann.takes(ann.joins()), bob.takes(answer)
        assert (leads.generation_id, follows.generation_id) == (2, 2)
        assert leads.leader == follows.leader == ann.member
        assert {m.member_id for m in leads.members} == {ann.member, bob.member}
        assert follows.members == ()


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"generation_id": 0}, Error.ILLEGAL_GENERATION),
        ({"generation_id": 2}, Error.ILLEGAL_GENERATION),
        ({"member_id": "made up"}, Error.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "made up"}, Error.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": None}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": None}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": None, "version": 4}, Error.NONE),
        ({"protocol_type": "consumer", "protocol_name": "range"}, Error.NONE),
    ],
)
def test_a_sync_must_be_of_this_generation(served: Turned, said: dict[str, object], error: Error) -> None:
    with people(served, "ann") as (ann,):
        ann.takes(ann.comes())
        assert ann.syncs(**said).get().error_code == error


def test_a_follower_that_joins_again_unchanged_is_told_of_its_generation(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann, bob)
        again = bob.joins().get()
        assert (again.error_code, again.generation_id, again.leader) == (0, bob.generation, ann.member)
        assert ann.state("g") == "Stable"


def test_a_leader_that_joins_again_or_a_follower_with_news_begins_a_rebalance(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann, bob)
        answer = ann.joins()
        assert answer.waiting
        bob.takes(bob.joins())
        assert ann.takes(answer).generation_id == bob.generation
        ann.syncs({}).get()
        news = bob.joins(protocols={"range": b"more"})
        assert news.waiting
        reply = ann.takes(ann.joins())
        assert (b"more" in {m.metadata for m in reply.members}, reply.generation_id) == (True, bob.generation + 1)


def test_a_member_that_did_not_hear_of_its_generation_is_told_again(served: Turned) -> None:
    with people(served, "ann") as (ann,):
        ann.takes(ann.comes())
        again = ann.joins().get()
        assert (again.generation_id, len(again.members)) == (1, 1)
        assert ann.state("g") == "CompletingRebalance"


def test_news_during_the_division_call_it_off(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann)
        answer = bob.comes()
        ann.takes(ann.joins())
        bob.takes(answer)
        share = bob.syncs()
        assert share.waiting
        ann.joins(protocols={"range": b"news"})
        assert share.get().error_code == Error.REBALANCE_IN_PROGRESS
        assert bob.state("g") == "PreparingRebalance"


def test_the_protocol_is_one_that_all_speak_with_the_most_votes(served: Turned) -> None:
    with people(served, "ann", "bob", "cid") as (ann, bob, cid):
        ann.takes(ann.comes(protocols={"a": b"", "c": b"", "b": b""}))
        others = [bob.comes(protocols={"b": b"", "c": b""}), cid.comes(protocols={"b": b"", "c": b""})]
        assert ann.takes(ann.joins(protocols={"a": b"", "c": b"", "b": b""})).protocol_name == "b"
        assert [answer.get().protocol_name for answer in others] == ["b", "b"]


def test_who_speaks_nothing_in_common_or_is_of_another_kind_stays_out(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann)
        assert bob.joins(protocols={"sticky": b""}).get().error_code == Error.INCONSISTENT_GROUP_PROTOCOL
        assert bob.joins(kind="connect").get().error_code == Error.INCONSISTENT_GROUP_PROTOCOL
        assert ann.state("g") == "Stable"


def test_an_emptied_group_may_become_one_of_another_kind(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann)
        ann.leaves()
        assert bob.takes(bob.comes(kind="connect")).protocol_type == "connect"


def test_a_full_group_takes_nobody_in_but_keeps_its_own() -> None:
    with Turned({"group.max.size": "2"}) as served, people(served, "ann", "bob", "cid") as (ann, bob, cid):
        stable_group(ann, bob)
        assert cid.joins().get().error_code == Error.GROUP_MAX_SIZE_REACHED
        answer = ann.joins()
        bob.takes(bob.joins())
        assert ann.takes(answer).error_code == 0


def test_in_a_rebalance_those_stay_who_join_first_and_the_last_is_turned_away() -> None:
    with Turned({"group.max.size": "2"}) as served, people(served, "ann", "bob", "cid") as (ann, bob, cid):
        stable_group(ann, bob)
        answers = [ann.joins(), cid.comes()]
        assert answers[1].waiting
        assert bob.joins().get().error_code == Error.GROUP_MAX_SIZE_REACHED
        assert ann.takes(answers[0]).generation_id == cid.takes(answers[1]).generation_id
        assert bob.beats() == Error.UNKNOWN_MEMBER_ID


def test_ids_given_out_do_not_fill_a_group_but_who_comes_last_is_turned_away() -> None:
    with Turned({"group.max.size": "1"}) as served, people(served, "ann", "bob") as (ann, bob):
        bob.member = bob.joins().get().member_id
        first = ann.comes()
        ann.takes(first)  # with no delay the first wait is over at once
        assert bob.joins().get().error_code == Error.GROUP_MAX_SIZE_REACHED


def test_a_request_sent_twice_is_answered_twice(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann)
        first = bob.comes()
        second = Person(served, "bob")
        second.member = bob.member
        answer = second.joins()
        assert first.get().error_code == Error.REBALANCE_IN_PROGRESS
        ann.joins()
        assert second.takes(answer).generation_id == 2
        second.close()


def test_a_member_id_is_the_client_id_or_the_instance_with_something_unique(served: Turned) -> None:
    with people(served, "ann") as (ann,):
        ann.instance = "desk-1"
        assert ann.takes(ann.joins()).member_id.startswith("desk-1-")


def test_a_join_that_makes_no_sense_closes_only_its_connection(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        ann.wire.send_bytes(
            bytes.fromhex("0000000c") + JOIN.to_bytes(2, "big") + bytes.fromhex("0009 00000001 ffff 00 ff")
        )
        assert ann.wire.ends()
        assert bob.takes(bob.comes()).generation_id == 1
