"""The same tasks in a `Timer`: no table, no questions. A process of its own, so that its processor time is its own.

    python -m waterclock.bench.polling.in_process PENDING SECONDS BURST ROUNDS

Rule 1: a timer lives as long as its process: this is what asking costs, not what keeping costs.
Rule 2: nothing is rounded away: late is what comes after the deadline itself, not after its tick of a millisecond.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from waterclock.bench.polling import figures
from waterclock.bench.polling.tasks import FAR_DAYS, SOON_US, Dues, spread_s
from waterclock.errors import WaterclockError
from waterclock.timer import Timer

WHO: Final = "waterclock Timer"
DAY_S: Final = 86_400
AHEAD_S: Final = 0.5
LOOKS_S: Final = 0.01
PATIENCE_S: Final = 60.0


def measure(pending: int, seconds: float, burst: int, rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Lateness with what idling costs, and a burst."""
    words = [str(word) for word in (pending, seconds, burst, rounds)]
    command = [sys.executable, "-P", "-m", "waterclock.bench.polling.in_process", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=False)
    if done.returncode:
        raise WaterclockError(f"{WHO} failed with {pending:,} pending; what it said stands above")
    cell, at_once = json.loads(done.stdout)
    who = {"who": WHO, "interval_ms": None, "workers": 1, "pending": pending, "batch": None, "lost": 0}
    return {**who, **cell}, {**who, **at_once}


class Tasks:
    """Tasks that wait in a `Timer`; `given` are those that ran, with their microseconds of the monotonic clock."""

    def __init__(self, pending: int) -> None:
        self.timer = Timer()
        self.given: list[tuple[int, int]] = []
        for number in range(pending):
            self.timer.call_later(FAR_DAYS * DAY_S + number / 1000, self.have, -1 - number)

    def have(self, task: int) -> None:
        self.given.append((task, time.monotonic_ns() // 1000))

    def add_some(self, seconds: float) -> Dues:
        """At random moments, each due a millisecond after."""
        began_s, dues = time.monotonic(), Dues()
        for number, at_s in enumerate(spread_s(seconds)):
            time.sleep(max(0.0, began_s + at_s - time.monotonic()))
            dues[number] = time.monotonic_ns() // 1000 + SOON_US
            self.timer.call_later(SOON_US / 1e6, self.have, number)
        self._had(dues)
        return dues

    def add_burst(self, tasks: int) -> figures.Burst:
        """All due at one moment."""
        self.given.clear()
        due_s = time.monotonic() + AHEAD_S
        for number in range(tasks):
            self.timer.call_at(due_s, self.have, number)
        due_us = int(due_s * 1e6)
        burst = figures.Burst(Dues.fromkeys(range(tasks), due_us), max(due_us, time.monotonic_ns() // 1000))
        self._had(burst.dues)
        return burst

    def idle(self, seconds: float) -> dict[str, float]:
        """What waiting costs."""
        before = self._counters()
        time.sleep(seconds)
        return figures.idle(before, self._counters())

    def _counters(self) -> dict[str, float]:
        woken, cpu_ns = self.timer.statistics().wakeups, time.process_time_ns()
        of_a_table = {"empty_us": 0.0, "server_cpu_s": 0.0}
        return {"at_s": time.monotonic(), "queries": woken, "cpu_ns": cpu_ns, **of_a_table}

    def _had(self, dues: Mapping[int, int]) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while len(self.given) < len(dues) and time.monotonic() < end_s:
            time.sleep(LOOKS_S)
        figures.check(WHO, dues, self.given)


def main() -> None:
    pending, seconds, burst, rounds = int(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:])
    tasks = Tasks(pending)
    late = figures.lateness(tasks.add_some(seconds), tasks.given)
    idle = tasks.idle(seconds / 2)
    found = [figures.throughput([tasks.add_burst(burst)], tasks.given) for _ in range(rounds)]
    found.sort(key=lambda one: one["a_second"])
    middle = found[(len(found) - 1) // 2]  # the slower one of two
    print(json.dumps([late | idle, middle]))


if __name__ == "__main__":
    main()
