"""Groups whose members speak both protocols, since they change from one to the other one by one."""

from __future__ import annotations

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.groups.clients import Turned
from tests.broker.groups.consumer_members import Reader
from tests.broker.groups.old_readers import EAGER, OldReader, shared, subscription
from waterclock.broker.wire.errors import Error


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


class TestStaticMembers:
    """One of each protocol under one instance, one after the other."""

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
