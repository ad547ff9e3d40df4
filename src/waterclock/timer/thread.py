"""`Timer`: a timing wheel and a thread that turns it.

The thread sleeps on a lock, its bell, which is locked while there is no news. So news is kept: who rings before the
thread lies down is heard all the same. It waits for the earliest tick with a timeout, and without one where nothing
waits. Whoever adds a timer for an earlier tick than it sleeps for rings (drive.py tells how that is known).

    thread: looks, nothing waits          adder
                                          adds a timer, due in 1 ms; rings
    thread: lies down, hears the bell at once, looks, sleeps 1 ms

Rule 1: while something waits the thread keeps its Timer alive; while nothing does, it only knows it weakly. So a Timer
    that is dropped runs what was asked for and then ends, thread and all; one with `every` goes on until it is closed.
Rule 2: the thread ends where its Timer is gone or closed, or where its bell is no longer the Timer's: it is then a
    thread of another process, in a forked child.
Rule 3: it never dies of a callback. What a callback raises is reported, whatever it is.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

from waterclock.clock import Clock
from waterclock.timer.drive import AWAKE, NEVER, Drive
from waterclock.timer.locked import LockedWheel
from waterclock.timer.report import OnError, Report
from waterclock.timer.room import WhenFull
from waterclock.wheel import COMPILED, TimingWheel

if TYPE_CHECKING:
    from concurrent.futures import Executor

LONGEST_WAIT_S = threading.TIMEOUT_MAX  # longer sleeps are cut: the thread looks, and sleeps on


class Timer(Drive):
    """Callbacks after a delay, from a thread of its own. Every method may be called from any thread.

    tick_s: the grain of time in seconds; deadlines are rounded up to it. clock: what drives it, SystemClock where none
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
        super().__init__(tick_s, clock, executor, Report(on_error), max_pending, when_full)

    def _make_locks(self) -> None:
        # re-entrant: the collector may run a destructor, or the interpreter a signal's handler, that adds a timer
        self._lock = threading.RLock()
        self._turning = threading.RLock()
        self._thread: threading.Thread | None = None
        self._bell = threading.Lock()
        self._bell.acquire()

    def _make_wheel(self, tick_ns: int, start_ns: int) -> Any:
        return TimingWheel(tick_ns, start_ns) if methods_are_whole() else LockedWheel(tick_ns, start_ns)

    def _hasten(self) -> None:
        self._set_alarm(AWAKE)
        if self._thread is None:
            self._start()
        else:
            _ring(self._bell)

    def _start(self) -> None:
        bell = self._bell
        me = ref(self, lambda _: _ring(bell))
        self._thread = threading.Thread(target=_serve, args=(me, bell), name=self._name, daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._thread = None
            self._set_alarm(NEVER)
            raise

    def _hang_up(self) -> None:
        _ring(self._bell)

    def _after_fork(self) -> None:
        self._make_locks()
        super()._after_fork()

    def _work(self, bell: threading.Lock) -> float | None:
        """In the thread: run what is due; how many seconds to sleep then, None for until the bell rings."""
        self._wakeups += 1
        with self._lock:
            bell.acquire(blocking=False)  # what it told is seen from here on
            self._set_alarm(AWAKE)
        while self._bell is bell:
            self._turn_on()
            with self._lock:
                self._set_alarm(NEVER)
                due = self._next_due()
                self._set_alarm_for(due)
                if due is None:
                    return None
                if (wait_ns := due - self._now_ns()) > 0:
                    return wait_ns / 1e9
                self._set_alarm(AWAKE)
        return None

    def _turn_on(self) -> None:
        try:
            self._turn(self._clock.monotonic_ns())
        except BaseException as stop:
            self._report(stop)


def methods_are_whole() -> bool:
    """Whether a method of the wheel is one step for other threads: compiled, and under the interpreter's lock."""
    return COMPILED and hasattr(TimingWheel, "clear") and getattr(sys, "_is_gil_enabled", lambda: True)()


def _serve(me: ref[Timer], bell: threading.Lock) -> None:
    """The thread's life."""
    while (timer := me()) is not None and timer._bell is bell and not timer._closed:
        wait_s = timer._work(bell)
        if wait_s is None:
            del timer
            bell.acquire()
        else:
            bell.acquire(timeout=min(wait_s, LONGEST_WAIT_S))


def _ring(bell: threading.Lock) -> None:
    with suppress(RuntimeError):  # it rings already
        bell.release()
