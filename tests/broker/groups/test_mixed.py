"""Groups whose members speak both protocols, since they change from one to the other one by one."""

from __future__ import annotations

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.groups.clients import Turned
from tests.broker.groups.consumer_members import Reader
from tests.broker.groups.old_readers import COOPERATIVE, EAGER, OldReader, subscription
from waterclock.broker.wire.errors import Error


def shared(ann: OldReader, bob: Reader) -> None:
    """Both go on until each has two."""
    for _ in range(4):
        ann.follows()
        bob.settles()
    assert (len(ann.numbers), len(bob.numbers)) == (2, 2)
    assert sorted([*ann.numbers, *bob.numbers]) == [0, 1, 2, 3]


def test_a_classic_group_takes_a_member_of_the_new_protocol(ann: OldReader, bob: Reader) -> None:
    assert bob.joins().member_epoch == ann.generation + 1
    assert bob.numbers == []  # all of it is ann's still
    shared(ann, bob)
    assert ann.generation == bob.epoch
    assert [(row.group_type, row.group_state) for row in bob.listed()] == [("consumer", "Stable")]


def test_a_partition_goes_over_when_its_classic_owner_joins_again(ann: OldReader, bob: Reader) -> None:
    bob.joins()
    assert ann.beats() == Error.REBALANCE_IN_PROGRESS
    assert bob.says().assignment is None
    joined = ann.takes(ann.asks())
    assert (joined.leader, joined.members, joined.protocol_name) == ("", (), EAGER)
    assert (joined.generation_id, joined.protocol_type) == (bob.epoch, "consumer")
    bob.settles()
    ann.shares(joined)
    assert (len(bob.numbers), len(ann.numbers)) == (2, 2)


def test_a_cooperative_member_reads_on_what_it_keeps(served: Turned, bob: Reader) -> None:
    ann = OldReader(served, "ann", way=COOPERATIVE)
    ann.create_topic("t", 4)
    ann.enters()
    old = ann.generation
    bob.joins()
    assert ann.follows() == Error.REBALANCE_IN_PROGRESS
    assert (ann.generation, len(ann.numbers)) == (old, 2)  # the other two are to be let go of
    assert bob.says().assignment is None
    kept = set(ann.reads)
    assert ann.follows() == Error.REBALANCE_IN_PROGRESS  # it has let go of them, and says so
    assert (ann.generation, ann.reads) == (bob.epoch, kept)
    assert ann.beats() == Error.NONE
    bob.settles()
    assert len(bob.numbers) == 2
    ann.close()


def test_a_classic_member_hears_when_what_it_waits_for_is_free(ann: OldReader, bob: Reader, cid: OldReader) -> None:
    bob.joins()
    shared(ann, bob)
    assert ann.leaves() == Error.NONE
    bob.settles()
    assert bob.numbers == [0, 1, 2, 3]
    assert cid.enters().error_code == Error.NONE
    assert cid.numbers == []
    assert cid.beats() == Error.NONE  # nothing is free yet
    bob.settles()
    assert cid.follows() == Error.REBALANCE_IN_PROGRESS
    assert len(cid.numbers) == 2


def test_when_the_last_of_the_new_protocol_leaves_the_group_is_a_classic_one(ann: OldReader, bob: Reader) -> None:
    bob.joins()
    shared(ann, bob)
    generation = ann.generation
    assert bob.leaves() == Error.NONE
    assert [(row.group_type, row.group_state) for row in ann.listed()] == [("classic", "PreparingRebalance")]
    assert ann.beats() == Error.REBALANCE_IN_PROGRESS
    joined = ann.takes(ann.asks())
    assert (joined.leader, joined.generation_id) == (ann.member, generation + 1)
    ann.shares(joined)
    assert ann.numbers == [0, 1, 2, 3]
    assert ann.state("g") == "Stable"


def test_when_the_session_of_the_last_of_the_new_protocol_ends_likewise(
    served: Turned, ann: OldReader, bob: Reader
) -> None:
    ann.session = 300_000
    ann.enters()
    bob.joins()
    shared(ann, bob)
    served.advance_ms(45_000)
    assert [row.group_type for row in ann.listed()] == ["classic"]
    assert ann.follows() == Error.REBALANCE_IN_PROGRESS
    assert ann.numbers == [0, 1, 2, 3]


def test_members_change_one_by_one_and_back(served: Turned, ann: OldReader, bob: Reader, cid: OldReader) -> None:
    bob.joins()
    shared(ann, bob)
    assert ann.leaves() == Error.NONE
    bob.settles()
    assert ([row.group_type for row in bob.listed()], bob.numbers) == (["consumer"], [0, 1, 2, 3])
    cid.enters()
    bob.settles()
    cid.follows()
    shared(cid, bob)
    bob.leaves()
    assert [row.group_type for row in ann.listed()] == ["classic"]
    cid.follows()
    assert cid.numbers == [0, 1, 2, 3]


