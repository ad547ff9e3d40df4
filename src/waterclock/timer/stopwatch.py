"""The time of a driver: its clock's, less what was spent in pause. Pausing moves no timer, it stops the time.

Rule 1: `now_ns` is the clock's own function while nothing was ever paused: it is read for every timer.
"""

from __future__ import annotations

from collections.abc import Callable

from waterclock.clock import Clock


class Stopwatch:
    """Nanoseconds that stand still between `pause()` and `resume()`.

    >>> from waterclock.clock import ManualClock
    >>> clock = ManualClock(5.0)
    >>> stopwatch = Stopwatch(clock)
    >>> stopwatch.pause(), clock.advance_s(60.0), stopwatch.resume(), clock.advance_s(1.0)
    (True, None, True, None)
    >>> stopwatch.now_ns()
    6000000000
    """

    __slots__ = ("_clock_ns", "now_ns", "paused", "shift_ns")

    def __init__(self, clock: Clock) -> None:
        self._clock_ns: Callable[[], int] = clock.monotonic_ns
        self.now_ns: Callable[[], int] = self._clock_ns
        self.paused = False
        self.shift_ns = 0  # spent in pause so far

    def pause(self) -> bool:
        """Stop; False when it stands already."""
        if self.paused:
            return False
        stopped_ns = self.now_ns()
        self.now_ns = lambda: stopped_ns
        self.paused = True
        return True

    def resume(self) -> bool:
        """Go on from where it stopped; False when it goes already."""
        if not self.paused:
            return False
        read, shift_ns = self._clock_ns, self._clock_ns() - self.now_ns()
        self.now_ns = lambda: read() - shift_ns
        self.shift_ns = shift_ns
        self.paused = False
        return True
