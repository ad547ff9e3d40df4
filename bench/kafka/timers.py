"""Kafka's SystemTimer among the contenders of the verbs: java/TimerVerbs.java, a process a round.

Three rows: as Kafka runs it, CPU of the calling thread; the same run, CPU of the whole process; and at its best, where it
reads no clock, calls back at once and has the collector whose writes cost least.

Rule 1: delays are the same numbers as everybody's; the order of what ran is judged by the same check.
Rule 2: a heap of `BYTES_A_TIMER` a timer, which must be less than half of the machine's memory.
Rule 3: a process's CPU comes in steps of 10 ms, so its row begins at `COLD` pending.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from waterclock.bench.kafka.harness import AS_KAFKA_RUNS, HEAP_MB, Harness, NotMeasured
from waterclock.bench.timers.keepers import Keeper
from waterclock.bench.timers.verbs import CHURNED, COLD, REPEATED, Contender, Report, check
from waterclock.errors import WrongAnswer

NAME: Final = "Kafka SystemTimer"
WHOLE: Final = "Kafka SystemTimer, all threads"
BEST: Final = "Kafka SystemTimer, at its best"
# row: (who calls back, options of the JVM)
WAYS: Final[dict[str, tuple[str, Sequence[str]]]] = {
    NAME: ("own", AS_KAFKA_RUNS),
    BEST: ("inline", ("-XX:+UseParallelGC", "-Dwaterclock.clock=field")),
}
ABOUT: Final = {
    NAME: "Kafka {kafka}, Java {java}; G1 as Kafka starts it; the thread that it hands due timers to is not in this row",
    WHOLE: f"the process: that thread, the collector and the compiler too; from {COLD:,} on, its clock being coarse",
    BEST: "no clock read, callbacks at once, the parallel collector; nobody runs Kafka so",
}
BYTES_A_TIMER: Final = 800


class KafkaTimer:
    """Both processes and their rows; once one fails, none is started again, and a note says why."""

    def __init__(self, found: Harness | NotMeasured, report: Report) -> None:
        self.notes: dict[str, str] = {}
        self._report = report
        self._harness: Harness | None = None
        if isinstance(found, NotMeasured):
            self.notes[NAME] = f"not measured: {found}"
        else:
            self._harness = found

    def check(self, size: int) -> None:
        """The order of what ran, and that nothing ran before its deadline; `WrongAnswer`."""
        for name, (executor, options) in WAYS.items():
            if harness := self._ready(size):
                self._report(f"{name}, {size:,} pending: checking the answers")
                try:
                    check(Contender(name, ""), lambda _, h=harness, e=executor, o=options: _Ordered(h, e, o), size)
                except NotMeasured as why:
                    self._leave_out(size, why)

    def round(self, delays: Sequence[int]) -> dict[str, dict[str, float]]:
        """A process each; the rows that could be measured."""
        rows: dict[str, dict[str, float]] = {}
        for name, (executor, options) in WAYS.items():
            if harness := self._ready(len(delays)):
                self._report(f"{name}, {len(delays):,} pending: a round in a process of its own")
                try:
                    reported = _verbs(harness, executor, options, delays)
                except NotMeasured as why:
                    self._leave_out(len(delays), why)
                else:
                    judge(name, reported, len(delays))
                    rows |= _rows(name, reported, len(delays))
                    self.notes |= {row: ABOUT[row].format_map(reported) for row in rows if row not in self.notes}
        return rows

    def _ready(self, size: int) -> Harness | None:
        if self._harness and heap_mb(size) > max(HEAP_MB, memory_mb() // 2):
            self._leave_out(size, NotMeasured(f"its heap of {heap_mb(size):,} MB is more than half of the memory"))
        return self._harness

    def _leave_out(self, size: int, why: NotMeasured) -> None:
        self._harness = None
        self.notes[f"Kafka from {size:,} pending on"] = f"not measured: {why}"


class _Ordered(Keeper):
    """Only for the check: which timers ran, in the order they ran."""

    def __init__(self, harness: Harness, executor: str, options: Sequence[str]) -> None:
        super().__init__(print)
        self._harness = harness
        self._executor = executor
        self._options = options

    def order(self, delays_ms: Sequence[int], cancelled: Sequence[int]) -> list[int]:
        delays, gone = self._harness.file("delays", delays_ms), self._harness.file("cancelled", cancelled)
        reported = self._harness.turned("TimerVerbs", "order", self._executor, delays, gone, options=self._options)
        if reported["early"]:
            raise WrongAnswer(f"{NAME}: {reported['early']} timers of {len(delays_ms)} ran before their deadlines")
        return reported["order"]  # type: ignore[no-any-return]


def _verbs(harness: Harness, executor: str, options: Sequence[str], delays: Sequence[int]) -> Any:
    size = len(delays)
    numbers = (min(size, CHURNED), times(size))
    file = harness.file("delays", delays)
    return harness.turned("TimerVerbs", "verbs", executor, file, *numbers, options=options, heap_mb=heap_mb(size))


def times(size: int) -> int:
    """How often a size is repeated in one process.

    >>> times(1_000_000)
    1
    """
    return max(1, min(Keeper.repeats, REPEATED // size))


def judge(name: str, reported: Any, size: int) -> None:
    """`WrongAnswer` where one too many or too few ran.

    >>> judge("it", {"ran": 2_000, "ran_cancelled": 0}, 50_000)
    Traceback (most recent call last):
    waterclock.errors.WrongAnswer: it: 2000 timers ran of 100000
    """
    if reported["ran_cancelled"]:
        raise WrongAnswer(f"{name}: timers ran that were cancelled, at {size} pending")
    if reported["ran"] != size * times(size):
        raise WrongAnswer(f"{name}: {reported['ran']} timers ran of {size * times(size)}")


def _rows(name: str, reported: Any, size: int) -> dict[str, dict[str, float]]:
    rows = {name: reported["thread"]}
    if name == NAME and size >= COLD:
        rows[WHOLE] = reported["process"]
    return rows


def heap_mb(size: int) -> int:
    """The heap for so many timers.

    >>> heap_mb(1_000), heap_mb(10_000_000)
    (1024, 8000)
    """
    return max(HEAP_MB, size * BYTES_A_TIMER // 1_000_000)


def memory_mb() -> int:
    """What the machine has."""
    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1_000_000)
