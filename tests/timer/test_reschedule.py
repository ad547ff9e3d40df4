"""Moving a timer that waits: `reschedule` of every handle a driver gives out (semantics.md, section 3: 12)."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.timer.timers import Diary, Make, by_hand, every_driver, every_thread, nothing, run
from tests.wheel.wheels import WHEELS
from waterclock import AsyncTimer
from waterclock.timer import thread as thread_module
from waterclock.timer.locked import LockedWheel

FOR_EVER_S = 10.0  # what a test waits for something that comes at once, or never


# In seconds, exactly


@every_driver
@pytest.mark.parametrize("delay_s", [3, 0.25, 100.0, 0.0011])
def test_a_handle_is_moved_by_seconds_from_now(make: Make, delay_s: float) -> None:
    timer = by_hand(make, tick_s=0.0001)
    diary = Diary(timer)
    handle = timer.call_later(10, diary("ran"))
    timer.advance(5)
    assert handle.reschedule(delay_s)
    assert (handle.when(), handle.pending, len(timer)) == (5 + delay_s, True, 1)
    timer.advance(200)
    assert diary.lines == [("ran", 5 + delay_s)]


@every_driver
def test_a_handle_of_call_at_is_moved_by_seconds_from_now_too(timer: Any, diary: Diary) -> None:
    timer.advance(5)
    handle = timer.call_at(60, diary("ran"), *[])
    assert (handle.reschedule(1), timer.advance_to_next(), diary.lines) == (True, 1, [("ran", 6.0)])


@every_driver
def test_zero_and_less_mean_the_next_turn(timer: Any, diary: Diary) -> None:
    handles = [timer.call_later(10, diary(name)) for name in ("zero", "less")]
    timer.advance(2)
    assert [handle.reschedule(delay_s) for handle, delay_s in zip(handles, (0, -5), strict=True)] == [True, True]
    assert timer.advance(0) == 2
    assert diary.lines == [("zero", 2.0), ("less", 2.0)]


@every_driver
def test_a_moved_one_runs_behind_those_added_for_its_tick_before(timer: Any, diary: Diary) -> None:
    first = timer.call_later(5, diary("first"))
    timer.call_later(5, diary("second"))
    first.reschedule(5)
    timer.advance(5)
    assert diary.lines == [("second", 5.0), ("first", 5.0)]


@every_driver
def test_a_handle_that_is_over_is_not_moved(timer: Any) -> None:
    inside: list[bool] = []
    ran = timer.call_later(1, lambda: inside.append(ran.reschedule(1)))
    cancelled, closed = timer.call_later(1, nothing), timer.call_later(9, nothing)
    cancelled.cancel()
    timer.advance(1)
    timer.close()
    assert (ran.reschedule(1), cancelled.reschedule(1), closed.reschedule(1), inside) == (False, False, False, [False])
    assert len(timer) == 0


@every_driver
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e12])
def test_a_wrong_delay_is_refused_and_leaves_it_where_it_was(timer: Any, diary: Diary, wrong: float) -> None:
    once, beat = timer.call_later(3, diary("once")), timer.every(4, diary("beat"))

    def move() -> None:
        with pytest.raises(ValueError, match=r"must (be a number|lie within)"):
            inside.reschedule(wrong)

    inside = timer.every(5, move)
    for handle in (once, beat):
        with pytest.raises(ValueError, match=r"must (be a number|lie within)"):
            handle.reschedule(wrong)
    timer.advance(10)
    assert diary.lines == [("once", 3.0), ("beat", 4.0), ("beat", 8.0)]
    assert inside.when() == 15.0


@every_driver
def test_it_counts_in_the_time_of_the_timer_which_stands_still_in_a_pause(timer: Any, diary: Diary) -> None:
    handle = timer.call_later(10, diary("ran"))
    timer.pause()
    timer.advance(60)
    assert handle.reschedule(3)
    timer.resume()
    assert [timer.advance(2), timer.advance(1), diary.lines] == [0, 1, [("ran", 3.0)]]


@every_driver
def test_a_callback_may_move_others_in_both_directions(timer: Any, diary: Diary) -> None:
    near, far = timer.call_later(2, diary("near")), timer.call_later(50, diary("far"))
    timer.call_later(1, lambda: diary.lines.append((near.reschedule(9), far.reschedule(1))))
    timer.advance(20)
    assert diary.lines == [(True, True), ("far", 2.0), ("near", 10.0)]


@every_driver
def test_a_handle_in_an_executor_and_one_with_a_cap_are_moved_too(make: Make) -> None:
    ways = ("raise", "run") if issubclass(make, AsyncTimer) else ("raise", "run", "block")
    for when_full in ways:
        with ThreadPoolExecutor(1) as executor:
            timer = by_hand(make, max_pending=1, when_full=when_full, executor=executor)
            handle = timer.call_later(60, nothing)
            assert (handle.reschedule(3), handle.when(), timer.advance(3)) == (True, 3.0, 1)


@every_driver
def test_one_that_ran_in_its_caller_for_a_full_timer_is_not_moved(make: Make) -> None:
    timer = by_hand(make, max_pending=1, when_full="run")
    timer.call_later(60, nothing)
    assert timer.call_later(60, nothing).reschedule(1) is False


# A driver is not kept alive by its wheel, nor a handle's by it


@every_driver
def test_a_handle_of_a_driver_that_is_gone_is_over(make: Make) -> None:
    timer = by_hand(make)
    handle = timer.call_later(60, nothing)
    del timer
    gc.collect()
    assert handle.reschedule(1) is False


@every_driver
def test_a_driver_is_freed_without_the_collector(make: Make) -> None:
    from weakref import ref

    timer = by_hand(make)
    timer.call_later(60, nothing).reschedule(1)
    gone = ref(timer)
    gc.disable()
    try:
        del timer
        assert gone() is None
    finally:
        gc.enable()


# Beats


@every_driver
@pytest.mark.parametrize("missed", ["skip", "burst", "delay"])
def test_a_periodic_timer_is_moved_and_its_beats_are_counted_from_there(timer: Any, diary: Diary, missed: str) -> None:
    handle = timer.every(10, diary("beat"), missed=missed)
    timer.advance(12)
    assert (handle.reschedule(3), handle.when()) == (True, 15.0)
    timer.advance(28)
    assert [at for _, at in diary.lines] == [10.0, 15.0, 25.0, 35.0]


@every_driver
def test_a_periodic_timer_that_is_moved_to_the_past_beats_from_now_on(timer: Any, diary: Diary) -> None:
    handle = timer.every(10, diary("beat"))
    timer.advance(2)
    handle.reschedule(-10)
    timer.advance(20)
    assert [at for _, at in diary.lines] == [2.0, 12.0, 22.0]


@every_driver
def test_a_periodic_timer_may_move_its_next_call_from_inside_the_call(timer: Any) -> None:
    times: list[float] = []

    def beat() -> None:
        times.append(timer.time())
        if len(times) == 2:
            assert handle.reschedule(1)
            assert handle.when() == 21.0

    handle = timer.every(10, beat)
    timer.advance(45)
    assert times == [10.0, 20.0, 21.0, 31.0, 41.0]


@every_driver
def test_a_periodic_timer_that_was_cancelled_or_closed_is_not_moved(timer: Any) -> None:
    cancelled, closed = timer.every(10, nothing), timer.every(10, nothing)
    cancelled.cancel()
    timer.close()
    assert (cancelled.reschedule(1), closed.reschedule(1), len(timer)) == (False, False, 0)


# Waking the driver, by the system's clock


def asleep_until(timer: Any, when_s: float) -> None:
    """Return when the thread sleeps for a tick at or after this moment."""
    pause = threading.Event()
    for _ in range(2000):
        with timer.lock:
            if (
                timer._alarm_ns not in (thread_module.AWAKE, thread_module.NEVER)
                and timer._alarm_ns > when_s * 1e9 - 1e8
            ):
                return
        pause.wait(0.005)
    raise AssertionError("the thread never lay down")


@every_thread
@pytest.mark.parametrize("add", ["call_later", "every"])
def test_an_earlier_deadline_or_beat_wakes_the_thread(make: Make, add: str) -> None:
    ran = threading.Event()
    with make() as timer:
        handle = getattr(timer, add)(3600, ran.set)
        asleep_until(timer, handle.when())
        assert handle.reschedule(0.001)
        assert ran.wait(FOR_EVER_S)


@every_thread
def test_a_later_deadline_wakes_nobody(make: Make) -> None:
    with make() as timer:
        handle = timer.call_later(3600, nothing)
        asleep_until(timer, handle.when())
        before = timer.statistics().wakeups
        for more in range(20):
            assert handle.reschedule(3600 + more)
        assert (timer._bell.rings(), timer.statistics().wakeups) == (False, before)


def test_an_earlier_deadline_moves_the_call_of_the_loop() -> None:
    async def main() -> None:
        with AsyncTimer() as timer:
            ran = asyncio.Event()
            handle = timer.call_later(3600, ran.set)
            beat = timer.every(3600, nothing)
            assert handle.reschedule(0.001)
            await ran.wait()
            assert (beat.reschedule(0.001), timer._alarm.when() - asyncio.get_running_loop().time() < 1) == (True, True)

    run(main())


def test_without_the_loop_a_move_that_has_to_wake_it_raises_and_leaves_the_timer_where_it_was() -> None:
    handles: list[Any] = []

    async def main() -> None:
        handles.append(timer.call_later(3600, nothing))

    timer = AsyncTimer()
    run(main())
    when_s = handles[0].when()
    with pytest.raises(RuntimeError, match="no running event loop"):
        handles[0].reschedule(1)
    assert (handles[0].when(), handles[0].pending) == (when_s, True)


# A wheel that nobody drives


@pytest.mark.parametrize("make", [*WHEELS, pytest.param(LockedWheel, id="locked")])
def test_the_handle_of_a_wheel_without_a_driver_is_moved_by_ticks(make: Make) -> None:
    wheel = make(1, 100)
    handle = wheel.add_at(500, nothing)
    assert (handle.reschedule(3), handle.deadline, wheel.next_deadline()) == (True, 103, 103)
    assert (wheel.advance(102), wheel.advance(103), handle.reschedule(3)) == (0, 1, False)
    with pytest.raises(TypeError):
        wheel.add_at(500, nothing).reschedule(0.5)


@pytest.mark.parametrize("make", WHEELS)
def test_a_wheel_moves_no_timer_of_another_one(make: Make) -> None:
    wheel, other = make(), make(start=1000)
    handle = wheel.add(50, nothing)
    assert (other._move(handle, 1001), handle.deadline, wheel.next_deadline(), len(other)) == (False, 50, 50, 0)
