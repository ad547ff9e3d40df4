"""An AsyncTimer's side of asyncio: the loop that it belongs to, the tasks that its callbacks become, and the tasks that a
timeout cancels.

`timer.timeout()` is what `asyncio.timeout` is to its loop, with the time of an AsyncTimer. A timeout cancels its task, and
on the way out turns that one cancellation into a TimeoutError. A cancellation by anybody else goes on: the task counts the
requests, and ours is given back with `uncancel()`.

    created     __aenter__            entered
    entered     its time comes        expiring      the task is cancelled
    entered     __aexit__             exited
    expiring    __aexit__             expired       TimeoutError, if the cancellation that comes out is ours alone

Rule 1: the loop is bound on first use, and for good: a timer in another loop would wait for a loop that does not run.
Rule 2: a loop that is in debug mode when it is bound lets nobody but its own thread in while it runs, as it does for its
    own timers. Without debug mode nobody checks.
Rule 3: what a callback returned that is to be awaited becomes a task, which is kept until it has ended.
Rule 4: a timeout's `reschedule` is for an entered one; in every other state it raises RuntimeError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from waterclock.timer.awaited import Then, is_awaitable, unawaited
from waterclock.timer.report import OnError, Report, described, hand_to_python
from waterclock.timer.units import nanoseconds
from waterclock.wheel.pictures import NotCopied

if TYPE_CHECKING:
    from waterclock.timer.driver import Driver


class LoopThread:
    """Stands where a thread's driver has its lock, in debug mode: nobody waits, and another thread is refused."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = get_ident()

    def __enter__(self) -> None:
        if get_ident() != self._thread and self._loop.is_running():
            raise RuntimeError(
                "an AsyncTimer is used from its loop's thread only: from another one hand the call to the loop, "
                "loop.call_soon_threadsafe(timer.call_later, ...)"
            )

    def __exit__(self, *error: object) -> None:
        pass

    def call(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Call `fn(*args)`, in the loop's thread only."""
        with self:
            return fn(*args)


class LoopBinding:
    """Knows its loop, the context its callbacks run in, and where their errors go."""

    def __init__(self, on_error: OnError | None) -> None:
        self._on_error = on_error
        self._loop: asyncio.AbstractEventLoop | None = None
        self.context: Context | None = None

    @property
    def bound(self) -> bool:
        return self._loop is not None

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which has to be the running one; `RuntimeError` if none runs, or another."""
        running = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = running
            self.context = copy_context()
        elif self._loop is not running:
            raise RuntimeError("this AsyncTimer belongs to another event loop: make one for each loop")
        return running

    def soon(self, call: Callable[..., object], *args: object) -> None:
        """Have the loop call it, from any thread; without a loop call it here."""
        if self._loop is None or self._loop.is_closed():
            call(*args)
        else:
            self._loop.call_soon_threadsafe(call, *args)

    def leave(self) -> None:
        """Belong to no loop, as at first."""
        self._loop = self.context = None

    def report(self, error: BaseException) -> None:
        """Hand an error of a callback to `on_error`, else to the loop's exception handler, in the loop's thread."""
        if self._loop is None or self.runs_here():
            self._tell(error)
        else:
            self.soon(self._tell, error)

    def _tell(self, error: BaseException) -> None:
        if self._on_error is not None:
            self._on_error(error)
        elif self.runs_here() and self._loop is not None:
            said = f"{described(error, 'an AsyncTimer')} failed"
            self._loop.call_exception_handler({"message": said, "exception": error})
        else:
            hand_to_python(error, "an AsyncTimer")

    def runs_here(self) -> bool:
        """Whether this is the loop's thread, while it runs."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


class Tasks:
    """What an AsyncTimer does with what its callbacks return."""

    def __init__(self, binding: LoopBinding, report: Report) -> None:
        self._binding = binding
        self._report = report
        self._running: set[asyncio.Future[Any]] = set()

    def take(self, returned: object, then: Then | None = None) -> None:
        """Make a task of what is to be awaited, from any thread; go on when it has ended."""
        if not is_awaitable(returned):
            if then is not None:
                then()
        elif self._binding.runs_here():
            self._start(returned, then)
        else:
            self._binding.soon(self._start, returned, then)

    def forget(self) -> None:
        """In a forked child: the tasks are the parent's."""
        self._running = set()

    async def ended(self) -> None:
        """Wait for all of them, but for the one that waits here."""
        me = asyncio.current_task()
        while others := self._running - {me}:
            await asyncio.wait(others)

    def _start(self, awaitable: Any, then: Then | None) -> None:
        try:
            asyncio.get_running_loop()
            task = asyncio.ensure_future(awaitable)
        except (RuntimeError, ValueError) as error:  # turned by hand without a loop; a future of another loop
            self._report(unawaited(awaitable) or error)
            if then is not None:
                then()
            return
        self._running.add(task)
        task.add_done_callback(partial(self._end, then))

    def _end(self, then: Then | None, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(error)
        if then is not None:
            then()


State = Literal["created", "entered", "expiring", "expired", "exited"]


class Cancellable(Protocol):
    def cancel(self) -> object: ...


class Timeout(NotCopied):
    """The context manager that `AsyncTimer.timeout` gives; times are seconds of `timer.time()`, None is never."""

    __slots__ = ("__weakref__", "_cancelling", "_deadline_ns", "_handle", "_state", "_task", "_timer")

    def __init__(self, timer: Driver, deadline_ns: int | None) -> None:
        self._timer = timer
        self._deadline_ns = deadline_ns
        self._state: State = "created"
        self._handle: Cancellable | None = None

    def when(self) -> float | None:
        """The moment it expires, or did."""
        return None if self._deadline_ns is None else self._deadline_ns / 1e9

    def expired(self) -> bool:
        """Whether its time has come before the block ended."""
        return self._state in ("expiring", "expired")

    def reschedule(self, when_s: float | None) -> None:
        """Let it expire at another moment; one that has passed expires it at the loop's next turn."""
        if self._state != "entered":
            raise RuntimeError(f"a timeout is rescheduled inside its block, and before it expires; it is {self._state}")
        deadline_ns = None if when_s is None else nanoseconds("when_s", when_s)
        self._disarm()
        self._deadline_ns = deadline_ns
        self._arm()

    def __repr__(self) -> str:
        return f"<Timeout, {self._state}, when={self.when()}>"

    def lapse(self) -> None:
        """Its time has come by other means than its own; nothing if the block has ended."""
        if self._state == "entered":
            self._disarm()
            self._expire()

    async def __aenter__(self) -> Timeout:
        if self._state != "created":
            raise RuntimeError(f"a timeout is entered once; this one is {self._state}")
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a timeout cancels its task: use it inside one")
        self._task, self._cancelling = task, task.cancelling()
        self._state = "entered"
        self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._state == "entered":
            self._state = "exited"
        elif self._state == "expiring":
            self._state = "expired"
            ours_alone = self._task.uncancel() <= self._cancelling
            if ours_alone and isinstance(error, asyncio.CancelledError):
                raise TimeoutError from error

    def _arm(self) -> None:
        deadline_ns, timer = self._deadline_ns, self._timer
        if deadline_ns is None:
            return
        if deadline_ns <= timer.now_ns():
            self._handle = asyncio.get_running_loop().call_soon(self._expire)
        else:
            self._handle = timer.add_and_look(deadline_ns, self._expire)

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _expire(self) -> None:
        self._handle = None
        self._state = "expiring"
        self._task.cancel()
