"""`ManualLoop`: a whole asyncio loop on a ManualClock (the rules of src/waterclock/timer/manual_loop.py)."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waterclock import AsyncTimer, Debounce, ExpiringMap, ManualClock, ManualLoop, SystemClock, manual_loop
from waterclock.errors import UsageError

DAY_S = 86_400


# From timer to timer


def test_sixty_days_of_a_service_are_over_when_its_timers_have_run() -> None:
    async def service(beats: list[float]) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < 60 * DAY_S:
            await asyncio.sleep(3600)
            beats.append(loop.time())

    with manual_loop() as loop:
        beats: list[float] = []
        loop.run_until_complete(service(beats))
        assert beats == [3600.0 * hour for hour in range(1, 60 * 24 + 1)]
        assert loop.clock.monotonic_s() == 60 * DAY_S


def test_everybodys_timers_are_turned_in_the_order_of_their_moments() -> None:
    async def main() -> list[Any]:
        loop, lines = asyncio.get_running_loop(), []

        def note(name: str) -> None:
            lines.append((name, loop.time()))

        loop.call_later(5, note, "call_later")
        loop.call_at(2, note, "call_at")
        timer = AsyncTimer()
        timer.call_later(4, note, "AsyncTimer")
        timer.every(3, note, "every")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 1)
        note("wait_for")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5):
                await asyncio.Event().wait()
        note("timeout")
        with pytest.raises(TimeoutError):
            async with timer.timeout(1):
                await timer.sleep(60)
        note("timer.timeout")
        done, pending = await asyncio.wait({asyncio.ensure_future(timer.sleep(1.75)), loop.create_future()}, timeout=9)
        note("wait")
        assert (len(done), len(pending), timer.time()) == (1, 1, loop.time())
        timer.close()
        return lines

    with manual_loop() as loop:
        assert loop.run_until_complete(main()) == [
            ("wait_for", 1.0),
            ("call_at", 2.0),
            ("every", 3.0),
            ("timeout", 3.5),
            ("AsyncTimer", 4.0),
            ("timer.timeout", 4.5),
            ("call_later", 5.0),
            ("every", 6.0),
            ("every", 9.0),
            ("every", 12.0),
            ("wait", 13.5),
        ]


def test_time_is_equal_and_not_near() -> None:
    async def main() -> list[float]:
        times = []
        for _ in range(5):
            await asyncio.sleep(0.1)
            times.append(asyncio.get_running_loop().time())
        return times

    with manual_loop() as loop:
        assert loop.run_until_complete(main()) == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_a_callback_that_turns_the_clock_is_slow() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ManualLoop)
        times: list[float] = []
        loop.call_later(1, loop.clock.advance_s, 10)
        loop.call_later(2, lambda: times.append(loop.time()))
        await asyncio.sleep(3)
        return [*times, loop.time()]

    with manual_loop() as loop:
        assert loop.run_until_complete(main()) == [11.0, 11.0]


@pytest.mark.parametrize("start_s", [0, 1e3, 1.7e9, 4e9])
def test_far_from_zero_time_moves_on_all_the_same(start_s: float) -> None:
    """Seconds are floats: at 1.7e9 they come in steps of 240 ns, and asyncio's own clock resolution is lost in them."""

    async def main() -> int:
        timer = AsyncTimer()
        for delay_s in (1.0, 1e-7, 0.1, 1e-9, 3.3):
            await asyncio.sleep(delay_s)
            await timer.sleep(delay_s)
        await asyncio.sleep(60 * DAY_S)
        return timer.statistics().wakeups

    with manual_loop(ManualClock(start_s)) as loop:
        assert loop.run_until_complete(main()) == 5  # none of them too early, to be asked again
        assert round(loop.time() - start_s, 1) == round(60 * DAY_S + 2 * 4.4 + 1e-7, 1)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.sampled_from(["sleep", "timer", "call_at"])), max_size=30))
def test_what_is_due_runs_at_its_moment_to_the_nanosecond_in_order(timers: list[tuple[int, str]]) -> None:
    async def main(loop: ManualLoop) -> list[tuple[int, int]]:
        timer, ran = AsyncTimer(tick_s=1e-9), list[tuple[int, int]]()

        def note(due_ns: int) -> None:
            ran.append((due_ns, loop.clock.monotonic_ns()))

        async def sleep(due_ns: int) -> None:
            await asyncio.sleep(due_ns / 1e9)
            note(due_ns)

        tasks = []
        for due_ns, way in timers:
            if way == "sleep":
                tasks.append(asyncio.ensure_future(sleep(due_ns)))
            elif way == "timer":
                timer.call_later(due_ns / 1e9, note, due_ns)
            else:
                loop.call_at(due_ns / 1e9, note, due_ns)
        await asyncio.sleep(1001)
        await asyncio.gather(*tasks)
        return ran

    with manual_loop() as loop:
        ran = loop.run_until_complete(main(loop))
    assert sorted(due for due, _ in ran) == sorted(due for due, _ in timers)
    assert all(at == due for due, at in ran)
    assert ran == sorted(ran)


# By hand


