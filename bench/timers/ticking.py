"""A thread that ticks at a fixed rate beside one that sleeps until the next bucket: two timers, at 200 and 840 ms.

    ticks          a hand that moves each millisecond, whether there is a timer or not: 840 times
    by bucket      Kafka's way, on the plain wheel: it sleeps until the first bucket of the queue. 200, 800 (where the
                   second timer goes down a level), 840: three times
    waterclock     the driver, which sleeps until the next timer is due: twice, and once more when it is given the first

Rule 1: real time, a thread each. What is counted is how often the thread woke to do something, how often it let go of the
        processor by the operating system's count, and its CPU.
Rule 2: both timers run, once and never early, or the run ends with `WrongAnswer`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from waterclock.bench.timers.lateness import wakeups
from waterclock.bench.timers.verbs import Report
from waterclock.errors import WrongAnswer
from waterclock.timer import Timer
from waterclock.wheel import reference

DUE_MS: Final = (200, 840)
SLOTS: Final = 20
Ran = list[tuple[int, float]]  # what was due at so many ms, and how many had passed when it ran


def measure(report: Report, due_ms: Sequence[int] = DUE_MS) -> list[dict[str, Any]]:
    """A record a way."""
    found = []
    for name, way in WAYS.items():
        report(f"two timers, {name}")
        ran: Ran = []
        woken, system, cpu_ms = way(due_ms, ran)
        if [due for due, _ in ran] != sorted(due_ms) or any(passed < due for due, passed in ran):
            raise WrongAnswer(f"{name}: timers for {list(due_ms)} ms ran as {ran}")
        found.append({"way": name, "due_ms": list(due_ms), "woken": woken, "system": system, "cpu_ms": cpu_ms})
    return found


def _ticks(due_ms: Sequence[int], ran: Ran) -> tuple[int, int, float]:
    """A hand over a flat ring, moved each millisecond until all have run."""
    buckets: dict[int, list[int]] = {}
    for due in due_ms:
        buckets.setdefault(due, []).append(due)

    def work(passed_ms: Callable[[], float], sleep_until: Callable[[float], None]) -> int:
        now = 0
        while now < max(due_ms):
            now += 1
            sleep_until(now)
            ran.extend((due, passed_ms()) for due in buckets.pop(now, ()))
        return now

    return _in_a_thread(work)


def _by_bucket(due_ms: Sequence[int], ran: Ran) -> tuple[int, int, float]:
    """The plain wheel, from bucket to bucket of its queue."""

    def work(passed_ms: Callable[[], float], sleep_until: Callable[[float], None]) -> int:
        wheel, woken = reference.TimingWheel(slots=SLOTS, rounding="early"), 0
        for due in due_ms:
            wheel.add_at(due, lambda due: ran.append((due, passed_ms())), due)
        while queue := wheel.snapshot().queue:
            sleep_until(queue[0].expiration)
            woken += 1
            wheel.advance(queue[0].expiration)
        return woken

    return _in_a_thread(work)


def _driver(due_ms: Sequence[int], ran: Ran) -> tuple[int, int, float]:
    """The driver in its own thread."""
    ready, done = threading.Event(), threading.Event()
    started, over = [0.0, 0.0], [0.0, 0.0]

    def note(due: int) -> None:
        ran.append((due, (time.monotonic() - began_s) * 1e3))
        if len(ran) == len(due_ms):
            over[:] = time.thread_time(), wakeups(threading.get_native_id())
            done.set()

    def begin() -> None:
        started[:] = time.thread_time(), wakeups(threading.get_native_id())
        ready.set()

    with Timer() as timer:
        timer.call_later(0, begin)
        ready.wait()
        before, began_s = timer.statistics().wakeups, time.monotonic()
        for due in due_ms:
            timer.call_later(due / 1e3, note, due)
        done.wait(max(due_ms) / 1e3 + 10)
        woken = timer.statistics().wakeups - before
    return woken, int(over[1] - started[1]), (over[0] - started[0]) * 1e3


def _in_a_thread(work: Callable[[Callable[[], float], Callable[[float], None]], int]) -> tuple[int, int, float]:
    """How often it woke to work, by its own count and by the system's, and its CPU in ms."""
    found: list[tuple[int, int, float]] = []

    def run() -> None:
        began_s, me = time.monotonic(), threading.get_native_id()
        before, cpu_s = wakeups(me), time.thread_time()

        def passed_ms() -> float:
            return (time.monotonic() - began_s) * 1e3

        def sleep_until(moment_ms: float) -> None:
            while (left_s := began_s + moment_ms / 1e3 - time.monotonic()) > 0:
                time.sleep(left_s)

        woken = work(passed_ms, sleep_until)
        found.append((woken, wakeups(me) - before, (time.thread_time() - cpu_s) * 1e3))

    thread = threading.Thread(target=run, name="bench-ticking")
    thread.start()
    thread.join()
    if not found:
        raise WrongAnswer("the thread that turns the timers failed")
    return found[0]


WAYS: Final[dict[str, Callable[[Sequence[int], Ran], tuple[int, int, float]]]] = {
    "ticks each millisecond": _ticks,
    "by bucket, as Kafka": _by_bucket,
    "waterclock Timer": _driver,
}
