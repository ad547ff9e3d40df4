"""`occupancy()`: how many timers wait in each bucket, the same from the compiled wheels and the plain ones."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.wheel.array_wheels import ARRAY_WHEELS, row, schedule
from tests.wheel.array_wheels import cancel as cancel_ids
from tests.wheel.wheels import WHEELS, Make, nothing
from waterclock.timer.locked import LockedWheel

both = pytest.mark.parametrize("make", WHEELS)
both_arrays = pytest.mark.parametrize("make", ARRAY_WHEELS)


def total(wheel: Any) -> int:
    return sum(timers for level in wheel.occupancy() for timers in level.values())


# Timers with callbacks


@both
def test_an_empty_wheel_has_no_level_in_use(make: Make) -> None:
    assert make().occupancy() == ()


@both
def test_timers_are_counted_by_level_and_bucket_in_order(make: Make) -> None:
    wheel = make(slots=20)
    for deadline in (19, 3, 350, 3, 8000, 20, 359):
        wheel.add_at(deadline, nothing)
    assert wheel.occupancy() == ({3: 2, 19: 1}, {1: 1, 17: 2}, {}, {1: 1})
    assert [list(level) for level in wheel.occupancy()] == [[3, 19], [1, 17], [], [1]]


@both
def test_a_level_has_the_size_of_its_own(make: Make) -> None:
    wheel = make(slots=(60, 60, 12))
    for deadline in (59, 61, 3600, 11 * 3600, 12 * 3600):
        wheel.add_at(deadline, nothing)
    assert wheel.occupancy() == ({59: 1}, {1: 1}, {1: 1, 11: 1}, {1: 1})


@both
def test_a_cancelled_and_a_moved_timer_are_not_counted_where_they_were(wheel: Any) -> None:
    timers = [wheel.add(300, nothing) for _ in range(1000)]
    for timer in timers[3:]:
        timer.cancel()
    timers[0].reschedule(5)
    assert wheel.occupancy() == ({5: 1}, {1: 2})
    for timer in timers[:3]:
        timer.cancel()
    assert wheel.occupancy() == ()


@both
def test_a_bucket_that_is_being_packed_is_counted_exactly(make: Make) -> None:
    wheel, chance, left = make(), random.Random(5), 1000
    timers = [wheel.add(2**30 + n, nothing) for n in range(left)]
    for timer in chance.sample(timers, 990):
        timer.cancel()
        left -= 1
        if left % 7 == 0:
            assert wheel.occupancy() == ({}, {}, {}, {64: left})


@both
def test_timers_go_down_a_level_when_the_wheel_reaches_their_bucket(wheel: Any) -> None:
    for deadline in (256, 257, 500, 512, 70_000):
        wheel.add_at(deadline, nothing)
    assert wheel.occupancy() == ({}, {1: 3, 2: 1}, {1: 1})
    wheel.advance(256)
    assert wheel.occupancy() == ({1: 1, 244: 1}, {2: 1}, {1: 1})
    wheel.advance(65_536)
    assert wheel.occupancy() == ({}, {17: 1})


@both
def test_a_jump_leaves_what_is_still_to_come(wheel: Any) -> None:
    for deadline in (5, 10**6, 10**12, 10**12 + 1):
        wheel.add_at(deadline, nothing)
    wheel.advance(10**12 - 1)
    assert wheel.occupancy() == ({}, {0x10: 2})  # 10**12 is 0xE8D4A51000
    wheel.advance(10**12)
    assert wheel.occupancy() == ({1: 1},)


@both
def test_buckets_are_counted_from_where_the_wheel_was_last_empty(make: Make) -> None:
    wheel = make(tick=10, start=-1003)
    wheel.add(25, nothing)
    assert wheel.occupancy() == ({4: 1},)  # -1010 is tick 0, and -978 rounded up is -970
    wheel.advance(10**9)
    wheel.add(25, nothing)
    assert wheel.occupancy() == ({3: 1},)


@both
def test_what_a_limit_holds_back_stays_where_it_is(wheel: Any) -> None:
    for deadline in (5, 5, 5, 300, 400):
        wheel.add_at(deadline, nothing)
    wheel.advance(350, limit=2)
    assert wheel.occupancy() == ({5: 1}, {1: 2})
    wheel.add(0, nothing)
    assert wheel.occupancy() == ({5: 1}, {1: 3})
    wheel.advance(350)
    assert wheel.occupancy() == ({144: 1},)


@both
def test_inside_a_callback_it_counts_what_still_waits(make: Make) -> None:
    wheel, seen = make(), []
    for deadline in (5, 5, 300):
        wheel.add_at(deadline, lambda: seen.append(wheel.occupancy()))
    wheel.advance(1000)
    assert seen == [({5: 1}, {1: 1}), ({}, {1: 1}), ()]


def test_the_locked_wheel_answers_as_the_wheel_in_it() -> None:
    wheel = LockedWheel(1, 0)
    wheel.add_at(300, nothing)
    assert wheel.occupancy() == ({}, {1: 1})


@pytest.mark.skipif(len(WHEELS) == 1, reason="one implementation needs no comparison")
@pytest.mark.parametrize("seed", range(60))
def test_both_wheels_give_the_same_picture_through_a_random_life(seed: int) -> None:
    """Callbacks that add, cancel all or one, or raise what stops an advance; limits; jumps; all sizes."""
    choose = random.Random(seed)
    slots = choose.choice([256, 4, 3, (60, 60, 12), tuple(choose.choices([2, 5, 16, 100], k=3))])
    start, tick, rounding = choose.choice([0, -1003, 2**61]), choose.choice([1, 7]), choose.choice(["late", "early"])
    wheels = [wheel.values[0](tick, start, slots=slots, rounding=rounding) for wheel in WHEELS]
    pictures: list[list[Any]] = [[] for _ in wheels]
    handles: list[list[Any]] = [[] for _ in wheels]

    def act(n: int, deed: int, delay: int) -> None:
        pictures[n].append(wheels[n].occupancy())
        if deed == 0:
            wheels[n].add(delay, nothing)
        elif deed == 1:
            wheels[n].clear()
            wheels[n].add(delay, nothing)
        elif deed == 2:
            raise KeyboardInterrupt

    for _ in range(150):
        verb, many = choose.randrange(6), choose.randrange(1, 6)
        delays = [int(2 ** choose.uniform(0, choose.choice([4, 12, 40]))) - 1 for _ in range(many)]
        deeds = [choose.randrange(9) for _ in range(many)]
        which, limit = choose.random(), choose.choice([None, None, 0, 1, 3])
        for n, wheel in enumerate(wheels):
            if verb < 3:
                for deed, delay in zip(deeds, delays, strict=True):
                    handles[n].append(wheel.add(delay, lambda n=n, deed=deed, delay=delay: act(n, deed, delay)))
            elif verb == 3 and handles[n]:
                handle = handles[n][int(which * len(handles[n]))]
                handle.cancel() if deeds[0] < 5 else handle.reschedule(delays[0])
            else:
                try:
                    wheel.advance(wheel.now + delays[0], limit)
                except KeyboardInterrupt:
                    pictures[n].append("stopped")
            pictures[n].append(wheel.occupancy())
            assert total(wheel) == len(wheel)
        assert pictures[0] == pictures[1], f"seed {seed}"


# Ids in arrays


@both_arrays
def test_ids_are_counted_by_level_and_bucket(wheel: Any) -> None:
    assert wheel.occupancy() == ()
    ids = schedule(wheel, 3, 3, 255, 256, 300, 70_000)
    assert wheel.occupancy() == ({3: 2, 255: 1}, {1: 2}, {1: 1})
    cancel_ids(wheel, ids[0], ids[4])
    assert wheel.occupancy() == ({3: 1, 255: 1}, {1: 1}, {1: 1})
    wheel.advance(256)
    assert wheel.occupancy() == ({}, {}, {1: 1})


@both_arrays
def test_what_is_due_stands_in_the_bucket_of_now(wheel: Any) -> None:
    schedule(wheel, 5, 5, 7, 300, 400)
    wheel.advance(350, limit=1)
    schedule(wheel, 350, 1)
    assert wheel.occupancy() == ({94: 5, 144: 1},)
    assert wheel.advance(350)[1].tolist() == [5, 7, 300, 350, 1]
    assert wheel.occupancy() == ({144: 1},)


@both_arrays
def test_to_look_changes_nothing(make: Make) -> None:
    looked, other = make(10, -7), make(10, -7)
    for wheel in (looked, other):
        schedule(wheel, *range(0, 5000, 7))
        wheel.advance(2000, 50)
        schedule(wheel, *range(1990, 2100))
    looked.occupancy()
    looked._check()
    for wheel in (looked, other):
        schedule(wheel, 1, 1999, 2000, 2001)
    for now in (2000, 2003, 9999):
        assert [column.tolist() for column in looked.advance(now, 60)] == [
            column.tolist() for column in other.advance(now, 60)
        ]


@pytest.mark.skipif(len(ARRAY_WHEELS) == 1, reason="one implementation needs no comparison")
@pytest.mark.parametrize("seed", range(40))
def test_both_array_wheels_give_the_same_picture_through_a_random_life(seed: int) -> None:
    choose = random.Random(seed)
    start, tick = choose.choice([0, -1003, 2**61]), choose.choice([1, 7])
    wheels = [wheel.values[0](tick, start) for wheel in ARRAY_WHEELS]
    given: list[int] = []
    for _ in range(80):
        verb, many, limit = choose.randrange(6), choose.randrange(0, 90), choose.choice([None, 0, 1, 30])
        delays = [int(2 ** choose.uniform(0, choose.choice([4, 12, 40]))) - 3 for _ in range(many)]
        leaving = choose.sample(given, min(many, len(given)))
        for n, wheel in enumerate(wheels):
            if verb < 2:
                ids = wheel.schedule(row(*(wheel.now + delay for delay in delays))).tolist()
                given += ids if n == 0 else []
            elif verb == 2:
                wheel.cancel(row(*leaving))
            elif verb == 3 and many % 5 == 0:
                wheels[n] = type(wheel).from_bytes(wheel.to_bytes())
            else:
                wheel.advance(wheel.now + max(delays, default=0) // 3, limit)
        pictures = [wheel.occupancy() for wheel in wheels]
        assert pictures[0] == pictures[1], f"seed {seed}"
        assert total(wheels[0]) == len(wheels[0])
        wheels[1]._check()
