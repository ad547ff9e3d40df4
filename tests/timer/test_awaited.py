"""Callbacks that are coroutine functions, or return something to be awaited (src/waterclock/timer/awaited.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.timer.timers import THREADED, Make, PlainAsyncTimer, by_hand
from waterclock import (
    AsyncTimer,
    Debounce,
    DelayedOperation,
    ExpiringMap,
    IdleTimeout,
    Purgatory,
    Throttle,
    manual_loop,
)

ran: list[Any] = []


async def work(*args: Any) -> None:
    await asyncio.sleep(0)
    ran.append(args)


async def generate() -> Any:
    yield 1


class Worker:
    async def __call__(self, *args: Any) -> None:
        await work(*args)

    async def method(self, *args: Any) -> None:
        await work(*args)


ASYNCHRONOUS: dict[str, Callable[..., Any]] = {
    "function": work,
    "partial": partial(partial(work)),
    "method": Worker().method,
    "object": Worker(),
    "partial of a method": partial(Worker().method),
}
RETURNS: dict[str, Callable[..., Any]] = {**ASYNCHRONOUS, "lambda": lambda *args: work(*args)}
VERBS: dict[str, Callable[[Any, Any], Any]] = {
    "call_later": lambda timer, fn: timer.call_later(1, fn),
    "call_later of one": lambda timer, fn: timer.call_later(1, fn, 1),
    "call_later of two": lambda timer, fn: timer.call_later(1, fn, 1, 2),
    "call_at": lambda timer, fn: timer.call_at(timer.time() + 1, fn),
    "every": lambda timer, fn: timer.every(1, fn),
    "idle": lambda timer, fn: IdleTimeout(timer, 1, fn),
    "map": lambda timer, fn: ExpiringMap(timer, 1, on_evict=fn).update(a=1),
    "debounce": lambda timer, fn: Debounce(timer, 1, fn)("a"),
    "throttle": lambda timer, fn: [call("a") for call in [Throttle(timer, 1, fn)] for _ in range(2)],
}
ran_by = pytest.mark.parametrize("make", [AsyncTimer, PlainAsyncTimer])
every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@every_verb
@pytest.mark.parametrize("fn", [*ASYNCHRONOUS.values(), generate], ids=[*ASYNCHRONOUS, "generator"])
@pytest.mark.parametrize("make", THREADED)
def test_a_timer_refuses_a_coroutine_function_where_it_is_handed_over(timer: Any, fn: Any, verb: Any) -> None:
    with pytest.raises(TypeError, match=r"nobody awaits.*use an AsyncTimer"):
        verb(timer, fn)
    assert len(timer) == 0


@every_verb
@pytest.mark.parametrize("make", THREADED)
def test_what_a_timers_callback_returns_to_be_awaited_is_an_error_and_closed(make: Make, verb: Any) -> None:
    errors: list[BaseException] = []
    timer = by_hand(make, on_error=errors.append)
    verb(timer, RETURNS["lambda"])
    timer.advance(1)
    assert [type(error) for error in errors] in ([TypeError], [TypeError] * 2)
    assert (ran, "a callback returned <coroutine object work" in str(errors[0])) == ([], True)


@every_verb
@pytest.mark.parametrize("fn", RETURNS.values(), ids=RETURNS)
@ran_by
def test_of_an_async_timer_it_is_a_task_that_runs(make: Make, fn: Any, verb: Any) -> None:
    async def main() -> None:
        timer = make()
        verb(timer, fn)
        await asyncio.sleep(1.5)
        await timer.aclose()

    with manual_loop() as loop:
        loop.run_until_complete(main())
    assert len(ran) in (1, 2)


@ran_by
def test_tasks_are_kept_and_awaited_at_the_close_and_their_errors_are_reported(make: Make) -> None:
    errors: list[BaseException] = []

    async def slow(name: str) -> None:
        await asyncio.sleep(100)
        ran.append(name)
        raise LookupError(name)

    async def main() -> float:
        async with make(on_error=errors.append) as timer:
            timer.call_later(1, slow, "a")
            timer.call_later(1, lambda: slow("b"))
            timer.call_later(3600, slow, "c")
            await timer.sleep(2)
        return asyncio.get_running_loop().time()

    with manual_loop() as loop:
        assert loop.run_until_complete(main()) == 101.0
    assert (ran, [error.args for error in errors]) == (["a", "b"], [("a",), ("b",)])


@ran_by
def test_two_tasks_of_one_every_never_overlap(make: Make) -> None:
    async def beat(loop: Any) -> None:
        ran.append(("begins", loop.time()))
        await asyncio.sleep(2.5)
        ran.append(("ends", loop.time()))

    async def main(loop: Any) -> None:
        async with make() as timer:
            timer.every(1, beat, loop)
            await asyncio.sleep(5)

    with manual_loop() as loop:
        loop.run_until_complete(main(loop))
    assert ran == [("begins", 1.0), ("ends", 3.5), ("begins", 4.0), ("ends", 6.5)]


def test_what_an_executors_thread_returned_is_a_task_of_the_loop() -> None:
    async def main() -> None:
        with ThreadPoolExecutor(1) as pool:
            async with AsyncTimer(executor=pool) as timer:
                timer.call_later(0, work, "one")
                while not ran:
                    await asyncio.sleep(0.001)

    asyncio.run(main())
    assert ran == [("one",)]


def test_where_no_loop_runs_it_is_an_error_and_closed() -> None:
    errors: list[BaseException] = []
    timer = by_hand(AsyncTimer, on_error=errors.append)
    timer.call_later(1, work)
    timer.advance(1)
    assert [type(error) for error in errors] == [TypeError]


def test_an_entry_that_makes_room_and_a_flushed_key_are_tasks_too() -> None:
    async def main() -> None:
        async with AsyncTimer() as timer:
            entries: ExpiringMap[str, int] = ExpiringMap(timer, 60, max_entries=1, on_evict=work)
            entries.update(a=1, b=2)
            save: Debounce[str, Any] = Debounce(timer, 60, work)
            save("c")
            save.flush("c")

    asyncio.run(main())
    assert ran == [("a", 1, "full"), ("c",)]


def test_a_future_goes_on_by_itself_and_is_no_error_of_a_timer() -> None:
    errors: list[BaseException] = []
    with manual_loop() as loop:
        timer = by_hand(THREADED[0].values[0], on_error=errors.append)
        timer.call_later(1, loop.create_future)
        timer.advance(1)
    assert errors == []


def test_a_purgatory_awaits_nothing_and_says_so() -> None:
    errors: list[Any] = []
    purgatory = Purgatory("x", None, lambda error, op: errors.append(str(error)))  # type: ignore[arg-type]

    async def ask(op: Any) -> bool:
        return False

    op = DelayedOperation(ask, work, None)
    assert purgatory.try_complete_else_watch(op, ["a"]) is False  # a coroutine is no yes
    assert (len(errors), op.force_complete(), op.outcome, ran) == (2, True, "completed", [])
    assert (len(errors), "work" in errors[-1]) == (3, True)
