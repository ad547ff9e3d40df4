"""Targets in doubt: a portion is halved where it is refused, doubled where it is taken, and each target has its turn."""

from __future__ import annotations

import numpy as np
import pytest

from waterclock.clock import ManualClock
from waterclock.relay.owner.pace import PAUSES_S, QUIET_NS, TOGETHER, Doubts
from waterclock.relay.store import rows_of
from waterclock.relay.store.rows import Array


def rows(target: int, *origins: int, length: int = 10) -> Array:
    made = rows_of([100 + origin for origin in origins], origins)
    made["target"], made["length"] = target, length
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def doubts(clock: ManualClock) -> Doubts:
    return Doubts(clock)


def portion(doubts: Doubts, limit: int | None = None, most: int = 1_000) -> list[int]:
    found: list[int] = doubts.portion(lambda rows: rows["length"], lambda target: limit, most)["origin"].tolist()
    return found


def test_what_is_for_a_target_in_doubt_waits_and_the_others_go_on(doubts: Doubts) -> None:
    doubts.add(1)
    assert doubts.sift(rows(2, 5, 6)).tolist() == rows(2, 5, 6).tolist()
    assert len(doubts.sift(rows(1, 7, 8))) == 0
    assert (doubts.origins.tolist(), doubts.next_due_ms) == ([7, 8], 107)


def test_a_portion_that_is_refused_is_halved_down_to_one_and_doubled_when_it_is_taken(doubts: Doubts) -> None:
    doubts.halve(1, 8)
    doubts.sift(rows(1, *range(8)))
    sizes = []
    for _ in range(3):
        tried = portion(doubts)
        sizes.append(len(tried))
        doubts.put_back(rows(1, *tried))
        doubts.halve(1, len(tried))
    assert sizes == [4, 2, 1]
    assert portion(doubts) == [0]
    doubts.took(1, 1)
    assert portion(doubts) == [1, 2]
    doubts.took(1, 2)
    assert portion(doubts) == [3, 4, 5, 6]


def test_what_is_put_back_goes_first_again(doubts: Doubts) -> None:
    doubts.add(1)
    doubts.sift(rows(1, 3, 4))
    assert portion(doubts, most=1) == [3]
    doubts.sift(rows(1, 5))
    doubts.put_back(rows(1, 3))
    assert portion(doubts) == [3, 4, 5]


@pytest.mark.parametrize(
    ("limit", "expected"), [(35, [0, 1, 2]), (30, [0, 1, 2]), (29, [0, 1]), (9, [0]), (None, [0, 1, 2, 3])]
)
def test_no_more_is_tried_at_once_than_surely_fits_into_a_batch_and_what_may_not_fit_alone(
    limit: int | None, expected: list[int], doubts: Doubts
) -> None:
    doubts.add(1)
    doubts.sift(rows(1, 0, 1, 2, 3))
    assert portion(doubts, limit) == expected


def test_once_one_was_too_large_the_next_that_may_be_are_tried_first_until_one_is_taken(doubts: Doubts) -> None:
    doubts.add(1)
    doubts.sift(np.concatenate([rows(1, 0, 1, length=10), rows(1, 2, 3, length=99), rows(1, 4, length=10)]))
    doubts.probe(1, True)
    assert (portion(doubts, 30), doubts.is_probe) == ([2], True)
    assert (portion(doubts, 30), doubts.is_probe) == ([3], True)
    doubts.put_back(rows(1, 3, length=99))
    doubts.probe(1, False)
    assert (portion(doubts, 30), doubts.is_probe) == ([0, 1], False)
    assert (portion(doubts, 30), doubts.is_probe) == ([3], False)
    assert (portion(doubts, 30), doubts.is_probe) == ([4], False)


def test_there_is_no_trying_where_nothing_may_be_too_large(doubts: Doubts) -> None:
    doubts.add(1)
    doubts.sift(rows(1, 0, 1))
    doubts.probe(1, True)
    assert (portion(doubts, 30), doubts.is_probe) == ([0, 1], False)


def test_each_target_in_doubt_has_its_turn(doubts: Doubts) -> None:
    for target in (1, 2, 3):
        doubts.halve(target, 2)
        doubts.sift(rows(target, 10 * target, 10 * target + 1))
    assert [portion(doubts) for _ in range(6)] == [[10], [20], [30], [11], [21], [31]]


def test_a_target_that_does_not_answer_waits_longer_each_time_and_the_others_are_tried(
    doubts: Doubts, clock: ManualClock
) -> None:
    doubts.add(1)
    doubts.sift(rows(1, 0))
    for pause_s in (*PAUSES_S, PAUSES_S[-1]):
        doubts.pause(1)
        clock.advance_s(pause_s - 1e-9)
        assert not doubts.has_portion
        clock.advance_s(1e-9)
        assert doubts.has_portion
    doubts.took(1, 1)
    doubts.pause(1)
    clock.advance_s(PAUSES_S[0])
    assert doubts.has_portion


def test_a_target_is_in_doubt_until_it_has_refused_nothing_for_a_while(doubts: Doubts, clock: ManualClock) -> None:
    doubts.add(1)
    doubts.sift(rows(1, 0))
    clock.advance_s(QUIET_NS / 1e9)
    doubts.sift(rows(2, 1))
    assert portion(doubts) == [0]
    doubts.sift(rows(2, 2))
    assert len(doubts.sift(rows(1, 3))) == 1


def test_those_that_were_refused_are_put_aside_together(doubts: Doubts, clock: ManualClock) -> None:
    doubts.add(1)
    doubts.sift(rows(1, 0, 1))
    doubts.refused(rows(1, *range(2, TOGETHER + 1)))
    assert len(doubts.to_put_aside()) == 0
    doubts.refused(rows(1, TOGETHER + 1, TOGETHER + 2))
    assert len(doubts.to_put_aside()) == TOGETHER
    assert len(doubts.to_put_aside()) == 0
    clock.advance_s(1)
    assert doubts.to_put_aside()["origin"].tolist() == [TOGETHER + 2]


def test_or_at_once_where_nothing_else_is_to_be_tried(doubts: Doubts) -> None:
    doubts.refused(rows(1, 4))
    assert doubts.next_due_ms == 104
    assert doubts.to_put_aside()["origin"].tolist() == [4]
    assert doubts.next_due_ms is None


def test_what_is_cancelled_waits_here_no_more(doubts: Doubts) -> None:
    doubts.add(1)
    doubts.sift(rows(1, 0, 1))
    doubts.refused(rows(1, 2, 3))
    doubts.remove(rows(1, 0, 3)["origin"])
    assert sorted(doubts.origins.tolist()) == [1, 2]
