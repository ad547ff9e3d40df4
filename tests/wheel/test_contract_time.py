"""The promises of a wheel by number (semantics.md, section 1): when timers run, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wheel.wheels import SIZED, Make, fill, nothing

pytestmark = pytest.mark.parametrize("make", SIZED)


# 1: never early


@pytest.mark.parametrize("tick", [1, 7, 10, 1000])
def test_no_timer_runs_before_its_deadline(make: Make, tick: int) -> None:
    for deadline in (
        1,
        tick,
        tick + 1,
        2 * tick - 1,
        16 * tick - 1,
        16 * tick,
        16 * tick + 1,
        256 * tick + 1,
    ):
        wheel = make(tick, slots=16)
        ran = fill(wheel, deadline)
        wheel.advance(deadline - 1)
        assert ran == []
        wheel.advance(deadline + tick - 1)
        assert ran == [deadline]


def test_a_deadline_within_a_tick_runs_at_the_end_of_the_tick_not_at_its_start(make: Make) -> None:
    wheel = make(tick=10)
    ran = fill(wheel, 25)
    assert [wheel.advance(now) for now in (20, 24, 25, 29, 30)] == [0, 0, 0, 0, 1]
    assert ran == [25]


def test_a_start_within_a_tick_does_not_make_timers_early(make: Make) -> None:
    wheel = make(tick=10, start=1007)
    ran = fill(wheel, 1008, 1010, 1011)
    assert [wheel.advance(now) for now in (1009, 1010, 1019, 1020)] == [0, 2, 0, 1]
    assert ran == [1008, 1010, 1011]


def test_early_rounding_fires_a_bucket_at_its_start(make: Make) -> None:
    wheel = make(tick=10, rounding="early")
    ran = fill(wheel, 25)
    assert wheel.next_deadline() == 20
    assert [wheel.advance(19), wheel.advance(20)] == [0, 1]
    assert ran == [25]


def test_with_early_rounding_a_timer_of_the_present_tick_is_due_at_once(make: Make) -> None:
    wheel = make(tick=10, start=12, rounding="early")
    fill(wheel, 19)
    assert wheel.next_deadline() == 12
    assert wheel.advance(12) == 1


# 2: never forgotten


@pytest.mark.parametrize("slots", [2, 3, 8, 10, 256])
def test_after_advance_nothing_due_is_left_at_either_end_of_any_level(make: Make, slots: int) -> None:
    edges = sorted({slots**k + d for k in range(1, 6) for d in (-1, 0, 1) if slots**k + d > 0})
    for now in edges:
        wheel = make(slots=slots)
        ran = fill(wheel, *edges)
        assert wheel.advance(now) == edges.index(now) + 1
        assert ran == [edge for edge in edges if edge <= now]
        wheel._check()


def test_the_last_timer_a_level_can_hold_and_the_first_it_cannot_run_at_their_own_tick(make: Make) -> None:
    wheel = make(slots=4)
    ran = fill(wheel, 3, 4, 5, 15, 16, 17)
    for now in range(18):
        before = len(ran)
        wheel.advance(now)
        assert ran[before:] == [d for d in (3, 4, 5, 15, 16, 17) if d == now]


# 3: order


def test_timers_of_one_tick_run_in_the_order_of_adding(make: Make) -> None:
    wheel = make(tick=10)
    ran = fill(wheel, 29, 21, 30, 25)
    wheel.advance(30)
    assert ran == [29, 21, 30, 25]


def test_timers_run_by_tick_whatever_the_order_of_adding(make: Make) -> None:
    wheel = make(slots=4)
    ran = fill(wheel, 70, 3, 17, 64, 5, 16, 4, 300)
    wheel.advance(1000)
    assert ran == [3, 4, 5, 16, 17, 64, 70, 300]


def test_a_timer_that_came_down_a_level_runs_before_a_younger_one_of_the_same_tick(make: Make) -> None:
    ran: list[str] = []
    wheel = make(slots=16)
    wheel.add_at(25, lambda: ran.append("older, through level 2"))
    wheel.advance(10)  # 25 is now within reach of the reference wheel's level 1, and beyond it before
    wheel.add_at(25, lambda: ran.append("younger"))
    wheel.advance(17)
    wheel.add_at(25, lambda: ran.append("youngest, straight into level 1"))
    wheel.advance(25)
    assert ran == ["older, through level 2", "younger", "youngest, straight into level 1"]


def test_order_of_adding_holds_where_buckets_of_three_levels_expire_together(make: Make) -> None:
    ran: list[str] = []
    wheel = make(slots=4)
    wheel.add_at(64, lambda: ran.append("first"))
    wheel.advance(50)
    wheel.add_at(64, lambda: ran.append("second"))
    wheel.advance(62)
    wheel.add_at(64, lambda: ran.append("third"))
    wheel.advance(64)
    assert ran == ["first", "second", "third"]


# 5: the horizon


def test_a_deadline_of_2_to_the_62_is_taken_and_one_more_raises(wheel: Any) -> None:
    ran = fill(wheel, 2**62)
    with pytest.raises(ValueError, match="deadline"):
        wheel.add_at(2**62 + 1, nothing)
    assert wheel.advance(2**62 - 1) == 0
    assert wheel.advance(2**62) == 1
    assert ran == [2**62]


def test_the_last_deadline_rounded_up_to_a_coarse_tick_can_still_be_reached(make: Make) -> None:
    wheel = make(tick=1000)
    fill(wheel, 2**62)
    end = wheel.next_deadline()
    assert end == -(-(2**62) // 1000) * 1000
    assert [wheel.advance(end - 1), wheel.advance(end)] == [0, 1]


@pytest.mark.parametrize("delay", [2**62, 2**63 - 1, 2**63, 2**64, 2**200])
def test_now_plus_delay_never_wraps_into_the_past(make: Make, delay: int) -> None:
    wheel = make(start=2**61)
    timer = wheel.add(7, nothing)
    with pytest.raises(ValueError, match="deadline"):
        wheel.add(delay, nothing)
    with pytest.raises(ValueError, match="deadline"):
        timer.reschedule(delay)
    assert (len(wheel), timer.deadline, wheel.next_deadline()) == (1, 2**61 + 7, 2**61 + 7)
    wheel._check()


@pytest.mark.parametrize("deadline", [100, 99, 0, -5, -(2**62)])
def test_a_past_deadline_runs_at_the_next_advance_and_not_in_add(make: Make, deadline: int) -> None:
    wheel = make(start=100)
    ran = fill(wheel, deadline)
    assert ran == []
    assert wheel.next_deadline() == 100
    assert wheel.advance(100) == 1


@pytest.mark.parametrize("start", [-1, -7, -10, -1007, -(2**40) - 3, -(2**62)])
@pytest.mark.parametrize("tick", [1, 10])
def test_times_below_zero_round_the_same_way_as_those_above(make: Make, start: int, tick: int) -> None:
    wheel = make(tick, start, slots=4)
    deadlines = [start + d for d in (1, 2, 9, 10, 11, 15, 100, 1000)]
    ran = fill(wheel, *deadlines)
    for now in range(start, start + 1001 + tick):
        wheel.advance(now)
        assert ran == [d for d in deadlines if -(-d // tick) * tick <= now]


def test_timers_on_both_sides_of_zero_run_in_order(make: Make) -> None:
    wheel = make(tick=3, start=-(2**62))
    ran = fill(wheel, 5, -5, 2**62, 0, -(2**61))
    wheel.advance(2**62 + 3)
    assert ran == [-(2**61), -5, 0, 5, 2**62]


# 6: no empty tick is walked


def test_a_jump_of_centuries_opens_only_buckets_that_hold_timers(make: Make) -> None:
    wheel = make(slots=16)
    fill(wheel, 200, 840)
    wheel.advance(10**18)
    assert wheel.statistics().opened <= 2 * 3


def test_an_idle_wheel_jumps_without_opening_anything(wheel: Any) -> None:
    wheel.add(5, nothing).cancel()
    assert wheel.advance(10**18) == 0
    assert wheel.statistics().opened == 0


# 9: a clock that steps back


def test_a_clock_that_steps_back_does_nothing(make: Make) -> None:
    wheel = make(start=100)
    ran = fill(wheel, 150)
    assert [wheel.advance(120), wheel.advance(20), wheel.advance(-(10**9)), wheel.now] == [0, 0, 0, 120]
    wheel.add(0, nothing)
    assert wheel.advance(119) == 0
    assert wheel.add(10, nothing).deadline == 130
    assert wheel.advance(150) == 3
    assert ran == [150]


# 11: after idling


def test_after_a_long_idle_time_a_short_timer_needs_one_level(make: Make) -> None:
    wheel = make(slots=16, start=5)
    wheel.advance(10**12 + 3)
    wheel.add(5, nothing)
    assert wheel.statistics().levels == 1


def test_a_timer_added_by_the_last_callback_of_a_long_jump_needs_one_level(make: Make) -> None:
    wheel = make(slots=16)
    levels: list[int] = []
    wheel.add(5, lambda: (wheel.add(5, nothing), levels.append(wheel.statistics().levels)))
    wheel.advance(10**12 + 3)
    assert levels == [1]


def test_while_others_wait_far_off_an_idle_advance_still_brings_the_wheel_to_now(make: Make) -> None:
    wheel = make(slots=16)
    wheel.add(10**9, nothing)
    wheel.advance(1000)
    wheel.add(3, nothing)
    assert wheel.advance(1003) == 1
    assert wheel.statistics().cascaded == 0


# next_deadline


@pytest.mark.parametrize("tick", [1, 10])
def test_next_deadline_is_the_least_now_at_which_advance_runs_something(make: Make, tick: int) -> None:
    wheel = make(tick, start=3, slots=4)
    fill(wheel, 5, 19, 64, 65, 4000, 4000, 12345)
    while (to := wheel.next_deadline()) is not None:
        assert wheel.advance(to - 1) == 0
        assert wheel.next_deadline() == to
        assert wheel.advance(to) > 0


def test_next_deadline_looks_past_a_coarse_bucket_whose_timers_are_later(make: Make) -> None:
    wheel = make(slots=16)
    fill(wheel, 31)  # level 2 of the reference wheel: its bucket expires at 16
    wheel.advance(10)
    fill(wheel, 20)
    assert wheel.next_deadline() == 20


def test_an_empty_wheel_and_emptied_buckets_wake_nobody(make: Make) -> None:
    wheel = make(slots=16)
    timers = [wheel.add(delay, nothing) for delay in (5, 100, 5000)]
    assert wheel.next_deadline() == 5
    timers[0].cancel()
    assert wheel.next_deadline() == 100
    timers[1].cancel()
    timers[2].cancel()
    assert wheel.next_deadline() is None


def test_cancel_and_add_again_where_an_emptied_bucket_was(make: Make) -> None:
    wheel = make(slots=4)
    for now in range(0, 60, 2):
        wheel.add(3, nothing).cancel()
        wheel.add(13, nothing).cancel()
        wheel.advance(now)
        wheel._check()
    assert wheel.statistics().pending == 0
