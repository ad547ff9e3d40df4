"""A Kafka that is slow: a turn that it does not take in time is followed by a smaller one, and all comes once, in order."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.relay.test_kills import owner_of
from tests.relay.world import World, step_quietly, step_until
from waterclock.errors import ConnectionLost
from waterclock.relay.pace import EASY_NS
from waterclock.relay.turn import Turn

COUNT = 40
FITS = 8
Commit = Callable[[Turn], None]


def commit_with(monkeypatch: pytest.MonkeyPatch, deed: Callable[[Turn, int], object]) -> list[int]:
    """Have something happen before each commit of so many deliveries and answers; the numbers, as they come."""
    sizes: list[int] = []
    real = Turn.commit

    def commit(self: Turn) -> None:
        size = len(self._rows) + len(self._replies) + len(self._letters)
        sizes.append(size)
        deed(self, size)
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


@pytest.mark.long(seconds=25)
def test_a_kafka_that_takes_a_part_in_its_time_gets_all_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is one second here; of ten records it makes one."""
    monkeypatch.setattr("waterclock.relay.around._PRODUCER", {"transaction.timeout.ms": 1_000})
    relay = world.started()
    values = due_at_once(world)
    step_quietly(relay)
    world.advance_ms(1_000)
    sizes = commit_with(monkeypatch, lambda turn, size: time.sleep(size / 10))
    step_until(lambda: len(world.values()) == COUNT, relay)
    assert world.values() == values
    assert sizes[0] == COUNT
