"""How late a live timer runs: real time, a driver in a thread of its own, alone and beside a busy Python thread.

Rule 1: lateness counts from the due tick to the callback's first line. The tick is 1 ms for waterclock's drivers,
        who promise the tick after the deadline; the others have none, and count from the deadline itself.
Rule 2: deadlines are spread at random over the time of the measurement, `A_SECOND` of them a second.
Rule 3: wake-ups are the operating system's: how often the driver's thread let go of the processor by itself. Idle
        is one timer due in an hour. Nobody else may use that thread meanwhile.
Rule 4: each timer runs once and never early, or the run ends with `WrongAnswer`.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

from waterclock.bench.timers.verbs import Report
from waterclock.errors import WrongAnswer
from waterclock.timer import AsyncTimer, Timer

A_SECOND: Final = 100
TICK_NS: Final = 1_000_000
HEAD_START_S: Final = 0.1
IDLE_S: Final = 2.0
PATIENCE_S: Final = 10.0
Note = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Late:
    """One driver in one situation."""

    driver: str
    beside: str  # "nothing" or "a busy thread"
    timers: int
    p50_us: float
    p99_us: float
    max_us: float
    wakeups_a_timer: float
    idle_wakeups: int | None  # in IDLE_S seconds; None beside a busy thread


class Live:
    """A driver at work in a thread; `tick_ns` is its grain, 0 for none."""

    tick_ns = TICK_NS
    thread: int  # the operating system's number of the driver's thread

    def schedule(self, deadlines_s: Sequence[float], note: Note) -> None:
        """Call `note(deadline)` at each deadline, in seconds of time.monotonic()."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class OnThread(Live):
    """waterclock's `Timer`; a timer an hour away starts its thread."""

    def __init__(self) -> None:
        before = {thread.ident for thread in threading.enumerate()}
        self.timer = Timer()
        self.timer.call_later(3600, print)
        (thread,) = (t for t in threading.enumerate() if t.ident not in before)
        self.thread = thread.native_id or 0

    def schedule(self, deadlines_s: Sequence[float], note: Note) -> None:
        for deadline_s in deadlines_s:
            self.timer.call_at(deadline_s, note, deadline_s)

    def close(self) -> None:
        self.timer.close()


