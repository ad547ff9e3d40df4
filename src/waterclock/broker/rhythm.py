"""A look that comes back while there may be something to see, and wakes nobody otherwise.

    look() returns          the next one comes
    0 or more               after so many seconds, and never sooner than an interval
    None                    an interval after `wake`
    it raises               an interval later

    what looks (where)                    every                                      sleeps until
    retention (upkeep.py)                 log.retention.check.interval.ms            news of a log, or a segment is too old
    compaction (upkeep.py)                log.cleaner.backoff.ms                     news, while no log has anything closed
    idle producers (coordinator.py)       producer.id.expiration.check.interval.ms   news, while nobody is known
    groups' offsets (coordinator.py)      offsets.retention.check.interval.ms        a group is there
    high watermarks (leader.py)           5 s                                        news; at a follower (follower.py) never
    a follower that lags (replicas.py)    half of replica.lag.time.max.ms            news, while there is no follower
    requests that wait long (waiting.py)  1 s                                        one waits
    silent connections (net/limits.py)    an eighth of connections.max.idle.ms       somebody connects
    slow requests (net/limits.py)         an eighth of socket.request.timeout.ms     one is on its way
News of a log is a high watermark or a start that moved, or other settings. The scrub (upkeep.py) has its week;
transactions, sessions and names of transactions have a timer each, for the moment at which they are due.

Rule 1: whoever makes work for a look wakes it. Twice is once, and costs a comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from waterclock.errors import TimerClosed


class Rhythm:
    """Calls `look()` every `interval_s` seconds of `timer`, which has call_later, as the table says. It sleeps at first."""

    def __init__(self, timer: Any, interval_s: float, look: Callable[[], float | None]) -> None:
        self._timer = timer
        self._interval_s = interval_s
        self._look = look
        self._handle: Any = None
        self.awake = False
        """Whether the next look comes within an interval."""

    def wake(self) -> None:
        """There may be something to see."""
        if not self.awake:
            self._arm(self._interval_s)

    def _arm(self, after_s: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self.awake = after_s <= self._interval_s
        with suppress(TimerClosed):
            self._handle = self._timer.call_later(max(after_s, self._interval_s), self._turn)

    def _turn(self) -> None:
        self._handle, self.awake = None, False
        after_s: float | None = self._interval_s
        try:
            after_s = self._look()
        finally:
            if after_s is not None and not self.awake:  # it may have been woken meanwhile
                self._arm(after_s)
