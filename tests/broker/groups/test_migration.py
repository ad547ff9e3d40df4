"""Which groups go over to the other protocol, and which stay what they are."""

from __future__ import annotations

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.groups.clients import Turned
from tests.broker.groups.consumer_members import FIRST, Reader
from tests.broker.groups.old_readers import COOPERATIVE, EAGER, OldReader, assignment, subscription
from waterclock.broker.wire.errors import Error
from waterclock.errors import UsageError


def test_a_classic_member_must_speak_what_the_others_do(ann: OldReader, bob: Reader, cid: OldReader) -> None:
    bob.joins()
    asked = {"protocols": {"other": subscription(["t"])}}
    assert cid.joins(**asked).get().error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert cid.joins(kind="connect", protocols=cid.says()).get().error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert cid.joins(protocols={EAGER: b"mine"}).get().error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert cid.joins(protocols={}).get().error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert cid.asks().get().error_code == Error.NONE


class TestThePolicy:
    """`group.consumer.migration.policy`."""

    @pytest.mark.parametrize("policy", ["disabled", "downgrade"])
    def test_a_group_that_may_not_go_over_stays_classic(self, policy: str) -> None:
        with Turned({"group.consumer.migration.policy": policy}) as served:
            ann, bob = OldReader(served, "ann"), Reader(served, "bob")
            ann.create_topic("t", 4)
            ann.enters()
            answer = bob.beat(member_epoch=0, **FIRST)
            assert answer.error_code == Error.GROUP_ID_NOT_FOUND
            assert f"group.consumer.migration.policy is {policy}" in answer.error_message
            assert ann.beats() == Error.NONE
            ann.close()
            bob.close()

    @pytest.mark.parametrize("policy", ["upgrade", "DISABLED"])
    def test_a_group_that_may_not_go_back_stays_a_consumer_group(self, policy: str) -> None:
        with Turned({"group.consumer.migration.policy": policy}) as served:
            ann, bob = OldReader(served, "ann"), Reader(served, "bob")
            bob.create_topic("t", 4)
            bob.joins()
            if policy == "DISABLED":
                assert ann.joins(protocols=ann.says()).get().error_code == Error.INCONSISTENT_GROUP_PROTOCOL
            else:
                ann.enters()
                bob.settles()
                assert bob.leaves() == Error.NONE
                assert [row.group_type for row in ann.listed()] == ["consumer"]
                for _ in range(2):
                    ann.follows()
                assert ann.numbers == [0, 1, 2, 3]  # the broker divides, though nobody speaks the new protocol
                assert ann.leaves() == Error.NONE
                assert ann.listed()[0].group_state == "Empty"
            ann.close()
            bob.close()

    def test_a_group_that_would_be_too_large_stays_what_it_is(self) -> None:
        with Turned({"group.consumer.max.size": "2", "group.max.size": "1"}) as served:
            ann, bob, dot = OldReader(served, "ann"), Reader(served, "bob"), Reader(served, "dot")
            ann.create_topic("t", 4)
            ann.enters()
            bob.joins()
            assert dot.beat(member_epoch=0, **FIRST).error_code == Error.GROUP_MAX_SIZE_REACHED
            cid = OldReader(served, "cid")
            assert cid.joins(protocols=cid.says()).get().error_code == Error.GROUP_MAX_SIZE_REACHED
            for _ in range(4):
                ann.follows()
                bob.settles()
            assert sorted([*ann.numbers, *bob.numbers]) == [0, 1, 2, 3]
            for one in (ann, bob, cid, dot):
                one.close()

    def test_a_group_that_was_too_large_when_the_last_went_stays_a_consumer_group(self) -> None:
        with Turned({"group.max.size": "1"}) as served:
            ann, bob, cid = OldReader(served, "ann"), Reader(served, "bob"), OldReader(served, "cid")
            ann.create_topic("t", 4)
            ann.enters()
            bob.joins()
            cid.enters()
            assert bob.leaves() == Error.NONE
            assert cid.leaves() == Error.NONE
            assert [row.group_type for row in ann.listed()] == ["consumer"]
            for one in (ann, bob, cid):
                one.close()

    def test_a_full_classic_group_stays_classic(self) -> None:
        with Turned({"group.consumer.max.size": "1"}) as served:
            ann, bob = OldReader(served, "ann"), Reader(served, "bob")
            ann.create_topic("t", 4)
            ann.enters()
            assert bob.beat(member_epoch=0, **FIRST).error_code == Error.GROUP_MAX_SIZE_REACHED
            assert ann.beats() == Error.NONE
            assert [(row.group_type, row.group_state) for row in ann.listed()] == [("classic", "Stable")]
            ann.close()
            bob.close()

    def test_another_word_is_refused(self) -> None:
        with pytest.raises(UsageError, match="must be disabled, upgrade, downgrade or bidirectional"):
            Turned({"group.consumer.migration.policy": "sideways"})


def test_two_that_were_given_the_same_may_not_be_members_of_a_consumer_group(
    served: Turned, ann: OldReader, bob: Reader, cid: OldReader
) -> None:
    waiting = cid.asks()
    joined = ann.takes(ann.asks())
    other = cid.takes(waiting)
    everything = assignment(("t", number) for number in range(4))
    who, then = (ann, cid) if joined.members else (cid, ann)
    assert bool(joined.members) != bool(other.members)
    assert who.syncs({ann.member: everything, cid.member: everything}).get().error_code == Error.NONE
    assert then.syncs().get().error_code == Error.NONE
    answer = bob.beat(member_epoch=0, **FIRST)
    assert answer.error_code == Error.GROUP_ID_NOT_FOUND
    assert "the same partition" in answer.error_message


def test_what_is_not_there_any_more_goes_over_to_nobody(served: Turned, ann: OldReader, bob: Reader) -> None:
    cid = OldReader(served, "cid")
    cid.member, cid.generation = ann.member, ann.generation
    cid.takes(cid.asks())
    cid.syncs({cid.member: assignment([("t", 0), ("t", 99), ("gone", 0)])}).get()
    bob.joins()
    (row,) = (row for row in bob.described().members if row.member_id == cid.member)
    assert [(part.topic_name, part.partitions) for part in row.assignment.topic_partitions] == [("t", (0,))]
    cid.follows()
    bob.settles()
    assert sorted([*cid.numbers, *bob.numbers]) == [0, 1, 2, 3]
    cid.close()


def test_what_a_member_may_not_have_let_go_of_yet_is_given_to_nobody(served: Turned, bob: Reader) -> None:
    # Its share is there, and less than it read; but it has not got the answer, or has not joined again to tell.
    cid = OldReader(served, "cid", way=COOPERATIVE)
    cid.create_topic("t", 4)
    cid.enters()
    joined = cid.takes(cid.asks())
    assert len(joined.members) == 1
    cid.syncs({cid.member: assignment([("t", 0), ("t", 1)])}).get()
    bob.joins()
    assert bob.numbers == []
    cid.reads = {("t", 0), ("t", 1)}
    assert cid.follows() == Error.REBALANCE_IN_PROGRESS
    bob.settles()
    assert sorted([*cid.numbers, *bob.numbers]) == [0, 1, 2, 3]
    cid.close()
