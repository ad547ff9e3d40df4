"""The broker and Apache Kafka under the same workloads, by turns: wall time at the client, CPU time of the server.

    contender                  what its acks=all means
    waterclock                 on the disk
    Apache Kafka, fsync        on the disk: it flushes every append (log.flush.interval.messages=1), the fair rival
    Apache Kafka, memory       in the page cache of one machine: what Kafka does by default

Rule 1: a fresh server and a fresh folder for each contender in each round; client and server are processes of their own.
Rule 2: CPU is that of the whole server process, its collector and its flushes included.
Rule 3: a workload that fails is reported with its reason, and the others go on.
Rule 4: what takes a disk of 10 GB is asked in the first round only.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from waterclock.bench.broker import growth, workloads
from waterclock.bench.broker.asked import Figures, asked, polling
from waterclock.bench.broker.process import cpu_s, resident_mb
from waterclock.bench.servers import apache
from waterclock.bench.servers.apache import ApacheKafka
from waterclock.bench.servers.ours import OurBroker
from waterclock.bench.servers.server import Server

Report = Callable[[str], None]
Start = Callable[[Path], Server]
FSYNC: Final = {"log.flush.interval.messages": "1"}
SERVER_JVM: Final = ("-Xms256m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")  # as Kafka's own script starts it
KEPT: Final = {"log.retention.ms": "-1", "group.initial.rebalance.delay.ms": "0"}
OURS: Final = "waterclock"
WORKLOADS: Final = (
    ("produce-100", "pair-100"),
    ("consume-100", "pair-100"),
    ("produce-1k", "pair-1k"),
    ("consume-1k", "pair-1k"),
    ("one-by-one", "one"),
    ("latency", "latency"),
    ("transactions-1", "t-1"),
    ("transactions-1000", "t-1000"),
)
"""(workload, topic): what is consumed is what was produced before."""
CLOSED: Final = {"closed-1": (1, 1), "closed-10": (1, 10), "closed-100": (1, 100), "closed-100 x 100": (100, 100)}
"""name -> (partitions, producers), each with one request under way."""
LARGE: Final = 10_000_000_000  # bytes
IDLE_S: Final = 5.0  # how long it is watched while nothing is written
FILLING_S: Final = 5.0  # how long one writer fills it


def contenders() -> dict[str, Start]:
    """How each is started in a folder."""
    return {
        OURS: lambda folder: OurBroker(folder, KEPT),
        "Apache Kafka, fsync": lambda folder: ApacheKafka(folder, {**KEPT, **FSYNC}, SERVER_JVM),
        "Apache Kafka, memory": lambda folder: ApacheKafka(folder, KEPT, SERVER_JVM),
    }


def measure(sizes: Sequence[int], rounds: int, seconds: float, report: Report) -> dict[str, Any]:
    """`runs`: contender -> workload -> figures, medians over the rounds; `notes`: who was left out, and why."""
    starts, notes = _available(report)
    runs: dict[str, list[dict[str, Figures]]] = {name: [] for name in starts}
    for number in range(rounds):
        for name, start in starts.items():
            report(f"broker, round {number + 1} of {rounds}: {name}")
            runs[name].append(_run(start, sizes, seconds, number == 0))
    return {"runs": {name: _medians(some) for name, some in runs.items()}, "notes": notes}


def _available(report: Report) -> tuple[dict[str, Start], dict[str, str]]:
    starts = contenders()
    try:
        report("broker: Apache Kafka's jars by Maven")
        apache.fetch()
    except RuntimeError as why:
        return {OURS: starts.pop(OURS)}, dict.fromkeys(starts, f"not measured: {why}")
    return starts, {}


def _run(start: Start, sizes: Sequence[int], seconds: float, large: bool) -> dict[str, Figures]:
    with _started(start) as (server, ready):
        found = {"start": ready, **_speeds(server, seconds), "end": _end(server)}
        found |= {"kill -9": _killed(server), **growth.measure(server, sizes, seconds)}
        found |= {"kill -9, growth's partitions": _killed(server)}
    if large:
        with _started(start) as (server, _):
            found["kill -9, 10 GB"] = _filled(server)
    return found


@contextmanager
def _started(start: Start) -> Iterator[tuple[Server, Figures]]:
    with _folder() as folder:
        began = time.perf_counter()
        server = start(folder)
        ready = time.perf_counter() - began
        try:
            yield server, {"ready_s": ready, "resident_mb": resident_mb(server.pid)}
        finally:
            server.kill()


def _create_topics(server: Server) -> None:
    for topic in [*dict.fromkeys(topic for _, topic in WORKLOADS), "idle"]:
        workloads.create(server.bootstrap, topic)
    for partitions, producers in CLOSED.values():
        workloads.create(server.bootstrap, f"closed-{partitions}-{producers}", partitions)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="waterclock-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _speeds(server: Server, seconds: float) -> dict[str, Figures]:
    _create_topics(server)
    found = {workload: asked(server, "workloads", workload, topic, seconds) for workload, topic in WORKLOADS}
    for name, (partitions, producers) in CLOSED.items():
        topic = f"closed-{partitions}-{producers}"
        found[name] = asked(server, "closed_loop", topic, partitions, producers, seconds)
    return found


def _end(server: Server) -> Figures:
    """Memory after all that, and the share of a core that ten waiting consumers take."""
    resident = resident_mb(server.pid)
    with polling(server, "idle", 10):
        before = cpu_s(server.pid)
        time.sleep(IDLE_S)
        return {"resident_mb": resident, "idle_percent": (cpu_s(server.pid) - before) / IDLE_S * 100}


def _killed(server: Server) -> Figures:
    """How long it is away after a crash, with all that was written."""
    server.kill()
    began = time.perf_counter()
    server.restart()
    return {"ready_s": time.perf_counter() - began, "resident_mb": resident_mb(server.pid)}


def _filled(server: Server) -> Figures:
    """The same with a log of `LARGE` bytes."""
    workloads.create(server.bootstrap, "large")
    written = 0.0
    while written < LARGE:
        figures = asked(server, "workloads", "produce-1k", "large", FILLING_S)
        if "error" in figures:
            return figures
        written += figures["messages"] * 1000
    return {"written_gb": written / 1e9, **_killed(server)}


def _medians(runs: list[dict[str, Figures]]) -> dict[str, Figures]:
    return {workload: _median_of([run[workload] for run in runs if workload in run]) for workload in runs[0]}


def _median_of(figures: list[Figures]) -> Figures:
    good = [one for one in figures if "error" not in one]
    if not good:
        return figures[0]
    return {name: median(one[name] for one in good) for name in good[0]}
