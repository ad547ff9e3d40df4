"""`IdleTimeout`: the callback runs once nothing was touched for so long (the rules of src/waterclock/timer/idle.py)."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.timer.timers import THREADED, Diary, Make, by_hand, every_driver, nothing, run
from waterclock import AsyncTimer, IdleTimeout, Timer, TimerClosed


@every_driver
def test_it_runs_once_when_nothing_was_touched_for_so_long(timer: Any, diary: Diary) -> None:
    idle = IdleTimeout(timer, 30, diary("idle"))
    for _ in range(5):
        timer.advance(29.999)
        idle.touch()
    assert (idle.when(), idle.pending, diary.lines) == (179.995, True, [])
    timer.advance(1000)
    assert (diary.lines, idle.pending, idle.cancelled()) == ([("idle", 179.995)], False, False)


@every_driver
def test_the_wheel_is_asked_once_in_a_while_however_often_it_is_touched(timer: Any) -> None:
    idle = IdleTimeout(timer, 10, nothing)
    for _ in range(1000):
        idle.touch()
        timer.advance(0.1)
    assert timer.statistics().fired == 10  # of 100 seconds
    assert len(timer) == 1


@every_driver
def test_a_touch_after_its_end_does_nothing(timer: Any, diary: Diary) -> None:
    ran, cancelled = IdleTimeout(timer, 1, diary("ran")), IdleTimeout(timer, 1, diary("cancelled"))
    assert (cancelled.cancel(), cancelled.cancel(), cancelled.cancelled()) == (True, False, True)
    timer.advance(1)
    ran.touch()
    cancelled.touch()
    timer.advance(100)
    assert (diary.lines, ran.cancel(), ran.reschedule(1), len(timer)) == ([("ran", 1.0)], False, False, 0)


@every_driver
def test_its_callback_may_touch_cancel_and_make_another(timer: Any, diary: Diary) -> None:
    def over() -> None:
        first.touch()
        assert (first.pending, first.cancel()) == (False, False)
        IdleTimeout(timer, 5, diary("second"))

    first = IdleTimeout(timer, 5, over)
    timer.advance(20)
    assert diary.lines == [("second", 10.0)]


@every_driver
def test_a_block_cancels_it_at_its_end(timer: Any) -> None:
    with IdleTimeout(timer, 5, nothing) as idle:
        assert idle.pending
    assert (idle.pending, idle.cancelled(), len(timer)) == (False, True, 0)


@every_driver
@pytest.mark.parametrize("touched", [False, True])
def test_it_is_moved_until_the_next_touch(timer: Any, diary: Diary, touched: bool) -> None:
    idle = IdleTimeout(timer, 30, diary("idle"))
    timer.advance(10)
    assert (idle.reschedule(2), idle.when()) == (True, 12.0)
    timer.advance(1)
    if touched:
        idle.touch()
    timer.advance(1000)
    assert diary.lines == [("idle", 41.0 if touched else 12.0)]


@every_driver
@pytest.mark.parametrize(("delay_s", "touch_s"), [(5, 3), (100, 3), (100, 7)])
def test_a_touch_counts_from_then_on_also_where_it_was_moved_far_away_before(
    make: Make, delay_s: float, touch_s: float
) -> None:
    """The wheel held it for the far moment, and so it ran then, though `when` said the touch's."""
    timer = by_hand(make)
    diary = Diary(timer)
    touched, left = IdleTimeout(timer, 5, diary("touched")), IdleTimeout(timer, 5, diary("left"))
    assert (touched.reschedule(delay_s), left.reschedule(delay_s)) == (True, True)
    timer.advance(touch_s)
    touched.touch()
    assert (touched.when(), left.when()) == (touch_s + 5.0, float(delay_s))
    timer.advance(1000)
    assert sorted(diary.lines) == [("left", float(delay_s)), ("touched", touch_s + 5.0)]