def test_who_waits_in_a_rebalance_is_told_to_join_again(
    served: Turned, ann: OldReader, bob: Reader, cid: OldReader
) -> None:
    waiting = cid.asks()
    assert waiting.waiting
    bob.joins()
    assert waiting.get().error_code == Error.REBALANCE_IN_PROGRESS
    assert cid.enters().error_code == Error.NONE
    ann.follows()
    bob.settles()
    cid.follows()
    assert sorted([*ann.numbers, *bob.numbers, *cid.numbers]) == [0, 1, 2, 3]


def test_the_session_of_a_classic_member_is_its_own(served: Turned, ann: OldReader, bob: Reader) -> None:
    bob.joins()
    shared(ann, bob)
    served.advance_ms(9_999)
    assert len(bob.described().members) == 2
    served.advance_ms(1)
    assert [row.member_id for row in bob.described().members] == [bob.member]
    assert ann.beats() == Error.UNKNOWN_MEMBER_ID


def test_who_is_told_to_join_again_and_does_not_is_out(served: Turned, ann: OldReader, bob: Reader) -> None:
    ann.session = 50_000
    ann.enters(rebalance=20_000)
    bob.joins()
    assert ann.beats() == Error.REBALANCE_IN_PROGRESS
    served.advance_ms(15_000)
    assert ann.beats() == Error.REBALANCE_IN_PROGRESS  # heartbeats do not help
    served.advance_ms(4_999)
    assert len(bob.described().members) == 2
    served.advance_ms(1)
    assert [row.member_id for row in bob.described().members] == [bob.member]


def test_who_joins_and_does_not_ask_for_its_share_is_out(served: Turned, bob: Reader, cid: OldReader) -> None:
    bob.create_topic("t", 4)
    bob.joins()
    cid.session = 300_000
    cid.takes(cid.asks(rebalance=20_000))
    served.advance_ms(19_999)
    assert len(bob.described().members) == 2
    served.advance_ms(1)
    assert len(bob.described().members) == 1
    cid.member = ""
    cid.enters(rebalance=20_000)
    served.advance_ms(20_000)
    assert len(bob.described().members) == 2  # who has asked stays


def test_who_is_who_is_described(ann: OldReader, bob: Reader) -> None:
    bob.joins()
    shared(ann, bob)
    rows = {row.member_id: row for row in bob.described().members}
    assert {who: row.member_type for who, row in rows.items()} == {ann.member: 0, bob.member: 1}
    assert rows[ann.member].subscribed_topic_names == ("t",)
    assert rows[ann.member].member_epoch == bob.epoch
    assert bob.state("g") == "Dead"  # DescribeGroups knows classic groups


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"generation_id": 99}, Error.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, Error.UNKNOWN_MEMBER_ID),
        ({"protocol_name": "sticky"}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "nobody"}, Error.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_is_wrong_in_sync_group(ann: OldReader, bob: Reader, said: dict[str, object], error: Error) -> None:
    bob.joins()
    shared(ann, bob)
    assert ann.syncs(**said).get().error_code == error  # type: ignore[arg-type]


def test_what_the_classic_protocol_says_of_a_member_of_the_new_one(ann: OldReader, bob: Reader) -> None:
    bob.joins()
    shared(ann, bob)
    assert ann.beats(member_id=bob.member) == Error.UNKNOWN_MEMBER_ID
    assert ann.syncs(member_id=bob.member).get().error_code == Error.UNKNOWN_MEMBER_ID
    assert ann.beats(generation_id=ann.generation - 1) == Error.ILLEGAL_GENERATION


def test_sync_group_tells_of_a_rebalance(ann: OldReader, bob: Reader) -> None:
    bob.joins()
    assert ann.syncs().get().error_code == Error.REBALANCE_IN_PROGRESS


def test_offsets_are_committed_by_generation_and_by_epoch(ann: OldReader, bob: Reader) -> None:
    bob.joins()
    shared(ann, bob)
    assert ann.commits(5) == Error.NONE
    assert ann.commits(5, version=8) == Error.NONE
    assert ann.commits(6, generation=ann.generation + 1) == Error.ILLEGAL_GENERATION
    assert ann.commits(7, member=bob.member, generation=bob.epoch) == Error.NONE
    assert ann.commits(8, member=bob.member, generation=bob.epoch + 1) == Error.STALE_MEMBER_EPOCH
    assert ann.commits(8, member=bob.member, version=8) == Error.UNSUPPORTED_VERSION
    assert ann.fetched("g", member_id=ann.member, member_epoch=99).error_code == Error.ILLEGAL_GENERATION
    assert ann.fetched("g").committed_offset == 7


