"""A worker: a process that polls the table at its moments, takes what is due, and remembers what it was given and when.

    python -m waterclock.bench.polling.worker URL WAY INTERVAL_MS BATCH NUMBER WORKERS

It says `{}` when it is under way. To each line that it reads it answers with its counters; when there are no more lines
it ends, and its last line is what it was given.

Rule 1: polls stand on a grid of time, and the workers of one table are spread evenly over it: nobody could spread them
        better. A moment that has passed is left out.
Rule 2: a worker rests only when it has found nothing; while there is something it asks again at once.
Rule 3: whoever started it is the only one who ends it: when that one goes, the lines end.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from statistics import median

import psycopg

from waterclock.bench.polling.poller import WAYS, Connection, Way


@dataclass(slots=True)
class Counters:
    """Since the start; `lost`: rows that it saw and that somebody else took."""

    queries: int = 0
    won: int = 0
    lost: int = 0
    cpu_ns: int = 0


class Worker:
    """Polls in a thread until it is told to stop. `given` are tasks with the microseconds since 1970 when it had them;
    `empty_ns` is what each poll took that found nothing, since somebody last asked."""

    def __init__(self, connection: Connection, way: Way, batch: int) -> None:
        self._connection = connection
        self._way = way
        self._batch = batch
        self.counters, self.given = Counters(), list[tuple[int, int]]()
        self.empty_ns: list[int] = []
        self.over, self.under_way = threading.Event(), threading.Event()
        self.failure: BaseException | None = None

    def run(self, interval_ns: int, phase_ns: int) -> None:
        """Until `over`; what goes wrong is kept in `failure`."""
        try:
            while not self.over.is_set():
                found = self.poll()
                self.under_way.set()
                if not found:
                    self.over.wait(rest_ns(time.monotonic_ns(), interval_ns, phase_ns) / 1e9)
        except BaseException as error:
            self.failure = error
        finally:
            self.under_way.set()

    def poll(self) -> bool:
        """Look once; True where anything was due."""
        began_ns = time.monotonic_ns()
        won, seen, queries = self._way(self._connection, self._batch)
        at_us = time.time_ns() // 1000
        self.given += [(number, at_us) for number in won]
        counters = self.counters
        counters.queries += queries
        counters.won += len(won)
        counters.lost += seen - len(won)
        if not seen:
            self.empty_ns.append(time.monotonic_ns() - began_ns)
        return seen > 0


def rest_ns(now_ns: int, interval_ns: int, phase_ns: int) -> int:
    """How long until the next moment of the grid.

    >>> rest_ns(1_000, 100, 0), rest_ns(1_010, 100, 50), rest_ns(1_060, 100, 50)
    (100, 40, 90)
    """
    return interval_ns - (now_ns - phase_ns) % interval_ns


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Rule 3: a terminal's Ctrl-C reaches us too
    url, way, *numbers = sys.argv[1:]
    interval_ms, batch, number, workers = map(int, numbers)
    interval_ns = interval_ms * 1_000_000
    with psycopg.connect(url, autocommit=True) as connection:
        worker = Worker(connection, WAYS[way], batch)
        thread = threading.Thread(target=worker.run, args=(interval_ns, interval_ns * number // workers))
        thread.start()
        worker.under_way.wait()
        print("{}", flush=True)
        answer(worker)
        worker.over.set()
        thread.join()
    print(json.dumps(worker.given), flush=True)


def answer(worker: Worker) -> None:
    """The counters for each line, until there are no more lines; what went wrong in the thread is raised."""
    for _ in sys.stdin:
        if worker.failure is not None:
            worker.over.set()
            raise worker.failure
        worker.counters.cpu_ns = time.process_time_ns()
        empty_ns, worker.empty_ns = worker.empty_ns, []
        told = asdict(worker.counters) | {"empty_us": median(empty_ns) / 1e3 if empty_ns else None}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
