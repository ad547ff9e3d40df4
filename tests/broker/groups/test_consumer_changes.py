"""Consumer groups over time: sessions, topics that change, restarts, groups of the other protocol."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from hypothesis import given
from hypothesis import strategies as st

from tests.broker.groups.clients import DELETE, DELETE_TOPICS, Turned, people, stable_group
from tests.broker.groups.consumer_members import FIRST, Reader, readers
from waterclock.broker.groups.assignment import ConsumerMember, Division, by_range, uniform
from waterclock.broker.groups.subscriptions import Subscriptions
from waterclock.broker.wire.errors import Error

GROW, REMOVE = 37, 47


def test_a_session_ends_to_the_millisecond(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins()
        served.advance_ms(44_999)
        assert ann.says().error_code == Error.NONE
        served.advance_ms(44_999)
        bob.joins()
        assert (ann.described().group_epoch, len(ann.described().members)) == (3, 2)
        served.advance_ms(1)
        assert (ann.described().group_epoch, len(ann.described().members)) == (4, 1)
        assert ann.beat().error_code == Error.UNKNOWN_MEMBER_ID
        assert (bob.says().member_epoch, bob.numbers) == (4, [0, 1, 2, 3])


def test_who_does_not_let_go_within_the_rebalance_timeout_is_out(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins(rebalance=20_000)
        ann.settles()
        bob.joins()
        ann.says()
        served.advance_ms(15_000)
        assert ann.says().member_epoch == 2  # heartbeats do not help
        served.advance_ms(4_999)
        assert bob.says().assignment is None
        served.advance_ms(1)
        assert ann.beat().error_code == Error.UNKNOWN_MEMBER_ID
        bob.says()
        assert bob.numbers == [0, 1, 2, 3]


def test_who_has_let_go_in_time_stays(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.joins(rebalance=20_000)
        ann.settles()
        bob.joins()
        ann.says()
        served.advance_ms(19_999)
        ann.settles()
        served.advance_ms(20_000)
        assert ann.says().member_epoch == 3


def test_a_topic_that_comes_later_is_taken_in_and_one_that_goes_is_let_go_of(served: Turned) -> None:
    with readers(served, "ann") as (ann,):
        assert (ann.joins("later").member_epoch, ann.numbers) == (2, [])
        ann.create_topic("later", 2)
        assert (ann.says().member_epoch, ann.numbers) == (3, [0, 1])
        ann.ask(DELETE_TOPICS, 5, topic_names=["later"], timeout=1000)
        ann.settles()
        assert ann.numbers == []


def test_a_member_may_subscribe_to_something_else(served: Turned) -> None:
    with readers(served, "ann", "bob") as (ann, bob):
        ann.create_topic("u", 2)
        ann.joins()
        ann.settles()
        bob.joins("t", "u")
        for reader in (ann, bob, ann, bob):
            reader.settles()
        assert (len(ann.assigned_now), len(bob.assigned_now)) == (3, 3)
        ann.says(subscribed_topic_names=["u"])
        for reader in (ann, bob, ann, bob):
            reader.settles()
        assert {topic for topic, _ in ann.assigned_now} == {ann.topic_id("u")}
        assert len(bob.assigned_now) >= 4


def test_a_pattern_takes_in_the_topics_whose_whole_name_it_matches(served: Turned) -> None:
    with readers(served, "ann") as (ann,):
        ann.create_topic("orders-1")
        ann.create_topic("my-orders-1")
        ann.joins(subscribed_topic_regex="orders-.*")
        assert {topic for topic, _ in ann.assigned_now} == {ann.topic_id("orders-1")}
        ann.create_topic("orders-2")
        assert (ann.says().member_epoch, len(ann.assigned_now)) == (3, 2)
        ann.says(subscribed_topic_regex="", subscribed_topic_names=["t"])
        assert {topic for topic, _ in ann.assigned_now} == {ann.topic_id("t")}
        assert ann.described().members[0].subscribed_topic_regex is None


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "a*a*a*a*a*a*a*a*a*b"])
def test_no_pattern_keeps_the_broker_busy(served: Turned, pattern: str) -> None:
    with readers(served, "ann") as (ann,):
        ann.create_topic("a" * 30)
        ann.joins(subscribed_topic_regex=pattern)
        assert ann.assigned_now == set()


def test_a_pattern_that_would_not_be_taken_any_more_matches_nothing(served: Turned) -> None:
    served.broker.create_topic("a")
    topics, kept = served.broker.inside.topics, ConsumerMember("m", topics=frozenset({"t"}), regex="(?=a)a")
    assert served.broker.call(lambda: Subscriptions().names(kept, topics)) == {"t"}


def test_what_nobody_subscribes_to_any_more_is_not_the_groups(served: Turned) -> None:
    with readers(served, "ann") as (ann,):
        ann.create_topic("u")
        ann.joins("t")
        ann.settles()
        ann.says(subscribed_topic_names=["u"])
        ann.settles()
        row = {"name": "t", "partitions": [{"partition_index": 0}]}
        removed = ann.ask(REMOVE, 0, group_id="g", topics=[row]).topics[0].partitions[0]
        assert removed.error_code == Error.NONE


class TestTheOtherProtocol:
    def test_is_refused_while_members_of_one_say_nothing_that_is_understood(self, served: Turned) -> None:
        with readers(served, "ann") as (ann,), people(served, "bob") as (bob,):
            ann.joins()
            assert bob.joins().get().error_code == Error.INCONSISTENT_GROUP_PROTOCOL
            assert bob.beats() == Error.UNKNOWN_MEMBER_ID
            assert bob.leaves() == Error.UNKNOWN_MEMBER_ID
            assert bob.syncs().get().error_code == Error.UNKNOWN_MEMBER_ID
            assert ann.leaves() == Error.NONE
            stable_group(bob)
            answer = ann.beat(member_epoch=0, **FIRST)
            assert (answer.error_code, "stays one" in answer.error_message) == (Error.GROUP_ID_NOT_FOUND, True)
            assert ann.beat(member_epoch=1).error_code == Error.GROUP_ID_NOT_FOUND

    def test_takes_an_empty_group_over_with_its_offsets(self, served: Turned) -> None:
        with readers(served, "ann") as (ann,), people(served, "bob") as (bob,):
            stable_group(bob)
            bob.commits(7)
            bob.leaves()
            ann.joins()
            assert [(row.group_type, row.group_state) for row in ann.listed()] == [("consumer", "Stable")]
            assert ann.fetched("g", member_id=ann.member, member_epoch=2).committed_offset == 7
            ann.leaves()
            assert bob.beats() == Error.UNKNOWN_MEMBER_ID
            bob.member = ""
            stable_group(bob)
            assert [(row.group_type, row.group_state) for row in ann.listed(types=["Classic"])] == [
                ("classic", "Stable")
            ]
            assert ann.fetched("g").committed_offset == 7


def test_an_empty_group_is_deleted_one_in_use_is_not(served: Turned) -> None:
    with readers(served, "ann") as (ann,):
        ann.joins()
        ann.commit("g", 5, member=ann.member, generation=2)
        assert ann.ask(DELETE, 2, groups_names=["g"]).results[0].error_code == Error.NON_EMPTY_GROUP
        row = {"name": "t", "partitions": [{"partition_index": 0}]}
        removed = ann.ask(REMOVE, 0, group_id="g", topics=[row]).topics[0].partitions[0]
        assert removed.error_code == Error.GROUP_SUBSCRIBED_TO_TOPIC
        ann.leaves()
        assert ann.ask(DELETE, 2, groups_names=["g"]).results[0].error_code == Error.NONE
        assert ann.listed() == []


@pytest.mark.parametrize("seed", range(5))
def test_no_partition_is_ever_read_by_two(seed: int) -> None:
    """Members come, go, hesitate and restart at random; in the end everything is read by somebody."""
    chance = random.Random(seed)
    with Turned() as served, readers(served, *"abcdef") as some:
        there: list[Reader] = []
        for _ in range(150):
            reader = chance.choice(some)
            if reader not in there:
                reader.joins()
                there.append(reader)
            elif chance.random() < 0.1:
                reader.leaves()
                there.remove(reader)
                reader.reads, reader.assigned_now = set(), set()
            else:
                if chance.random() < 0.7:
                    reader.reads &= reader.assigned_now  # it lets go before it says so
                reader.says()
                if chance.random() < 0.7:
                    reader.reads = set(reader.assigned_now) if reader.reads <= reader.assigned_now else reader.reads
            taken = [part for one in there for part in one.reads]
            assert len(taken) == len(set(taken))
        for _ in range(4):
            for reader in there:
                reader.settles()
        assert sorted(number for reader in there for number in reader.numbers) == ([0, 1, 2, 3] if there else [])


TOPICS = [UUID(int=number) for number in range(4)]


@st.composite
def tasks(draw: st.DrawFn) -> tuple[dict[str, frozenset[UUID]], Division, dict[UUID, int]]:
    sizes = {topic: draw(st.integers(0, 6)) for topic in TOPICS}
    members = draw(st.lists(st.sampled_from("abcdef"), unique=True, min_size=1))
    subscribed = {member: frozenset(draw(st.sets(st.sampled_from(TOPICS)))) for member in members}
    has: dict[str, set[tuple[UUID, int]]] = {member: set() for member in [*members, "gone"]}
    for topic in TOPICS:
        for number in range(7):
            owner = draw(st.sampled_from([*has, ""]))
            if owner:
                has[owner].add((topic, number))
    return subscribed, {member: frozenset(parts) for member, parts in has.items()}, sizes


@given(tasks())
def test_every_partition_that_somebody_wants_is_given_once_to_one_who_wants_it(
    task: tuple[dict[str, frozenset[UUID]], Division, dict[UUID, int]],
) -> None:
    subscribed, has, sizes = task
    wanted = {
        (t, n) for t, size in sizes.items() for n in range(size) if any(t in some for some in subscribed.values())
    }
    for assignor in (uniform, by_range):
        division = assignor(subscribed, has, sizes)
        given_out = [part for parts in division.values() for part in parts]
        assert len(given_out) == len(set(given_out))
        assert set(given_out) == wanted
        assert all(topic in subscribed[member] for member, parts in division.items() for topic, _ in parts)


@given(tasks())
def test_uniform_is_even_and_leaves_what_is_even_alone(
    task: tuple[dict[str, frozenset[UUID]], Division, dict[UUID, int]],
) -> None:
    subscribed, has, sizes = task
    division = uniform(subscribed, has, sizes)
    for parts in division.values():
        for topic, _ in parts:
            others = [len(division[other]) for other, topics in subscribed.items() if topic in topics]
            assert len(parts) - min(others) < 2
        assert uniform(subscribed, division, sizes) == division
