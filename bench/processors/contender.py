"""A process that is asked for run after run, and what it and all its children take of the processors meanwhile.

Rule 1: a run is a line of words on its standard input; its record is the next line of its output that is a JSON object.
        What else it says there is nobody's business; what it says on stderr goes to its log.
Rule 2: CPU is that of the whole tree of processes, those included that have ended and were waited for. It is looked at
        five times a second, and between two looks taken as even.
Rule 3: a run that takes longer than `WITHIN_S`, or a process that ends, is a `NotMeasured`.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from bisect import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from waterclock.bench.kafka.harness import NotMeasured
from waterclock.bench.trees import tree_cpu_s

WITHIN_S: Final = 200.0
LOOK_EVERY_S: Final = 0.2
WORDS: Final = 300  # of what it said last when it failed
STOPPED_WITHIN_S: Final = 20.0
Record = dict[str, Any]


class Contender:
    """One process; `close` ends it."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as said:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, bufsize=1
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, *words: object) -> Record:
        """One run's record; `NotMeasured` where there is none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        giving_up = threading.Timer(WITHIN_S, self._process.kill)
        giving_up.start()
        try:
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            for line in self._process.stdout:
                if line.startswith('{"'):
                    record: Record = json.loads(line)
                    return record
        except BrokenPipeError:
            pass
        finally:
            giving_up.cancel()
        raise NotMeasured(f"its process ended: {' '.join(self._log.read_text(errors='replace').split())[-WORDS:]}")

    def close(self) -> None:
        """Let it end by itself, for its input is over; kill it where it does not."""
        assert self._process.stdin is not None
        with self._process:
            try:
                self._process.stdin.close()
                self._process.wait(STOPPED_WITHIN_S)
            except (OSError, subprocess.TimeoutExpired):
                self._process.kill()


class Taken:
    """CPU seconds of a tree of processes by the machine's steady clock."""

    def __init__(self) -> None:
        self._looks: list[tuple[int, float]] = []

    def look(self, pid: int) -> None:
        """Note what was taken until now."""
        self._looks.append((time.monotonic_ns(), tree_cpu_s(pid)))

    def until(self, ns: int) -> float:
        """Seconds until a moment.

        >>> taken = Taken()
        >>> taken._looks = [(0, 1.0), (10, 2.0), (20, 2.0)]
        >>> taken.until(5), taken.until(15), taken.until(99)
        (1.5, 2.0, 2.0)
        """
        place = bisect(self._looks, (ns, float("inf")))
        if place in (0, len(self._looks)):
            return self._looks[min(place, len(self._looks) - 1)][1]
        (before_ns, before), (after_ns, after) = self._looks[place - 1 : place + 1]
        return before + (after - before) * (ns - before_ns) / (after_ns - before_ns)


@contextmanager
def watched(pid: int) -> Iterator[Taken]:
    """Looks at a tree of processes from now on, to the end of the block."""
    taken, over = Taken(), threading.Event()

    def look() -> None:
        while not over.wait(LOOK_EVERY_S):
            taken.look(pid)

    taken.look(pid)
    looking = threading.Thread(target=look, name="watched", daemon=True)
    looking.start()
    try:
        yield taken
    finally:
        over.set()
        looking.join()
        taken.look(pid)
