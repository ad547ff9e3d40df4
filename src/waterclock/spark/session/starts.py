"""A query from its start to its end: Ctrl-C while Spark works, and a new start, or the sentence, after a failure.

A signal handler that raises would do so in the middle of a call to the JVM, whose client logs a traceback and loses its
connection. So the handler only notes the signal; the call runs in a thread of its own, and the main thread looks.

Spark gives a Python ten seconds to connect; then its query has failed, and nothing is wrong with the pipeline. The query
goes on where its checkpoint ends. On this machine Pythons connect at once (session/worker.py); a cluster's, and those of a
session that a program made by itself, import PySpark first.

Rule 1: each pause is twice as long as the one before it: a machine with too much to do is not given more meanwhile.
Rule 2: a batch that was committed gives back all starts: a run of weeks may have any number of slow moments.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Any

from waterclock.clock import Clock
from waterclock.errors import WaterclockError, unstopped
from waterclock.signals import StopSignal

_LOOK_FOR_SIGNALS_S = 0.1


def call_interruptible(work: Callable[[], Any], stop: Callable[[], Any]) -> None:
    """Run `work` to its end; on a signal, `stop` what it waits for and raise KeyboardInterrupt. Raises what it raises."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="waterclock-spark", daemon=True)
    with StopSignal() as interrupted:
        thread.start()
        while thread.is_alive() and not interrupted:
            thread.join(_LOOK_FOR_SIGNALS_S)
        if interrupted:
            stop()
            thread.join()
            raise KeyboardInterrupt
    if failures:
        raise failures[0]


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
    """What to say of a failure that Spark reports as `story`; None if it is another one. More stands in `log`."""
    if _TOO_SLOW not in story:
        return None
    load, cores = os.getloadavg()[0], os.cpu_count()
    return WaterclockError(
        f"the machine has too much to do: Spark gives a Python that it starts ten seconds, and {MOST} in a row took longer "
        f"(load average {load:.0f} on {cores} cores). What was committed stays, and the same command goes on from there: "
        f"run it when less is going on. If the machine is idle, the Python cannot start: what it says stands in {log}"
    )


def explained(error: BaseException, explain: Callable[[str], str | None], log: str) -> BaseException:
    """What to say of an error in a batch: our own as it is, whichever process raised it, or what the stream's `explain`
    knows; of one that is neither, the last line that names one, or the first of all. More stands in `log`."""
    if isinstance(error, WaterclockError):
        return error
    ours = re.findall(r"waterclock\.errors\.\w+: (.+)", str(error))
    if said := ours[-1].strip() if ours else explain(str(error)):
        return WaterclockError(said)
    if slow := too_slow(str(error), log):
        return slow
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    named = [line for line in lines if "Error" in line or "Exception" in line]
    cause = (named[-1:] or lines[:1] or [repr(error)])[0]
    goes_on = "The same command goes on from there"
    if "SQLSTATE: 22" in cause:  # a value of the data
        goes_on = "It would end so again: take a function that gives null (try_...), with --fresh, or mend the value"
    return WaterclockError(
        f"the pipeline failed: {unstopped(cause)}. What was committed stays; the whole story is in {log}. {goes_on}."
    )
