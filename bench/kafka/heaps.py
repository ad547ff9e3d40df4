"""The heaps of Java programs, and Netty's wheel, among the contenders of the verbs: java/HeapVerbs.java, a process a round.

    java.util.Timer              a cancelled timer stays in its heap until its time has come
    ScheduledThreadPoolExecutor  likewise, unless it is told to remove; that is a row of its own
    DelayQueue                   its remove searches the whole queue, so it cancels and churns at small sizes only
    Netty HashedWheelTimer       one level; its own thread places, cancels and runs, so from `COLD` pending on there is a
                                 row of the whole process

Rule 1: delays are the same numbers as everybody's. Where a clock cannot be turned, HeapVerbs.java says what is done.
Rule 2: the order is judged in real time, few timers in moments of their own: equal deadlines have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from waterclock.bench.kafka.harness import Harness, NotMeasured
from waterclock.bench.kafka.timers import heap_mb, judge, times
from waterclock.bench.timers.keepers import Keeper
from waterclock.bench.timers.verbs import CHURNED, COLD, Contender, Report, check
from waterclock.errors import WrongAnswer

KINDS: Final = {
    "java.util.Timer": "timer",
    "ScheduledThreadPoolExecutor": "executor",
    "ScheduledThreadPool, removes": "executor-removes",
    "DelayQueue": "queue",
    "Netty HashedWheelTimer": "netty",
}
WHOLE: Final = {"Netty HashedWheelTimer": "Netty, all threads"}
ABOUT: Final = {
    "java.util.Timer": "Java {java}; a cancelled timer stays in the heap, and is not paid for here",
    "ScheduledThreadPoolExecutor": "one thread, its own policy; a cancelled timer stays in the heap, and is not paid for",
    "ScheduledThreadPool, removes": "the same with setRemoveOnCancelPolicy(true)",
    "DelayQueue": "cancel and churn up to 1,000 only: its remove searches all",
    "Netty HashedWheelTimer": "Netty {netty}, tick 1 ms, 512 buckets; it adds and cancels by a message to its thread",
    "Netty, all threads": "the process: that thread too, which places, takes out and runs; its clock is coarse",
}
LARGEST: Final = 1_000_000
SEARCHED: Final = 1_000  # timers pending up to which a search of all of them is waited for
CHECKED: Final = 200
APART_MS: Final = 10


class JavaHeaps:
    """A process a kind and round; a kind that fails is not started again, and a note says why."""

    def __init__(self, found: Harness | NotMeasured, report: Report) -> None:
        self.notes: dict[str, str] = {}
        self._report, self._harness = report, found
        self._kinds = dict(KINDS)
        if isinstance(found, NotMeasured):
            self._kinds.clear()
            self.notes["Java's timers"] = f"not measured: {found}"

    def check(self, size: int) -> None:
        """The order of what ran, and that nothing ran early; `WrongAnswer`."""
        for name, kind in self._wanted(size):
            self._report(f"{name}, {size:,} pending: checking the answers")
            try:
                check(Contender(name, "", fifo=False), lambda _, n=name, k=kind: _Ordered(self._program(), n, k), size)
            except NotMeasured as why:
                self._leave_out(name, size, why)

    def round(self, delays: Sequence[int]) -> dict[str, dict[str, float]]:
        """A process each; the rows that could be measured."""
        rows: dict[str, dict[str, float]] = {}
        for name, kind in self._wanted(len(delays)):
            self._report(f"{name}, {len(delays):,} pending: a round in a process of its own")
            try:
                rows |= self._rows(name, kind, delays)
            except NotMeasured as why:
                self._leave_out(name, len(delays), why)
        return rows

    def _rows(self, name: str, kind: str, delays: Sequence[int]) -> dict[str, dict[str, float]]:
        size, harness = len(delays), self._program()
        cancels = "no" if kind == "queue" and size > SEARCHED else "yes"
        numbers = (min(size, CHURNED), times(size), cancels)
        file = harness.file("delays", delays)
        reported = harness.run("HeapVerbs", "verbs", kind, file, *numbers, heap_mb=heap_mb(size))
        judge(name, reported, size)
        rows = {name: reported["thread"]}
        if name in WHOLE and size >= COLD:
            rows[WHOLE[name]] = reported["process"]
        self.notes |= {row: ABOUT[row].format_map(reported) for row in rows}
        return rows

    def _wanted(self, size: int) -> list[tuple[str, str]]:
        if self._kinds and size > LARGEST:
            self.notes["Java's heaps and Netty's wheel"] = f"not beyond {LARGEST:,}: a round takes minutes"
            return []
        return list(self._kinds.items())

    def _program(self) -> Harness:
        assert isinstance(self._harness, Harness), "a kind is only wanted where there is a harness"
        return self._harness

    def _leave_out(self, name: str, size: int, why: NotMeasured) -> None:
        del self._kinds[name]
        self.notes[f"{name} from {size:,} pending on"] = f"not measured: {why}"


class _Ordered(Keeper):
    """Only for the check: which timers ran, in the order they ran, each deadline some moments from the next."""

    checked = CHECKED

    def __init__(self, harness: Harness, name: str, kind: str) -> None:
        super().__init__(print)
        self._harness = harness
        self._name = name
        self._kind = kind

    def order(self, delays_ms: Sequence[int], cancelled: Sequence[int]) -> list[int]:
        moments = moments_of(delays_ms)
        delays, gone = self._harness.file("delays", moments), self._harness.file("cancelled", cancelled)
        reported: Any = self._harness.run("HeapVerbs", "order", self._kind, delays, gone)
        if reported["early"]:
            raise WrongAnswer(
                f"{self._name}: {reported['early']} timers of {len(delays_ms)} ran before their deadlines"
            )
        return reported["order"]  # type: ignore[no-any-return]


def moments_of(delays_ms: Sequence[int]) -> list[int]:
    """The same order in two seconds: equal ones at one moment, the others further apart than an add may take.

    >>> moments_of([3_000, 7, 3_000])
    [20, 10, 20]
    """
    place = {delay: APART_MS * number for number, delay in enumerate(sorted(set(delays_ms)), 1)}
    return [place[delay] for delay in delays_ms]