def test_by_hand_what_is_due_runs_and_all_that_it_leads_to_and_time_stands_again() -> None:
    lines: list[float] = []

    async def service() -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(10)
            await asyncio.sleep(0)
            lines.append(loop.time())

    with manual_loop() as loop:
        task = loop.create_task(service())
        loop.advance(0)
        assert (loop.time(), lines) == (0.0, [])
        loop.advance(9.999)
        assert (loop.time(), lines) == (9.999, [])
        loop.advance(0.001)
        assert (loop.time(), lines) == (10.0, [10.0])
        loop.advance(DAY_S)
        assert (loop.time(), len(lines), lines[-1]) == (DAY_S + 10.0, DAY_S // 10 + 1, DAY_S + 10.0)
        assert not task.done()
        with pytest.raises(ValueError, match="duration_s must be zero or more"):
            loop.advance(-1)


def test_inside_of_it_time_is_turned_by_sleeping() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        with pytest.raises(RuntimeError, match=r"await asyncio.sleep"):
            loop.advance(1)

    with manual_loop() as loop:
        loop.run_until_complete(main())


def test_at_the_end_of_the_block_tasks_are_cancelled_and_may_take_their_time() -> None:
    ends: list[Any] = []

    async def service() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(3600)
            ends.append(asyncio.get_running_loop().time())

    with manual_loop() as loop:
        loop.create_task(service())
        loop.advance(5)
    assert (ends, loop.is_closed()) == ([3605.0], True)


@pytest.mark.parametrize("others", [[], [5.0]])
def test_who_sleeps_for_ever_does_not_stop_time(others: list[float]) -> None:
    """As the main task of a service does that waits to be cancelled: it was an OverflowError."""
    with manual_loop() as loop:
        tasks = [loop.create_task(asyncio.sleep(seconds)) for seconds in [math.inf, *others]]
        loop.advance(60)
        assert ([task.done() for task in tasks], loop.time()) == ([False, *(True for _ in others)], 60.0)
        with pytest.raises(UsageError, match="nothing is due"):
            loop.run_until_complete(tasks[0])


# With what else goes by a clock


def test_the_clock_is_ones_own_and_drives_what_is_made_with_it_outside_of_the_loop() -> None:
    clock, ran = ManualClock(100.0), list[float]()
    with manual_loop(clock) as loop:
        timer = AsyncTimer(clock=clock)

        async def main() -> None:
            timer.call_later(5, lambda: ran.append(loop.time()))

        loop.run_until_complete(main())
        loop.advance(60)
    assert (ran, clock.monotonic_s()) == ([105.0], 160.0)


def test_a_timer_that_goes_by_another_clock_is_refused_in_the_loop() -> None:
    timer = AsyncTimer(clock=SystemClock())

    async def main() -> None:
        with pytest.raises(UsageError, match=r"make it in the loop, or with clock=loop.clock"):
            timer.call_later(5, print)
        assert len(timer) == 0

    with manual_loop() as loop:
        loop.run_until_complete(main())


def test_a_clock_whose_loop_is_closed_is_turned_by_its_timers_again() -> None:
    clock = ManualClock()
    with manual_loop(clock):
        pass
    timer = AsyncTimer(clock=clock)
    timer.call_later(5, lambda: None)
    assert timer.advance(5) == 1


def test_a_map_and_a_debounce_in_the_loop_are_turned_with_it() -> None:
    async def main() -> list[Any]:
        lines: list[Any] = []
        timer = AsyncTimer()
        entries: ExpiringMap[str, int] = ExpiringMap(timer, 60, on_evict=lambda *line: lines.append(line))
        save: Debounce[str, Any] = Debounce(timer, 5, lambda key: lines.append((key, timer.time())))
        entries["a"] = 1
        for _ in range(4):
            save("b")
            await asyncio.sleep(4)
        await asyncio.sleep(60)
        return lines

    with manual_loop() as loop:
        assert loop.run_until_complete(main()) == [("b", 17.0), ("a", 1, "expired")]


def test_a_days_random_life_of_tasks_gives_the_same_twice() -> None:
    def life(seed: int) -> list[Any]:
        lines: list[Any] = []
        draw = random.Random(seed)

        async def worker(name: int, queue: asyncio.Queue[int]) -> None:
            loop = asyncio.get_running_loop()
            while True:
                try:
                    got = await asyncio.wait_for(queue.get(), draw.uniform(0, 300))
                    lines.append((loop.time(), name, got))
                except TimeoutError:
                    lines.append((loop.time(), name, None))
                await asyncio.sleep(draw.expovariate(0.01))
                queue.put_nowait(draw.randrange(100))

        async def main() -> None:
            queue: asyncio.Queue[int] = asyncio.Queue()
            tasks = [asyncio.ensure_future(worker(name, queue)) for name in range(5)]
            await asyncio.sleep(DAY_S)
            for task in tasks:
                task.cancel()

        with manual_loop() as loop:
            loop.run_until_complete(main())
        return lines

    first = life(7)
    assert (len(first) > 1000, first == life(7), first == life(8)) == (True, True, False)
    assert [moment for moment, *_ in first] == sorted(moment for moment, *_ in first)