class InLoop(Live):
    """`loop.call_later` of the loop that `make` makes, in a thread."""

    tick_ns = 0

    def __init__(self, make: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        self.loop = make()
        self.runs = threading.Thread(target=self.loop.run_forever, name="bench-loop")
        self.runs.start()
        self.thread = self.runs.native_id or 0
        self.within(self.start)

    def within(self, work: Callable[[], Any]) -> None:
        """Run `work` in the loop and wait for it."""

        async def run() -> None:
            work()

        asyncio.run_coroutine_threadsafe(run(), self.loop).result()

    def start(self) -> None:
        self.loop.call_later(3600, print)

    def schedule(self, deadlines_s: Sequence[float], note: Note) -> None:
        def schedule() -> None:
            for deadline_s in deadlines_s:
                self.loop.call_later(deadline_s - time.monotonic(), note, deadline_s)

        self.within(schedule)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.runs.join()
        self.loop.close()


class OnLoop(InLoop):
    """waterclock's `AsyncTimer` in such a loop."""

    tick_ns = TICK_NS

    def start(self) -> None:
        self.timer = AsyncTimer()
        self.timer.call_later(3600, print)

    def schedule(self, deadlines_s: Sequence[float], note: Note) -> None:
        self.within(lambda: [self.timer.call_at(deadline_s, note, deadline_s) for deadline_s in deadlines_s])

    def close(self) -> None:
        self.within(self.timer.close)
        super().close()


def drivers() -> dict[str, Callable[[], Live]]:
    """Whom we measure; uvloop where it is installed."""
    found: dict[str, Callable[[], Live]] = {
        "waterclock Timer": OnThread,
        "waterclock AsyncTimer": OnLoop,
        "asyncio call_later": InLoop,
    }
    try:
        import uvloop
    except ImportError:
        return found
    return found | {
        "waterclock AsyncTimer on uvloop": lambda: OnLoop(uvloop.new_event_loop),
        "uvloop call_later": lambda: InLoop(uvloop.new_event_loop),
    }


def measure(seconds: float, report: Report) -> list[dict[str, Any]]:
    """A record for each driver and situation."""
    found = []
    for busy in (False, True):
        for name, make in drivers().items():
            report(f"{name}, lateness beside {_beside(busy)}")
            found.append(asdict(_measure(name, make, busy, seconds)))
    return found


def _measure(name: str, make: Callable[[], Live], busy: bool, seconds: float) -> Late:
    live = make()
    try:
        idle = None if busy else _idle_wakeups(live, min(seconds, IDLE_S))
        begin_ns = time.monotonic_ns() + int(HEAD_START_S * 1e9)
        spread = random.Random(1)
        due_ns = sorted(begin_ns + int(spread.random() * seconds * 1e9) for _ in range(int(seconds * A_SECOND)))
        late_ns: list[int] = []

        def note(deadline_s: float) -> None:
            late_ns.append(time.monotonic_ns() - _tick_of(deadline_s, live.tick_ns))

        live.schedule([ns / 1e9 for ns in due_ns], note)
        before = wakeups(live.thread)
        with busy_thread(busy):
            time.sleep(max(0.0, (due_ns[-1] - time.monotonic_ns()) / 1e9) + HEAD_START_S)
            _until(lambda: len(late_ns) >= len(due_ns))
        woken = wakeups(live.thread) - before
    finally:
        live.close()
    _check(name, late_ns, len(due_ns), live.tick_ns)
    return _summary(name, busy, late_ns, woken, idle)


def _until(done: Callable[[], bool]) -> None:
    """For a machine that stood still at the end: a timer that is so late is late, not lost."""
    end_s = time.monotonic() + PATIENCE_S
    while not done() and time.monotonic() < end_s:
        time.sleep(HEAD_START_S)


def _check(name: str, late_ns: list[int], timers: int, tick_ns: int) -> None:
    if len(late_ns) != timers:
        raise WrongAnswer(f"{name}: {len(late_ns)} live timers ran of {timers}")
    # without a tick a loop may call up to its clock's resolution early, which is no fault of a promise it made
    if tick_ns and min(late_ns) < 0:
        raise WrongAnswer(f"{name}: a live timer ran {-min(late_ns)} ns before its tick")


def _summary(name: str, busy: bool, late_ns: list[int], woken: int, idle: int | None) -> Late:
    order = sorted(late_ns)
    count = len(order)
    p50, p99 = order[count // 2], order[min(count - 1, count * 99 // 100)]
    return Late(name, _beside(busy), count, p50 / 1e3, p99 / 1e3, order[-1] / 1e3, round(woken / count, 2), idle)


def _beside(busy: bool) -> str:
    return "a busy thread" if busy else "nothing"


def _tick_of(deadline_s: float, tick_ns: int) -> int:
    """The due tick in ns: the deadline, to the nearest ns as the drivers take it, rounded up to the tick."""
    deadline_ns = int(deadline_s * 1e9 + 0.5)
    return deadline_ns + -deadline_ns % tick_ns if tick_ns else deadline_ns


def _idle_wakeups(live: Live, seconds: float) -> int:
    time.sleep(HEAD_START_S)  # whatever starting it left to be done
    before = wakeups(live.thread)
    time.sleep(seconds)
    return wakeups(live.thread) - before


def wakeups(thread: int) -> int:
    """How often that thread of ours has gone to sleep by itself so far."""
    with open(f"/proc/{os.getpid()}/task/{thread}/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


@contextmanager
def busy_thread(wanted: bool) -> Iterator[None]:
    """A thread that does nothing but count in Python, and gives the interpreter up only when it is asked to."""
    stop = False

    def count() -> None:
        number = 0
        while not stop:
            number += 1

    thread = threading.Thread(target=count, name="bench-busy")
    if wanted:
        thread.start()
    try:
        yield
    finally:
        stop = True
        if wanted:
            thread.join()
