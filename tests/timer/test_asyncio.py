"""What an AsyncTimer does with its loop (semantics.md, section 3: 3, 4, 9, 11, and sleep)."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

from tests.timer.timers import nothing, run
from waterclock import AsyncTimer, ManualClock, SystemClock, TimerClosed

Main = Callable[[], Coroutine[Any, Any, None]]


def in_loop(main: Main) -> Callable[[], None]:
    """A test that is a coroutine."""

    def test() -> None:
        run(main())

    test.__name__ = main.__name__
    return test


def armed() -> list[float]:
    """The moments at which the loop holds a call that is not cancelled."""
    scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [one.when() for one in scheduled if not one.cancelled()]


@in_loop
async def test_callbacks_come_in_the_loops_thread_and_never_early() -> None:
    clock, early, threads = SystemClock(), [], set()
    done = asyncio.get_running_loop().create_future()

    def look(due_ns: int) -> None:
        threads.add(threading.get_ident())
        if clock.monotonic_ns() < due_ns:
            early.append(due_ns)

    timer = AsyncTimer()
    for place in range(200):
        delay_s = place * 0.00037
        timer.call_later(delay_s, look, clock.monotonic_ns() + round(delay_s * 1e9))
    timer.call_later(0.08, done.set_result, None)
    await done
    assert (early, threads) == ([], {threading.get_ident()})


@in_loop
async def test_the_loop_holds_one_call_for_all_timers() -> None:
    timer = AsyncTimer()
    for place in range(1000):
        timer.call_later(60 - place % 7, nothing)
    timer.every(50, nothing)
    sleeper = asyncio.ensure_future(timer.sleep(40))
    async with timer.timeout(30):
        await asyncio.sleep(0)
        assert len(armed()) == 1
    sleeper.cancel()
    timer.close()
    assert armed() == []


@in_loop
async def test_an_earlier_tick_moves_the_call_and_nothing_else_does() -> None:
    timer = AsyncTimer(tick_s=10)
    when_s = timer.time() // 10 * 10 + 109
    timer.call_at(when_s, nothing)
    [first] = armed()
    timer.call_at(when_s - 8, nothing)  # the same tick
    timer.call_at(when_s + 100, nothing)
    assert armed() == [first]
    timer.call_at(when_s - 10, nothing).cancel()
    assert 9.9 < first - armed()[0] < 10.1
    assert len(armed()) == 1


@in_loop
async def test_a_loop_is_called_for_ticks_only() -> None:
    timer = AsyncTimer()
    first_ms = round(timer.time() * 1000)
    for ms in (20, 40, 60, 80):
        for _ in range(5):
            timer.call_at((first_ms + ms) / 1000, nothing)
    done = asyncio.get_running_loop().create_future()
    timer.call_at((first_ms + 100) / 1000, done.set_result, None)
    await done
    assert timer.statistics().wakeups <= 5


def test_a_loop_that_calls_too_early_is_asked_once_more_and_not_again_and_again() -> None:
    """As one of whole milliseconds does."""

    class Coarse(asyncio.SelectorEventLoop):
        def call_at(self, when: float, *args: Any, **named: Any) -> asyncio.TimerHandle:
            return super().call_at(when - 0.0009, *args, **named)

    async def main() -> None:
        timer, clock, early = AsyncTimer(), SystemClock(), []
        for ms in (10, 20, 30):
            due_ns = clock.monotonic_ns() + ms * 10**6
            timer.call_later(ms / 1000, lambda due_ns=due_ns: early.append(clock.monotonic_ns() < due_ns))
        await timer.sleep(0.04)
        assert early == [False] * 3
        # two ticks for each, as they were added a hair apart, and two calls for each tick
        assert timer.statistics().wakeups <= 2 * 2 * 4

    with asyncio.Runner(loop_factory=Coarse) as runner:
        runner.run(main())


@in_loop
async def test_a_turn_leaves_the_loop_its_own() -> None:
    timer, clock, turns = AsyncTimer(), SystemClock(), [0]
    done = asyncio.get_running_loop().create_future()

    def again(left: int) -> None:
        clock.sleep_s(0.002)  # so the next one is due before this turn ends
        timer.call_later(0, again, left - 1) if left else done.set_result(turns[0])

    async def others() -> None:
        while not done.done():
            turns[0] += 1
            await asyncio.sleep(0)

    timer.call_later(0, again, 10)
    running = asyncio.ensure_future(others())
    assert await done >= 10
    await running


@in_loop
async def test_without_on_error_the_loops_exception_handler_is_told() -> None:
    loop, told = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda loop, context: told.append(context))
    timer = AsyncTimer()
    timer.call_later(0, int, "no number")
    timer.call_later(0, raise_, asyncio.CancelledError())
    await timer.sleep(0.002)
    assert [type(context["exception"]) for context in told] == [ValueError, asyncio.CancelledError]
    # in C there is no frame of it
    assert [context["message"] for context in told] == [
        "a callback of an AsyncTimer failed", "the callback raise_ of an AsyncTimer failed"
    ]  # fmt: skip


@in_loop
async def test_what_the_loop_is_told_names_the_callback_and_one_that_is_awaited() -> None:
    """It was "a callback of an AsyncTimer failed": of many hundreds, which?"""

    class Shop:
        async def opens(self) -> None:
            raise_(KeyError("the key"))

    loop, told = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda loop, context: told.append(context["message"]))
    timer = AsyncTimer()
    timer.call_later(0, Shop().opens)
    async with asyncio.timeout(10):
        while not told:
            await asyncio.sleep(0)
    assert re.fullmatch(r"the callback \S+Shop\.opens of an AsyncTimer failed", told[0])


def raise_(error: BaseException) -> None:
    raise error


def test_an_interrupt_ends_the_loop_and_the_rest_runs_when_it_goes_on() -> None:
    loop = asyncio.new_event_loop()
    ran: list[str] = []

    async def start() -> AsyncTimer:
        timer = AsyncTimer()
        timer.pause()  # on a slow machine a millisecond is over before the loop stops
        timer.call_later(0.001, raise_, KeyboardInterrupt())
        timer.call_later(0.001, ran.append, "the rest")
        await asyncio.sleep(0)
        return timer

    async def go_on(timer: AsyncTimer) -> None:
        timer.resume()
        await timer.sleep(10)

    try:
        timer = loop.run_until_complete(start())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(go_on(timer))
        loop.call_later(10, loop.stop)  # should it never come
        loop.run_until_complete(timer.sleep(0.005))
        assert ran == ["the rest"]
        timer.close()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@in_loop
async def test_an_error_in_the_executor_is_told_in_the_loops_thread() -> None:
    told: list[tuple[type, int]] = []
    with ThreadPoolExecutor(1) as pool:
        timer = AsyncTimer(executor=pool, on_error=lambda error: told.append((type(error), threading.get_ident())))
        timer.call_later(0, int, "no number")
        while not told:
            await timer.sleep(0.001)
    assert told == [(ValueError, threading.get_ident())]


@in_loop
async def test_a_periodic_call_in_the_executor_is_planned_in_the_loop() -> None:
    loop, calls = asyncio.get_running_loop(), []
    thrice = loop.create_future()

    def call() -> None:
        calls.append(threading.get_ident())
        if len(calls) == 3:
            loop.call_soon_threadsafe(thrice.set_result, None)

    with ThreadPoolExecutor(1) as pool:
        timer = AsyncTimer(executor=pool)
        handle = timer.every(0.001, call)
        await thrice
        assert handle.cancel()
        assert threading.get_ident() not in calls
        timer.close()


VARIABLE = ContextVar("VARIABLE", default="unset")


@in_loop
async def test_callbacks_do_not_run_in_the_context_of_whoever_added_the_earliest() -> None:
    timer, seen = AsyncTimer(), []
    timer.call_later(60, nothing)

    async def request() -> None:
        VARIABLE.set("of one request")
        timer.call_later(0.001, nothing)

    await asyncio.ensure_future(request())
    timer.call_later(0.002, lambda: seen.append(VARIABLE.get()))
    await timer.sleep(0.003)
    assert seen == ["unset"]


def test_it_is_made_anywhere_and_belongs_to_the_loop_that_needs_it_first() -> None:
    timer = AsyncTimer()
    asyncio.run(timer.sleep(0.001))
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(timer.sleep(0.001))
    with pytest.raises(RuntimeError, match="no running event loop"):
        AsyncTimer().call_later(1, nothing)
    assert len(timer) == 0


# sleep


@in_loop
async def test_sleep_waits_its_time() -> None:
    timer = AsyncTimer()
    before = timer.time()
    await timer.sleep(0.01)
    assert timer.time() - before >= 0.01


@in_loop
async def test_sleepers_wake_in_order_under_a_clock_turned_by_hand() -> None:
    timer, woken = AsyncTimer(clock=ManualClock()), []

    async def sleep(delay_s: float) -> None:
        await timer.sleep(delay_s)
        woken.append((delay_s, timer.time()))

    tasks = [asyncio.ensure_future(sleep(delay_s)) for delay_s in (3, 1, 2)]
    await asyncio.sleep(0)
    for _ in range(3):
        timer.advance(1)
        await asyncio.sleep(0)
    assert woken == [(1, 1.0), (2, 2.0), (3, 3.0)]
    await asyncio.gather(*tasks)


@in_loop
async def test_sleep_of_nothing_gives_the_loop_one_turn() -> None:
    timer, turns = AsyncTimer(clock=ManualClock()), []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    await timer.sleep(0)
    await timer.sleep(-1)
    assert (turns, len(timer)) == ([1], 0)


@in_loop
async def test_a_sleep_that_is_cancelled_leaves_nothing_behind() -> None:
    timer = AsyncTimer(clock=ManualClock())
    task = asyncio.ensure_future(timer.sleep(1))
    await asyncio.sleep(0)
    assert len(timer) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (len(timer), timer._sleepers) == (0, set())


@in_loop
async def test_a_sleep_that_is_cancelled_in_the_turn_of_its_end_stays_cancelled() -> None:
    errors: list[BaseException] = []
    timer = AsyncTimer(clock=ManualClock(), on_error=errors.append)
    task = asyncio.ensure_future(timer.sleep(1))
    await asyncio.sleep(0)
    timer.call_later(0.5, task.cancel)
    timer.advance(2)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert errors == []


@in_loop
async def test_close_wakes_sleepers_with_an_error_and_gives_their_handles_back() -> None:
    timer = AsyncTimer()
    tasks = [asyncio.ensure_future(timer.sleep(60)) for _ in range(2)]
    await asyncio.sleep(0)
    assert len(timer.close()) == 2
    for task in tasks:
        with pytest.raises(TimerClosed, match="closed while this sleep waited"):
            await task
    with pytest.raises(TimerClosed):
        await timer.sleep(1)
    assert armed() == []


@in_loop
async def test_sleeps_and_timeouts_take_room_and_are_never_refused() -> None:
    timer = AsyncTimer(clock=ManualClock(), max_pending=1, when_full="run")
    timer.call_later(5, nothing)
    task = asyncio.ensure_future(timer.sleep(1))
    async with timer.timeout(1):
        await asyncio.sleep(0)
        assert len(timer) == 3
    timer.advance(1)
    await task


@in_loop
async def test_pause_stops_the_loops_call_and_resume_arms_it_again() -> None:
    timer = AsyncTimer()
    done = asyncio.get_running_loop().create_future()
    timer.call_later(0.01, done.set_result, None)
    timer.pause()
    await asyncio.sleep(0.03)
    assert (done.done(), armed()) == (False, [])
    timer.call_later(0, nothing)
    timer.resume()
    await done
