"""Which groups may change their protocol, and how static members do (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.dialogue import Dialogue
from tests.conformance.groups import offset_of
from tests.conformance.mixed import (
    EAGER,
    Makes,
    OldReader,
    assignment,
    kind,
    listed,
    owned,
    settle,
    subscription,
)
from tests.conformance.readers import LEAVE, LEAVE_STATIC, Reader
from tests.conformance.transactions import Transactional
from tests.conformance.waiting import until
from tests.conformance.wire import Wire

# What may not be


@pytest.mark.parametrize("metadata", [b"", subscription(["t"])[:-2]])
def test_a_group_whose_bytes_say_nothing_stays_classic(
    dialogue: Dialogue, old: Makes, bob: Reader, metadata: bytes
) -> None:
    ann = old()
    ann.join(protocols=[{"name": EAGER, "metadata": metadata}])
    ann.share(**{ann.id: assignment([(bob.topics[0], 0)])})
    assert bob.error() == "group_id_not_found"
    assert kind(dialogue, bob.group) == "classic"


def test_a_group_with_an_assignor_of_its_own_stays_classic(dialogue: Dialogue, old: Makes, bob: Reader) -> None:
    ann = old()
    ann.join(protocols=[{"name": EAGER, "metadata": subscription(ann.topics)}])
    ann.share(**{ann.id: assignment([(bob.topics[0], 0)], b"its own")})
    assert bob.error() == "group_id_not_found"
    assert ann.heartbeat() == "none"
    assert kind(dialogue, bob.group) == "classic"


def test_a_group_of_another_type_stays_what_it_is(dialogue: Dialogue, old: Makes, bob: Reader) -> None:
    ann = old(protocol_type="connect")
    ann.join(protocols=[{"name": EAGER, "metadata": subscription(ann.topics)}])
    assert bob.error() == "group_id_not_found"
    assert listed(dialogue, bob.group).protocol_type == "connect"


def test_a_classic_member_must_speak_what_the_others_do(ann: OldReader, bob: Reader, old: Makes) -> None:
    bob.beat()
    said = subscription(ann.topics)
    for fields in (
        {"protocols": [{"name": "other", "metadata": said}]},
        {"protocols": [{"name": EAGER, "metadata": said}], "protocol_type": "connect"},
    ):
        assert old().join(**fields).error_code.name == "inconsistent_group_protocol"


def test_a_classic_member_shows_the_id_that_it_was_given(bob: Reader, old: Makes) -> None:
    bob.beat()
    ann = old()
    ann.ask_to_join(protocols=[{"name": EAGER, "metadata": subscription(ann.topics)}])
    answer = ann.joined()
    assert answer.error_code.name == "member_id_required"
    assert answer.member_id


def test_a_member_that_comes_back_by_the_other_protocol_is_the_same(ann: OldReader, bob: Reader) -> None:
    bob.beat()
    other = Reader(bob.dialogue, bob.group, bob.topics)
    other.id = ann.id
    assert other.error() == "none"
    assert {row.member_id: row.member_type for row in bob.described().members} == {ann.id: 1, bob.id: 1}


# Static members


def test_a_static_member_comes_back_by_the_new_protocol_with_its_partitions(
    dialogue: Dialogue, old: Makes, bob: Reader
) -> None:
    ann = old("i1")
    ann.enter()
    bob.instance = "i1"
    assert bob.error() == "none"
    assert owned(bob) == [0, 1, 2, 3]
    assert ann.heartbeat() == "fenced_instance_id"
    assert ann.share().error_code.name == "fenced_instance_id"
    assert kind(dialogue, bob.group) == "consumer"


def test_and_back_by_the_classic_one_without_a_rebalance(dialogue: Dialogue, old: Makes, bob: Reader) -> None:
    bob.instance = "i1"
    settle(bob)
    ann = old("i1")
    assert ann.enter() == "none"
    assert (owned(ann), ann.generation) == ([0, 1, 2, 3], bob.epoch)
    row = listed(dialogue, bob.group)
    assert (row.group_type, row.group_state) == ("classic", "Stable")
    assert ann.heartbeat() == "none"


def test_a_static_member_that_subscribes_otherwise_when_it_comes_back_makes_a_rebalance(
    dialogue: Dialogue, old: Makes, bob: Reader, new_topic: Callable[..., str]
) -> None:
    bob.instance = "i1"
    settle(bob)
    ann = old("i1")
    ann.topics = [new_topic(2)]
    ann.enter(2)
    until(lambda: ann.enter(2) == "none" and ann.heartbeat() == "none" and len(ann.owned) == 2)
    assert kind(dialogue, bob.group) == "classic"


def test_a_static_member_changes_beside_another(dialogue: Dialogue, old: Makes, bob: Reader, four: str) -> None:
    ann, cid = old("i1"), Reader(dialogue, bob.group, [four], "i2")
    ann.enter()
    settle(ann, cid)
    bob.instance = "i1"
    before = owned(ann)
    assert bob.error() == "none"
    assert owned(bob) == before
    settle(bob, cid)
    assert cid.error(member_epoch=LEAVE_STATIC) == "none"
    dan = old("i2")
    assert dan.enter() == "none"
    settle(bob, dan)


# group.consumer.migration.policy


@pytest.fixture
def under(start: Callable[..., Any]) -> Iterator[Callable[[str], tuple[Dialogue, OldReader, Reader]]]:
    """A broker with that policy, with a member of each protocol that has not joined yet."""
    wires: list[Wire] = []

    def begin(policy: str) -> tuple[Dialogue, OldReader, Reader]:
        address = start({"group.consumer.migration.policy": policy}).bootstrap
        wires.append(Wire(address))
        dialogue = Dialogue(wires[0])
        topic = dialogue.create_topic("four", 4)
        ann = OldReader(address, "g", topic)
        wires.append(ann.wire)
        return dialogue, ann, Reader(dialogue, "g", [topic])

    yield begin
    for wire in wires:
        wire.__exit__()


Under = Callable[[str], tuple[Dialogue, OldReader, Reader]]


@pytest.mark.long(seconds=20)  # a broker of its own
def test_a_disabled_change_is_refused_both_ways(under: Under) -> None:
    dialogue, ann, bob = under("disabled")
    assert ann.enter() == "none"
    assert bob.error() == "group_id_not_found"
    ann.leave()
    settle(bob)
    ann.id = ""
    assert ann.enter() == "inconsistent_group_protocol"
    assert kind(dialogue, "g") == "consumer"


@pytest.mark.long(seconds=20)  # a broker of its own
def test_where_groups_may_only_go_over_they_stay_what_they_became(under: Under) -> None:
    dialogue, ann, bob = under("upgrade")
    assert ann.enter() == "none"
    settle(bob, ann)
    assert bob.error(member_epoch=LEAVE) == "none"
    assert kind(dialogue, "g") == "consumer"


@pytest.mark.long(seconds=20)  # a broker of its own
def test_where_groups_may_only_go_back_they_do_not_go_over(under: Under) -> None:
    dialogue, ann, bob = under("downgrade")
    assert ann.enter() == "none"
    assert bob.error() == "group_id_not_found"
    ann.leave()
    settle(bob)
    ann.id = ""
    assert ann.enter() == "none"
    settle(bob, ann)
    assert bob.error(member_epoch=LEAVE) == "none"
    assert kind(dialogue, "g") == "classic"


# Transactions


def test_a_transaction_commits_for_a_member_of_either_protocol_or_for_nobody(
    dialogue: Dialogue, ann: OldReader, bob: Reader, four: str, name: str
) -> None:
    bob.beat()
    settle(ann, bob)
    producer = Transactional(dialogue, name, new=True)
    assert producer.offer(bob.group, four, 5, member_id=ann.id, generation_id=ann.generation) == "none"
    assert bob.error() == "none"  # its session is a second long
    assert producer.offer(bob.group, four, 6, member_id=bob.id, generation_id=bob.epoch) == "none"
    assert producer.offer(bob.group, four, 9, member_id=bob.id, generation_id=bob.epoch + 1) == "illegal_generation"
    assert producer.offer(bob.group, four, 9, member_id="nobody", generation_id=bob.epoch) == "unknown_member_id"
    assert producer.offer(bob.group, four, 7) == "none"  # it names no member
    producer.commit()
    until(lambda: offset_of(dialogue.wire, bob.group, four, stable=True).committed_offset == 7)
