"""A thread for what is slow: partitions made and removed, snapshots and memos written, old files removed, compactions.

Rule 1: it touches nothing that the loop touches but files; what it found out is handed over in the loop's thread.
Rule 2: a long deed is done in steps, with a breath after each WORK_NS and the short deeds that came meanwhile: the loop
    gets the interpreter back, and nobody waits minutes for a compaction to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

from waterclock.broker import interpreter
from waterclock.clock import SystemClock
from waterclock.outside import queue, threading

WORK_NS: Final = 1_000_000  # of a long deed at once
BREATH_S: Final = 0.001

OnEnd: TypeAlias = "Callable[[Exception | None], Any]"
Do: TypeAlias = "Callable[[Callable[[], Any], OnEnd], Any]"


def at_once(deed: Callable[[], Any], then: OnEnd) -> None:
    """Do a deed here and now: `Worker.do` for a caller without a worker, which keeps nobody waiting."""
    try:
        deed()
    except Exception as error:  # a damaged log too: what does deeds must outlive it
        then(error)
    else:
        then(None)


class Worker:
    """`soon(callable, *arguments)` hands a call to the loop's thread; `now_ns` measures what a deed takes."""

    def __init__(self, soon: Callable[..., Any], now_ns: Callable[[], int] = SystemClock.monotonic_ns) -> None:
        self._soon, self._now_ns = soon, now_ns
        self._short: queue.SimpleQueue[tuple[Callable[[], Any], OnEnd] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="upkeep", daemon=True)
        self._thread.start()

    def do(self, deed: Callable[[], Any], then: OnEnd) -> None:
        """Have `deed()` done after those that came before; `then(error or None)` is called in the loop's thread.

        After `close` it is done at once.
        """
        if self._closing.is_set():
            at_once(deed, then)
        else:
            self._short.put((deed, then))

    def do_in_steps(self, steps: Iterator[Any], on_value: Callable[[Any], Any], then: OnEnd) -> None:
        """Have a long deed done, an iterator; the loop's thread calls `on_value` with each value that is not None."""
        self.do(lambda: self._walk(steps, on_value), then)

    def close(self) -> None:
        """Finish the short deeds that came, leave a long one where it is, and wait."""
        self._closing.set()
        self._short.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._short.get()) is not None:
            if not self._short.empty():  # thousands may have come at once
                interpreter.begins("deeds")
            self._do(*job)
            if self._short.empty():
                interpreter.ends("deeds")
        interpreter.ends("deeds")

    def _do(self, deed: Callable[[], Any], then: OnEnd) -> None:
        at_once(deed, partial(self._soon, then))

    def _walk(self, steps: Iterator[Any], on_value: Callable[[Any], Any]) -> None:
        interpreter.begins("upkeep")
        try:
            began_ns = self._now_ns()
            for value in steps:
                if value is not None:
                    self._soon(on_value, value)
                if self._now_ns() - began_ns >= WORK_NS:
                    self._breathe()
                    if self._closing.is_set():
                        return
                    began_ns = self._now_ns()
        finally:
            interpreter.ends("upkeep")

    def _breathe(self) -> None:
        self._closing.wait(BREATH_S)
        waiting = self._short.qsize()
        for _ in range(waiting):
            job = self._short.get()
            if job is None:
                self._short.put(None)
                return
            self._do(*job)
