"""`AsyncTimer`: a timing wheel turned by an asyncio loop, which holds one `call_at` for all its timers.

Rule 1: everything happens in the loop's thread; nothing here takes a lock.
Rule 2: the one `call_at` is moved when a timer is added for an earlier tick, and after each turn. A cancelled timer moves
    nothing: the loop calls once, finds nothing due, and gets the next tick.
Rule 3: the moment handed to the loop is rounded up, as a loop may call a clock's resolution too early, and would
    then be asked to call again at once. A loop of a coarser clock (uvloop's has milliseconds) that called too early all
    the same is given one of its own steps.
Rule 4: a turn runs what was due when it began; then the loop has its turn too.
Rule 5: a loop in debug mode has its thread looked at when the drivers' code takes a lock, and when it adds or moves.
Rule 6: callbacks run in one context, a copy of the one where the loop was bound, not in that of whoever came last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from waterclock.clock import Clock, ManualClock
from waterclock.errors import TimerClosed, UsageError
from waterclock.timer.cap import WhenFull
from waterclock.timer.drive import AWAKE, Drive
from waterclock.timer.idle import IdleTimeout
from waterclock.timer.manual_loop import LoopClock, ManualLoop, clock_in_loop
from waterclock.timer.report import OnError, Report
from waterclock.timer.tasks import LoopBinding, LoopThread, Tasks, Timeout
from waterclock.wheel import TimingWheel

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from waterclock.timer.driver import Handle

ROUND_UP_S = 1e-6
COARSE_NS = 1_000_000


class AsyncTimer(Drive):
    """Callbacks after a delay, from the running asyncio loop, and `sleep` and `timeout` that cost less than asyncio's.

    Arguments are those of `Timer`, but for a thread's: `when_full` cannot be "block". It belongs to the loop that runs
    when it is first needed, and is used from that loop's thread only. Without `on_error`, what a callback raises goes to
    the loop's exception handler. Under a ManualClock the loop is asked for nothing, and `advance` turns it.

    >>> import asyncio
    >>> async def main() -> None:
    ...     with AsyncTimer() as timer:
    ...         handle = timer.call_later(0.001, print, "a millisecond")
    ...         await timer.sleep(0.002)
    >>> asyncio.run(main())
    a millisecond
    """

    def __init__(
        self,
        tick_s: float = 0.001,
        *,
        clock: Clock | None = None,
        executor: Executor | None = None,
        on_error: OnError | None = None,
        max_pending: int | None = None,
        when_full: WhenFull = "raise",
    ) -> None:
        if when_full == "block":
            raise ValueError(
                "when_full='block' would stop the loop that runs the timers it waits for: choose 'raise' or 'run'"
            )
        self.lock = self._turning = nullcontext()  # in debug mode the first is a LoopThread
        self._binding = LoopBinding(on_error)
        self._alarm: asyncio.TimerHandle | None = None
        self._due_ns: int | None = None  # what the alarm was set for
        self._sleepers: set[asyncio.Future[Any]] = set()
        clock = clock_in_loop(clock)
        self._loop_clock = clock if isinstance(clock, LoopClock) else None
        report = Report(self._binding.report, "an AsyncTimer")
        self.returned: Tasks = Tasks(self._binding, report)
        super().__init__(tick_s, clock, executor, report, max_pending, when_full)

    def _make_wheel(self, tick_ns: int, start_ns: int) -> Any:
        return TimingWheel(tick_ns, start_ns)

    # Being driven

    def _bound(self) -> asyncio.AbstractEventLoop:
        """The loop that it belongs to, from now on."""
        if self._binding.bound:
            return self._binding.loop()
        loop = self._binding.loop()
        if isinstance(loop, ManualLoop) and not isinstance(self._clock, LoopClock | ManualClock):
            self._binding.leave()
            raise UsageError(
                "this AsyncTimer goes by another clock than the loop that it is used in, which is turned by hand: make it "
                "in the loop, or with clock=loop.clock"
            )
        if loop.get_debug():
            self.lock = thread = LoopThread(loop)
            self._add = partial(thread.call, self._add)
            self.add_and_look = partial(thread.call, _add_and_look, ref(self))  # type: ignore[method-assign]
            self._wheel._reschedule = partial(thread.call, self._wheel._reschedule)
        return loop

    def _hasten(self) -> None:
        loop = self._bound()
        if self._alarm is not None:
            self._alarm.cancel()
        self._arm(loop, 0)

    def _arm(self, loop: asyncio.AbstractEventLoop, least_ns: int) -> None:
        """Have the loop call at the next tick, in `least_ns` at the earliest."""
        self._alarm, self._due_ns = None, self._next_due()
        self._set_alarm_for(self._due_ns)
        if self._due_ns is not None:
            wait_ns = max(self._due_ns - self.now_ns(), least_ns)
            by_hand = self._loop_clock
            when_s = loop.time() + wait_ns / 1e9 + ROUND_UP_S if by_hand is None else by_hand.seconds_in(wait_ns)
            self._alarm = loop.call_at(when_s, self._wake, context=self._binding.context)

    def _wake(self) -> None:
        loop, now_ns = self._binding.loop(), self.now_ns()
        early = self._due_ns is not None and now_ns < self._due_ns
        self._wakeups += 1
        self._alarm_ns = AWAKE  # it was armed: neither closed nor by hand
        try:
            self._turn(now_ns + self._stopwatch.shift_ns)
        finally:
            self._arm(loop, COARSE_NS if early else 0)

    def _hang_up(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        sleepers, self._sleepers = self._sleepers, set()
        for sleeper in sleepers:
            if not sleeper.done():
                sleeper.set_exception(TimerClosed("the timer was closed while this sleep waited for it"))

    def _from_executor(self, then: Callable[[], None]) -> Callable[[], object]:
        return partial(self._binding.soon, then)

    def _after_fork(self) -> None:
        self._binding.leave()
        self.lock = nullcontext()
        self.__dict__.pop("add_and_look", None)
        self._alarm = None
        self._sleepers = set()
        self.returned.forget()
        super()._after_fork()

    # Awaiting

    async def aclose(self) -> list[Handle]:
        """As `close()`, and wait for the tasks of callbacks that are coroutine functions; `async with` ends so.

        >>> import asyncio
        >>> async def work(name: str) -> None:
        ...     await asyncio.sleep(0.001)
        ...     print(name, "is done")
        >>> async def main() -> None:
        ...     async with AsyncTimer() as timer:
        ...         timer.call_later(0, work, "a task")
        ...         await timer.sleep(0.002)
        >>> asyncio.run(main())
        a task is done
        """
        handles = self.close()
        await self.returned.ended()
        return handles

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def sleep(self, delay_s: float) -> None:
        """Wait `delay_s` seconds; zero or less gives the loop one turn. `TimerClosed` if the timer is closed meanwhile.

        >>> import asyncio
        >>> asyncio.run(AsyncTimer().sleep(0.001))
        """
        deadline = self.deadline_in(delay_s)
        if delay_s * 1e9 < 0.5:  # no nanosecond (units.py)
            return await asyncio.sleep(0)
        sleeper = self._bound().create_future()
        handle = self.add_and_look(deadline, _rouse, sleeper)
        self._sleepers.add(sleeper)
        try:
            await sleeper
        finally:
            handle.cancel()
            self._sleepers.discard(sleeper)

    def timeout(self, delay_s: float | None) -> Timeout:
        """Cancel what the `async with` holds after `delay_s` seconds and raise TimeoutError there; None for never.

        Works as `asyncio.timeout` does, with this timer's time.

        >>> import asyncio
        >>> async def main() -> None:
        ...     timer = AsyncTimer()
        ...     try:
        ...         async with timer.timeout(0.001):
        ...             await asyncio.sleep(60)
        ...     except TimeoutError:
        ...         print("no minute")
        >>> asyncio.run(main())
        no minute
        """
        return Timeout(self, None if delay_s is None else self.deadline_in(delay_s))

    @asynccontextmanager
    async def idle_timeout(self, idle_s: float) -> AsyncIterator[IdleTimeout]:
        """As `timeout`, but from the latest `touch()`: for a connection that ends when nothing came for `idle_s` seconds.

        >>> import asyncio
        >>> async def main() -> None:
        ...     try:
        ...         async with AsyncTimer().idle_timeout(0.001) as idle:
        ...             idle.touch()
        ...             await asyncio.sleep(60)
        ...     except TimeoutError:
        ...         print("nothing came")
        >>> asyncio.run(main())
        nothing came
        """
        async with self.timeout(None) as block:
            with IdleTimeout(self, idle_s, self._binding.soon, block.lapse) as idle:
                yield idle


def _add_and_look(me: ref[AsyncTimer], *timer: Any) -> Any:
    """The method, where an attribute stands before it that must not keep its driver alive."""
    driver = me()
    assert driver is not None  # it calls itself
    return type(driver).add_and_look(driver, *timer)


def _rouse(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
