"""The promises of a wheel by number (semantics.md, section 1): one suite over both implementations."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from waterclock.wheel import COMPILED, reference

WHEELS = [pytest.param(reference.TimingWheel, id="reference")]
if COMPILED:
    from waterclock.wheel import _objects

    WHEELS.append(pytest.param(_objects.TimingWheel, id="compiled"))

pytestmark = pytest.mark.parametrize("make", WHEELS)
Make = Callable[..., Any]


def nothing() -> None:
    pass


def fill(wheel: Any, *deadlines: int) -> list[int]:
    """Timers at these deadlines; the list returned fills with the deadlines as they run."""
    ran: list[int] = []
    for deadline in deadlines:
        wheel.add_at(deadline, lambda deadline=deadline: ran.append(deadline))
    return ran


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


@pytest.mark.parametrize("slots", [2, 8, 256])
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


# 4: exactly once or cancelled


def test_cancel_is_true_once_and_the_callback_never_runs(make: Make) -> None:
    wheel = make()
    ran: list[int] = []
    timer = wheel.add(5, lambda: ran.append(1))
    assert timer.pending
    assert [timer.cancel(), timer.cancel()] == [True, False]
    assert not timer.pending
    assert wheel.advance(10) == 0
    assert ran == []


def test_cancel_after_it_ran_is_false_and_it_does_not_run_again(make: Make) -> None:
    wheel = make()
    ran: list[int] = []
    timer = wheel.add(5, lambda: ran.append(1))
    assert [wheel.advance(5), wheel.advance(500)] == [1, 0]
    assert not timer.cancel()
    assert not timer.pending
    assert ran == [1]


def test_inside_its_own_callback_a_timer_is_over(make: Make) -> None:
    wheel = make()
    seen: list[Any] = []
    timer = wheel.add(1, lambda: seen.extend((timer.pending, timer.cancel(), timer.reschedule(5), len(wheel))))
    wheel.advance(1)
    assert seen == [False, False, False, 0]


@pytest.mark.parametrize("count", [1, 2, 31, 95, 1000])
def test_len_counts_exactly_the_waiting_whatever_is_cancelled(make: Make, count: int) -> None:
    wheel = make()
    timers = [wheel.add(7, nothing) for _ in range(count)]
    for left, timer in enumerate(reversed(timers)):
        assert len(wheel) == count - left
        timer.cancel()
        wheel._check()
    assert len(wheel) == 0


@pytest.mark.parametrize("kept", [range(0, 1000, 7), range(993, 1000), range(7), [500]])
def test_cancelling_most_of_a_bucket_leaves_the_rest_in_order(make: Make, kept: Any) -> None:
    wheel = make()
    ran: list[int] = []
    timers = [wheel.add(7, lambda n=n: ran.append(n)) for n in range(1000)]
    for n, timer in enumerate(timers):
        if n not in set(kept):
            assert timer.cancel()
    wheel._check()
    assert wheel.advance(7) == len(list(kept))
    assert ran == list(kept)


def test_reschedule_moves_a_timer_it_is_in_the_wheel_once_and_runs_once_at_the_new_time(make: Make) -> None:
    wheel = make()
    ran: list[int] = []
    timer = wheel.add(5, lambda: ran.append(wheel.now))
    assert timer.reschedule(300)
    assert (len(wheel), timer.deadline, wheel.next_deadline()) == (1, 300, 300)
    assert [wheel.advance(now) for now in (5, 299, 300, 301)] == [0, 0, 1, 0]
    assert ran == [300]


def test_reschedule_to_an_earlier_time_is_seen_by_next_deadline(make: Make) -> None:
    wheel = make()
    timer = wheel.add(500, nothing)
    assert wheel.next_deadline() == 500
    timer.reschedule(5)
    assert wheel.next_deadline() == 5


@pytest.mark.parametrize("delay", [5, 500])
def test_a_rescheduled_timer_goes_behind_those_already_added_for_the_tick(make: Make, delay: int) -> None:
    wheel = make(slots=16)
    ran: list[int] = []
    timers = [wheel.add(delay, lambda n=n: ran.append(n)) for n in range(4)]
    timers[1].reschedule(delay)
    timers[0].reschedule(delay)
    wheel.advance(delay)
    assert ran == [2, 3, 1, 0]


def test_reschedule_of_a_timer_that_is_over_is_false_and_does_nothing(make: Make) -> None:
    wheel = make()
    ran, cancelled = wheel.add(1, nothing), wheel.add(1, nothing)
    cancelled.cancel()
    wheel.advance(1)
    assert [ran.reschedule(5), cancelled.reschedule(5), len(wheel)] == [False, False, 0]


# 5: the horizon


def test_a_deadline_of_2_to_the_62_is_taken_and_one_more_raises(make: Make) -> None:
    wheel = make()
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


def test_an_idle_wheel_jumps_without_opening_anything(make: Make) -> None:
    wheel = make()
    wheel.add(5, nothing).cancel()
    assert wheel.advance(10**18) == 0
    assert wheel.statistics().opened == 0


# 7: no memory held by the dead


class Thing:
    def __call__(self) -> None:
        pass


def test_a_cancelled_timer_lets_go_of_its_callback_at_once(make: Make) -> None:
    wheel, thing = make(), Thing()
    alive = weakref.ref(thing)
    timer = wheel.add(5, thing)
    del thing
    assert alive() is not None
    timer.cancel()
    assert alive() is None


def test_a_timer_that_ran_lets_go_of_its_callback_though_the_handle_is_kept(make: Make) -> None:
    wheel, thing = make(), Thing()
    alive = weakref.ref(thing)
    timer = wheel.add(5, thing)
    del thing
    wheel.advance(5)
    assert alive() is None
    assert not timer.pending


def test_a_dropped_wheel_with_waiting_timers_is_collected(make: Make) -> None:
    wheel, thing = make(), Thing()
    alive = weakref.ref(thing)
    for delay in range(100):
        wheel.add(delay**3, thing)
    del wheel, thing
    gc.collect()
    assert alive() is None


# A weak reference is cleared when a cycle is found, before it is freed; a reference count proves the freeing.


def test_a_cycle_of_wheel_callback_and_handle_is_collected(make: Make) -> None:
    class Owner:
        def __init__(self, kept: Thing) -> None:
            self.wheel = make()
            self.timers = [self.wheel.add(5, self.ring), self.wheel.add(6, kept)]

        def ring(self) -> None:
            pass

    kept = Thing()
    before = sys.getrefcount(kept)
    Owner(kept)
    gc.collect()
    assert sys.getrefcount(kept) == before


def test_a_cycle_that_only_the_wheel_itself_can_break_is_collected(make: Make) -> None:
    kept, wheel = Thing(), make()
    before = sys.getrefcount(kept)
    wheel.add(5, wheel.__len__)  # of the compiled wheel a method in C: the collector cannot empty that
    wheel.add(6, kept)
    assert sys.getrefcount(kept) == before + 1
    del wheel
    gc.collect()
    assert sys.getrefcount(kept) == before


def test_a_reachable_wheel_keeps_its_callbacks_through_a_collection(make: Make) -> None:
    wheel = make()
    ran: list[int] = []
    for n in range(100):
        wheel.add(n + 1, lambda n=n: ran.append(n))
    gc.collect()
    wheel.advance(100)
    assert ran == list(range(100))


def test_a_callback_that_adds_when_it_dies_does_not_harm_the_wheel(make: Make) -> None:
    wheel = make()

    class Revenant(Thing):
        def __del__(self) -> None:
            wheel.add(9, nothing)

    timers = [wheel.add(5, Revenant()) for _ in range(3)]
    timers[0].cancel()
    wheel.advance(5)
    wheel._check()
    assert len(wheel) == 3


# 8: re-entrant


def test_a_callback_that_adds_for_now_is_served_in_the_same_advance_after_what_was_due(make: Make) -> None:
    wheel = make(tick=10)
    ran: list[str] = []

    def first() -> None:
        ran.append("first")
        wheel.add(0, lambda: ran.append("added for now"))
        wheel.add(-5, lambda: ran.append("added for the past"))

    wheel.add_at(10, first)
    fill_late = [wheel.add_at(d, lambda d=d: ran.append(f"due {d}")) for d in (10, 20, 40)]
    assert wheel.advance(45) == 6
    assert ran == ["first", "due 10", "due 20", "due 40", "added for now", "added for the past"]
    assert not any(timer.pending for timer in fill_late)


def test_limit_bounds_a_callback_that_adds_itself_again_and_again(make: Make) -> None:
    wheel = make()
    ran: list[int] = []

    def again() -> None:
        ran.append(wheel.now)
        if len(ran) < 1000:  # where limit is ignored this test fails, and does not hang
            wheel.add(0, again)

    wheel.add(1, again)
    assert wheel.advance(7, limit=50) == 50
    assert len(ran) == 50
    assert len(wheel) == 1


def test_what_limit_holds_back_runs_first_next_time_and_in_order(make: Make) -> None:
    wheel = make(slots=4)
    ran = fill(wheel, 5, 5, 5, 6, 70, 71)
    counts = []
    for now, limit in ((70, 2), (70, 0), (70, 1), (70, 2), (71, 10)):
        counts.append(wheel.advance(now, limit))
        wheel._check()
    assert counts == [2, 0, 1, 2, 1]
    assert ran == [5, 5, 5, 6, 70, 71]


def test_a_timer_added_between_two_limited_advances_keeps_the_order_by_tick(make: Make) -> None:
    wheel = make(slots=4)
    ran = fill(wheel, 5, 5, 40)
    wheel.advance(50, limit=1)
    ran2 = fill(wheel, 20, 51)  # 20 has passed: it counts as of now, behind 40
    assert wheel.next_deadline() == 50
    wheel.add_at(52, lambda: ran.extend(ran2))
    wheel.advance(50, limit=2)
    assert (ran, ran2) == ([5, 5, 40], [])
    wheel.advance(60)
    assert ran == [5, 5, 40, 20, 51]


def test_a_callback_may_cancel_one_that_is_due_in_the_same_bucket(make: Make) -> None:
    wheel = make()
    ran: list[str] = []
    timers: list[Any] = []
    wheel.add(5, lambda: ran.append(f"first, {[timer.cancel() for timer in timers]}"))
    timers += [wheel.add(5, lambda: ran.append("never")) for _ in range(100)]
    wheel.add(5, lambda: ran.append("last"))
    assert wheel.advance(5) == 2
    assert ran == [f"first, {[True] * 100}", "last"]
    wheel._check()


def test_cancel_while_a_coarse_bucket_is_half_run_leaves_no_counted_ghost(make: Make) -> None:
    wheel = make(slots=4)
    timers: list[Any] = []
    wheel.add_at(16, lambda: [timer.cancel() for timer in timers])
    timers += [wheel.add_at(deadline, nothing) for deadline in (16, 17, 19, 30, 31)]
    assert wheel.advance(16) == 1
    assert (len(wheel), wheel.next_deadline(), wheel.advance(100)) == (0, None, 0)
    wheel._check()


def test_a_callback_may_reschedule_others_into_the_past_and_the_future(make: Make) -> None:
    wheel = make()
    ran: list[str] = []
    soon, late = wheel.add(6, lambda: ran.append("soon")), wheel.add(900, lambda: ran.append("late"))
    wheel.add(5, lambda: ran.append(f"{soon.reschedule(100)} {late.reschedule(0)}"))
    assert wheel.advance(10) == 2
    assert ran == ["True True", "late"]
    assert soon.deadline == 110


def test_the_last_callback_may_start_the_wheel_anew_a_full_turn_later(make: Make) -> None:
    for later in (1, 3, 4, 15, 16, 17, 255, 256, 257):
        wheel = make(slots=16)
        ran: list[int] = []
        wheel.add(5, lambda w=wheel, r=ran, d=later: w.add(d, lambda: r.append(w.now)))
        assert wheel.advance(260) == 1
        assert wheel.next_deadline() == 260 + later
        assert wheel.advance(259 + later) == 0
        assert wheel.advance(260 + later) == 1
        assert ran == [260 + later]


def test_a_callback_that_cancels_all_others_may_start_the_wheel_anew(make: Make) -> None:
    for later in (*range(1, 20), 255, 256, 257, 261):
        wheel = make(slots=16)
        ran: list[int] = []
        others: list[Any] = []

        def anew(w: Any = wheel, r: list[int] = ran, o: list[Any] = others, d: int = later) -> None:
            assert all(timer.cancel() for timer in o)
            w.add(d, lambda: r.append(w.now))
            w._check()

        wheel.add(5, anew)
        others += [wheel.add(delay, nothing) for delay in (5, 5, 300)]
        assert wheel.advance(260) == 1
        assert wheel.next_deadline() == 260 + later
        assert [wheel.advance(259 + later), wheel.advance(260 + later)] == [0, 1]
        assert ran == [260 + later]


def test_advance_inside_advance_raises_and_the_wheel_goes_on(make: Make) -> None:
    wheel = make()
    ran = fill(wheel, 6)
    wheel.add(5, lambda: wheel.advance(9))
    with pytest.raises(ExceptionGroup) as caught:
        wheel.advance(8)
    assert isinstance(caught.value.exceptions[0], RuntimeError)
    assert ran == [6]
    assert wheel.advance(9) == 0


def test_next_deadline_and_len_inside_a_callback_speak_of_what_still_waits(make: Make) -> None:
    wheel = make()
    seen: list[Any] = []
    for deadline in (5, 5, 9, 40):
        wheel.add_at(deadline, lambda: seen.append((wheel.now, len(wheel), wheel.next_deadline())))
    wheel.advance(20)
    assert seen == [(20, 3, 20), (20, 2, 20), (20, 1, 40)]


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


# 10: exceptions


def test_exceptions_do_not_lose_the_others_and_come_as_one_group(make: Make) -> None:
    wheel = make()
    ran: list[int] = []

    def fail(error: Exception) -> None:
        raise error

    errors = [KeyError("a"), ValueError("b")]
    for n, error in enumerate(errors):
        wheel.add(5 + n, lambda error=error: fail(error))
        wheel.add(5 + n, lambda n=n: ran.append(n))
    with pytest.raises(ExceptionGroup) as caught:
        wheel.advance(10)
    assert list(caught.value.exceptions) == errors
    assert ran == [0, 1]
    assert (len(wheel), wheel.statistics().fired, wheel.advance(11)) == (0, 4, 0)
    wheel._check()


def test_a_failing_callback_counts_towards_limit(make: Make) -> None:
    wheel = make()
    wheel.add(1, lambda: 1 / 0)
    ran = fill(wheel, 1)
    with pytest.raises(ExceptionGroup):
        wheel.advance(1, limit=1)
    assert ran == []
    assert wheel.advance(1) == 1


def test_keyboard_interrupt_stops_at_once_and_what_was_due_stays_pending(make: Make) -> None:
    wheel = make()

    def stop() -> None:
        raise KeyboardInterrupt

    wheel.add(1, lambda: 1 / 0)
    wheel.add(1, stop)
    ran = fill(wheel, 1, 2)
    with pytest.raises(KeyboardInterrupt) as caught:
        wheel.advance(5)
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert ran == []
    wheel._check()
    assert wheel.advance(5) == 2
    assert ran == [1, 2]


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


# wrong arguments


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("tick", {"tick": 0}),
        ("tick", {"tick": -1}),
        ("tick", {"tick": 2**62}),
        ("start", {"start": 2**62 + 1}),
        ("slots", {"slots": 1}),
        ("slots", {"slots": 2**17}),
        ("rounding", {"rounding": "up"}),
    ],
)
def test_a_wrong_argument_of_a_wheel_is_named(make: Make, name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=name):
        make(**arguments)


def test_wrong_arguments_of_the_verbs_are_named_and_change_nothing(make: Make) -> None:
    wheel = make()
    with pytest.raises(TypeError, match="callback"):
        wheel.add(5, 7)
    for wrong in (1.5, "5", None):
        with pytest.raises(TypeError):
            wheel.add(wrong, nothing)
        with pytest.raises(TypeError):
            wheel.advance(wrong)
    with pytest.raises(ValueError, match="limit"):
        wheel.advance(5, limit=-1)
    with pytest.raises(ValueError, match="now"):
        wheel.advance(2**63)
    assert (len(wheel), wheel.now) == (0, 0)


def test_a_timer_cannot_be_made_by_hand_into_something_that_crashes(make: Make) -> None:
    kind = type(make().add(1, nothing))
    try:
        timer = kind.__new__(kind)
        assert not timer.pending
        assert not timer.cancel()
    except (TypeError, AttributeError):
        pass
    with pytest.raises(TypeError):
        kind()


# statistics


def test_statistics_count_what_happened(make: Make) -> None:
    wheel = make(slots=16)
    timers = [wheel.add(delay, nothing) for delay in (1, 2, 300, 400)]
    timers[3].cancel()
    wheel.advance(20)
    found = wheel.statistics()
    assert (found.now, found.added, found.fired, found.cancelled, found.pending) == (20, 4, 2, 1, 1)
    assert (found.buckets, found.cascaded) == (1, 0)
    with pytest.raises(AttributeError):
        found.now = 5  # type: ignore[misc]


# memory


EXHAUST = """
import resource, sys
from {module} import TimingWheel
def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
ran = [0]
def run():
    ran[0] += 1
