"""The broker and Apache Kafka under the same workloads, by turns: wall time at the client, CPU time of the server.

    contender                  what its acks=all means
    waterclock                 on the disk
    Apache Kafka, fsync        on the disk: it flushes every append (log.flush.interval.messages=1), the fair rival
    Apache Kafka, memory       in the page cache of one machine: what Kafka does by default

Rule 1: a fresh server and a fresh folder for each contender in each round; client and server are processes of their own.
Rule 2: CPU is that of the whole server process, its collector and its flushes included.
Rule 3: a workload that fails is told with its reason, and the others go on.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from waterclock.bench.broker import workloads
from waterclock.bench.broker.process import cpu_s, resident_mb
from waterclock.bench.servers.apache import ApacheKafka
from waterclock.bench.servers.ours import OurBroker
from waterclock.bench.servers.server import Server

Tell = Callable[[str], None]
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


def contenders() -> dict[str, Callable[[Path], Server]]:
    """How each is started in a folder."""
    return {
        OURS: lambda folder: OurBroker(folder, KEPT),
        "Apache Kafka, fsync": lambda folder: ApacheKafka(folder, {**KEPT, **FSYNC}, SERVER_JVM),
        "Apache Kafka, memory": lambda folder: ApacheKafka(folder, KEPT, SERVER_JVM),
    }


def measure(rounds: int, seconds: float, tell: Tell) -> dict[str, Any]:
    """Medians over the rounds: contender -> workload -> figure -> value."""
    runs: dict[str, list[dict[str, dict[str, Any]]]] = {name: [] for name in contenders()}
    for number in range(rounds):
        for name, start in contenders().items():
            tell(f"broker, round {number + 1} of {rounds}: {name}")
            runs[name].append(_run(start, seconds))
    return {name: _medians(some) for name, some in runs.items()}


def _run(start: Callable[[Path], Server], seconds: float) -> dict[str, dict[str, Any]]:
    with _folder() as folder:
        began = time.perf_counter()
        server = start(folder)
        found: dict[str, dict[str, Any]] = {
            "start": {"ready_s": time.perf_counter() - began, "resident_mb": resident_mb(server.pid)}
        }
        try:
            _create_topics(server)
            for workload, topic in WORKLOADS:
                found[workload] = _asked(
                    server, [_module("workloads"), workload, server.bootstrap, topic, str(seconds)]
                )
            for name, (partitions, producers) in CLOSED.items():
                place = [f"closed-{partitions}-{producers}", str(partitions), str(producers)]
                found[name] = _asked(server, [_module("closed_loop"), server.bootstrap, *place, str(seconds)])
            found["end"] = {"resident_mb": resident_mb(server.pid), **_idle(server), **_killed(server)}
        finally:
            server.kill()
    return found


def _create_topics(server: Server) -> None:
    for topic in dict.fromkeys(topic for _, topic in WORKLOADS):
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


def _module(name: str) -> str:
    return f"waterclock.bench.broker.{name}"


def _asked(server: Server, command: list[str]) -> dict[str, Any]:
    """The client's figures, and the server's CPU meanwhile."""
    before = cpu_s(server.pid)
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=300, check=False)
    cpu = cpu_s(server.pid) - before
    try:
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": done.stderr.strip().splitlines()[-1:] or "nothing was said"}
    return {**figures, "cpu_s_per_million": cpu / figures["messages"] * 1e6}


def _idle(server: Server) -> dict[str, Any]:
    """The share of a core that it takes while nobody asks anything."""
    before, pause_s = cpu_s(server.pid), 5.0
    time.sleep(pause_s)
    return {"idle_percent": (cpu_s(server.pid) - before) / pause_s * 100}


def _killed(server: Server) -> dict[str, Any]:
    """How long it is away after a crash, with all that was written."""
    server.kill()
    began = time.perf_counter()
    server.restart()
    return {"ready_after_kill_s": time.perf_counter() - began}


def _medians(runs: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    return {workload: _median_of([run[workload] for run in runs if workload in run]) for workload in runs[0]}


def _median_of(figures: list[dict[str, Any]]) -> dict[str, Any]:
    good = [one for one in figures if "error" not in one]
    if not good:
        return figures[0]
    return {name: median(one[name] for one in good) for name in good[0]}
