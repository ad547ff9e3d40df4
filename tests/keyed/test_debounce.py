"""`Debounce` (the rules of src/waterclock/keyed/debounce.py), time turned by hand."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.timer.timers import THREADED, Make, by_hand, every_driver
from waterclock import Debounce, Timer, TimerClosed


class Runs:
    """A callback that notes when it ran, and with what."""

    def __init__(self, timer: Any) -> None:
        self.timer = timer
        self.lines: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.lines.append((self.timer.time(), *args, *kwargs.values()))


@every_driver
def test_it_runs_once_when_a_key_has_become_quiet_with_the_latest_arguments(timer: Any) -> None:
    runs = Runs(timer)
    save: Debounce[str, Any] = Debounce(timer, 2, runs)
    for at in range(4):
        save("a", at, word=at)
        timer.advance(1)
    save("b")
    assert (runs.lines, "a" in save, save.when("a"), len(save)) == ([], True, 5.0, 2)
    timer.advance(100)
    assert (runs.lines, len(save), len(timer)) == ([(5.0, "a", 3, 3), (6.0, "b")], 0, 0)


@every_driver
def test_a_key_that_is_never_quiet_has_its_turn_at_the_most(timer: Any) -> None:
    runs = Runs(timer)
    save: Debounce[str, Any] = Debounce(timer, 2, runs, most_s=4)
    for at in range(12):
        save("a", at)
        timer.advance(1)
    timer.advance(100)
    assert runs.lines == [(4.0, "a", 3), (8.0, "a", 7), (12.0, "a", 11)]


@every_driver
def test_what_waits_is_run_now_or_forgotten(timer: Any) -> None:
    runs = Runs(timer)
    save: Debounce[str, Any] = Debounce(timer, 2, runs)
    for key in "abcd":
        save(key)
    assert (save.flush("a"), save.flush("a"), save.cancel("b"), save.cancel("b")) == (True, False, True, False)
    save.clear()
    timer.advance(10)
    assert runs.lines == [(0.0, "a")]


@every_driver
def test_a_call_from_inside_begins_anew(timer: Any) -> None:
    times: list[float] = []

    def again(key: str, left: int) -> None:
        times.append(timer.time())
        if left:
            save(key, left - 1)

    save: Debounce[str, Any] = Debounce(timer, 2, again)
    save("a", 2)
    timer.advance(100)
    assert times == [2.0, 4.0, 6.0]


@every_driver
def test_an_error_goes_where_the_timers_go_and_flush_raises_it(make: Make) -> None:
    errors: list[BaseException] = []
    timer = by_hand(make, on_error=errors.append)

    def wrong(key: str) -> None:
        raise LookupError(key)

    save: Debounce[str, Any] = Debounce(timer, 2, wrong)
    save("a")
    save("b")
    with pytest.raises(LookupError, match="a"):
        save.flush("a")
    timer.advance(2)
    assert [error.args for error in errors] == [("b",)]


@every_driver
def test_wrong_arguments_a_closed_timer_and_copies_are_refused(timer: Any) -> None:
    with pytest.raises(ValueError, match="quiet_s must be"):
        Debounce(timer, 0, print)
    with pytest.raises(ValueError, match="most_s must be"):
        Debounce(timer, 1, print, most_s=-1)
    with pytest.raises(TypeError, match="must be callable, got 5"):
        Debounce(timer, 1, 5)  # type: ignore[arg-type]
    save: Debounce[str, Any] = Debounce(timer, 1, print)
    assert repr(save) == "<Debounce, 0 keys waiting, quiet=1.0, callback=<built-in function print>>"
    with pytest.raises(TypeError, match="neither copied nor pickled"):
        copy.copy(save)
    with pytest.raises(KeyError):
        save.when("a")
    timer.close()
    with pytest.raises(TimerClosed):
        save("a")


@every_driver
@given(
    quiet=st.integers(1, 20),
    most=st.none() | st.integers(1, 50),
    calls=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 25)), max_size=30),
)
def test_it_runs_when_a_list_of_all_calls_says_so(
    make: Make, quiet: int, most: int | None, calls: list[tuple[str, int]]
) -> None:
    timer = by_hand(make)
    runs = Runs(timer)
    save: Debounce[str, Any] = Debounce(timer, quiet / 1000, runs, most_s=None if most is None else most / 1000)
    now, waiting, expected = 0, dict[str, tuple[int, int, int]](), []

    def pass_until(moment: int) -> None:
        for due, key, number in sorted((due, key, number) for key, (due, _, number) in waiting.items()):
            if due <= moment:
                expected.append((due / 1000, key, number))
                del waiting[key]

    for number, (key, ms) in enumerate(calls):
        timer.advance(ms / 1000)
        now += ms
        pass_until(now)
        save(key, number)
        last = waiting[key][1] if key in waiting else now + (10**9 if most is None else most)
        waiting[key] = (min(now + quiet, last), last, number)
    timer.advance(10)
    pass_until(10**9)
    assert sorted(runs.lines) == sorted(expected)


@pytest.mark.parametrize("make", THREADED)
def test_threads_that_call_one_key_give_one_run(make: Make) -> None:
    with ThreadPoolExecutor(1) as executor, make(tick_s=0.0001, executor=executor) as timer:
        save: Debounce[str, Any] = Debounce(timer, 3600, print, most_s=7200)
        threads = [threading.Thread(target=lambda: [save("a", number) for number in range(200)]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(save), timer.statistics().pending) == (1, 1)


def test_a_driver_that_is_late_runs_what_was_quiet_and_what_came_then_apart() -> None:
    timer = by_hand(Timer)
    runs = Runs(timer)
    save: Debounce[str, Any] = Debounce(timer, 2, runs)
    save("a", "first")
    timer._clock.advance_s(5)
    save("a", "second")
    assert runs.lines == []
    timer.advance(10)
    assert runs.lines == [(5.0, "a", "first"), (7.0, "a", "second")]


def test_with_most_s_looking_and_setting_are_one_step_among_threads() -> None:
    timer = by_hand(Timer)
    save: Debounce[Any, Any] = Debounce(timer, 5, print, most_s=9)
    held: list[bool] = []

    def look() -> None:
        free = save._waiting._lock.acquire(blocking=False)
        held.append(not free)
        if free:
            save._waiting._lock.release()

    class Key:
        def __hash__(self) -> int:
            """Asked by the look and by the set; whether another thread could come in between."""
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
            return 1

    save(Key())
    assert (len(held) >= 2, all(held)) == (True, True)
