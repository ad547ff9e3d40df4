"""Turns: what one client asks for in bulk is done a slice at a time, and others are served between the slices.

    who                                       has done in one turn of the loop
    a connection from which is read           a slice: MANY requests at most, or what fits SLICE_NS
    connections with more of them, and        BUDGET_NS together, one slice after the other, in a circle
    answers that take long

So a turn of the loop is short whatever the requests are, and who sends one at a time is served in that turn.

Rule 1: a slice is bounded by count and by time; the first request, or the first step, is done in any case.
Rule 2: who was served goes to the end of the circle. Nobody is in it twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from waterclock.broker import interpreter
from waterclock.clock import SystemClock

MANY: Final = 32  # requests, or steps of an answer, in a slice
SLICE_NS: Final = 200_000
BUDGET_NS: Final = 500_000


class Task(Protocol):
    """Something that has slices left."""

    def slice(self) -> bool:
        """Do one. Whether there is more to do at once."""


class Turns:
    """The circle of one listener. `now_ns` measures what work takes, which is real, whoever turns the broker's clock."""

    def __init__(self, loop: Any, now_ns: Callable[[], int] = SystemClock.monotonic_ns) -> None:
        self._loop, self.now_ns = loop, now_ns
        self._circle: deque[Task] = deque()
        self._scheduled = False

    def add(self, task: Task) -> None:
        """It has its slice soon, and goes on having them while it says so."""
        self._circle.append(task)
        if not self._scheduled:
            self._scheduled = True
            interpreter.begins("turns")
            self._loop.call_soon(self._go_round)

    def work(self, steps: Iterator[Any], failed: Callable[[Exception], Any]) -> None:
        """Do the steps, a slice at a time; the first slice at once. `failed` hears of an error."""
        work = LongAnswer(steps, failed, self.now_ns)
        if work.slice():
            self.add(work)

    def _go_round(self) -> None:
        until = self.now_ns() + BUDGET_NS
        while self._circle:
            task = self._circle.popleft()
            if task.slice():
                self._circle.append(task)
            if self.now_ns() >= until:
                break
        self._scheduled = bool(self._circle)
        if self._scheduled:
            self._loop.call_soon(self._go_round)
        else:
            interpreter.ends("turns")


class LongAnswer:
    """An answer that takes long."""

    def __init__(self, steps: Iterator[Any], failed: Callable[[Exception], Any], now_ns: Callable[[], int]) -> None:
        self._steps = steps
        self._failed = failed
        self._now_ns = now_ns

    def slice(self) -> bool:
        until = self._now_ns() + SLICE_NS
        try:
            for _ in range(MANY):
                next(self._steps)
                if self._now_ns() >= until:
                    break
        except StopIteration:
            return False
        except Exception as error:
            self._failed(error)
            return False
        return True
