"""Sessions and rebalances end to the millisecond: nothing before it, everything at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.groups.clients import Person, Turned, people, stable_group
from waterclock.broker.wire.errors import Error


def test_a_session_without_a_heartbeat_ends_to_the_millisecond(served: Turned) -> None:
    with people(served, "ann") as (ann,):
        stable_group(ann, session=10_000)
        served.advance_ms(9_999)
        assert ann.state("g") == "Stable"
        served.advance_ms(1)
        assert ann.state("g") == "Empty"
        assert ann.beats() == Error.UNKNOWN_MEMBER_ID


def test_a_heartbeat_begins_the_session_anew(served: Turned) -> None:
    with people(served, "ann") as (ann,):
        stable_group(ann, session=10_000)
        served.advance_ms(9_999)
        assert ann.beats() == Error.NONE
        served.advance_ms(9_999)
        assert ann.state("g") == "Stable"
        served.advance_ms(1)
        assert ann.state("g") == "Empty"


def test_a_commit_is_a_sign_of_life(served: Turned) -> None:
    with people(served, "ann") as (ann,):
        ann.create_topic("t")
        stable_group(ann, session=10_000)
        served.advance_ms(9_999)
        assert ann.commits(7) == Error.NONE
        served.advance_ms(9_999)
        assert ann.state("g") == "Stable"


@pytest.mark.parametrize("ask", [lambda ann: ann.commits(7, generation=5), lambda ann: ann.beats(generation_id=0)])
def test_what_names_the_wrong_generation_is_no_sign_of_life(served: Turned, ask: Callable[[Person], int]) -> None:
    with people(served, "ann") as (ann,):
        ann.create_topic("t")
        stable_group(ann, session=10_000)
        served.advance_ms(9_999)
        assert ask(ann) == Error.ILLEGAL_GENERATION
        served.advance_ms(1)
        assert ann.state("g") == "Empty"


def test_the_others_hear_of_a_session_that_ended(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann, bob, session=10_000)
        served.advance_ms(9_999)
        assert bob.beats() == Error.NONE
        served.advance_ms(1)
        assert bob.beats() == Error.REBALANCE_IN_PROGRESS
        assert bob.takes(bob.joins()).leader == bob.member


def test_an_id_given_out_is_good_for_one_session(served: Turned) -> None:
    with people(served, "ann") as (ann,):
        ann.member = ann.joins(session=10_000).get().member_id
        served.advance_ms(10_000)
        assert ann.joins().get().error_code == Error.UNKNOWN_MEMBER_ID


def test_an_id_given_out_holds_a_rebalance_up_until_it_is_over(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann)
        assert bob.joins(session=7_000).get().error_code == Error.MEMBER_ID_REQUIRED
        answer = ann.joins()
        served.advance_ms(6_999)
        assert answer.waiting
        served.advance_ms(1)
        assert ann.takes(answer).generation_id == 2


def test_who_does_not_join_again_within_the_longest_rebalance_timeout_is_out(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann, session=100_000, rebalance=30_000)
        answer = bob.comes(rebalance=20_000)
        served.advance_ms(29_999)
        assert answer.waiting
        served.advance_ms(1)
        assert bob.takes(answer).leader == bob.member
        assert ann.beats() == Error.UNKNOWN_MEMBER_ID


def test_before_version_1_a_session_is_the_rebalance_timeout(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann, session=100_000, version=0)
        answer = bob.joins(session=8_000, version=0)
        served.advance_ms(99_999)
        assert answer.waiting
        served.advance_ms(1)
        assert bob.takes(answer).generation_id == 2


def test_a_member_that_waits_for_the_next_generation_needs_no_heartbeat(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann, bob, session=10_000, rebalance=300_000)
        answer = ann.joins(session=10_000, rebalance=300_000)
        for _ in range(5):
            served.advance_ms(9_000)
            assert bob.beats() == Error.REBALANCE_IN_PROGRESS
        assert answer.waiting
        bob.joins(session=10_000)
        assert ann.takes(answer).generation_id == bob.generation + 1
        served.advance_ms(9_999)
        assert ann.beats() == Error.NONE


def test_a_new_member_waits_five_minutes_for_its_first_generation(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann, session=1_000_000, rebalance=1_000_000)
        answer = bob.comes(session=10_000)
        served.advance_ms(299_999)
        assert answer.waiting
        served.advance_ms(1)
        assert answer.get().error_code == Error.UNKNOWN_MEMBER_ID


def test_who_does_not_ask_for_its_share_within_the_rebalance_timeout_is_out(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann, bob, session=600_000, rebalance=30_000)
        answer = ann.joins(session=600_000, rebalance=30_000)
        bob.takes(bob.joins(session=600_000, rebalance=30_000))
        ann.takes(answer)
        assert ann.syncs({}).get().error_code == 0
        served.advance_ms(29_999)
        assert ann.beats() == Error.NONE
        served.advance_ms(1)
        assert ann.beats() == Error.REBALANCE_IN_PROGRESS
        assert bob.beats() == Error.UNKNOWN_MEMBER_ID


def test_everybody_that_asked_for_a_share_in_time_stays(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann, bob, session=600_000, rebalance=30_000)
        served.advance_ms(300_000)
        assert (ann.beats(), bob.beats()) == (Error.NONE, Error.NONE)


def test_a_leader_whose_session_ends_while_it_divides_takes_the_division_with_it(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann, bob, session=10_000)
        answer = ann.joins(session=10_000)
        bob.takes(bob.joins(session=10_000))
        ann.takes(answer)
        share = bob.syncs()
        served.advance_ms(9_999)
        assert share.waiting
        served.advance_ms(1)
        assert share.get().error_code == Error.REBALANCE_IN_PROGRESS
        assert bob.takes(bob.joins()).leader == bob.member


def test_a_session_begins_anew_with_the_share(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann, bob, session=10_000)
        answer = ann.joins(session=30_000)
        bob.takes(bob.joins(session=10_000))
        ann.takes(answer)
        share = bob.syncs()
        served.advance_ms(20_000)
        ann.syncs({bob.member: b"all"}).get()
        assert share.get().assignment == b"all"
        served.advance_ms(9_999)
        assert ann.beats() == Error.NONE
        served.advance_ms(1)
        assert ann.beats() == Error.REBALANCE_IN_PROGRESS


class TestTheFirstRebalance:
    """`group.initial.rebalance.delay.ms` is 3 s here."""

    @pytest.fixture
    def served(self) -> Iterator[Turned]:
        with Turned({"group.initial.rebalance.delay.ms": "3000"}) as turned:
            yield turned

    def test_waits_the_delay_for_more_members(self, served: Turned) -> None:
        with people(served, "ann") as (ann,):
            answer = ann.comes()
            served.advance_ms(2_999)
            assert answer.waiting
            served.advance_ms(1)
            assert ann.takes(answer).generation_id == 1

    def test_waits_once_more_where_somebody_came(self, served: Turned) -> None:
        with people(served, "ann", "bob") as (ann, bob):
            first = ann.comes(rebalance=60_000)
            served.advance_ms(1_000)
            second = bob.comes(rebalance=60_000)
            served.advance_ms(4_999)
            assert first.waiting
            served.advance_ms(1)
            assert first.get().generation_id == second.get().generation_id == 1

    def test_waits_on_as_long_as_more_come_up_to_the_rebalance_timeout(self, served: Turned) -> None:
        with people(served, "ann", "bob", "cid", "dot") as some:
            answers = []
            for person in some[:3]:
                answers.append(person.comes(rebalance=8_000))
                served.advance_ms(2_000)  # in all 6 s; the waits are 3, 3 and 2 s
            answers.append(some[3].comes(rebalance=8_000))
            served.advance_ms(1_999)
            assert answers[0].waiting
            served.advance_ms(1)
            assert {answer.get().generation_id for answer in answers} == {1}

    def test_is_over_when_the_last_that_was_waited_for_is_gone(self, served: Turned) -> None:
        with people(served, "ann", "bob") as (ann, bob):
            answer = ann.comes()
            assert bob.joins(version=9, session=6_000).get().error_code == Error.MEMBER_ID_REQUIRED
            served.advance_ms(3_000)
            assert ann.takes(answer).generation_id == 1  # an id given out does not hold the first one up

    def test_of_a_group_that_empties_again_leaves_it_empty(self, served: Turned) -> None:
        with people(served, "ann") as (ann,):
            answer = ann.comes()
            assert answer.waiting
            other = Person(served)
            other.member = ann.member
            assert other.leaves() == Error.NONE
            assert answer.get().error_code == Error.UNKNOWN_MEMBER_ID
            served.advance_ms(3_000)
            assert other.state("g") == "Empty"
            other.close()

    def test_is_not_cut_short_by_the_session_of_a_member_id_that_was_replaced(self, served: Turned) -> None:
        # It ran on for an id that nobody had any more, and at its end the rebalance seemed to have everybody.
        ann = Person(served, "ann", instance="desk-1")
        answer = ann.joins()
        served.advance_ms(3_000)
        ann.takes(answer)
        ann.syncs({ann.member: b"all"}).get()  # a session of 10 s from here
        ann.member = ""
        ann.takes(ann.joins())
        assert ann.leaves() == Error.NONE
        served.advance_ms(8_000)
        with people(served, "bob") as (bob,):
            answer = bob.comes()
            served.advance_ms(2_999)
            assert answer.waiting
            served.advance_ms(1)
            bob.takes(answer)
        ann.close()


def test_no_session_outlives_the_member_id_that_it_was_of(served: Turned) -> None:
    ann = Person(served, "ann", instance="desk-1")
    stable_group(ann)
    for _ in range(3):
        ann.member = ""
        ann.takes(ann.joins())
    assert served.broker.call(lambda: len(served.broker.inside.groups.sessions)) == 1
    ann.close()


def test_no_session_outlives_its_member(served: Turned) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann, bob)
        assert served.broker.call(lambda: served.broker.inside.groups.heartbeats.statistics().watched) == 2
        bob.leaves()
        ann.leaves()
        served.settle()
        assert served.broker.call(lambda: served.broker.inside.groups.heartbeats.statistics().watched) == 0
        assert served.broker.call(lambda: served.broker.inside.groups.joins.statistics().watched) == 0
        assert served.broker.call(lambda: len(served.broker.inside.groups.sessions)) == 0
