"""What the console's questions cost a relay with ten million pending, and how long each holds the relay up. No Kafka.

    python -m waterclock.bench.relay.asked [--pending 10000000] [--times 40]        minutes; 3 GB of disk

The store is a partition's, on disk, filled as in store.py; the wheel has what is due within the hour. A thread stands for
the relay: it takes the relay's lock each millisecond, and notes how long it had to wait for it. Meanwhile each question is
asked `--times` times; the answers are compared with what was put in.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from waterclock.bench.relay.store import HOUR_MS, US, WEEK_MS
from waterclock.clock import SystemClock
from waterclock.errors import WrongAnswer
from waterclock.relay.owner.due_soon import DueSoonWheel
from waterclock.relay.owner.pace import Doubts
from waterclock.relay.statistics import RelayStatistics
from waterclock.relay.store import PartitionStore, pack, rows_of
from waterclock.relay.watching.due_next import due_next
from waterclock.relay.watching.fullest import Fullest
from waterclock.relay.watching.gathering import Dials, shown

BATCH: Final = 10_000
KEYS: Final = 5_000


def fill(store: PartitionStore, pending: int, now_ms: int) -> int:
    """So many messages, due evenly within a week; when the first one is due."""
    luck, first_ms = np.random.default_rng(7), now_ms + WEEK_MS
    store.begin(0)
    for first in range(0, pending, BATCH):
        dues = now_ms + luck.integers(1_000, WEEK_MS, BATCH)
        ids = [b"cart-%d" % number for number in range(first, first + BATCH)]
        blobs = [pack(b"v" * 200, b"key-%d" % (number % KEYS), id) for number, id in enumerate(ids, first)]
        store.append(rows_of(dues, range(first, first + BATCH)), blobs, ["mails"] * BATCH)
        first_ms = min(first_ms, int(dues.min()))
        if first % (20 * BATCH) == 0:
            store.checkpoint(first + BATCH, b"", 0)
    while store.tidy():
        pass
    store.checkpoint(pending, b"", 0)
    return first_ms


class Stalls:
    """A thread that wants the lock each millisecond."""

    def __init__(self, lock: Any) -> None:
        self._lock, self._ends, self.waited_ms = lock, threading.Event(), list[float]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(0.001):
            began = time.perf_counter()
            with self._lock:
                self.waited_ms.append((time.perf_counter() - began) * 1_000)

    def close(self) -> list[float]:
        self._ends.set()
        self._thread.join()
        return sorted(self.waited_ms) or [0.0]


def measured(name: str, ask: Callable[[], object], lock: Any, times: int) -> str:
    """A line of the table."""
    took = []
    stalls = Stalls(lock)
    for _ in range(times):
        began = time.perf_counter()
        ask()
        took.append((time.perf_counter() - began) * 1_000)
    waits = stalls.close()
    half, worst = statistics.median(took), max(took)
    return f"{name:<34}{half:>10.1f}{worst:>10.1f}{waits[len(waits) * 99 // 100]:>14.2f}{waits[-1]:>14.1f}"


def ask_all(store: PartitionStore, pending: int, first_ms: int, now_ms: int, times: int) -> None:
    """Each question, one after the other."""
    soon, lock, clock = DueSoonWheel(now_ms), threading.Lock(), SystemClock()
    for rows in store.load(now_ms + HOUR_MS, 1_000_000):
        soon.add(rows)
    owner: Any = SimpleNamespace(
        store=store, due_soon=soon, ready=rows_of([], []), doubts=Doubts(clock), refused={}, held=[], has_caught_up=True,
        number=0,
    )  # fmt: skip
    owners: Any = {0: owner}
    where = owners, lock, "delays"

    def due(count: int) -> None:
        if (found := due_next(count, *where, now_ms).messages) and found[0].due_ms != first_ms:
            raise WrongAnswer(f"the first one is due at {found[0].due_ms}, and was put in for {first_ms}")

    def id_of() -> None:
        if len(shown(f"cart-{pending // 3}", owners, "delays")) != 1:
            raise WrongAnswer("an id that is pending was not found")

    def locked(ask: Callable[[], object]) -> Callable[[], None]:
        def asked() -> None:
            with lock:
                ask()

        return asked

    def keys() -> None:
        if not Fullest(RelayStatistics, owners, lock, clock, False).seen().fullest:
            raise WrongAnswer("no key is near")

    def far() -> None:  # nothing is near: the files' spans are looked through
        owner.due_soon = DueSoonWheel(now_ms)
        due_next(200, *where, now_ms)
        owner.due_soon = soon

    print(f"{pending:,} pending, {len(soon):,} of them in the wheel\n")
    print(f"{'question':<34}{'ms, half':>10}{'worst':>10}{'stall ms, 99%':>14}{'worst':>14}")
    dials = Dials(owners, lock, "delays")
    questions = {
        "nobody asks": lambda: time.sleep(0.02), "due next, 20": lambda: due(20), "due next, 200": lambda: due(200),
        "due next, 200, of files alone": far, "an id": locked(id_of), "fullest keys": keys, "dials": dials.seen,
        "pending by hour and topic": locked(lambda: [dict(span.pending) for span in store.spans()]),
    }  # fmt: skip
    for name, ask in questions.items():
        print(measured(name, ask, lock, times), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pending", type=int, default=10_000_000)
    parser.add_argument("--times", type=int, default=40)
    given = parser.parse_args()
    now_ms = time.time_ns() // 1_000_000
    print(f"load before it: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as name, PartitionStore(Path(name), US) as store:
        first_ms = fill(store, given.pending, now_ms)
        ask_all(store, given.pending, first_ms, now_ms, given.times)
    print(f"load behind it: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
