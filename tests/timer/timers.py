"""Every driver, and what the suites over all of them share.

Rule 1: a test over all drivers takes `make`, from `pytest.mark.parametrize("make", DRIVERS)`; what it makes stands at
    zero of a ManualClock, so time is equal, never near.
Rule 2: a new driver joins all those suites, whole, with one more entry in DRIVERS.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest

from waterclock import AsyncTimer, ManualClock, Timer
from waterclock.timer import adding as plain
from waterclock.timer import drive as built
from waterclock.timer.locked import LockedWheel
from waterclock.wheel import reference

if TYPE_CHECKING:
    from waterclock import AsyncTimer as PlainLoop
    from waterclock import Timer as PlainThread
elif built.Adder is plain.Adder:  # nothing is compiled: they have no other
    PlainThread, PlainLoop = Timer, AsyncTimer
else:
    PlainThread = type("PlainThread", (plain.Adder, Timer), {})
    PlainLoop = type("PlainLoop", (plain.Adder, AsyncTimer), {})


class PlainTimer(PlainThread):
    """The thread's driver, with the plain way into the wheel."""


class PlainAsyncTimer(PlainLoop):
    """The loop's driver, with the plain way into the wheel."""


class LockedTimer(PlainTimer):
    """The thread's driver as it is where nothing is compiled."""

    def _make_wheel(self, tick_ns: int, start_ns: int) -> Any:
        wheel = LockedWheel(tick_ns, start_ns)
        wheel._wheel = reference.TimingWheel(tick_ns, start_ns)  # type: ignore[assignment]
        return wheel


THREADED = [pytest.param(Timer, id="thread"), pytest.param(LockedTimer, id="thread-locked")]
PLAIN = [pytest.param(PlainTimer, id="thread-plain"), pytest.param(PlainAsyncTimer, id="asyncio-plain")]
DRIVERS = [*THREADED, pytest.param(AsyncTimer, id="asyncio"), *PLAIN]

every_driver = pytest.mark.parametrize("make", DRIVERS)
every_thread = pytest.mark.parametrize("make", THREADED)

Make = Callable[..., Any]


def by_hand(make: Make, tick_s: float = 0.001, **settings: Any) -> Any:
    """A driver at zero of a ManualClock, under `timer._clock`."""
    return make(tick_s, clock=ManualClock(), **settings)


def nothing() -> None:
    pass


def nothing_of(error: BaseException) -> None:
    pass


class Diary:
    """Callbacks that note the moment they ran at: `diary("name")` is one; `diary.lines` what ran, in order."""

    def __init__(self, timer: Any) -> None:
        self._timer = timer
        self.lines: list[Any] = []

    def __call__(self, name: str) -> Callable[[], None]:
        return lambda: self.lines.append((name, self._timer.time()))


def run(main: Coroutine[Any, Any, None]) -> None:
    """`asyncio.run`, but one that waits for ever is cancelled: by a thread, as tests look at the loop's timers."""

    async def guarded() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        guard = threading.Timer(10, loop.call_soon_threadsafe, [task.cancel])
        guard.start()
        try:
            await main
        finally:
            guard.cancel()

    asyncio.run(guarded())
