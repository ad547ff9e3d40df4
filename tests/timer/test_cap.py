"""A cap on what waits: raise, block or run (semantics.md, section 3: 7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.timer.timers import Diary, Make, by_hand, every_driver, every_thread, nothing, nothing_of
from waterclock import AsyncTimer, TimerClosed, TimerFull


@every_driver
def test_one_more_raises_and_leaves_what_waits_alone(make: Make) -> None:
    timer = by_hand(make, max_pending=2)
    handles = [timer.call_later(1, nothing), timer.call_at(1, nothing)]
    for add in (timer.call_later, timer.call_at):
        with pytest.raises(TimerFull, match="2 timers wait"):
            add(1, nothing)
    assert len(timer) == 2
    assert timer.close() in (handles, handles[::-1])


@every_driver
def test_room_comes_back_with_a_cancel_and_with_a_run(make: Make) -> None:
    timer = by_hand(make, max_pending=1)
    assert timer.call_later(1, nothing).cancel()
    timer.call_later(1, nothing)
    timer.advance(1)
    timer.call_later(1, nothing)
    assert len(timer) == 1


@every_driver
def test_run_calls_it_at_once_in_the_caller_and_the_handle_is_over(make: Make) -> None:
    timer = by_hand(make, max_pending=1, when_full="run")
    timer.call_later(1, nothing)
    ran: list[Any] = []
    handle = timer.call_later(5, lambda *args: ran.append((threading.get_ident(), *args)), 1, 2)
    assert ran == [(threading.get_ident(), 1, 2)]
    assert (handle.pending, handle.cancel(), handle.cancelled(), handle.when()) == (False, False, False, 5.0)
    assert (len(timer), timer.advance(10)) == (1, 1)


@every_driver
def test_what_is_run_in_the_caller_reports_its_error_and_may_add_again(make: Make) -> None:
    errors: list[BaseException] = []
    timer = by_hand(make, max_pending=1, when_full="run", on_error=errors.append)
    timer.call_later(1, nothing)
    timer.call_later(1, int, "no number")
    timer.call_later(1, lambda: timer.call_later(1, int, "nor is this"))
    assert [type(error) for error in errors] == [ValueError, ValueError]
    with pytest.raises(TypeError):
        timer.call_later(1, None)


@every_driver
def test_periodic_calls_take_room_and_are_never_refused(make: Make) -> None:
    timer = by_hand(make, max_pending=1)
    handle = timer.every(1, nothing)
    timer.every(1, nothing)
    with pytest.raises(TimerFull):
        timer.call_later(1, nothing)
    assert (timer.advance(3), len(timer), handle.cancel()) == (6, 2, True)


def test_an_asyncio_timer_does_not_block_its_loop() -> None:
    with pytest.raises(ValueError, match="when_full='block'"):
        AsyncTimer(max_pending=1, when_full="block")


# Blocking. Nothing here sleeps: a thread is seen to wait by the waiters of the condition.


def blocked(timer: Any, add: Callable[[], Any]) -> threading.Thread:
    """A thread that waits for room in `add`."""
    condition = timer._cap._freed
    before = len(condition._waiters)
    thread = threading.Thread(target=add, daemon=True)
    thread.start()
    waits = False
    while not waits and thread.is_alive():
        with condition:
            waits = len(condition._waiters) > before
    return thread


FREE: dict[str, Callable[[Any, Any], object]] = {
    "a cancel": lambda timer, handle: handle.cancel(),
    "a run": lambda timer, handle: timer.advance(1),
}


@every_thread
@pytest.mark.parametrize("free", FREE.values(), ids=FREE)
def test_block_waits_until_there_is_room(make: Make, free: Callable[[Any, Any], object]) -> None:
    timer = by_hand(make, max_pending=1, when_full="block")
    handle, added = timer.call_later(1, nothing), []
    thread = blocked(timer, lambda: added.append(timer.call_later(9, nothing)))
    assert (added, len(timer)) == ([], 1)
    free(timer, handle)
    thread.join(10)
    assert (len(added), len(timer), added[0].pending) == (1, 1, True)


@every_thread
def test_block_ends_with_the_cancel_of_a_periodic_one(make: Make) -> None:
    timer = by_hand(make, max_pending=1, when_full="block")
    handle = timer.every(1, nothing)
    thread = blocked(timer, lambda: timer.call_later(9, nothing))
    handle.cancel()
    thread.join(10)
    assert len(timer) == 1


@every_thread
def test_who_waits_for_room_is_told_of_the_close(make: Make) -> None:
    timer = by_hand(make, max_pending=1, when_full="block")
    handle, errors = timer.call_later(1, nothing), []

    def add() -> None:
        try:
            timer.call_later(1, nothing)
        except TimerClosed as error:
            errors.append(error)

    threads = [blocked(timer, add) for _ in range(3)]
    assert timer.close() == [handle]
    for thread in threads:
        thread.join(10)
    assert (len(errors), len(timer)) == (3, 0)


@every_thread
def test_a_callback_is_refused_where_it_would_wait_for_itself(make: Make) -> None:
    errors: list[BaseException] = []
    timer = by_hand(make, max_pending=1, when_full="block", on_error=errors.append)

    def two() -> None:
        timer.call_later(1, nothing)
        timer.call_later(1, nothing)

    timer.call_later(1, two)
    turning = threading.Thread(target=timer.advance, args=(5,), daemon=True)
    turning.start()
    turning.join(10)
    assert [type(error) for error in errors] == [TimerFull]
    assert timer.statistics().fired == 2


@every_thread
def test_handles_of_a_capped_timer_are_the_ones_that_close_gives_back(make: Make) -> None:
    timer = by_hand(make, max_pending=3, when_full="block")
    diary = Diary(timer)
    ran, cancelled, waits = (timer.call_later(delay_s, diary("ran")) for delay_s in (1, 2, 3))
    timer.advance(1)
    assert [cancelled.cancel(), cancelled.cancel(), cancelled.cancelled(), cancelled.when()] == [True, False, True, 2.0]
    assert [ran.pending, ran.cancel(), waits.pending] == [False, False, True]
    beat = timer.every(5, nothing)
    assert set(timer.close()) == {waits, beat}
    assert (waits.pending, waits.cancelled()) == (False, True)


@every_thread
def test_two_threads_never_share_the_last_place(make: Make) -> None:
    """Each looks, is held up, and then takes what it saw: unless looking and taking is one step."""
    timer = by_hand(make, max_pending=1)
    answers: list[str] = []

    class Slow:
        def __len__(self) -> int:
            found = len(timer)
            threading.Event().wait(0.02)
            return found

    def add() -> None:
        try:
            timer.call_later(1, nothing)
            answers.append("taken")
        except TimerFull:
            answers.append("full")

    timer._cap._wheel = Slow()
    threads = [threading.Thread(target=add, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (sorted(answers), len(timer)) == (["full", "taken"], 1)


@every_thread
@pytest.mark.parametrize("when_full", ["raise", "block", "run"])
def test_many_threads_never_take_more_than_there_is_room(make: Make, when_full: str) -> None:
    timer = make(tick_s=0.0001, max_pending=5, when_full=when_full, on_error=nothing_of)
    most, ran, refused = [0], [0] * 8, [0] * 8

    def add(me: int) -> None:
        for _ in range(200):
            try:
                timer.call_later(0.0001, count, me)
            except TimerFull:
                refused[me] += 1
            most[0] = max(most[0], len(timer))

    def count(me: int) -> None:
        ran[me] += 1  # by the timer's thread, or with "run" by the one thread `me`

    threads = [threading.Thread(target=add, args=(me,), daemon=True) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    left = len(timer.close())
    assert most[0] <= 5
    if when_full != "run":  # there one count is touched by two threads
        wait_for(lambda: timer.statistics().fired == sum(ran))
        assert sum(ran) + sum(refused) + left == 1600
    assert when_full == "raise" or refused == [0] * 8


def wait_for(condition: Callable[[], bool]) -> None:
    """Until a callback that runs right now has ended."""
    pause = threading.Event()
    for _ in range(1000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never came")
