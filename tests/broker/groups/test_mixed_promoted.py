"""A group of both protocols, and one that is classic again, on a follower that is promoted."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.groups.clients import Turned
from tests.broker.groups.consumer_members import Reader
from tests.broker.groups.old_readers import COOPERATIVE, OldReader, shared
from tests.broker.groups.test_mixed_restart import kinds
from tests.broker.replication.pairs import pair
from waterclock.broker import Broker
from waterclock.broker.wire.errors import Error

GROW = 37


class Over(Turned):
    """A broker that is there already, under its own clock."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker


def begun(served: Turned) -> tuple[OldReader, Reader]:
    """One member of each protocol, that share the four partitions."""
    ann, bob = OldReader(served, "ann", way=COOPERATIVE), Reader(served, "bob")
    row = {"name": "t", "count": 4, "assignments": None}
    assert bob.ask(GROW, 3, topics=[row], timeout=10_000, validate_only=False).results[0].error_code == Error.NONE
    ann.enters()
    bob.joins()
    shared(ann, bob)
    return ann, bob


def test_both_kinds_of_members_are_known_where_a_follower_is_promoted(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        ann, bob = begun(Over(both.one))
        both.synced()
        both.two.promote()
        served = Over(both.two)
        other, third = ann.again(served), bob.again(served)
        assert kinds(other) == [("consumer", "Stable")]
        assert (other.beats(), third.says().error_code) == (Error.NONE, Error.NONE)
        assert third.leaves() == Error.NONE
        assert other.follows() == Error.REBALANCE_IN_PROGRESS
        assert other.numbers == [0, 1, 2, 3]
        for one in (ann, bob, other, third):
            one.close()


def test_a_group_that_is_classic_again_divides_where_a_follower_is_promoted(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        ann, bob = begun(Over(both.one))
        assert bob.leaves() == Error.NONE
        both.synced()
        both.two.promote()
        other = ann.again(Over(both.two))
        assert other.follows() == Error.REBALANCE_IN_PROGRESS
        assert other.numbers == [0, 1, 2, 3]
        for one in (ann, bob, other):
            one.close()
