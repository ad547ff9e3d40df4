"""A Kafka that is slow: a turn that it does not take in time is followed by a smaller one, and all comes once, in order."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.relay.test_kills import owner_of
from tests.relay.world import World, step_quietly, step_until
from waterclock.errors import ConnectionLost
from waterclock.relay.owner import pace
from waterclock.relay.owner.pace import ASKED_TWICE_NS, EASY_NS, LONGEST_SPELL, SPELL, Rest
from waterclock.relay.owner.turn import Turn
from waterclock.relay.relay import Relay

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
