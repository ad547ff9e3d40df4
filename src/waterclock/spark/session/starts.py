"""How often a query is started again where a Python of Spark's did not connect in time, and after which pause.

Spark gives each ten seconds; then its query has failed, and nothing is wrong with the pipeline. The query goes on where its
checkpoint ends. On this machine Pythons connect at once (session/worker.py); a cluster's, and those of a session that a
program made by itself, import PySpark first.

Rule 1: each pause is twice as long as the one before it: a machine with too much to do is not given more meanwhile.
Rule 2: a batch that was committed gives back all starts: a run of weeks may have any number of slow moments.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from waterclock.clock import Clock
from waterclock.errors import WaterclockError

MOST, FIRST_PAUSE_S = 6, 2.0  # 62 s of pauses in all, beside ten for each start
_TOO_SLOW = "Python worker failed to connect back"
_LOOK_EVERY_S = 0.1


class Starts:
    """The starts of one run's query; `stopped` says that nobody wants it to go on."""

    def __init__(self, stopped: Callable[[], bool], clock: Clock) -> None:
        self._stopped, self._clock = stopped, clock
        self._in_a_row = 1

    def came_further(self) -> None:
        """A batch was committed. Rule 2."""
        self._in_a_row = 1

    def again(self, story: str) -> bool:
        """Whether to start once more after a failure that Spark reports as `story`; it waits before it says so."""
        if _TOO_SLOW not in story or self._in_a_row >= MOST:
            return False
        until_s = self._clock.monotonic_s() + FIRST_PAUSE_S * 2 ** (self._in_a_row - 1)
        self._in_a_row += 1
        while not self._stopped() and self._clock.monotonic_s() < until_s:
            self._clock.sleep_s(_LOOK_EVERY_S)
        return not self._stopped()


def too_slow(story: str, log: str) -> WaterclockError | None:
    """What to say of a failure that Spark reports as `story`; None where it is another one. More stands in `log`."""
    if _TOO_SLOW not in story:
        return None
    load, cores = os.getloadavg()[0], os.cpu_count()
    return WaterclockError(
        f"the machine has too much to do: Spark gives a Python that it starts ten seconds, and {MOST} in a row took longer "
        f"(load average {load:.0f} on {cores} cores). What was committed stays, and the same command goes on from there: "
        f"run it when less is going on. If the machine is idle, the Python cannot start: what it says stands in {log}"
    )
