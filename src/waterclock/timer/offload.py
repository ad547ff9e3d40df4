"""Callbacks in an executor: the driver hands them over, one of the executor's threads runs them.

Rule 1: lateness counts to the moment the callback starts in the executor: a queue there is seen.
Rule 2: its error goes where all errors go, from the thread it was raised in.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

from waterclock.timer.awaited import Taker
from waterclock.timer.handles import Handle
from waterclock.timer.lateness import Histogram
from waterclock.timer.report import Report
from waterclock.timer.stopwatch import Stopwatch

if TYPE_CHECKING:
    from concurrent.futures import Executor


class Offload:
    """Stands before the wheel: what is added runs in `executor` when its time comes."""

    def __init__(
        self, executor: Executor, report: Report, returned: Taker, histogram: Histogram, stopwatch: Stopwatch
    ) -> None:
        self._executor = executor
        self._report = report
        self._returned = returned
        self._histogram = histogram
        self._stopwatch = stopwatch
        self.renew_lock()
        self.due_ns = 0  # the tick that is being run

    def renew_lock(self) -> None:
        """At the start, and in a forked child."""
        self._lock = Lock()  # of the histogram

    def before(self, add: Callable[..., Handle]) -> Callable[..., Handle]:
        """The way into the wheel, `add`, with the executor at its end."""

        def add_for_executor(deadline: int, fn: Callable[..., Any], /, *argument: Any) -> Handle:
            if not callable(fn):
                raise TypeError(f"callback must be callable, got {fn!r}")
            return add(deadline, self._hand_over, (fn, argument, None))

        return add_for_executor

    def submit(self, fn: Callable[..., Any], argument: tuple[Any, ...], then: Callable[[], object] | None) -> None:
        """Run `fn(*argument)` in the executor, and after it, failed or not, `then`."""
        self._executor.submit(self._run, self.due_ns, fn, argument, then)

    def _hand_over(self, call: tuple[Any, tuple[Any, ...], None]) -> None:
        self.submit(*call)

    def _run(
        self, due_ns: int, fn: Callable[..., Any], argument: tuple[Any, ...], then: Callable[[], object] | None
    ) -> None:
        lateness_ns = self._stopwatch.now_ns() - due_ns
        with self._lock:
            self._histogram.record(lateness_ns, 1)
        returned = None
        try:
            returned = fn(*argument)
        except BaseException as error:  # no one reads the future: what is not reported here would be lost
            self._report(error)
        finally:
            self._returned.take(returned, then)
