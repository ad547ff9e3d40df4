"""`timer.timeout` beside `asyncio.timeout`: one suite over both, so that one may stand for the other."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from tests.timer.timers import run
from waterclock import AsyncTimer, ManualClock

# 3.11.2's own, which Debian 12 has, forgets its cause and may be entered twice; 3.11.7's is as ours, and as 3.12's
_IS_MENDED = pytest.mark.skipif(sys.version_info < (3, 11, 7), reason="asyncio.timeout of a Python before its mends")


class Asyncio:
    """The standard library's, under the names of an AsyncTimer."""

    def timeout(self, delay_s: float | None) -> Any:
        return asyncio.timeout(delay_s)

    def time(self) -> float:
        return asyncio.get_running_loop().time()


Test = Callable[[Any], Coroutine[Any, Any, None]]


def over_both(main: Test) -> Any:
    """A test that is a coroutine, once with each."""

    def test(make: Callable[[], Any]) -> None:
        run(main(make()))

    test.__name__ = main.__name__
    return pytest.mark.parametrize("make", [AsyncTimer, pytest.param(Asyncio, marks=_IS_MENDED)])(test)


FOR_EVER_S = 60


async def wait_in(timeout: Any) -> None:
    """A block that is too long for any timeout."""
    async with timeout:
        await asyncio.sleep(FOR_EVER_S)


async def note_in(timeout: Any, inside: list[type]) -> None:
    """The same, and what comes out of it."""
    async with timeout:
        try:
            await asyncio.sleep(FOR_EVER_S)
        except BaseException as error:
            inside.append(type(error))
            raise


async def go_on_in(timeout: Any, late_by_s: float | None = None) -> None:
    """A block that is to be cancelled at its first wait; `late_by_s` ago, where that is given."""
    async with timeout:
        if late_by_s is not None:
            timeout.reschedule(timeout.when() - FOR_EVER_S - late_by_s)
        assert not timeout.expired()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        raise AssertionError("it went on")


@over_both
async def test_a_block_that_takes_too_long_is_cancelled_and_raises_timeout_error(timer: Any) -> None:
    inside: list[type] = []
    timeout = timer.timeout(0.005)
    with pytest.raises(TimeoutError) as raised:
        await note_in(timeout, inside)
    assert inside == [asyncio.CancelledError]
    assert isinstance(raised.value.__cause__, asyncio.CancelledError)
    assert timeout.expired()
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


@over_both
async def test_a_block_that_is_quick_enough_is_left_alone(timer: Any) -> None:
    async with timer.timeout(FOR_EVER_S) as timeout:
        assert timer.time() < timeout.when() <= timer.time() + FOR_EVER_S
        await asyncio.sleep(0)
    assert not timeout.expired()


@over_both
async def test_none_never_expires(timer: Any) -> None:
    async with timer.timeout(None) as timeout:
        assert timeout.when() is None
        await asyncio.sleep(0.003)
    assert not timeout.expired()


@pytest.mark.parametrize("delay_s", [0, -1])
def test_a_timeout_of_nothing_expires_at_the_first_wait(delay_s: float) -> None:
    async def main(timer: Any) -> None:
        with pytest.raises(TimeoutError):
            await go_on_in(timer.timeout(delay_s))

    for timer in (Asyncio(), AsyncTimer(), AsyncTimer(clock=ManualClock())):
        run(main(timer))


@over_both
async def test_an_error_of_the_block_comes_out_as_it_is(timer: Any) -> None:
    with pytest.raises(KeyError):
        async with timer.timeout(0.002) as timeout:
            raise KeyError
    assert not timeout.expired()
    await asyncio.sleep(0.005)


@over_both
async def test_an_error_raised_behind_the_cancellation_comes_out_and_the_task_is_not_cancelled(timer: Any) -> None:
    async def turn_into_another(timeout: Any) -> None:
        async with timeout:
            try:
                await asyncio.sleep(FOR_EVER_S)
            except asyncio.CancelledError:
                raise KeyError from None

    timeout = timer.timeout(0.002)
    with pytest.raises(KeyError):
        await turn_into_another(timeout)
    assert timeout.expired()
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


