"""How much a turn carries. A Kafka that is slow: a turn that it does not take in time is followed by a smaller one, and all
comes once, in order. Targets in doubt: a portion is halved if it is refused, doubled if it is taken, and each target is
next in its order.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from tests.relay.test_kills import owner_of
from tests.relay.world import World, step_quietly, step_until
from waterclock.clock import ManualClock
from waterclock.errors import ConnectionLost
from waterclock.relay.owner import pace
from waterclock.relay.owner.pace import (
    ASKED_TWICE_NS,
    EASY_NS,
    LONGEST_SPELL,
    PAUSES_S,
    QUIET_NS,
    SPELL,
    TOGETHER,
    Doubts,
    Pace,
    Rest,
)
from waterclock.relay.owner.turn import Turn
from waterclock.relay.relay import Relay
from waterclock.relay.store import rows_of
from waterclock.relay.store.rows import Array

COUNT = 40
FITS = 8
Commit = Callable[[Turn], None]


def commit_with(monkeypatch: pytest.MonkeyPatch, action: Callable[[Turn, int], object]) -> list[int]:
    """Have something happen before each commit of so many deliveries and answers; the numbers, as they come."""
    sizes: list[int] = []
    real = Turn.commit

    def commit(self: Turn) -> None:
        size = len(self._rows) + len(self._replies) + len(self._letters)
        sizes.append(size)
        action(self, size)
        real(self)

    monkeypatch.setattr(Turn, "commit", commit)
    return sizes


def lost(turn: Turn, size: int) -> None:
    if size > FITS:
        raise ConnectionLost("a test wants it")


def due_at_once(world: World) -> list[str]:
    values = [str(number) for number in range(COUNT)]
    world.send(*values, in_ms=1_000)
    return values


def test_a_turn_that_fails_is_followed_by_one_of_half_its_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = world.started()
    values = due_at_once(world)
    step_quietly(relay)
    world.advance_ms(1_000)
    sizes = commit_with(monkeypatch, lost)
    step_until(lambda: len(world.values()) == COUNT, relay)
    assert world.values() == values
    assert [size for size in sizes if size][:5] == [40, 20, 10, 5, 10]


class JumpingClock(ManualClock):
    """Its wall clock is so much ahead of the time."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


@pytest.mark.parametrize("in_doubt", [False, True])
def test_what_was_due_by_a_clock_that_was_wrong_for_a_moment_waits_until_it_is(in_doubt: bool, world: World) -> None:
    """More was due than one turn carries, or its target did not answer; and when the clock was right again, all of it came
    with what was due then, long before its time."""
    clock = world.clock = JumpingClock()
    relay = world.started()
    owner = owner_of(relay)
    world.send("a", "b", "c", in_ms=300_000)
    step_quietly(relay)
    clock.ahead_ms = 300_000
    if in_doubt:
        owner.doubts.add(owner.store.targets.index(world.target))
    owner.pace = Pace(1)
    step_until(world.values, relay)
    clock.ahead_ms = 0
    for value in "def":
        owner.pace = Pace(2)
        world.send(value, in_ms=0)
        world.advance_ms(2_000)
        step_until(lambda value=value: value in world.values(), relay)
    assert world.values() == ["a", "d", "e", "f"]
    world.advance_ms(300_000)
    step_until(lambda: len(world.values()) == 6, relay)
    assert world.values()[4:] == ["b", "c"]


def test_after_turns_that_are_easy_it_grows_to_what_it_was(world: World) -> None:
    relay = world.started()
    owner_of(relay).pace = owner_of(relay).pace.failed(4)
    values = due_at_once(world)
    step_quietly(relay)
    world.advance_ms(1_000)
    turns = relay._counts.turns
    step_until(lambda: len(world.values()) == COUNT, relay)
    assert world.values() == values
    assert relay._counts.turns - turns == 5  # 2, 4, 8, 16, 10


