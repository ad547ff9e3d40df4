"""Contenders from packages that the extra `bench` installs: uvloop, sortedcontainers, APScheduler.

The rules are those of keepers.py. Where a contender cannot do what is asked of all, its class says what it does instead.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import uvloop
from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.base import BaseScheduler
from sortedcontainers import SortedList

from waterclock.bench.timers.keepers import HOUR_MS, Callback, Keeper


class Uvloop(Keeper):
    """uvloop's `call_later`. Its clock cannot be turned: a delay is a thousandth, at least 1 ms, and `expire` waits."""

    checked = 2_000
    step_ms = (
        100_000  # a tenth of a second of its time: adding the timers of a check must take less, whatever else runs
    )
    repeats = 1  # it has to wait for seconds

    def __init__(self, callback: Callback) -> None:
        super().__init__(callback)
        self.loop = uvloop.new_event_loop()
        self.add = self.loop.call_later

    def prepare(self, delays_ms: Sequence[int]) -> Sequence[float]:
        return [max(delay, 1_000) / 1_000_000 for delay in delays_ms]

    def expire(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def wait(self) -> None:
        time.sleep(HOUR_MS / 1_000_000 + 0.1)

    def close(self) -> None:
        self.loop.close()


class Sorted(Keeper):
    """A `SortedList` of (deadline, number, callback): a cancel takes its entry out."""

    def __init__(self, callback: Callback) -> None:
        super().__init__(callback)
        self.now = 0
        self.number = count()
        self.entries: Any = SortedList()
        self.add = self._add

    def _add(self, delay: int, callback: Callback) -> tuple[int, int, Callback]:
        entry = (self.now + delay, next(self.number), callback)
        self.entries.add(entry)
        return entry

    def cancel(self, handle: Any) -> None:
        self.entries.remove(handle)

    def cancel_all(self, handles: Any) -> None:
        remove = self.entries.remove
        for handle in handles:
            remove(handle)

    def churn(self, handles: Any, delays: Sequence[int]) -> None:
        remove, add, callback = self.entries.remove, self.add, self.callback
        for place, delay in enumerate(delays):
            remove(handles[place])
            handles[place] = add(delay, callback)

    def expire(self) -> None:
        self.now += 2 * HOUR_MS
        end = self.entries.bisect_left((self.now + 1,))
        due = list(self.entries.islice(0, end))
        del self.entries[:end]
        for _, _, callback in due:
            callback()

    def close(self) -> None:
        assert not self.entries


class _Standing(BaseScheduler):  # type: ignore[misc]
    """A scheduler without a thread: `_process_jobs()` is what the loop of every APScheduler calls."""

    def wakeup(self) -> None:
        """Nobody sleeps here."""

    def shutdown(self, wait: bool = True) -> None:
        super().shutdown(wait)


class APScheduler(Keeper):
    """`add_job` and `remove_job` on a memory store; jobs run in the caller. All dates lie in the past, and it is
    paused until `expire`, for its clock cannot be turned."""

    repeats = 5

    def __init__(self, callback: Callback) -> None:
        super().__init__(callback)
        self.begin = datetime.now(UTC) - timedelta(hours=2)
        self.scheduler = _Standing(timezone=UTC, executors={"default": DebugExecutor()})
        self.scheduler.start(paused=True)
        self.add = self._add

    def _add(self, run_date: datetime, callback: Callback) -> Any:
        return self.scheduler.add_job(callback, "date", run_date=run_date, misfire_grace_time=None)

    def prepare(self, delays_ms: Sequence[int]) -> Sequence[datetime]:
        return [self.begin + timedelta(milliseconds=delay) for delay in delays_ms]

    def cancel(self, handle: Any) -> None:
        self.scheduler.remove_job(handle.id)

    def cancel_all(self, handles: Any) -> None:
        remove = self.scheduler.remove_job
        for handle in handles:
            remove(handle.id)

    def churn(self, handles: Any, delays: Sequence[datetime]) -> None:
        remove, add, callback = self.scheduler.remove_job, self.add, self.callback
        for place, run_date in enumerate(delays):
            remove(handles[place].id)
            handles[place] = add(run_date, callback)

    def expire(self) -> None:
        self.scheduler.resume()
        self.scheduler._process_jobs()
        self.scheduler.pause()

    def close(self) -> None:
        assert not self.scheduler.get_jobs()
        self.scheduler.shutdown()