@every_driver
def test_one_that_is_over_is_not_moved_whatever_the_delay(timer: Any) -> None:
    handles = [IdleTimeout(timer, 5, nothing), timer.call_later(5, nothing), timer.every(5, nothing)]
    for handle in handles:
        handle.cancel()
    assert [handle.reschedule(float("nan")) for handle in handles] == [False, False, False]


@every_driver
def test_a_pause_stops_its_time(timer: Any, diary: Diary) -> None:
    idle = IdleTimeout(timer, 10, diary("idle"))
    timer.advance(5)
    timer.pause()
    timer.advance(3600)
    idle.touch()
    timer.resume()
    timer.advance(100)
    assert diary.lines == [("idle", 15.0)]


@every_driver
def test_what_is_over_keeps_nothing_alive(make: Make) -> None:
    class Connection:
        def close(self) -> None:
            pass

    timer = by_hand(make)
    connections = [Connection(), Connection()]
    weak = [ref(connection) for connection in connections]
    ran, cancelled = (IdleTimeout(timer, 1, connection.close) for connection in connections)
    cancelled.cancel()
    timer.advance(1)
    gc.disable()
    try:
        connections.clear()
        assert [one() for one in weak] == [None, None]
    finally:
        gc.enable()
    assert not ran.pending


@every_driver
def test_wrong_arguments_are_refused_at_the_call(timer: Any) -> None:
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="idle_s must be"):
            IdleTimeout(timer, wrong, nothing)
    with pytest.raises(TypeError, match="must be callable, got 5"):
        IdleTimeout(timer, 1, 5)  # type: ignore[arg-type]
    idle = IdleTimeout(timer, 1, nothing)
    with pytest.raises(ValueError, match="delay_s must be"):
        idle.reschedule(float("inf"))
    assert idle.when() == 1.0
    timer.close()
    with pytest.raises(TimerClosed):
        IdleTimeout(timer, 1, nothing)


@every_driver
def test_a_closed_timer_ends_it(timer: Any) -> None:
    idle = IdleTimeout(timer, 1, nothing)
    timer.close()
    idle.touch()
    assert (idle.pending, idle.cancelled(), idle.cancel(), idle.reschedule(1)) == (False, True, False, False)


@every_driver
def test_a_close_in_the_tick_at_which_it_would_go_back_ends_it(timer: Any) -> None:
    timer.call_later(1, timer.close)
    idle = IdleTimeout(timer, 1, nothing)
    timer.advance(0.5)
    idle.touch()
    timer.advance(10)
    assert (idle.pending, idle.cancelled()) == (False, True)


@every_driver
def test_it_says_what_it_is_and_when_it_is_due(timer: Any) -> None:
    idle = IdleTimeout(timer, 30, nothing)
    assert repr(idle) == f"<IdleTimeout, waiting, when=30.0, idle=30.0, callback={nothing!r}>"
    idle.cancel()
    assert repr(idle) == "<IdleTimeout, cancelled>"


@every_driver
def test_a_full_timer_takes_it_and_an_executor_runs_it(make: Make) -> None:
    with ThreadPoolExecutor(1) as executor:
        timer = by_hand(make, max_pending=1, executor=executor)
        timer.call_later(60, nothing)
        threads: list[int] = []
        IdleTimeout(timer, 1, lambda: threads.append(threading.get_ident()))
        timer.advance(1)
    assert threads != [threading.get_ident()]
    assert len(threads) == 1


# Beside a dumb oracle


