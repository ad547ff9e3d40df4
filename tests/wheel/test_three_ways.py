"""Each scenario in one jump, tick by tick, and in random steps: same firings, same order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.wheel.wheels import WHEELS, Make

END = 700
SEEDS = range(6)


def one_jump(start: int, end: int, seed: int) -> Iterator[int]:
    yield end


def tick_by_tick(start: int, end: int, seed: int) -> Iterator[int]:
    yield from range(start, end + 1)


def random_steps(start: int, end: int, seed: int) -> Iterator[int]:
    choose, now = random.Random(seed), start
    while now < end:
        now = min(end, now + choose.choice([0, 1, 2, 7, 16, 60, 250]))
        yield now


WAYS = [one_jump, tick_by_tick, random_steps]


def scattered(wheel: Any, log: list[Any], seed: int) -> None:
    choose = random.Random(seed)
    for number in range(150):
        wheel.add(choose.randrange(-3, END), lambda number=number: log.append(number))


def crowded(wheel: Any, log: list[Any], seed: int) -> None:
    for number in range(150):
        wheel.add(100 + number % 3, lambda number=number: log.append(number))


def half_cancelled(wheel: Any, log: list[Any], seed: int) -> None:
    choose = random.Random(seed)
    timers = [wheel.add(choose.randrange(END), lambda n=n: log.append(n)) for n in range(200)]
    for timer in choose.sample(timers, 100):
        timer.cancel()


def rescheduled(wheel: Any, log: list[Any], seed: int) -> None:
    choose = random.Random(seed)
    timers = [wheel.add(choose.randrange(END), lambda n=n: log.append(n)) for n in range(100)]
    for timer in choose.choices(timers, k=100):
        timer.reschedule(choose.randrange(END))


def chained(wheel: Any, log: list[Any], seed: int) -> None:
    """Callbacks that add at fixed times, cancel and move others: what happens does not hang on the steps."""
    choose = random.Random(seed)
    base, timers = wheel.now, []

    def link(at: int, left: int) -> None:
        log.append((at, left))
        if left:
            wheel.add_at(base + at + 60, lambda: link(at + 60, left - 1))
        if left % 3 == 2 and timers:
            log.append(timers.pop().cancel())

    for number in range(40):
        at = 60 * choose.randrange(1, 4)  # all at multiples of 60: whatever a tick adds is due at a later one
        wheel.add_at(base + at, lambda at=at, number=number: link(at, number % 4))
    timers += [wheel.add(END - 30 - n, lambda n=n: log.append(f"late {n}")) for n in range(20)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", [scattered, crowded, half_cancelled, rescheduled])
@pytest.mark.parametrize(
    ("tick", "start", "slots"),
    [(1, 0, 4), (1, -301, 16), (7, 1000, 4), (60, 13, 2), (1, 0, 20), (1, -7, 3), (3, 13, (6, 5, 2)), (1, 1, 65_536)],
)
@pytest.mark.parametrize("make", WHEELS)
def test_the_same_timers_run_in_the_same_order_whatever_the_steps(
    make: Make, tick: int, start: int, slots: Any, scenario: Callable[..., None], seed: int
) -> None:
    logs = []
    for way in WAYS:
        wheel, log = make(tick, start, slots=slots), []
        scenario(wheel, log, seed)
        for now in way(start, start + END + tick, seed):
            wheel.advance(now)
        wheel._check()
        assert len(wheel) == 0
        logs.append(log)
    assert logs[0] == logs[1] == logs[2], f"seed {seed}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slots", [4, (3, 7)], ids=str)
@pytest.mark.parametrize("make", WHEELS)
def test_tick_by_tick_and_random_steps_of_one_driver_agree_when_callbacks_change_the_wheel(
    make: Make, slots: Any, seed: int
) -> None:
    """A driver that goes from next_deadline to next_deadline sees what one that ticks sees."""
    logs: list[list[Any]] = []
    for driven in (True, False):
        wheel, log = make(slots=slots), []
        chained(wheel, log, seed)
        if driven:
            while (to := wheel.next_deadline()) is not None:
                wheel.advance(to)
        for now in range(END + 1):
            wheel.advance(now)
        logs.append(log)
    assert logs[0] == logs[1], f"seed {seed}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slots", [4, (5, 6, 3)], ids=str)
@pytest.mark.parametrize("make", WHEELS)
def test_limits_change_when_timers_run_and_not_in_which_order(make: Make, slots: Any, seed: int) -> None:
    choose, logs = random.Random(seed), []
    for limited in (False, True):
        wheel, log = make(slots=slots), []
        scattered(wheel, log, seed)
        while limited and len(wheel):
            wheel.advance(END, choose.randrange(0, 9))
            wheel._check()
        wheel.advance(END)
        logs.append(log)
    assert logs[0] == logs[1], f"seed {seed}"