def test_after_one_that_took_long_it_does_not_grow(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = world.started()
    owner_of(relay).pace = owner_of(relay).pace.failed(20)
    due_at_once(world)
    step_quietly(relay)
    sizes = commit_with(monkeypatch, lambda turn, size: world.clock.advance_s(EASY_NS / 1e9))
    world.advance_ms(1_000)
    step_until(lambda: len(world.values()) == COUNT, relay)
    assert [size for size in sizes if size] == [10] * 4


def test_cancels_that_are_too_many_for_one_turn_are_answered_in_order_before_anything_is_delivered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = world.started()
    for number in range(20):
        world.send(str(number), in_ms=1_000, id=f"id-{number}")
    step_quietly(relay)
    for number in range(20):
        world.put(None, delay_id=f"id-{number}", delay_action="cancel")
        world.put(b"bad")
    world.send("after", in_ms=1_000)
    world.advance_ms(1_000)
    step_until(lambda: relay._ingest(relay._read(0.1)) and owner_of(relay).position >= 61)
    sizes = commit_with(monkeypatch, lost)
    step_until(lambda: world.values() and len(world.letters()) == 20, relay)
    assert world.values() == ["after"]
    assert world.replies() == [(f"id-{n}", "cancelled", 1) for n in range(20)]
    assert len(sizes) > 5


# Rests


def rests_of(turns: int, ns: Callable[[Rest], int]) -> list[bool]:
    """Which of so many turns, each begun right behind the last one, rest; `ns` is what the end of one takes."""
    rest, found = Rest(), list[bool]()
    for _ in range(turns):
        found.append(bool(rest.left))
        rest = rest.took(ns(rest), rest.ns)
    return found


def test_where_kafka_sends_turns_away_they_rest_and_it_is_tried_again_less_and_less_often() -> None:
    rests = rests_of(100_000, lambda rest: 5_000_000 if rest.left else ASKED_TWICE_NS)
    assert rests[: SPELL + 4] == [*[False] * 3, *[True] * SPELL, False]
    assert rests.count(False) < 3 * 20
    assert max(len(spell) for spell in "".join("1" if each else " " for each in rests).split()) == LONGEST_SPELL


def test_where_kafka_answers_when_all_is_written_none_rests_though_one_is_slow_now_and_then() -> None:
    slow = [*[ASKED_TWICE_NS] * 2, 4_000_000] * 1_000
    assert not any(rests_of(3_000, lambda rest: slow.pop()))


def test_what_was_begun_long_after_the_last_one_says_nothing() -> None:
    assert Rest(slow=2).took(ASKED_TWICE_NS, pace.REST_NS) == Rest(slow=2)


def test_a_turn_is_not_begun_while_its_partition_rests(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "REST_NS", 6_000_000)
    relay = world.started()
    owner_of(relay).rest = Rest(left=9)
    world.send("a", in_ms=900)
    step_quietly(relay)
    world.advance_ms(900)
    step_until(world.values, relay)
    world.send("b", in_ms=0)
    step_until(lambda: owner_of(relay).position == 2, relay)
    world.advance_ms(5)
    step_quietly_but_for_turns(relay)
    assert world.values() == ["a"]
    world.advance_ms(1)
    step_until(lambda: len(world.values()) == 2, relay)
    assert owner_of(relay).rest.left == 7


def step_quietly_but_for_turns(relay: Relay) -> None:
    for _ in range(20):
        relay.step(0)


@pytest.mark.long(seconds=25)
def test_a_kafka_that_takes_a_part_in_its_time_gets_all_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is one second here; of ten records it makes one."""
    monkeypatch.setattr("waterclock.relay.owner.context._PRODUCER", {"transaction.timeout.ms": 1_000})
    relay = world.started()
    values = due_at_once(world)
    step_quietly(relay)
    world.advance_ms(1_000)
    sizes = commit_with(monkeypatch, lambda turn, size: time.sleep(size / 10))
    step_until(lambda: len(world.values()) == COUNT, relay)
    assert world.values() == values
    assert sizes[0] == COUNT


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
