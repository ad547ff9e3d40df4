"""Waiting in a coroutine: `await purgatory.wait(keys, predicate, timeout_s)`, plain and compiled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from threading import Thread
from typing import Any

import pytest

from tests.purgatory.purgatories import KINDS
from waterclock import AsyncTimer, ManualClock, PurgatoryClosed
from waterclock.purgatory import COMPILED, waiting

WAKERS: dict[str, Any] = {"plain": waiting}
if COMPILED:
    from waterclock.purgatory import _waiting

    WAKERS["compiled"] = _waiting


class Hall:
    """A purgatory on a loop, its clock turned by hand, and what its waiters wait for."""

    def __init__(self, kind: Any) -> None:
        self.timer = AsyncTimer(clock=ManualClock())
        self.errors: list[str] = []
        self.purgatory = kind.Purgatory("hall", self.timer, lambda error, op: self.errors.append(repr(error)))
        self.there: set[str] = set()

    def wait(self, name: str, *keys: str, timeout_s: float | None = 1) -> Coroutine[Any, Any, bool]:
        return self.purgatory.wait(keys, lambda: name in self.there, timeout_s)

    async def begin(self, name: str, *keys: str, timeout_s: float | None = 1) -> asyncio.Task[bool]:
        """A task that waits by now."""
        task = asyncio.create_task(self.wait(name, *keys, timeout_s=timeout_s))
        await asyncio.sleep(0)
        assert not task.done()
        return task

    def counts(self) -> tuple[int, ...]:
        told = self.purgatory.statistics()
        return told.watched, told.delayed, told.completed, told.expired, told.cancelled


@pytest.fixture(params=KINDS)
def play(request: pytest.FixtureRequest) -> Callable[[Callable[[Hall], Coroutine[Any, Any, None]]], None]:
    def play(scene: Callable[[Hall], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            hall = Hall(KINDS[request.param])
            await scene(hall)
            assert hall.counts()[:2] == (0, 0)
            assert (len(hall.timer), hall.errors) == (0, [])

        asyncio.run(main())

    return play


Play = Callable[[Callable[[Hall], Coroutine[Any, Any, None]]], None]


def test_a_predicate_that_holds_is_true_at_once_and_gives_the_loop_no_turn(play: Play) -> None:
    async def scene(hall: Hall) -> None:
        hall.there.add("a")
        with pytest.raises(StopIteration) as stop:
            hall.wait("a", "k").send(None)
        assert (stop.value.value, hall.counts()) == (True, (0, 0, 1, 0, 0))

    play(scene)


def test_a_wait_is_true_when_the_predicate_holds_at_a_trigger(play: Play) -> None:
    async def scene(hall: Hall) -> None:
        task = await hall.begin("a", "k", "l")
        assert (hall.purgatory.check_and_complete("k"), hall.counts()[:2]) == (0, (2, 1))
        hall.there.add("a")
        assert hall.purgatory.check_and_complete("l") == 1
        assert hall.counts()[:2] == (0, 0)  # gone before the task has its turn
        assert await task is True

    play(scene)


def test_a_wait_is_false_when_its_time_is_over(play: Play) -> None:
    async def scene(hall: Hall) -> None:
        task = await hall.begin("a", "k", timeout_s=1)
        assert (hall.timer.advance(0.999), hall.timer.advance(0.001)) == (0, 1)
        assert (await task, hall.counts()) == (False, (0, 0, 0, 1, 0))

    play(scene)


def test_a_wait_without_a_timeout_waits_for_ever(play: Play) -> None:
    async def scene(hall: Hall) -> None:
        task = await hall.begin("a", "k", timeout_s=None)
        assert len(hall.timer) == 0
        hall.there.add("a")
        assert (hall.purgatory.check_and_complete("k"), await task) == (1, True)

    play(scene)


def test_a_task_that_is_cancelled_leaves_every_watch_list(play: Play) -> None:
    async def scene(hall: Hall) -> None:
        task = await hall.begin("a", "k", "l")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert hall.counts() == (0, 0, 0, 0, 1)
        assert [hall.purgatory.watched_for(key) for key in "kl"] == [0, 0]

    play(scene)


def test_a_task_that_is_cancelled_when_its_wait_is_over_already_is_cancelled_and_counted_once(play: Play) -> None:
    async def scene(hall: Hall) -> None:
        task = await hall.begin("a", "k")
        hall.there.add("a")
        hall.purgatory.check_and_complete("k")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert hall.counts() == (0, 0, 1, 0, 0)

    play(scene)


@pytest.mark.parametrize("end", [lambda hall: hall.purgatory.cancel_for_key("k"), lambda hall: hall.purgatory.close()])
def test_a_wait_that_is_cancelled_from_outside_is_false(play: Play, end: Callable[[Hall], Any]) -> None:
    async def scene(hall: Hall) -> None:
        task = await hall.begin("a", "k")
        assert len(end(hall)) == 1
        assert await task is False

    play(scene)


def test_an_outer_timeout_ends_the_wait_and_takes_it_out(play: Play) -> None:
    async def scene(hall: Hall) -> None:
        async def bounded() -> None:
            async with hall.timer.timeout(1):
                await hall.wait("a", "k", timeout_s=5)

        task = asyncio.create_task(bounded())
        await asyncio.sleep(0)
        hall.timer.advance(1)
        with pytest.raises(TimeoutError):
            await task
        assert hall.counts() == (0, 0, 0, 0, 1)

    play(scene)


def test_after_close_a_wait_is_refused(play: Play) -> None:
    async def scene(hall: Hall) -> None:
        hall.purgatory.close()
        with pytest.raises(PurgatoryClosed):
            await hall.wait("a", "k")

    play(scene)


def test_a_wait_without_a_key_is_refused(play: Play) -> None:
    async def scene(hall: Hall) -> None:
        with pytest.raises(ValueError, match="at least one key"):
            await hall.wait("a")

    play(scene)


def test_a_predicate_that_raises_counts_as_no_and_is_told(play: Play) -> None:
    async def scene(hall: Hall) -> None:
        task = asyncio.create_task(hall.purgatory.wait(["k"], lambda: 1 / 0, 1))
        await asyncio.sleep(0)
        hall.timer.advance(1)
        assert await task is False
        assert hall.errors == ["ZeroDivisionError('division by zero')"] * 2
        hall.errors.clear()

    play(scene)


def test_many_waiters_of_one_key_are_woken_by_one_trigger(play: Play) -> None:
    async def scene(hall: Hall) -> None:
        tasks = [await hall.begin("a", "k") for _ in range(100)]
        hall.there.add("a")
        assert hall.purgatory.check_and_complete("k") == 100
        assert await asyncio.gather(*tasks) == [True] * 100

    play(scene)


@pytest.mark.parametrize("kind", KINDS)
def test_a_future_is_touched_on_its_loop_only(kind: str) -> None:
    async def scene() -> None:
        waker = WAKERS[kind].Waker(lambda: False)
        thread = Thread(target=waker.wake, args=[None])
        thread.start()
        thread.join()
        assert not waker.woken.done()
        await asyncio.sleep(0)
        assert waker.woken.done()

    asyncio.run(scene())


def test_a_trigger_from_another_thread_wakes_the_task_on_its_loop(play: Play) -> None:
    async def scene(hall: Hall) -> None:
        task = await hall.begin("a", "k", timeout_s=None)
        hall.there.add("a")
        thread = Thread(target=hall.purgatory.check_and_complete, args=["k"])
        thread.start()
        async with asyncio.timeout(5):
            assert await task is True
        thread.join()

    play(scene)
