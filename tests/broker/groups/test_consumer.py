"""Consumer groups of KIP-848: epochs, targets, who lets go first, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.groups.clients import Turned
from tests.broker.groups.consumer_members import DESCRIBE_CONSUMERS, FIRST, Reader, readers
from waterclock.broker.wire.errors import Error


def test_a_member_that_says_everything_anew_is_told_everything_again(served: Turned) -> None:
    with readers(served, "ann") as (ann,):
        ann.joins()
        answer = ann.says(rebalance_timeout=60_000, subscribed_topic_names=["t"])
        assert (answer.member_epoch, len(answer.assignment.topic_partitions[0].partitions)) == (2, 4)


def test_a_partition_is_given_when_its_owner_has_let_go_of_it(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        ann.settles()
        assert (bob.joins().member_epoch, bob.numbers) == (3, [])  # at the group's epoch, with nothing to read yet
        assert ann.described().group_state == "Reconciling"
        assert (ann.says().member_epoch, len(ann.numbers)) == (2, 2)  # to let go of two before it gets there
        assert (bob.says().assignment, ann.says().member_epoch) == (None, 2)  # it still reads them
        ann.reads = set(ann.assigned_now)
        assert ann.says().member_epoch == 3
        bob.says()
        assert sorted([*ann.numbers, *bob.numbers]) == [0, 1, 2, 3]
        assert (len(bob.numbers), ann.described().group_state) == (2, "Stable")


def test_who_does_not_say_what_it_reads_reads_it_still(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        bob.joins()
        assert (ann.remembers(ann.beat()).member_epoch, len(ann.numbers)) == (2, 2)
        assert ann.remembers(ann.beat()).member_epoch == 2
        assert bob.says().assignment is None


def test_who_had_let_go_before_it_was_asked_is_there_at_once(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        bob.joins()
        ann.reads = {part for part in ann.assigned_now if part[1] < 2}
        assert (ann.says().member_epoch, ann.numbers) == (3, [0, 1])
        bob.says()
        assert bob.numbers == [2, 3]


def test_who_is_to_let_go_again_is_one_epoch_further(served: Turned) -> None:
    with readers(served, "ann", "bob", "cid", "dot") as (ann, bob, cid, dot):
        ann.joins()
        ann.settles()
        bob.joins()
        assert (ann.says().member_epoch, len(ann.numbers)) == (2, 2)
        cid.joins()
        dot.joins()
        ann.reads = set(ann.assigned_now)
        assert (ann.says().member_epoch, len(ann.numbers)) == (3, 1)
        ann.reads = set(ann.assigned_now)
        assert (ann.says().member_epoch, len(ann.numbers)) == (5, 1)


def test_what_a_member_leaves_behind_is_free_at_once(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        bob.joins()
        ann.settles()
        bob.settles()
        assert ann.leaves() == Error.NONE
        assert (bob.says().member_epoch, bob.numbers) == (4, [0, 1, 2, 3])
        assert bob.leaves() == Error.NONE
        assert bob.described().group_state == "Empty"


def test_three_members_move_only_what_must_move(served: Turned) -> None:
    with readers(served, "ann", "bob", "cid") as some:
        ann, bob, cid = some
        ann.joins()
        bob.joins()
        for reader in (ann, bob):
            reader.settles()
        before = {reader.client_id: set(reader.assigned_now) for reader in (ann, bob)}
        cid.joins()
        for _ in range(2):
            for reader in some:
                reader.settles()
        assert sorted(len(reader.assigned_now) for reader in some) == [1, 1, 2]
        assert all(set(reader.assigned_now) <= before[reader.client_id] for reader in (ann, bob))


def test_the_range_assignor_gives_neighbours(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.member, bob.member = "a", "b"
        ann.create_topic("u", 3)
        ann.joins("t", "u", server_assignor="range")
        bob.joins("t", "u", server_assignor="range")
        for reader in (ann, bob, ann, bob):
            reader.settles()
        assert (ann.numbers, bob.numbers) == ([0, 0, 1, 1], [2, 2, 3])
        assert ann.described().assignor_name == "range"


def test_the_assignor_is_the_one_that_most_ask_for(served: Turned) -> None:
    with readers(served, "ann", "bob", "cid") as (ann, bob, cid):
        ann.joins(server_assignor="uniform")
        bob.joins(server_assignor="range")
        cid.joins(server_assignor="range")
        assert ann.described().assignor_name == "range"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"group_id": ""}, Error.INVALID_REQUEST),
        ({"member_id": ""}, Error.INVALID_REQUEST),
        ({"instance_id": ""}, Error.INVALID_REQUEST),
        ({"rack_id": ""}, Error.INVALID_REQUEST),
        ({"rebalance_timeout": -1}, Error.INVALID_REQUEST),
        ({"topic_partitions": None}, Error.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, Error.INVALID_REQUEST),
        ({"member_epoch": -3}, Error.INVALID_REQUEST),
        ({"member_epoch": -2}, Error.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, Error.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, Error.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "(?!a).*"}, Error.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, Error.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, Error.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_refused(served: Turned, said: dict[str, Any], error: Error) -> None:
    with readers(served, "ann") as (ann,):
        answer = ann.beat(**{**FIRST, **said})
        assert (answer.error_code, bool(answer.error_message)) == (error, True)
        assert ann.listed() == []


def test_who_is_not_a_member_is_told_so(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        assert bob.beat(member_epoch=1).error_code == Error.UNKNOWN_MEMBER_ID
        assert bob.leaves() == Error.UNKNOWN_MEMBER_ID
        assert bob.beat(member_epoch=1, instance_id="desk-1").error_code == Error.UNKNOWN_MEMBER_ID
        assert bob.beat(member_epoch=-2, instance_id="desk-1").error_code == Error.UNKNOWN_MEMBER_ID


def test_a_member_may_begin_again_at_epoch_0(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        bob.joins()
        bob.leaves()
        ann.settles()
        assert (ann.joins().member_epoch, ann.numbers) == (4, [0, 1, 2, 3])


def test_a_member_without_any_topic_reads_nothing_and_changes_nothing(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        assert ann.beat(**{**FIRST, "subscribed_topic_names": []}).member_epoch == 1
        assert bob.joins().member_epoch == 2
        assert bob.numbers == [0, 1, 2, 3]


def test_a_member_of_another_epoch_is_fenced(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        assert ann.beat(member_epoch=3).error_code == Error.FENCED_MEMBER_EPOCH
        bob.joins()
        bob.leaves()
        ann.settles()
        assert ann.epoch == 4
        assert ann.beat(member_epoch=1, topic_partitions=[]).error_code == Error.FENCED_MEMBER_EPOCH


def test_a_member_that_did_not_hear_of_its_new_epoch_may_say_the_old_one(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        ann.settles()
        bob.joins()
        bob.leaves()
        rows = [{"topic_id": topic, "partitions": [number]} for topic, number in ann.reads]
        assert ann.beat(topic_partitions=rows).member_epoch == 4
        assert ann.beat(topic_partitions=rows).member_epoch == 4  # epoch 2 again: the answer was lost
        assert ann.beat().error_code == Error.FENCED_MEMBER_EPOCH  # but it must say what it reads
        (topic, _), *_ = ann.reads
        beyond = [*rows, {"topic_id": topic, "partitions": [9]}]
        assert ann.beat(topic_partitions=beyond).error_code == Error.FENCED_MEMBER_EPOCH


def test_offsets_are_committed_and_fetched_in_the_members_epoch(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        assert ann.commit("g", 5, member=ann.member, generation=2) == Error.NONE
        assert ann.commit("g", 5, member=ann.member, generation=1) == Error.STALE_MEMBER_EPOCH
        assert ann.commit("g", 5, member=ann.member, generation=3) == Error.STALE_MEMBER_EPOCH
        assert ann.commit("g", 5, member="made up", generation=1) == Error.UNKNOWN_MEMBER_ID
        assert ann.commit("g", 5) == Error.UNKNOWN_MEMBER_ID
        assert ann.commit("g", 5, member=ann.member, generation=2, version=8) == Error.UNSUPPORTED_VERSION
        assert ann.fetched("g").committed_offset == 5
        assert ann.fetched("g", member_id=ann.member, member_epoch=2).committed_offset == 5
        assert ann.fetched("g", member_id=ann.member, member_epoch=7).error_code == Error.STALE_MEMBER_EPOCH
        assert ann.fetched("g", member_id="made up", member_epoch=1).error_code == Error.UNKNOWN_MEMBER_ID
        ann.leaves()
        assert bob.commit("g", 6) == Error.NONE


def test_a_transaction_of_another_epoch_hears_of_a_generation(served: Turned) -> None:
    with readers(served, "ann") as (ann,):
        ann.joins()
        check = served.broker.inside.groups.check_commit
        assert served.broker.call(lambda: check("g", ann.member, None, 2, True)) == Error.NONE
        assert served.broker.call(lambda: check("g", ann.member, None, 9, True)) == Error.ILLEGAL_GENERATION


def test_a_full_group_takes_nobody_in() -> None:
    settings = {"group.consumer.max.size": "1"}
    with Turned(settings) as served, readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        assert bob.beat(**FIRST).error_code == Error.GROUP_MAX_SIZE_REACHED
        assert ann.says().error_code == Error.NONE


def test_a_group_is_described(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins(rack_id="north", instance_id="desk-1")
        bob.joins()
        group = ann.described()
        assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
            "Reconciling", 3, 3, "uniform",
        )  # fmt: skip
        member = next(row for row in group.members if row.member_id == ann.member)
        assert (member.client_id, member.client_host, member.rack_id, member.instance_id, member.member_type) == (
            "ann", "/127.0.0.1", "north", "desk-1", 1,
        )  # fmt: skip
        assert member.subscribed_topic_names == ("t",)
        sizes = [len(side.topic_partitions[0].partitions) for side in (member.assignment, member.target_assignment)]
        assert (sizes, member.assignment.topic_partitions[0].topic_name) == ([4, 2], "t")


def test_other_groups_are_no_consumer_groups(served: Turned) -> None:
    with readers(served, "ann") as (ann,):
        ann.commit("simple", 1)
        rows = ann.ask(DESCRIBE_CONSUMERS, 1, group_ids=["simple", "nobody", ""], include_authorized_operations=False)
        not_found = Error.GROUP_ID_NOT_FOUND
        assert [group.error_code for group in rows.groups] == [not_found, not_found, Error.INVALID_GROUP_ID]


class TestStaticMembers:
    @pytest.fixture
    def both(self, served: Turned) -> Iterator[list[Reader]]:
        with readers(served, "ann", "bob") as (ann, bob):
            ann.instance, bob.instance = "desk-1", "desk-2"
            ann.joins()
            bob.joins()
            ann.settles()
            bob.settles()
            yield [ann, bob]

    def test_keep_their_share_while_they_are_away(self, served: Turned, both: list[Reader]) -> None:
        ann, bob = both
        share, epoch = ann.numbers, bob.epoch
        assert ann.beat(member_epoch=-2).member_epoch == -2
        assert (bob.says().member_epoch, bob.says().assignment) == (epoch, None)
        again = Reader(served, "ann", instance="desk-1")
        assert (again.joins().member_epoch, again.numbers) == (epoch, share)
        assert (again.member != ann.member, bob.says().assignment) == (True, None)
        assert ann.beat(topic_partitions=[]).error_code == Error.FENCED_INSTANCE_ID
        assert ann.leaves() == Error.FENCED_INSTANCE_ID
        again.close()

    def test_hold_their_instance_until_they_leave(self, served: Turned, both: list[Reader]) -> None:
        twin = Reader(served, "ann", instance="desk-1")
        assert twin.beat(**FIRST).error_code == Error.UNRELEASED_INSTANCE_ID
        assert both[0].leaves() == Error.NONE
        assert twin.joins().error_code == Error.NONE
        twin.close()

    def test_lose_it_when_their_session_ends(self, served: Turned, both: list[Reader]) -> None:
        ann, bob = both
        assert ann.beat(member_epoch=-2).error_code == Error.NONE
        served.advance_ms(44_999)
        bob.says()
        assert len(bob.numbers) == 2
        served.advance_ms(1)
        bob.says()
        assert len(bob.numbers) == 4
