"""What the purgatory's verbs cost for themselves: CPU ns an operation in one thread, under a clock that stands.

    watch            N operations, each into the lists of 3 of 100 keys, with its timeout
    force-complete   all N in random order
    check            N operations again, then each key asked once; by the operation that it completed

Rule 1: medians over the rounds; the operations are made beforehand, the Python loop and call are included.
Rule 2: after each verb the number of those that are over is right, and nothing is watched, or `WrongAnswer`.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final, Protocol

from waterclock.bench.purgatory.load import KEYS, KEYS_A_REQUEST, NAME
from waterclock.bench.timers.verbs import Report
from waterclock.clock import ManualClock
from waterclock.errors import WrongAnswer
from waterclock.purgatory import DelayedOperation, Purgatory
from waterclock.timer import Timer

VERBS: Final = ("watch", "force-complete", "check")


class Rival(Protocol):
    """Who does the same verbs in a process of its own."""

    name: str

    def verbs(self, size: int) -> dict[str, float] | None:
        """One round; None where it cannot be measured."""


def measure(sizes: list[int], rounds: int, report: Report, rival: Rival) -> dict[str, dict[str, dict[int, float]]]:
    """ns an operation by contender, verb and size; the contenders take turns."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for size in sizes:
        each: dict[str, list[dict[str, float]]] = {NAME: [], rival.name: []}
        for turn in range(rounds):
            report(f"purgatory, {size:,} pending: round {turn + 1} of {rounds}")
            each[NAME].append(_once(size))
            if (theirs := rival.verbs(size)) is not None:
                each[rival.name].append(theirs)
        for name, measured in each.items():
            for verb in VERBS if measured else ():
                by_size = found.setdefault(name, {}).setdefault(verb, {})
                by_size[size] = round(median(one[verb] for one in measured), 1)
    return found


class Bench:
    """One purgatory and what stands ready for it."""

    def __init__(self, size: int) -> None:
        choose = random.Random(size)
        self.keys = [f"topic-{number}" for number in range(KEYS)]
        self.lists = [tuple(choose.sample(self.keys, KEYS_A_REQUEST)) for _ in range(size)]
        self.timer = Timer(clock=ManualClock())
        self.purgatory = Purgatory("bench", self.timer)
        self.holds = False
        self.over = 0

    def operations(self) -> list[DelayedOperation]:
        return [DelayedOperation(lambda op: self.holds, self.count, 3600.0) for _ in self.lists]

    def count(self, op: DelayedOperation) -> None:
        self.over += 1

    def watch(self, operations: list[DelayedOperation]) -> None:
        watch = self.purgatory.try_complete_else_watch
        for op, keys in zip(operations, self.lists, strict=True):
            watch(op, keys)

    def force(self, operations: list[DelayedOperation]) -> None:
        for op in operations:
            op.force_complete()

    def check(self) -> None:
        check = self.purgatory.check_and_complete
        for key in self.keys:
            check(key)


def _once(size: int) -> dict[str, float]:
    bench = Bench(size)
    gc.collect()
    gc.freeze()
    try:
        operations = bench.operations()
        ns = {"watch": _timed(lambda: bench.watch(operations), size)}
        random.Random(size).shuffle(operations)
        ns["force-complete"] = _timed(lambda: bench.force(operations), size)
        _check(bench, size)
        bench.watch(bench.operations())
        bench.holds = True
        ns["check"] = _timed(bench.check, size)
        _check(bench, 2 * size)
    finally:
        gc.unfreeze()
    return ns


def _check(bench: Bench, over: int) -> None:
    reported = bench.purgatory.statistics()
    if bench.over != over or reported.completed != over or reported.watched or len(bench.timer):
        raise WrongAnswer(f"purgatory: {over} operations should be over, {bench.over} are; {reported}")


def _timed(work: Callable[[], Any], operations: int) -> float:
    gc.collect()
    begin = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - begin) / operations
