"""`Timer`: a timing wheel and a thread that turns it.

The thread sleeps on a bell, which keeps a ring until it is heard: who rings before the thread lies down wakes it all
the same. It sleeps until the earliest tick, and without an end if nothing waits. Whoever adds a timer for an earlier
tick than it sleeps for rings (drive.py says how that is known).

    thread: looks, nothing waits          adder
                                          adds a timer, due in 1 ms; rings
    thread: lies down, hears the bell at once, looks, sleeps 1 ms

Rule 1: while something waits the thread keeps its Timer alive; while nothing does, it only knows it weakly, and a ring
    keeps it until the thread has it again. So a Timer that is dropped runs what was asked for and then ends, thread and
    all; one with `every` goes on until that is cancelled.
Rule 2: the thread ends if its Timer is gone or closed, or if its bell is no longer the Timer's: it is then a
    thread of another process, in a forked child.
Rule 3: it never dies of a callback. What a callback raises is reported, whatever it is.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

from waterclock.clock import Clock, ManualClock
from waterclock.errors import UsageError
from waterclock.timer.awaited import NoLoop
from waterclock.timer.cap import WhenFull
from waterclock.timer.drive import AWAKE, NEVER, Drive
from waterclock.timer.locked import LockedWheel
from waterclock.timer.report import OnError, Report
from waterclock.wheel import COMPILED, TimingWheel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from concurrent.futures import Executor
    from typing import Never, TypeVarTuple, overload

    from waterclock.timer.driver import Handle
    from waterclock.timer.periodic import Jitter, Missed

    Ts = TypeVarTuple("Ts")
    NobodyAwaits = Coroutine[Any, Any, Never]

LONGEST_WAIT_S = threading.TIMEOUT_MAX  # longer sleeps are cut: the thread looks, and sleeps on


class Bell:
    """What the thread sleeps on; it keeps a ring until it is heard, and keeps whoever rang alive until then.

    >>> bell = Bell()
    >>> bell.ring(), bell.ring()
    (None, None)
    >>> bell.wait(), bell.rings()
    (None, False)
    """

    def __init__(self) -> None:
        self.rung_by: Timer | None = None
        self._silence = threading.Lock()  # held while it does not ring
        self._silence.acquire()

    def ring(self) -> None:
        """Wake who waits, or who comes to wait next; twice is once."""
        with suppress(RuntimeError):  # it rings already
            self._silence.release()

    def rings(self) -> bool:
        """Whether there is a ring that was not heard yet."""
        return not self._silence.locked()

    def wait(self, timeout_s: float = -1) -> None:
        """Sleep until it rings, at most `timeout_s` seconds; -1 has no end."""
        self._silence.acquire(timeout=timeout_s)

    def hear(self) -> None:
        """Take note of a ring without waiting for one."""
        self._silence.acquire(blocking=False)
        self.rung_by = None


class Timer(Drive):
    """Callbacks after a delay, from a thread of its own. Every method may be called from any thread.

    tick_s: the grain of time in seconds; deadlines are rounded up to it. clock: what drives it, SystemClock if none
    is given; under a ManualClock there is no thread, and `advance` turns it. name: the thread's. executor: runs the
    callbacks in its threads, instead of the timer's own. on_error: is called with what a callback raised, in the thread
    that ran it; without it that goes to `sys.unraisablehook`. max_pending and when_full: a cap on timers that wait, and
    whether one more raises `TimerFull`, blocks the caller, or runs at once in it ("raise", "block", "run").

    >>> from waterclock import ManualClock, Timer
    >>> with Timer(clock=ManualClock()) as timer:
    ...     handle = timer.call_later(1.5, print, "one second and a half")
    ...     ran = timer.advance(2)
    one second and a half
    """

    def __init__(
        self,
        tick_s: float = 0.001,
        *,
        clock: Clock | None = None,
        name: str = "waterclock-timer",
        executor: Executor | None = None,
        on_error: OnError | None = None,
        max_pending: int | None = None,
        when_full: WhenFull = "raise",
    ) -> None:
        self._name = name
        self._make_locks()
        if isinstance(clock, ManualClock) and clock.is_a_loops():
            raise UsageError(
                "this clock is turned by an event loop, and a Timer under a ManualClock by its own advance(): use "
                "AsyncTimer(clock=loop.clock)"
            )
        self._refuses_asynchronous = True
        report = Report(on_error, f"the Timer {name!r}")
        self.returned = NoLoop(report)
        super().__init__(tick_s, clock, executor, report, max_pending, when_full)

    if (
        TYPE_CHECKING
    ):  # a call with a coroutine function gives what a type checker says is to be awaited: see awaited.py

        @overload  # type: ignore[no-overload-impl]
        def call_later(  # type: ignore[overload-overlap]
            self, delay_s: float, fn: Callable[[*Ts], Awaitable[object]], /, *args: *Ts
        ) -> NobodyAwaits: ...
        @overload
        def call_later(self, delay_s: float, fn: Callable[[*Ts], object], /, *args: *Ts) -> Handle: ...
        @overload  # type: ignore[no-overload-impl]
        def call_at(  # type: ignore[overload-overlap]
            self, when_s: float, fn: Callable[[*Ts], Awaitable[object]], /, *args: *Ts
        ) -> NobodyAwaits: ...
        @overload
        def call_at(self, when_s: float, fn: Callable[[*Ts], object], /, *args: *Ts) -> Handle: ...
        @overload  # type: ignore[no-overload-impl]
        def every(  # type: ignore[overload-overlap]
            self,
            interval_s: float,
            fn: Callable[[*Ts], Awaitable[object]],
            /,
            *args: *Ts,
            missed: Missed = "skip",
            jitter: Jitter = 0.0,
        ) -> NobodyAwaits: ...
        @overload
        def every(
            self,
            interval_s: float,
            fn: Callable[[*Ts], object],
            /,
            *args: *Ts,
            missed: Missed = "skip",
            jitter: Jitter = 0.0,
        ) -> Handle: ...

    def _make_locks(self) -> None:
        # re-entrant: the collector may run a destructor, or the interpreter a signal's handler, that adds a timer
        self.lock = threading.RLock()
        self._turning = threading.RLock()
        self._thread: threading.Thread | None = None
        self._bell = Bell()

    def _make_wheel(self, tick_ns: int, start_ns: int) -> Any:
        return (TimingWheel if COMPILED else LockedWheel)(tick_ns, start_ns)

    def _hasten(self) -> None:
        self._set_alarm(AWAKE)
        self._bell.rung_by = self
        if self._thread is not None:
            self._bell.ring()
            return
        bell = self._bell
        me = ref(self, lambda _: bell.ring())
        self._thread = threading.Thread(target=_serve, args=(me, bell), name=self._name, daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._thread = bell.rung_by = None
            self._set_alarm(NEVER)
            raise

    def _hang_up(self) -> None:
        self._bell.ring()

    def _after_fork(self) -> None:
        self._make_locks()
        super()._after_fork()

    def _work(self, bell: Bell) -> float | None:
        """In the thread: run what is due; how many seconds to sleep then, None for until the bell rings."""
        self._wakeups += 1
        with self.lock:
            bell.hear()  # what it rang for is seen from here on
            self._set_alarm(AWAKE)
        while True:
            try:
                self._turn(self._clock.monotonic_ns())
            except BaseException as stop:
                self.report(stop)
            if self._bell is not bell:
                return 0.0
            with self.lock:
                self._set_alarm(NEVER)
                due = self._next_due()
                self._set_alarm_for(due)
                if due is None:
                    return 0.0 if self._closed else None  # the bell of the close may be among those seen above
                if (wait_ns := due - self.now_ns()) > 0:
                    return wait_ns / 1e9
                self._set_alarm(AWAKE)


def _serve(me: ref[Timer], bell: Bell) -> None:
    """The thread's life."""
    # Linux bundles the wake-ups of 50 microseconds to save power; this thread has few and wants them in time
    with suppress(OSError), open(f"/proc/{threading.get_native_id()}/timerslack_ns", "w") as slack:
        slack.write("1")
    while (timer := me()) is not None and timer._bell is bell and not timer._closed:
        wait_s = timer._work(bell)
        if wait_s is None:
            del timer
            bell.wait()
        else:
            bell.wait(min(wait_s, LONGEST_WAIT_S))
