"""The thread of a Timer, when it starts, wakes, ends (semantics.md, section 3: 1, 4, 9, 11); on the system's clock."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import pytest

from tests.timer.timers import THREADED, Make, nothing
from waterclock import SystemClock, Timer
from waterclock.timer import thread as thread_module

pytestmark = pytest.mark.parametrize("make", THREADED)

FOR_EVER_S = 10.0  # what a test waits for something that comes at once, or never


def turn(timer: Timer) -> None:
    """Return when the thread has run everything that is due by now, and lies down again."""
    done = threading.Event()
    timer.call_later(0, done.set)
    assert done.wait(FOR_EVER_S)


def lies_down(timer: Any) -> None:
    """Return when the thread sleeps: its alarm is set, and not for now."""
    pause = threading.Event()
    for _ in range(2000):
        with timer.lock:
            if timer._alarm_ns != thread_module.AWAKE:
                return
        pause.wait(0.005)
    raise AssertionError("the thread never lay down")


def test_a_callback_comes_without_anybody_turning_and_never_early(make: Make) -> None:
    clock, early, done = SystemClock(), [], threading.Event()

    def look(due_ns: int, last: bool) -> None:
        if clock.monotonic_ns() < due_ns:
            early.append(due_ns)
        if last:
            done.set()

    with make() as timer:
        for place in range(200):
            delay_s = place * 0.00037
            timer.call_later(delay_s, look, clock.monotonic_ns() + round(delay_s * 1e9), place == 199)
        assert done.wait(FOR_EVER_S)
    assert early == []


def test_the_thread_starts_with_the_first_timer_is_a_daemon_and_has_a_name(make: Make) -> None:
    name = f"my {make}"  # the thread of the other one may be on its way out still
    timer = make(name=name)
    assert timer._thread is None
    seen: list[threading.Thread] = []
    timer.call_later(0, lambda: seen.append(threading.current_thread()))
    turn(timer)
    assert (seen[0].name, seen[0].daemon, seen[0] is timer._thread) == (name, True, True)
    assert [thread.name for thread in threading.enumerate()].count(name) == 1
    timer.close()


def test_the_default_name_says_whose_thread_it_is(make: Make) -> None:
    with make() as timer:
        timer.call_later(60, nothing)
        assert timer._thread.name == "waterclock-timer"


def test_close_ends_the_thread_once(make: Make) -> None:
    timer = make()
    handle = timer.call_later(60, nothing)
    thread = timer._thread
    assert timer.close() == [handle]
    thread.join(FOR_EVER_S)
    assert not thread.is_alive()
    assert timer.close() == []


def test_a_close_before_the_thread_has_looked_for_the_first_time_ends_it(make: Make) -> None:
    """The ring of the close is heard together with that of the first timer."""
    timer, pause = make(), threading.Event()
    with timer.lock:
        timer.call_later(60, nothing)
        while timer.statistics().wakeups == 0:
            pause.wait(0.001)
        timer.close()
    timer._thread.join(FOR_EVER_S)
    assert not timer._thread.is_alive()


def test_a_timer_added_between_the_threads_last_look_and_its_sleep_wakes_it(make: Make) -> None:
    """thread: looks, nothing waits | adder: adds a timer | thread: lies down, and has to hear of it."""
    timer, done = make(), threading.Event()
    turn(timer)
    lies_down(timer)
    wheel, added = timer._wheel, threading.Event()

    def add() -> None:
        timer.call_later(0, done.set)
        added.set()  # who has to tell is not so far: the thread holds the lock

    class Between:
        def __getattr__(self, name: str) -> Any:
            return getattr(wheel, name)

        def __len__(self) -> int:
            return len(wheel)

        def next_deadline(self) -> int | None:
            found: int | None = wheel.next_deadline()
            if found is None and timer.lock._is_owned() and timer._wheel is self:
                timer._wheel = wheel  # once
                threading.Thread(target=add, daemon=True).start()
                added.wait(0.1)
            return found

    timer._wheel = Between()
    timer.call_later(0, nothing)
    assert done.wait(FOR_EVER_S)
    timer.close()


def test_close_from_inside_a_callback_ends_the_thread(make: Make) -> None:
    timer = make()
    closed: list[Any] = []
    rest = timer.call_later(60, nothing)
    timer.call_later(0, lambda: closed.extend(timer.close()))
    timer._thread.join(FOR_EVER_S)
    assert (closed, timer._thread.is_alive()) == ([rest], False)


def test_the_thread_wakes_for_deadlines_only(make: Make) -> None:
    with make() as timer:
        done = threading.Event()
        for ms in (20, 40, 60, 80):
            for _ in range(5):
                timer.call_later(ms / 1000, nothing)
        timer.call_later(0.1, done.set)
        assert done.wait(FOR_EVER_S)
        lies_down(timer)
        # its start, and each of at most 2 ticks for what was added a hair apart
        assert timer.statistics().wakeups <= 1 + 2 * 5


def test_a_later_timer_wakes_nobody_and_an_earlier_one_does(make: Make) -> None:
    with make() as timer:
        timer.call_later(60, nothing)
        lies_down(timer)
        woken = timer.statistics().wakeups
        for delay_s in (61, 60.5, 3600):
            timer.call_later(delay_s, nothing)
        timer.call_later(120, nothing).cancel()
        assert not timer._bell.rings()
        assert timer.statistics().wakeups == woken
        turn(timer)
        lies_down(timer)
        assert timer.statistics().wakeups <= woken + 2  # for the news, and for its tick


def test_a_timer_of_the_same_tick_wakes_nobody(make: Make) -> None:
    with make(tick_s=10) as timer:
        when_s = timer.time() // 10 * 10 + 109
        timer.call_at(when_s, nothing)
        lies_down(timer)
        timer.call_at(when_s - 8, nothing)
        assert not timer._bell.rings()
        timer.call_at(when_s - 10, nothing)
        lies_down(timer)
        assert timer._wheel.next_deadline() == round((when_s - 9) * 1e9)


def test_an_idle_thread_sleeps_without_an_end_and_a_new_timer_wakes_it(make: Make) -> None:
    with make() as timer:
        for _ in range(3):
            turn(timer)
            lies_down(timer)
            assert timer._alarm_ns == thread_module.NEVER


def test_a_sleep_longer_than_the_system_can_wait_is_cut(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_module, "LONGEST_WAIT_S", 0.01)
    with make() as timer:
        done = threading.Event()
        timer.call_later(0.1, done.set)
        assert done.wait(FOR_EVER_S)
        assert timer.statistics().wakeups > 2


def test_a_hundred_years_can_be_waited_for(make: Make) -> None:
    with make() as timer:
        handle = timer.call_later(100 * 365 * 86_400, nothing)
        lies_down(timer)
        turn(timer)
        assert handle.pending


def test_the_thread_survives_whatever_a_callback_raises(make: Make) -> None:
    errors: list[BaseException] = []
    with make(on_error=errors.append) as timer:
        for error in (KeyError, KeyboardInterrupt, SystemExit, GeneratorExit):
            timer.call_later(0, raise_, error)
        turn(timer)
        assert [type(error) for error in errors] == [KeyError, KeyboardInterrupt, SystemExit, GeneratorExit]
        assert timer._thread.is_alive()


def raise_(error: type[BaseException]) -> None:
    raise error


def test_without_on_error_the_hook_is_told_from_the_thread(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    with make() as timer:
        timer.call_later(0, raise_, KeyError)
        turn(timer)
    assert [args.exc_type for args in told] == [KeyError]


def test_a_paused_thread_sleeps_and_goes_on_with_what_is_left(make: Make) -> None:
    with make() as timer:
        done = threading.Event()
        timer.call_later(0.05, done.set)
        timer.pause()
        paused_at = timer.time()
        assert not done.wait(0.1)
        assert timer.time() == paused_at
        timer.call_later(0, nothing)
        timer.resume()
        assert done.wait(FOR_EVER_S)


def test_a_thread_that_cannot_start_leaves_no_timer_behind(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    timer = make()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            timer.call_later(0, nothing)
    assert len(timer) == 0
    turn(timer)
    timer.close()


# A Timer that is dropped


def test_a_dropped_timer_that_waits_for_nothing_ends_its_thread(make: Make) -> None:
    timer = make()
    turn(timer)
    thread = timer._thread
    del timer
    gc.collect()
    thread.join(FOR_EVER_S)
    assert not thread.is_alive()


def test_a_dropped_timer_runs_what_it_was_asked_for_and_then_ends(make: Make) -> None:
    timer = make()
    done = threading.Event()
    timer.call_later(0.05, done.set)
    thread = timer._thread
    del timer
    gc.collect()
    assert done.wait(FOR_EVER_S)
    thread.join(FOR_EVER_S)
    assert not thread.is_alive()


def test_a_timer_dropped_right_after_its_first_timer_was_added_runs_it(make: Make) -> None:
    for idle_before in (False, True) * 50:
        timer, done = make(), threading.Event()
        if idle_before:
            turn(timer)
        timer.call_later(0, done.set)
        del timer
        assert done.wait(FOR_EVER_S)


@pytest.mark.parametrize("settings", [{}, {"max_pending": 5}, {"max_pending": 5, "when_full": "block"}])
def test_a_dropped_timer_needs_no_garbage_collector(make: Make, settings: dict[str, Any]) -> None:
    gc.disable()
    try:
        timer = make(**settings)
        turn(timer)
        thread = timer._thread
        lies_down(timer)
        del timer
        thread.join(FOR_EVER_S)
        assert not thread.is_alive()
    finally:
        gc.enable()


def test_a_destructor_that_adds_and_cancels_may_run_anywhere(make: Make) -> None:
    """The collector runs it in the middle of a call of ours, where the driver's lock is held."""
    timer = make()
    waiting = [timer.call_later(60, nothing) for _ in range(200)]

    class Last:
        def __del__(self) -> None:
            timer.call_later(0, nothing)
            waiting.pop().cancel()

    def drop() -> None:
        with timer.lock:
            Last()  # gone at once

    dropping = threading.Thread(target=drop, daemon=True)
    dropping.start()
    dropping.join(FOR_EVER_S)
    assert not dropping.is_alive()
    turn(timer)
    assert len(timer.close()) == 199
