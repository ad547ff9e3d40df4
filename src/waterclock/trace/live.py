"""A walk in real time: timers are added when their time comes, and a thread takes the buckets that have expired.

The thread is what Kafka has around its DelayQueue: it sleeps until the first bucket of the queue expires, takes it,
moves the hands to its expiration, and puts back what is not due. It ends when nothing has waited for `idle_s`.

Rule 1: one lock around wheel and printing; who adds a timer wakes the thread, as the new one may be the first.
Rule 2: no step comes before its time. How late one came is the machine's doing, and is printed.
Rule 3: the steps are those of the walk, however late they come: a bucket waits for the timers that are to be added before.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from waterclock.clock import Clock
from waterclock.trace.walk import Step, Walk

IDLE_S: Final = 2.0
Show = Callable[[Step, float], None]  # a step, and how many ms have passed since the start


class Live:
    """A walk by a clock that runs; `show` is called with each step, by whichever thread does it."""

    def __init__(self, walk: Walk, clock: Clock, show: Show, idle_s: float = IDLE_S) -> None:
        self._walk = walk
        self._clock = clock
        self._show = show
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._began_s = clock.monotonic_s()
        self._coming = deque(walk.scenario.timers)
        self._stopped = False
        self._failed: BaseException | None = None

    def run(self) -> None:
        """Until the thread has ended; what it could not do is raised here."""
        thread = threading.Thread(target=self._take, name="waterclock-trace")
        thread.start()
        try:
            self._add_all()
            thread.join()
        finally:
            self._stop()
            thread.join()
        if self._failed is not None:
            raise self._failed

    def _stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _add_all(self) -> None:
        """Each timer at its time, and after the thread has taken all that expired until then."""
        walk = self._walk
        with self._changed:
            while self._coming and not self._stopped:
                task, stop = self._coming[0], walk.next_stop()
                takes_first = walk.wheel.now < task.added and stop is not None and stop <= task.added
                if (left_s := self._left_s(task.added)) > 0 or takes_first:
                    self._changed.wait(left_s if left_s > 0 else None)
                    continue
                if walk.wheel.now < task.added:
                    self._step(walk.advance(task.added))
                self._step(walk.insert(self._coming.popleft()))
                self._changed.notify_all()

    def _take(self) -> None:
        """The thread: bucket after bucket, each at its expiration."""
        try:
            with self._changed:
                while (stop := self._next_stop()) is not None:
                    if (left_s := self._left_s(stop)) > 0:
                        self._changed.wait(left_s)
                    else:
                        self._step(self._walk.advance(stop))
                        self._changed.notify_all()
        except BaseException as error:
            self._failed = error
        finally:
            self._stop()

    def _next_stop(self) -> int | None:
        """The bucket to be taken next; None if all is over: nothing waited for `idle_s`, and nothing is to come."""
        idle_from_s = self._clock.monotonic_s()
        while not self._stopped:
            stop = self._walk.next_stop()
            if self._coming:
                if stop is not None and stop <= self._coming[0].added:
                    return stop
                self._changed.wait()  # for the timer that comes first
                idle_from_s = self._clock.monotonic_s()
            elif stop is not None:
                return stop
            elif (left_s := idle_from_s + self._idle_s - self._clock.monotonic_s()) > 0:
                self._changed.wait(left_s)
            else:
                return None
        return None

    def _left_s(self, moment_ms: int) -> float:
        """Seconds until the clock shows this moment of the walk, or as many as a thread can sleep for at once."""
        left_s = (moment_ms - self._walk.scenario.start_ms) / 1e3 - (self._clock.monotonic_s() - self._began_s)
        return min(left_s, threading.TIMEOUT_MAX)

    def _step(self, step: Step) -> None:
        self._show(step, (self._clock.monotonic_s() - self._began_s) * 1e3)
