"""How many buckets a level has: `slots`, one size for all levels or a tuple (semantics.md, section 1)."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.processes import alone
from tests.wheel.wheels import WHEELS, Make, fill, nothing
from waterclock.wheel import COMPILED, reference
from waterclock.wheel.bounds import sizes_of

both = pytest.mark.parametrize("make", WHEELS)

SIZES: list[Any] = [
    2,
    3,
    7,
    20,
    63,
    64,
    65,
    100,
    1000,
    65_535,
    65_536,
    (3,),
    (60, 60, 12),
    (2, 65_536),
    (65_536, 2),
    (64, 63, 65),
    (256, 256),
    (4, 2, 8),
    (2,) * 100 + (3,),
]
WRONG = [0, 1, 65_537, -4, (), True, False, 20.0, 2.5, "20", b"20", None, [60, 60], (60, 1), (60, 65_537), (4, True)]


# What is taken


@both
@pytest.mark.parametrize("slots", SIZES, ids=str)
def test_every_size_is_taken_and_turns(make: Make, slots: Any) -> None:
    wheel = make(slots=slots)
    ran = fill(wheel, 5, 1, 2**40, 70_000)
    wheel._check()
    assert [wheel.advance(1), wheel.advance(69_999), wheel.advance(2**41)] == [1, 1, 2]
    assert ran == [1, 5, 70_000, 2**40]


@both
@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_what_is_no_size_is_a_value_error_that_names_the_argument(make: Make, wrong: Any) -> None:
    with pytest.raises(ValueError, match="slots must lie within 2 and 65536"):
        make(slots=wrong)


def test_the_last_size_of_a_tuple_is_that_of_all_levels_above() -> None:
    wheel = reference.TimingWheel(slots=(60, 60, 12))
    fill(wheel, 60 * 60 * 12 * 12)
    assert [level.wheel_size for level in wheel.snapshot().levels] == [60, 60, 12, 12, 12]
    assert [level.tick for level in wheel.snapshot().levels] == [1, 60, 3600, 43_200, 518_400]


def test_a_size_may_be_any_whole_number_of_python() -> None:
    class Ten:
        def __index__(self) -> int:
            return 10

    assert sizes_of((Ten(), 6)) == (10, 6)


# What happens in them


@both
@pytest.mark.parametrize("slots", SIZES, ids=str)
def test_timers_run_at_either_end_of_every_bucket_of_every_level(make: Make, slots: Any) -> None:
    sizes, units, unit = sizes_of(slots), [], 1
    while unit < 2**61 and len(units) < 70:
        units.append(unit)
        unit *= sizes[min(len(units), len(sizes)) - 1]
    for start in (0, -1, 977):
        edges = sorted(
            start + many * unit + off for unit in units for many in (1, 2) for off in (-1, 0, 1) if many * unit < 2**61
        )
        wheel = make(start=start, slots=slots)
        ran = fill(wheel, *edges)
        for edge in sorted(set(edges)):
            wheel.advance(edge - 1)
            assert not ran or ran[-1] < edge
            wheel.advance(edge)
        wheel._check()
        assert ran == edges


@both
@pytest.mark.parametrize("slots", SIZES, ids=str)
def test_deadlines_reach_to_both_ends_of_time(make: Make, slots: Any) -> None:
    last = 2**62
    wheel = make(start=-last, slots=slots)
    deadlines = [-last + 1, -1, 0, 1, 2**32, last - 2, last - 1, last]
    ran = fill(wheel, *reversed(deadlines))
    wheel._check()
    for n, deadline in enumerate(deadlines):
        assert wheel.next_deadline() == deadline
        assert (wheel.advance(deadline), ran) == (1, deadlines[: n + 1])
    wheel._check()


@both
def test_with_the_coarsest_tick_the_last_deadline_is_rounded_up_without_overflow(make: Make) -> None:
    wheel = make(2**61, slots=(3, 5))
    ran = fill(wheel, 2**62)
    assert (wheel.advance(2**62 + 2**61), ran) == (1, [2**62])


@pytest.mark.skipif(not COMPILED, reason="one implementation needs no comparison")
@pytest.mark.parametrize("seed", range(40))
def test_the_compiled_wheel_runs_timers_in_the_order_of_the_reference(seed: int) -> None:
    choose = random.Random(seed)
    slots = tuple(choose.choice([2, 3, 5, 16, 60, 1000]) for _ in range(choose.randrange(1, 5)))
    start, tick = choose.choice([0, -(2**62), 2**61]), choose.choice([1, 1, 7])
    wheels = [make.values[0](tick, start, slots=slots) for make in WHEELS]
    logs: list[list[int]] = [[] for _ in wheels]
    while wheels[0].now < 2**62 - 1 and len(logs[0]) < 400:
        delays = [int(2 ** choose.uniform(0, 60)) for _ in range(8)]
        name = choose.randrange(10**9)
        for wheel, log in zip(wheels, logs, strict=True):
            for n, delay in enumerate(delays):
                wheel.add_at(min(wheel.now + delay, 2**62), log.append, name + n)
        to = min(wheels[0].now + int(2 ** choose.uniform(0, 62)), 2**62)
        limit = choose.choice([None, None, 3])
        assert len({wheel.advance(to, limit) for wheel in wheels}) == 1
        assert logs[0] == logs[1]
        assert len({wheel.next_deadline() for wheel in wheels}) == 1


# What they cost


MOST = 65_536


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def grown_by_wheels(make: Make, slots: Any) -> int:
    """Resident bytes that one of twenty wheels costs, with a few timers on every level."""
    far = [1, 2, 100_000, 2**33, 2**50]
    before = resident()
    wheels = [make(slots=slots) for _ in range(20)]
    for wheel in wheels:
        for delay in far:
            wheel.add(delay, nothing)
    return (resident() - before) // len(wheels)


@pytest.mark.memory
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident memory from /proc")
@both
@pytest.mark.parametrize("slots", [MOST, MOST - 1, (2, MOST)], ids=str)
def test_large_levels_take_memory_for_the_buckets_that_are_used_only(make: Make, slots: Any) -> None:
    assert alone(grown_by_wheels, make, slots) < 150_000


@both
def test_a_cancel_in_a_large_level_walks_no_words_of_empty_buckets(make: Make) -> None:
    """It read all 1,024 words of its level where it left it empty: ten times what a cancel costs."""

    def seconds(slots: int) -> float:
        wheel, best = make(slots=slots), float("inf")
        for _ in range(7):
            begun = time.thread_time()
            for _ in range(3000):
                wheel.add(1, nothing).cancel()
            best = min(best, time.thread_time() - begun)
        return best

    assert seconds(MOST) < 3 * seconds(256)
