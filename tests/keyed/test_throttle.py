"""`Throttle` (the rules of src/waterclock/keyed/throttle.py), time turned by hand."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.keyed.test_debounce import Runs
from tests.timer.timers import THREADED, Make, by_hand, every_driver
from waterclock import Throttle, Timer, TimerClosed


def call_at(timer: Any, report: Throttle[str, Any], moments: list[int]) -> list[bool]:
    ran = []
    for moment in moments:
        timer.advance(moment - timer.time())
        ran.append(report("a", moment))
    timer.advance(100)
    return ran


@every_driver
def test_the_first_runs_at_once_and_the_latest_of_the_others_at_the_end_of_the_interval(timer: Any) -> None:
    runs = Runs(timer)
    report: Throttle[str, Any] = Throttle(timer, 5, runs)
    assert call_at(timer, report, [0, 1, 2, 9, 30]) == [True, False, False, False, True]
    assert runs.lines == [(0.0, "a", 0), (5.0, "a", 2), (10.0, "a", 9), (30.0, "a", 30)]
    assert (len(report), len(timer)) == (0, 0)


@every_driver
def test_or_the_others_are_dropped(timer: Any) -> None:
    runs = Runs(timer)
    report: Throttle[str, Any] = Throttle(timer, 5, runs, meanwhile="drop")
    assert call_at(timer, report, [0, 1, 2, 9, 13, 14]) == [True, False, False, True, False, True]
    assert runs.lines == [(0.0, "a", 0), (9.0, "a", 9), (14.0, "a", 14)]


@every_driver
def test_keys_know_nothing_of_each_other(timer: Any) -> None:
    runs = Runs(timer)
    report: Throttle[str, Any] = Throttle(timer, 5, runs)
    assert [report(key) for key in "abab"] == [True, True, False, False]
    assert len(report) == 2
    timer.advance(5)
    assert [line[1] for line in runs.lines] == ["a", "b", "a", "b"]


@every_driver
def test_what_was_put_off_is_forgotten_and_the_interval_goes_on(timer: Any) -> None:
    runs = Runs(timer)
    report: Throttle[str, Any] = Throttle(timer, 5, runs)
    assert (report("a"), report("a"), report.cancel("a"), report.cancel("a"), report("a")) == (
        True,
        False,
        True,
        False,
        False,
    )
    report.cancel("a")
    timer.advance(5)
    assert (report.cancel("a"), list(runs.lines), report("a")) == (False, [(0.0, "a")], True)
    report("a")
    report.clear()
    assert (len(report), len(timer), report("a")) == (0, 0, True)


@every_driver
def test_an_error_is_the_callers_where_it_runs_at_once_and_else_the_timers(make: Make) -> None:
    errors: list[BaseException] = []
    timer = by_hand(make, on_error=errors.append)

    def wrong(key: str, number: int) -> None:
        raise LookupError(number)

    report: Throttle[str, Any] = Throttle(timer, 5, wrong)
    with pytest.raises(LookupError, match="1"):
        report("a", 1)
    assert report("a", 2) is False
    timer.advance(5)
    assert [error.args for error in errors] == [(2,)]


@every_driver
def test_a_call_from_inside_is_put_off(timer: Any) -> None:
    times: list[float] = []

    def again(key: str, left: int) -> None:
        times.append(timer.time())
        if left:
            assert report(key, left - 1) is False

    report: Throttle[str, Any] = Throttle(timer, 5, again)
    report("a", 2)
    timer.advance(100)
    assert times == [0.0, 5.0, 10.0]


def test_where_the_timer_is_late_a_call_takes_the_place_of_what_was_put_off() -> None:
    timer = by_hand(Timer)
    runs = Runs(timer)
    report: Throttle[str, Any] = Throttle(timer, 5, runs)
    report("a", 1)
    report("a", 2)
    report("b", 1)
    timer._clock.advance_s(7)
    assert (report("a", 3), report("b", 2)) == (False, True)  # of b nothing was put off, and its interval is over
    timer.advance(0)
    assert runs.lines == [(0.0, "a", 1), (0.0, "b", 1), (7.0, "b", 2), (7.0, "a", 3)]
    assert report("a", 4) is False
    timer.advance(5)
    assert runs.lines[-1] == (12.0, "a", 4)


@every_driver
def test_wrong_arguments_a_closed_timer_and_copies_are_refused(timer: Any) -> None:
    with pytest.raises(ValueError, match="interval_s must be"):
        Throttle(timer, 0, print)
    with pytest.raises(ValueError, match="meanwhile must be 'last' or 'drop', got 'first'"):
        Throttle(timer, 1, print, meanwhile="first")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be callable, got 5"):
        Throttle(timer, 1, 5)  # type: ignore[arg-type]
    runs = Runs(timer)
    report: Throttle[str, Any] = Throttle(timer, 1, runs)
    with pytest.raises(TypeError, match="neither copied nor pickled"):
        copy.copy(report)
    assert repr(report).startswith("<Throttle, 0 keys, interval=1.0, callback=")
    report("a")
    report("a")
    timer.close()
    assert report("a") is False
    with pytest.raises(TimerClosed):
        report("b")
    assert runs.lines == [(0.0, "a")]


@every_driver
@given(
    interval=st.integers(1, 20),
    keeps=st.booleans(),
    calls=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 25)), max_size=30),
)
def test_it_runs_when_a_list_of_all_calls_says_so(
    make: Make, interval: int, keeps: bool, calls: list[tuple[str, int]]
) -> None:
    timer = by_hand(make)
    runs = Runs(timer)
    report: Throttle[str, Any] = Throttle(timer, interval / 1000, runs, meanwhile="last" if keeps else "drop")
    now, free, later, expected = 0, dict[str, int](), dict[str, int](), list[Any]()

    def pass_until(moment: int) -> None:
        for key in list(later):
            if free[key] <= moment:
                expected.append((free[key] / 1000, key, later.pop(key)))
                free[key] += interval

    for number, (key, ms) in enumerate(calls):
        timer.advance(ms / 1000)
        now += ms
        pass_until(now)
        at_once = free.get(key, 0) <= now
        assert report(key, number) is at_once
        if at_once:
            expected.append((now / 1000, key, number))
            free[key] = now + interval
        elif keeps:
            later[key] = number
    timer.advance(10)
    pass_until(10**9)
    assert sorted(runs.lines) == sorted(expected)


@pytest.mark.parametrize("make", THREADED)
def test_threads_that_call_one_key_give_one_run_at_once_and_one_later(make: Make) -> None:
    ran: list[int] = []
    with make() as timer:
        report: Throttle[str, Any] = Throttle(timer, 3600, lambda key, number: ran.append(number))
        threads = [threading.Thread(target=lambda: [report("a", number) for number in range(200)]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(ran), len(timer), report.cancel("a")) == (1, 1, True)


def test_an_interval_that_is_over_keeps_no_timer_where_the_driver_is_late() -> None:
    timer = by_hand(Timer)
    report: Throttle[str, Any] = Throttle(timer, 5, lambda key: None)
    for _ in range(3):
        assert report("a")
        timer._clock.advance_s(6)  # and the driver has no turn
    assert len(timer) == 1