def test_a_member_that_comes_back_by_the_other_protocol_is_the_same(ann: OldReader, bob: Reader) -> None:
    bob.joins()
    shared(ann, bob)
    bob.member = ann.member
    assert bob.joins().error_code == Error.NONE
    assert {row.member_type for row in bob.described().members} == {1}


class TestStaticMembers:
    """One of each protocol under one instance, one after the other."""

    def test_one_comes_back_by_the_new_protocol_with_its_share(self, served: Turned, bob: Reader) -> None:
        ann = OldReader(served, "ann", instance="desk-1")
        ann.create_topic("t", 4)
        ann.enters()
        bob.instance = "desk-1"
        bob.joins()
        assert bob.numbers == [0, 1, 2, 3]
        assert ann.beats() == Error.FENCED_INSTANCE_ID
        assert ann.joins(protocols=ann.says()).get().error_code == Error.FENCED_INSTANCE_ID
        ann.close()

    def test_and_back_by_the_classic_one(self, served: Turned, bob: Reader) -> None:
        bob.create_topic("t", 4)
        bob.instance = "desk-1"
        bob.joins()
        bob.settles()
        ann = OldReader(served, "ann", instance="desk-1")
        ann.enters()
        assert (ann.numbers, ann.generation) == ([0, 1, 2, 3], bob.epoch)
        assert [(row.group_type, row.group_state) for row in ann.listed()] == [("classic", "Stable")]
        assert ann.beats() == Error.NONE
        served.advance_ms(9_999)
        assert ann.beats() == Error.NONE
        served.advance_ms(10_000)
        assert ann.state("g") == "Empty"
        ann.close()


def running(served: Turned) -> int:
    """Everything that is waited for, of all members."""
    served.settle()
    groups = served.broker.inside.groups
    return int(served.broker.call(lambda: groups.heartbeats.statistics().watched + groups.joins.statistics().watched))


def test_nothing_runs_on_for_who_is_gone(served: Turned, ann: OldReader, bob: Reader, cid: OldReader) -> None:
    bob.joins()
    ann.follows()
    cid.takes(cid.asks())
    assert running(served) == 4  # three sessions; and cid is to ask for its share
    cid.leaves()
    ann.beats()
    assert running(served) == 3  # ann is to join again
    shared(ann, bob)
    bob.leaves()
    ann.follows()
    assert running(served) == 1
    ann.leaves()
    assert running(served) == 0


def test_nothing_runs_on_for_a_group_that_is_classic_again(served: Turned, ann: OldReader, bob: Reader) -> None:
    bob.joins()
    ann.beats()  # from here on it has a time to join again
    bob.leaves()
    assert running(served) == 2  # its session, and the rebalance


def test_who_falls_silent_when_the_group_goes_over_is_out_in_time(served: Turned, ann: OldReader, bob: Reader) -> None:
    bob.joins()
    served.advance_ms(10_000)
    assert [row.member_id for row in bob.described().members] == [bob.member]


def test_a_pattern_ends_with_the_new_protocol(served: Turned, bob: Reader, cid: OldReader) -> None:
    bob.create_topic("t", 4)
    bob.create_topic("u", 1)
    bob.joins(subscribed_topic_regex="[tu]")
    other = Reader(served, "other")
    other.joins()
    cid.member = bob.member
    cid.takes(cid.asks())
    (row,) = (row for row in bob.described().members if row.member_id == bob.member)
    assert (row.subscribed_topic_regex, row.subscribed_topic_names) == (None, ("t",))
    other.close()


def test_a_static_member_takes_the_place_of_its_old_self(served: Turned, bob: Reader) -> None:
    bob.create_topic("t", 4)
    bob.joins()
    ann, twin = (OldReader(served, "ann", instance="desk-1") for _ in range(2))
    ann.enters()
    shared(ann, bob)
    twin.enters()
    assert (twin.numbers, ann.beats()) == (ann.numbers, Error.FENCED_INSTANCE_ID)
    assert (len(bob.described().members), running(served)) == (2, 2)
    for one in (ann, twin):
        one.close()


def test_a_share_is_written_in_the_version_that_the_member_speaks(served: Turned, bob: Reader, cid: OldReader) -> None:
    bob.create_topic("t", 4)
    bob.joins()
    cid.takes(cid.comes(protocols={EAGER: subscription(["t"], version=0)}))
    assert cid.syncs().get().assignment[:2] == b"\0\0"
