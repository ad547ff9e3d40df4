"""The workers of a table, seen from outside: started together, asked for their counters, ended, and what they were given.

Rule 1: all are connected and have polled once before anybody goes on.
Rule 2: none is left behind, whatever ends the block: Ctrl-C and SIGTERM wait while a process is being started, which
        nobody would know of if they came in between.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from waterclock.errors import WaterclockError

BATCH: Final = 500
PATIENCE_S: Final = 60.0
LOOKS_S: Final = 0.02
ENDS_WITHIN_S: Final = 30.0
ENDING: Final = (signal.SIGINT, signal.SIGTERM)
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Team:
    """How many workers poll how often, and how they take rows."""

    way: str
    interval_ms: int
    workers: int
    batch: int = BATCH


class Workers:
    """Processes that poll. `given` are tasks with their moments, once they have ended."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self.given: list[tuple[int, int]] = []

    def start(self, url: str, team: Team) -> None:
        """Start all of a team, and wait until each has polled."""
        words = [url, team.way, str(team.interval_ms), str(team.batch)]
        for number in range(team.workers):
            with held_back():
                self._processes.append(_started([*words, str(number), str(team.workers)]))
        for process in self._processes:
            _line(process)

    def counters(self) -> Figures:
        """The sums of all; `empty_us`: half of the polls that found nothing took that long since somebody last asked."""
        for process in self._processes:
            _say(process)
        found = [json.loads(_line(process)) for process in self._processes]
        some = [us for of in found if (us := of.pop("empty_us")) is not None]
        sums = {name: sum(of[name] for of in found) for name in found[0]}
        return sums | {"empty_us": median(some) if some else 0.0}

    def until_won(self, tasks: int) -> None:
        """Wait until so many tasks were taken in all; no longer than `PATIENCE_S`: whoever checks says what is missing."""
        end_s = time.monotonic() + PATIENCE_S
        while self.counters()["won"] < tasks and time.monotonic() < end_s:
            time.sleep(LOOKS_S)

    def end(self) -> None:
        """End all, and take what they were given."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            self.given += [(number, at_us) for number, at_us in json.loads(_line(process))]
            process.wait(ENDS_WITHIN_S)

    def kill(self) -> None:
        """For all that are still there."""
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()


@contextmanager
def running(url: str, team: Team) -> Iterator[Workers]:
    """The workers of a team, polling; at the end of the block they are ended, and have said what they were given."""
    workers = Workers()
    try:  # from here on: who stops us while they start leaves none of them
        workers.start(url, team)
        yield workers
        workers.end()
    finally:
        workers.kill()


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C and SIGTERM come after the block, not in it."""
    heard: list[int] = []
    before = {each: signal.signal(each, lambda number, _: heard.append(number)) for each in ENDING}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in heard:
            signal.raise_signal(number)


def _started(words: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "waterclock.bench.polling.worker", *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _say(process: subprocess.Popen[Any]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended, and its line will be missing
        process.stdin.write("\n")
        process.stdin.flush()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise WaterclockError("a worker ended before it was told to; what it said stands above")
    return line
