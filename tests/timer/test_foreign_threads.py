"""An AsyncTimer called from a thread that is not its loop's: refused in the loop's debug mode, as asyncio does."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import pytest

from tests.timer.timers import nothing
from waterclock import AsyncTimer, Debounce, ExpiringMap, IdleTimeout, Throttle

CALLS: dict[str, Callable[[AsyncTimer, Any], object]] = {
    "call_later": lambda timer, beat: timer.call_later(3600, nothing),
    "call_at": lambda timer, beat: timer.call_at(timer.time() + 3600, nothing),
    "every": lambda timer, beat: timer.every(3600, nothing),
    "reschedule": lambda timer, beat: beat.reschedule(1800),
    "an idle timeout": lambda timer, beat: IdleTimeout(timer, 3600, nothing),
    "a new key": lambda timer, beat: ExpiringMap(timer, 3600).update(key=1),
    "a debounce": lambda timer, beat: Debounce(timer, 3600, print)("key"),
    "a throttle": lambda timer, beat: Throttle(timer, 3600, len)("key"),
    "pause": lambda timer, beat: timer.pause(),
    "close": lambda timer, beat: timer.close(),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def in_a_thread(call: Callable[[], object]) -> Any:
    """What it gave, or the error that it raised there."""
    got: list[Any] = []

    def work() -> None:
        try:
            got.append(call())
        except Exception as error:
            got.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return got[0]


def with_timer(test: Callable[[AsyncTimer, Any], None], debug: bool) -> None:
    async def main() -> None:
        with AsyncTimer() as timer:
            timer.call_later(60, nothing)  # earlier than what comes: from here on nothing has to wake the loop
            test(timer, timer.every(1800, nothing))

    asyncio.run(main(), debug=debug)


@every_call
def test_in_debug_mode_a_call_from_another_thread_is_refused_with_the_remedy(call: Callable[..., object]) -> None:
    def test(timer: AsyncTimer, beat: Any) -> None:
        before = timer.statistics()
        error = in_a_thread(lambda: call(timer, beat))
        assert isinstance(error, RuntimeError)
        assert "call_soon_threadsafe" in str(error)
        assert timer.statistics().added == before.added

    with_timer(test, debug=True)


def test_in_debug_mode_a_handle_is_not_moved_from_another_thread() -> None:
    def test(timer: AsyncTimer, beat: Any) -> None:
        handle = timer.call_later(3600, nothing)
        when = handle.when()
        assert isinstance(in_a_thread(lambda: handle.reschedule(1800)), RuntimeError)
        assert handle.when() == when

    with_timer(test, debug=True)


@every_call
def test_in_debug_mode_the_loops_own_thread_is_let_in(call: Callable[..., object]) -> None:
    def test(timer: AsyncTimer, beat: Any) -> None:
        call(timer, beat)

    with_timer(test, debug=True)


def test_without_debug_mode_nothing_is_looked_at() -> None:
    def test(timer: AsyncTimer, beat: Any) -> None:
        assert in_a_thread(lambda: timer.call_later(3600, nothing)).pending

    with_timer(test, debug=False)


@contextmanager
def loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_when_the_loop_has_ended_another_thread_may_close_the_timer() -> None:
    with loop_in_a_thread() as loop:
        made: list[AsyncTimer] = []

        async def make() -> None:
            made.append(AsyncTimer())
            made[0].call_later(3600, nothing)

        asyncio.run_coroutine_threadsafe(make(), loop).result(10)
        with pytest.raises(RuntimeError, match="call_soon_threadsafe"):
            made[0].close()
    assert len(made[0].close()) == 1


def test_a_timer_of_a_loop_in_debug_mode_is_freed_without_the_collector() -> None:
    async def main() -> None:
        timer = AsyncTimer()
        timer.call_later(60, nothing).cancel()
        assert timer._alarm is not None
        timer._alarm.cancel()  # the loop's, which holds the timer
        gone = ref(timer)
        del timer
        assert gone() is None

    gc.disable()
    try:
        asyncio.run(main(), debug=True)
    finally:
        gc.enable()
