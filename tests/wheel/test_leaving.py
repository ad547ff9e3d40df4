"""Whoever looks right behind a cancel: of what was taken out nothing is found, though its place may be made blank later."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from tests.wheel.wheels import WHEELS, Make, nothing

FAR = 1 << 30  # all of them in one bucket of a high level
LEFT = [1, 7, 8, 9, 30, 480]  # fewer and more than are made blank later


def turn(wheel: Any, kept: list[Any]) -> None:
    assert wheel.advance(FAR + 1_000) == len(kept)


def turn_in_part(wheel: Any, kept: list[Any]) -> None:
    assert wheel.advance(FAR + 1_000, limit=1) == 1


def look_for_the_next(wheel: Any, kept: list[Any]) -> None:
    assert wheel.next_deadline() == min(handle.deadline for handle in kept)


def take_all(wheel: Any, kept: list[Any]) -> None:
    assert wheel.clear() == kept


def collect(wheel: Any, kept: list[Any]) -> None:
    gc.collect()
    assert len(wheel) == len(kept)


def throw_away(wheel: Any, kept: list[Any]) -> None:
    """The wheel goes with its last reference, which is the caller's."""


LOOKS = [turn, turn_in_part, look_for_the_next, take_all, collect, throw_away]


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.__name__)
@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("make", WHEELS)
def test_who_looks_right_behind_a_cancel_finds_what_waits(
    make: Make, left: int, look: Callable[[Any, list[Any]], None]
) -> None:
    wheel = make()
    handles = [wheel.add(FAR + n, nothing) for n in range(500)]
    kept, gone = handles[left:], handles[:left]
    del handles
    for handle in gone:
        assert handle.cancel()
    del handle, gone[::2]  # of some the memory is given to others
    others = [wheel.add(FAR + 700, nothing) for _ in range(3)]
    look(wheel, kept + others)
    del wheel
    assert not any(handle.pending for handle in gone)


@pytest.mark.parametrize("make", WHEELS)
def test_callbacks_that_cancel_timers_of_their_own_tick_are_the_last_that_run(make: Make) -> None:
    wheel, ran = make(), []
    first = wheel.add(5, lambda: [handle.cancel() for handle in handles[2:]])
    handles = [first, *(wheel.add(5, ran.append, n) for n in range(1, 40))]
    assert wheel.advance(5) == 2
    assert ran == [1]


@pytest.mark.parametrize("make", WHEELS)
def test_a_timer_that_was_moved_within_its_bucket_runs_once_and_in_its_turn(make: Make) -> None:
    wheel, ran = make(), []
    handles = [wheel.add(FAR, ran.append, n) for n in range(100)]
    for handle in handles[:10]:
        assert handle.reschedule(FAR)
    assert wheel.advance(FAR) == 100
    assert ran == [*range(10, 100), *range(10)]


@pytest.mark.parametrize("make", WHEELS)
def test_timers_that_get_the_places_of_those_that_left_a_bucket_empty_are_there(make: Make) -> None:
    wheel, ran = make(), []
    gone = [wheel.add(FAR, nothing) for _ in range(5)]
    others = [wheel.add(3, ran.append, -1)]
    for handle in gone:
        assert handle.cancel()
    others += [wheel.add(300, ran.append, n) for n in range(5)]
    assert wheel.advance(300) == len(others)
    assert ran == [-1, *range(5)]
