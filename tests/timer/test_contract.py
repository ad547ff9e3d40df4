"""What every driver promises of time, order, handles and pauses (semantics.md, section 3: 1, 2, 3, 6)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.timer.timers import DRIVERS, Diary, Make, by_hand, nothing, nothing_of
from waterclock import ManualClock, SystemClock, Timer
from waterclock.errors import UsageError

pytestmark = pytest.mark.parametrize("make", DRIVERS)


# 1: never early


@pytest.mark.parametrize("delay_s", [0.001, 0.0011, 0.07, 0.57, 1.1, 2.3, 60, 86_400, 10.0000000005])
def test_a_callback_runs_at_the_first_tick_not_before_its_delay(timer: Any, diary: Diary, delay_s: float) -> None:
    timer.call_later(delay_s, diary("ran"))
    timer.advance(delay_s + 0.001)
    (_, at_s) = diary.lines[0]
    assert delay_s - 1e-9 <= at_s < delay_s + 0.001


@pytest.mark.parametrize("delay_s", [0.07, 0.57, 1.1, 2.3, 60])
def test_a_delay_of_whole_ticks_is_not_a_tick_longer_for_how_floats_are_written(
    timer: Any, diary: Diary, delay_s: float
) -> None:
    timer.call_later(delay_s, diary("later"))
    timer.call_at(delay_s, diary("at"))
    timer.advance(delay_s)
    assert diary.lines == [("later", delay_s), ("at", delay_s)]


def test_a_deadline_within_a_tick_runs_at_its_end(make: Make) -> None:
    timer = by_hand(make, tick_s=1)
    diary = Diary(timer)
    timer.call_at(2.5, diary("ran"))
    assert [timer.advance(2.5), timer.advance(0.25), timer.advance(0.25)] == [0, 0, 1]
    assert diary.lines == [("ran", 3.0)]


def test_call_at_counts_in_the_time_of_the_timer(make: Make) -> None:
    timer = make(clock=ManualClock(1000.0))
    diary = Diary(timer)
    timer.call_at(timer.time() + 5, diary("at"))
    timer.call_later(5, diary("later"))
    timer.advance_to_next()
    assert diary.lines == [("at", 1005.0), ("later", 1005.0)]


# Kafka's: tasks that are due already; many tasks, each once


def test_what_is_due_when_it_is_added_runs_at_the_next_turn(timer: Any, diary: Diary) -> None:
    timer.advance(7)
    for name, delay_s in (("zero", 0), ("negative", -1), ("before the clock", -60)):
        timer.call_later(delay_s, diary(name))
    timer.call_at(3, diary("past"))
    assert timer.advance(0) == 4
    assert diary.lines == [("zero", 7.0), ("negative", 7.0), ("before the clock", 7.0), ("past", 7.0)]


def test_each_of_many_runs_exactly_once_and_by_tick(timer: Any) -> None:
    delays_ms = [*range(5), *range(10, 100), *range(10, 100), *range(100, 500)]
    ran: list[int] = []
    for ms in delays_ms:
        timer.call_later(ms / 1000, ran.append, ms)
    assert timer.advance(1) == len(delays_ms) == len(ran)
    assert ran == sorted(delays_ms)
    assert (len(timer), timer.advance(60)) == (0, 0)


def test_callbacks_of_one_tick_run_in_the_order_of_adding(timer: Any) -> None:
    ran: list[str] = []
    timer.call_at(0.0109, ran.append, "later in the tick, added first")
    timer.advance(0.005)
    timer.call_at(0.0101, ran.append, "earlier in the tick, added last")
    timer.advance(1)
    assert ran == ["later in the tick, added first", "earlier in the tick, added last"]


# 2: one code under every clock


def test_the_clock_shows_the_tick_while_its_callbacks_run(timer: Any, diary: Diary) -> None:
    for delay_s in (3, 1, 2):
        timer.call_later(delay_s, diary("ran"))
    timer.advance(10)
    assert diary.lines == [("ran", 1.0), ("ran", 2.0), ("ran", 3.0)]
    assert timer.time() == 10.0


def test_what_a_callback_adds_within_the_time_turned_runs_in_the_same_call(timer: Any, diary: Diary) -> None:
    timer.call_later(1, lambda: timer.call_later(1, diary("second")))
    assert timer.advance(2) == 2
    assert diary.lines == [("second", 2.0)]


def test_a_callback_that_adds_itself_again_and_again_runs_once_a_tick(timer: Any) -> None:
    ran: list[float] = []

    def again() -> None:
        ran.append(timer.time())
        if len(ran) < 100:
            timer.call_later(0.0001, again)

    timer.call_later(0, again)
    timer.advance(0.003)
    assert ran == [0.0, 0.001, 0.002, 0.003]


def test_advance_to_next_jumps_from_deadline_to_deadline(timer: Any, diary: Diary) -> None:
    for name, delay_s in (("day", 86_400), ("two of a second", 1), ("the other", 1)):
        timer.call_later(delay_s, diary(name))
    assert [timer.advance_to_next(), timer.time()] == [2, 1.0]
    assert [timer.advance_to_next(), timer.time()] == [1, 86_400.0]
    assert [timer.advance_to_next(), timer.time()] == [0, 86_400.0]


def test_advance_runs_what_became_due_because_a_callback_turned_the_clock(timer: Any, diary: Diary) -> None:
    timer.call_later(1, lambda: timer._clock.advance_s(60))
    timer.call_later(30, diary("late"))
    assert timer.advance(1) == 2
    assert diary.lines == [("late", 61.0)]


def test_two_timers_on_one_clock_each_run_their_own(make: Make) -> None:
    clock = ManualClock()
    one, other = make(clock=clock), make(clock=clock)
    diary = Diary(other)
    one.call_later(5, nothing)
    other.call_later(3, diary("other"))
    assert [one.advance(5), other.advance(0)] == [1, 1]
    assert diary.lines == [("other", 5.0)]


def test_advance_from_inside_a_callback_raises_there_and_the_turn_goes_on(timer: Any, diary: Diary) -> None:
    def turn() -> None:
        for advance in (lambda: timer.advance(1), timer.advance_to_next):
            with pytest.raises(RuntimeError, match="being turned"):
                advance()
        diary("refused")()

    timer.call_later(1, turn)
    timer.call_later(1, diary("same tick"))
    timer.call_later(1.5, diary("later"))
    assert timer.advance(2) == 3
    assert diary.lines == [("refused", 1.0), ("same tick", 1.0), ("later", 1.5)]


def test_only_a_manual_clock_is_turned_by_hand(make: Make) -> None:
    timer = make(clock=SystemClock())
    for turn in (lambda: timer.advance(1), timer.advance_to_next):
        with pytest.raises(UsageError, match="ManualClock"):
            turn()


def test_a_manual_clock_needs_no_thread_and_wakes_nobody(timer: Any) -> None:
    timer.call_later(1, nothing)
    timer.advance(1)
    assert getattr(timer, "_thread", None) is None
    assert timer.statistics().wakeups == 0


# Handles


def test_arguments_reach_the_callback(timer: Any) -> None:
    calls: list[tuple[Any, ...]] = []
    for args in ((), (1,), (None,), (1, 2), ((1, 2),), (1, 2, 3)):
        timer.call_later(1, lambda *args: calls.append(args), *args)
        timer.call_at(2, lambda *args: calls.append(args), *args)
    timer.advance(2)
    assert calls == [(), (1,), (None,), (1, 2), ((1, 2),), (1, 2, 3)] * 2


def test_a_handle_tells_its_moment_and_whether_it_waits(timer: Any) -> None:
    inside: list[bool] = []
    handle = timer.call_later(1.5, lambda: inside.append(handle.pending))
    assert (handle.when(), handle.pending, handle.cancelled()) == (1.5, True, False)
    timer.advance(2)
    assert inside == [False]
    assert (handle.when(), handle.pending, handle.cancelled(), handle.cancel()) == (1.5, False, False, False)


def test_cancel_is_true_once_and_then_the_callback_never_runs(timer: Any, diary: Diary) -> None:
    handle = timer.call_later(1, diary("cancelled"))
    timer.call_later(1, diary("stays"))
    assert [handle.cancel(), handle.cancel(), handle.cancelled(), handle.pending] == [True, False, True, False]
    assert len(timer) == 1
    timer.advance(5)
    assert diary.lines == [("stays", 1.0)]


def test_a_callback_may_cancel_another_one_of_its_own_tick(timer: Any, diary: Diary) -> None:
    timer.call_later(1, lambda: handle.cancel())
    handle = timer.call_later(1, diary("cancelled in time"))
    assert timer.advance(1) == 1
    assert (diary.lines, handle.cancelled()) == ([], True)


# Arguments that are wrong


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e12])
def test_a_time_that_is_no_number_of_seconds_is_refused_and_leaves_nothing(timer: Any, wrong: float) -> None:
    for add in (timer.call_later, timer.call_at, timer.every):
        with pytest.raises(ValueError, match=r"must (be a number|lie within)"):
            add(wrong, nothing)
    assert (len(timer), timer.close()) == (0, [])


def test_what_cannot_be_called_is_refused(timer: Any) -> None:
    for add in (timer.call_later, timer.call_at, timer.every):
        with pytest.raises(TypeError):
            add(1, None)
        with pytest.raises(TypeError):
            add(1, None, 1, 2)
    assert len(timer) == 0


def test_a_wrong_setting_is_refused_by_name(make: Make) -> None:
    wrong = {"tick_s": 0, "max_pending": 0, "when_full": "wait"}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=name):
            make(**{name: value})
    with pytest.raises(ValueError, match="duration_s"):
        by_hand(make).advance(-1)


def test_a_timer_without_timers_is_still_true(make: Make) -> None:
    assert by_hand(make)
    assert len(by_hand(make)) == 0


def test_statistics_count_what_happened(make: Make) -> None:
    timer = by_hand(make, on_error=nothing_of)
    for delay_s in (1, 2, 3):
        timer.call_later(delay_s, nothing)
    timer.call_later(1, int, "no number")
    timer.call_later(9, nothing).cancel()
    timer.advance(2)
    told = timer.statistics()
    assert (told.added, told.fired, told.cancelled, told.pending, told.failed) == (5, 3, 1, 1, 1)
    assert (told.lateness.count, told.lateness.max_s) == (3, 0.0)


def test_the_tick_of_the_drivers_is_a_millisecond(make: Make) -> None:
    timer = make(clock=ManualClock())
    diary = Diary(timer)
    timer.call_later(0.0101, diary("ran"))
    timer.advance(1)
    assert diary.lines == [("ran", 0.011)]
    assert issubclass(make, Timer) or not hasattr(timer, "_bell")


def test_what_waits_keeps_its_remaining_time(timer: Any, diary: Diary) -> None:
    handle = timer.call_later(10, diary("ran"))
    timer.advance(4)
    timer.pause()
    assert (timer.advance(1000), timer.time(), handle.pending) == (0, 4.0, True)
    timer.resume()
    assert [timer.advance(5), timer.advance(0.999), timer.advance(0.001)] == [0, 0, 1]
    assert diary.lines == [("ran", 10.0)]
    assert timer._clock.monotonic_s() == 1010.0


def test_what_is_added_in_between_waits_its_whole_delay(timer: Any, diary: Diary) -> None:
    timer.pause()
    timer.advance(50)
    later, at = timer.call_later(10, diary("later")), timer.call_at(timer.time() + 10, diary("at"))
    timer.advance(50)
    timer.resume()
    assert [timer.advance(9), timer.advance(1)] == [0, 2]
    assert (later.when(), at.when()) == (10.0, 10.0)


def test_what_is_due_while_time_stands_still_waits_for_the_resume(timer: Any, diary: Diary) -> None:
    timer.pause()
    timer.call_later(0, diary("ran"))
    assert [timer.advance(5), timer.advance_to_next()] == [0, 0]
    timer.resume()
    assert timer.advance(0) == 1


def test_pause_twice_is_once_and_so_is_resume(timer: Any) -> None:
    timer.resume()
    timer.pause()
    timer.advance(10)
    timer.pause()
    timer.advance(10)
    timer.resume()
    timer.advance(1)
    timer.resume()
    assert timer.time() == 1.0


def test_pauses_add_up(timer: Any, diary: Diary) -> None:
    timer.call_later(3, diary("ran"))
    for _ in range(3):
        timer.advance(0.5)
        timer.pause()
        timer.advance(100)
        timer.resume()
    assert [timer.advance(1.499), timer.advance(0.001)] == [0, 1]


def test_cancel_works_in_a_pause(timer: Any, diary: Diary) -> None:
    handle = timer.call_later(1, diary("ran"))
    timer.pause()
    assert handle.cancel()
    timer.resume()
    assert timer.advance(5) == 0


def test_a_callback_that_pauses_lets_its_tick_end_and_no_other_begin(timer: Any, diary: Diary) -> None:
    for _ in range(2):
        timer.call_later(1, timer.pause)
    timer.call_later(1, diary("same tick"))
    timer.call_later(1.001, diary("next tick"))
    timer.advance(10)
    assert diary.lines == [("same tick", 1.0)]
    timer.resume()
    timer.advance(0.001)
    assert diary.lines == [("same tick", 1.0), ("next tick", 1.001)]


def test_advance_to_next_goes_as_far_as_is_left_after_a_pause(timer: Any, diary: Diary) -> None:
    timer.call_later(10, diary("ran"))
    timer.pause()
    timer.advance(100)
    timer.resume()
    assert (timer.advance_to_next(), timer._clock.monotonic_s(), timer.time()) == (1, 110.0, 10.0)
