"""The same loads under a clock that is turned by hand, millisecond by millisecond: CPU time without waiting.

Nobody sleeps and there is one thread, so this says what the purgatory costs and not which rate is held. Contenders are the
purgatory as it is compiled, the same file as it stands, and the sender alone, whose cost is in the other two as well.

Rule 1: the figure is the median over windows of `WINDOW_MS`, after a second in which the purgatory fills.
Rule 2: the answers are checked as in load.py, and the clock is turned on until nothing waits.
"""

from __future__ import annotations

import gc
import time
from itertools import cycle, pairwise
from statistics import median
from typing import Any, Final

from waterclock.bench.purgatory.load import (
    ANSWERERS,
    LATENCIES_MS,
    TIMEOUT_MS,
    Answerer,
    Sender,
    check,
    draw_arrivals,
    draw_latencies,
)
from waterclock.bench.timers.verbs import Report
from waterclock.clock import ManualClock
from waterclock.purgatory import COMPILED, Purgatory, delayed
from waterclock.timer import Timer

WINDOW_MS: Final = 50
FILLING_MS: Final = 1_000
NAME: Final = "compiled" if COMPILED else "NOT compiled"


class Alone(Answerer):
    """The sender without a purgatory."""

    def send(self, answered_ms: int) -> int:
        return answered_ms

    def answer(self, sent: int) -> None:
        pass


class Turner(Sender):
    """Sends and answers as the other, and turns the clock instead of waiting for it."""

    timer: Timer

    def _wait_until(self, moment_s: float) -> None:
        self.timer.advance(0.001)
        self.windows.append(time.thread_time_ns())

    def _settle(self) -> None:
        self.timer.advance(10 * TIMEOUT_MS / 1000)

    def turn(self, timer: Timer, duration_ms: int) -> float:
        """CPU us a request."""
        self.timer = timer
        self.windows: list[int] = []
        self.run(duration_ms)
        window_ms = min(WINDOW_MS, duration_ms // 4)
        marks = self.windows[min(FILLING_MS, duration_ms // 2) : duration_ms : window_ms]
        ns = median(after - before for before, after in pairwise(marks))
        return ns / 1000 / (window_ms * self.sent / duration_ms)


def measure(rate: int, seconds: float, report: Report) -> list[dict[str, Any]]:
    """A record for each load and contender."""
    found = []
    for keys in ANSWERERS:
        for p50_ms, p75_ms in LATENCIES_MS:
            for name in dict.fromkeys((NAME, "plain Python", "the sender alone")):
                report(f"purgatory {name}, {keys} keys, {p50_ms} and {p75_ms} ms: the clock turned by hand")
                cpu_us = _turn(name, keys, p50_ms, p75_ms, rate, int(seconds * 1000))
                load = {"keys": keys, "p50_ms": p50_ms, "p75_ms": p75_ms, "rate": rate}
                found.append({"contender": name, **load, "cpu_us": round(cpu_us, 2)})
    return found


def _turn(name: str, keys: str, p50_ms: int, p75_ms: int, rate: int, duration_ms: int) -> float:
    timer = Timer(clock=ManualClock())
    plain = name == "plain Python"
    purgatory: Any = delayed.Purgatory("bench", timer) if plain else Purgatory("bench", timer)
    answerer = Alone(purgatory) if name == "the sender alone" else ANSWERERS[keys](purgatory)
    if plain:
        answerer.operation = delayed.DelayedOperation
    sender = Turner(answerer, cycle(draw_latencies(p50_ms, p75_ms)), cycle(draw_arrivals(rate, duration_ms)), purgatory)
    gc.collect()
    cpu_us = sender.turn(timer, duration_ms)
    if not isinstance(answerer, Alone):
        check(sender, answerer, purgatory.statistics(), len(timer))
    return cpu_us