@over_both
async def test_reschedule_moves_the_end_in_both_directions(timer: Any) -> None:
    async with timer.timeout(0.002) as timeout:
        later = timer.time() + FOR_EVER_S
        timeout.reschedule(later)
        assert abs(timeout.when() - later) < 1e-6
        await asyncio.sleep(0.005)
        timeout.reschedule(None)
        assert timeout.when() is None

    async def hurry(timeout: Any) -> None:
        async with timeout:
            timeout.reschedule(timer.time() + 0.002)
            await asyncio.sleep(FOR_EVER_S)

    with pytest.raises(TimeoutError):
        await hurry(timer.timeout(FOR_EVER_S))


@over_both
async def test_reschedule_to_the_past_expires_at_the_next_wait(timer: Any) -> None:
    with pytest.raises(TimeoutError):
        await go_on_in(timer.timeout(FOR_EVER_S), late_by_s=5)


@over_both
async def test_reschedule_outside_of_its_time_raises(timer: Any) -> None:
    timeout = timer.timeout(FOR_EVER_S)
    with pytest.raises(RuntimeError):
        timeout.reschedule(1)
    async with timeout:
        pass
    with pytest.raises(RuntimeError):
        timeout.reschedule(1)

    async def too_late(timeout: Any) -> None:
        async with timeout:
            try:
                await asyncio.sleep(FOR_EVER_S)
            finally:
                timeout.reschedule(timer.time() + 1)

    with pytest.raises(RuntimeError):
        await too_late(timer.timeout(0.001))


@over_both
async def test_it_is_entered_once(timer: Any) -> None:
    timeout = timer.timeout(FOR_EVER_S)
    async with timeout:
        pass
    with pytest.raises(RuntimeError):
        async with timeout:
            pass


@over_both
async def test_of_two_the_inner_one_expires_and_the_outer_one_goes_on(timer: Any) -> None:
    async with timer.timeout(FOR_EVER_S) as outer:
        inner = timer.timeout(0.002)
        with pytest.raises(TimeoutError):
            await wait_in(inner)
        await asyncio.sleep(0)
    assert (inner.expired(), outer.expired()) == (True, False)


@over_both
async def test_of_two_the_outer_one_expires_through_the_inner_one(timer: Any) -> None:
    async def nest() -> None:
        async with outer:
            await note_in(inner, inside)

    inside: list[type] = []
    outer, inner = timer.timeout(0.002), timer.timeout(FOR_EVER_S)
    with pytest.raises(TimeoutError):
        await nest()
    assert inside == [asyncio.CancelledError]
    assert (inner.expired(), outer.expired()) == (False, True)


@over_both
async def test_a_cancellation_from_outside_goes_on(timer: Any) -> None:
    timeouts: list[Any] = []

    async def work() -> None:
        async with timer.timeout(FOR_EVER_S) as timeout:
            timeouts.append(timeout)
            await asyncio.sleep(FOR_EVER_S)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel("from outside")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not timeouts[0].expired()


@over_both
async def test_a_cancellation_from_outside_wins_over_the_timeout_of_the_same_turn(timer: Any) -> None:
    async def work() -> None:
        async with timer.timeout(0.002):
            try:
                await asyncio.sleep(FOR_EVER_S)
            finally:
                task.cancel()  # somebody cancels while the timeout is on its way out

    task = asyncio.ensure_future(work())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


@over_both
async def test_a_cancellation_that_was_there_before_is_none_of_its_own(timer: Any) -> None:
    async def work() -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(FOR_EVER_S)
        try:
            async with timer.timeout(0.002):
                await asyncio.sleep(FOR_EVER_S)
        except TimeoutError:
            return f"timed out, {asyncio.current_task().cancelling()} asked to cancel"  # type: ignore[union-attr]
        return "went on"

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "timed out, 1 asked to cancel"


def test_outside_of_a_task_it_is_refused() -> None:
    async def enter() -> None:
        await AsyncTimer().timeout(1).__aenter__()

    loop = asyncio.new_event_loop()
    try:
        told: list[BaseException] = []

        def step() -> None:
            coroutine = enter()
            try:
                coroutine.send(None)
            except RuntimeError as error:
                told.append(error)
            loop.stop()

        loop.call_soon(step)
        loop.run_forever()
        assert "inside" in str(told[0])
    finally:
        loop.close()


def test_a_clock_turned_by_hand_expires_it_to_the_tick() -> None:
    async def main() -> None:
        timer = AsyncTimer(clock=ManualClock())

        async def work() -> None:
            async with timer.timeout(60):
                await timer.sleep(120)

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        assert [timer.advance(59.999), timer.advance(0.001), timer.time()] == [0, 1, 60.0]
        with pytest.raises(TimeoutError):
            await task
        assert len(timer) == 0

    run(main())
