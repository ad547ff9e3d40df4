"""Groups of both protocols opened again, and what they are where the disk refuses a change of protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.full_disks import full_disk
from tests.broker.groups.clients import LEAVE, Client, Turned
from tests.broker.groups.consumer_members import FIRST, Reader
from tests.broker.groups.old_readers import COOPERATIVE, OldReader, parts, shared
from waterclock.broker.store import Store
from waterclock.broker.wire.errors import Error


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Turned]:
    with Turned(data=tmp_path) as turned:
        yield turned


@pytest.fixture
def ann(served: Turned) -> Iterator[OldReader]:
    """A member of the classic protocol, alone in a stable group, with all four partitions."""
    one = OldReader(served, "ann", way=COOPERATIVE)
    one.create_topic("t", 4)
    assert one.enters().error_code == Error.NONE
    yield one
    one.close()


def kinds(client: Client) -> list[tuple[str, str]]:
    return [(row.group_type, row.group_state) for row in client.listed()]


def test_both_kinds_of_members_survive_a_restart(tmp_path: Path, served: Turned, ann: OldReader, bob: Reader) -> None:
    bob.joins()
    shared(ann, bob)
    served.broker.close()
    with Turned(data=tmp_path) as again:
        other, third = ann.again(again), bob.again(again)
        assert kinds(other) == [("consumer", "Stable")]
        assert other.beats() == Error.NONE
        assert set(parts(other.syncs().get().assignment)) == ann.reads
        assert third.says().assignment is None
        third.leaves()
        assert other.follows() == Error.REBALANCE_IN_PROGRESS
        assert other.numbers == [0, 1, 2, 3]
        other.close()
        third.close()


def test_who_was_to_let_go_is_told_again_after_a_restart(
    tmp_path: Path, served: Turned, ann: OldReader, bob: Reader
) -> None:
    bob.joins()
    assert ann.follows() == Error.REBALANCE_IN_PROGRESS
    served.broker.close()
    with Turned(data=tmp_path) as again:
        other, third = ann.again(again), bob.again(again)
        assert third.says().assignment is None
        shared(other, third)
        other.close()
        third.close()


def test_its_session_is_its_own_after_a_restart(tmp_path: Path, served: Turned, ann: OldReader, bob: Reader) -> None:
    bob.joins()
    shared(ann, bob)
    served.broker.close()
    with Turned(data=tmp_path) as again:
        third = bob.again(again)
        again.advance_ms(9_999)
        assert len(third.described().members) == 2
        again.advance_ms(1)
        assert len(third.described().members) == 1
        third.close()


def test_a_group_that_is_classic_again_divides_after_a_restart_too(
    tmp_path: Path, served: Turned, ann: OldReader, bob: Reader
) -> None:
    # The row of the group says that it is stable: without a word more nobody would read what bob had.
    bob.joins()
    shared(ann, bob)
    assert bob.leaves() == Error.NONE
    served.broker.close()
    with Turned(data=tmp_path) as again:
        other = ann.again(again)
        assert kinds(other) == [("classic", "PreparingRebalance")]
        assert other.follows() == Error.REBALANCE_IN_PROGRESS
        assert other.numbers == [0, 1, 2, 3]
        other.close()
    with Turned(data=tmp_path) as again:
        last = other.again(again)
        assert kinds(last) == [("classic", "Stable")]
        assert last.beats() == Error.NONE
        last.close()


def test_nothing_of_the_other_kind_stays_in_the_store(served: Turned, ann: OldReader, bob: Reader) -> None:
    rooms = {"group": 1, "consumer_group": 0, "consumer_member": 0}
    assert kept(served) == rooms
    bob.joins()
    assert kept(served) == {"group": 0, "consumer_group": 1, "consumer_member": 2}
    shared(ann, bob)
    bob.leaves()
    assert kept(served) == rooms


def kept(served: Turned) -> dict[str, int]:
    """How many rows the store has for each kind."""
    served.settle()
    store = served.broker.inside.store
    rooms = ("group", "consumer_group", "consumer_member")
    return dict(served.broker.call(lambda: {room: len(store.load(room)) for room in rooms}))


def test_a_member_of_an_earlier_version_is_read(tmp_path: Path, served: Turned, bob: Reader) -> None:
    # What earlier versions wrote has no word about the classic protocol, and what has none now reads as they did.
    bob.create_topic("t", 4)
    bob.joins()
    served.broker.close()
    (kept,) = Store.kept_at(str(tmp_path), "consumer_member").values()
    assert "classic" not in kept
    with Turned(data=tmp_path) as again:
        third = bob.again(again)
        assert third.says().member_epoch == bob.epoch
        third.close()


# A disk that refuses


def test_a_group_that_cannot_become_a_consumer_group_stays_classic(served: Turned, ann: OldReader, bob: Reader) -> None:
    with full_disk(served.broker):
        assert bob.beat(member_epoch=0, **FIRST).error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert kinds(bob) == [("classic", "Stable")]
        assert ann.beats() == Error.NONE
    served.advance_ms(9_999)
    assert ann.beats() == Error.NONE  # it has one session, a whole one
    served.advance_ms(10_000)
    assert ann.state("g") == "Empty"
    assert kept(served) == {"group": 1, "consumer_group": 0, "consumer_member": 0}


def test_nor_does_one_within_a_rebalance(served: Turned, ann: OldReader, bob: Reader) -> None:
    cid = OldReader(served, "cid", way=COOPERATIVE)
    waiting = cid.asks()
    with full_disk(served.broker):
        assert bob.beat(member_epoch=0, **FIRST).error_code == Error.COORDINATOR_NOT_AVAILABLE
    assert waiting.get().error_code == Error.REBALANCE_IN_PROGRESS
    assert kinds(bob) == [("classic", "PreparingRebalance")]
    again, other = cid.asks(), ann.asks()
    ann.shares(ann.takes(other))
    cid.shares(cid.takes(again))
    assert kinds(bob) == [("classic", "Stable")]
    cid.close()


def test_nor_does_one_whose_shares_are_not_given_yet(served: Turned, ann: OldReader, bob: Reader) -> None:
    joined = ann.takes(ann.asks(rebalance=60_000))
    with full_disk(served.broker):
        assert bob.beat(member_epoch=0, **FIRST).error_code == Error.COORDINATOR_NOT_AVAILABLE
    assert ann.shares(joined).error_code == Error.REBALANCE_IN_PROGRESS
    assert ann.enters().error_code == Error.NONE
    assert kinds(bob) == [("classic", "Stable")]


def test_a_group_that_cannot_be_classic_again_keeps_who_leaves(served: Turned, ann: OldReader, bob: Reader) -> None:
    bob.joins()
    shared(ann, bob)
    with full_disk(served.broker):
        assert bob.beat(member_epoch=-1).error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert kinds(bob) == [("consumer", "Stable")]
    groups = served.broker.inside.groups
    assert served.broker.call(lambda: groups.joins.statistics().watched) == 0  # no rebalance of what it was not
    assert (ann.beats(), bob.says().error_code) == (Error.NONE, Error.NONE)
    served.advance_ms(9_999)
    assert ann.beats() == Error.NONE
    assert bob.leaves() == Error.NONE
    assert kinds(ann) == [("classic", "PreparingRebalance")]


def test_who_cannot_be_put_out_is_still_there(served: Turned, ann: OldReader, bob: Reader) -> None:
    bob.joins()
    shared(ann, bob)
    rows = [{"member_id": who, "group_instance_id": None, "reason": None} for who in (bob.member, "nobody")]
    with full_disk(served.broker):
        answer = ann.ask(LEAVE, 5, group_id="g", members=rows)
    errors = [Error.COORDINATOR_NOT_AVAILABLE, Error.UNKNOWN_MEMBER_ID]
    assert [row.error_code for row in answer.members] == errors
    assert bob.says().error_code == Error.NONE


def test_a_classic_member_that_cannot_be_kept_is_not_let_in(served: Turned, ann: OldReader, bob: Reader) -> None:
    bob.joins()
    shared(ann, bob)
    cid = OldReader(served, "cid", way=COOPERATIVE)
    with full_disk(served.broker):
        assert cid.asks().get().error_code == Error.COORDINATOR_NOT_AVAILABLE
    assert len(bob.described().members) == 2
    assert cid.enters().error_code == Error.NONE
    cid.close()