@every_driver
@given(
    idle_ms=st.integers(1, 40),
    steps=st.lists(st.tuples(st.sampled_from("tttacm"), st.integers(0, 50)), max_size=30),
)
def test_it_runs_when_a_list_of_all_touches_says_so(make: Make, idle_ms: int, steps: list[tuple[str, int]]) -> None:
    timer = by_hand(make)
    ran: list[float] = []
    idle = IdleTimeout(timer, idle_ms / 1000, lambda: ran.append(timer.time()))
    now_ms, due_ms, cancelled = 0, idle_ms, False
    for what, ms in steps:
        timer.advance(ms / 1000)
        now_ms += ms
        alive = not cancelled and due_ms > now_ms
        assert (idle.pending, ran) == (alive, [] if alive or cancelled else [due_ms / 1000])
        if what == "t":
            idle.touch()
            due_ms = now_ms + idle_ms if alive else due_ms
        elif what == "m":
            assert idle.reschedule(ms * 2 / 1000) is alive
            due_ms = now_ms + ms * 2 if alive else due_ms
        elif what == "c":
            assert idle.cancel() is alive
            cancelled = cancelled or alive


# Threads


@pytest.mark.parametrize("make", THREADED)
def test_a_touch_and_the_end_from_two_threads_give_one_end(make: Make) -> None:
    ended = threading.Semaphore(0)
    with make(tick_s=0.0001) as timer:
        made = [IdleTimeout(timer, 0.0005, ended.release) for _ in range(200)]

        def touch() -> None:
            for idle in made:
                idle.touch()

        threads = [threading.Thread(target=touch) for _ in range(3)]
        for thread in threads:
            thread.start()
        cancelled = sum(idle.cancel() for idle in made[::7])
        for thread in threads:
            thread.join()
        for _ in range(len(made) - cancelled):
            assert ended.acquire(timeout=10)
        assert not ended.acquire(blocking=False)
        assert not any(idle.pending for idle in made)


def test_a_thread_of_a_timer_runs_it_by_the_machines_clock() -> None:
    over = threading.Event()
    with Timer() as timer:
        idle = IdleTimeout(timer, 0.01, over.set)
        idle.touch()
        assert over.wait(10)


# In asyncio


def test_a_block_in_which_nothing_was_touched_for_so_long_is_a_timeout() -> None:
    async def main() -> None:
        timer = by_hand(AsyncTimer)
        got: list[str] = []

        async def connection() -> None:
            try:
                async with timer.idle_timeout(30) as idle:
                    for _ in range(3):
                        await timer.sleep(20)
                        idle.touch()
                    await asyncio.Event().wait()
            except TimeoutError:
                got.append(f"idle at {timer.time()}")

        task = asyncio.ensure_future(connection())
        await asyncio.sleep(0)
        for _ in range(100):
            timer.advance(1)
            for _ in range(5):  # turns of the loop: the hand-over, the cancellation, the end of the block
                await asyncio.sleep(0)
        await task
        assert got == ["idle at 90.0"]

    run(main())


def test_a_block_that_ended_in_time_is_none_and_leaves_nothing() -> None:
    async def main() -> None:
        with AsyncTimer() as timer:
            async with timer.idle_timeout(30) as idle:
                assert idle.pending
            assert (idle.pending, len(timer)) == (False, 0)
            with pytest.raises(KeyError):
                async with timer.idle_timeout(30):
                    raise KeyError
            assert len(timer) == 0

    run(main())


def test_a_block_whose_end_and_lapse_meet_cancels_nobody() -> None:
    async def main() -> None:
        timer = by_hand(AsyncTimer)
        sleeper = asyncio.ensure_future(timer.sleep(0.5))  # binds the timer to the loop
        await asyncio.sleep(0)
        timer.advance(0.5)
        await sleeper
        async with timer.idle_timeout(1):
            timer.advance(1)  # handed to the loop, which has its turn after the block
        await asyncio.sleep(0)
        task: Any = asyncio.current_task()
        assert task.cancelling() == 0

    run(main())


def test_a_block_is_a_timeout_with_an_executor_too() -> None:
    async def main() -> None:
        with ThreadPoolExecutor(1) as executor, AsyncTimer(executor=executor) as timer, pytest.raises(TimeoutError):
            async with timer.idle_timeout(0.001):
                await asyncio.sleep(60)

    run(main())