wheel = TimingWheel()
wheel.add(1, run)
resource.setrlimit(resource.RLIMIT_AS, (used() + (24 << 20), resource.RLIM_INFINITY))
added = 1
try:
    while True:
        wheel.add(1 + added * 97 % 70000, run)
        added += 1
except MemoryError:
    pass
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
wheel._check()
assert len(wheel) == added > 1000, (len(wheel), added)
assert wheel.advance(70001) == added == ran[0]
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads the address space from /proc")
def test_where_memory_ends_add_raises_and_nothing_is_lost(make: Make) -> None:
    code = EXHAUST.format(module=make.__module__)
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert (done.returncode, done.stderr) == (0, "")


CASCADE = """
import resource
from waterclock.wheel._objects import TimingWheel
def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
ran = []
wheel = TimingWheel(slots=65536)
for n in range(65536):  # one bucket of level 2, which goes down into as many of level 1: 16 MB of chunks
    wheel.add(65536 + n, lambda n=n: ran.append(n))
resource.setrlimit(resource.RLIMIT_AS, (used() + (4 << 20), resource.RLIM_INFINITY))
try:
    wheel.advance(131072)
except MemoryError:
    pass
else:
    raise AssertionError("this was to run out of memory")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
wheel._check()
assert (len(wheel), ran) == (65536, [])
assert wheel.advance(131072) == 65536
assert ran == list(range(65536))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads the address space from /proc")
def test_where_memory_ends_in_a_cascade_advance_raises_and_the_next_one_loses_nothing(make: Make) -> None:
    if make is reference.TimingWheel:
        pytest.skip("plain Python may run out of memory between any two lines, and gives no such promise")
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", CASCADE],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (done.returncode, done.stderr) == (0, "")
