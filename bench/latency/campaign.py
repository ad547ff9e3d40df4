"""How long it takes from producing a message to its committed row, in a pipeline that runs live.

200 messages a second go into our broker, a process of its own; 50 keys, their events in order. Waterclock puts them in
order and drops duplicates: nothing is missing and nothing comes twice, so each event is due at once, and its row is
committed in the batch that takes it: on Spark, and with engine = "local". Beside them, without rules, Spark alone with its
own Kafka connector, and a consumer of librdkafka: they read, parse and write. All write to SQLite, and to PostgreSQL where
it is installed, by turns, with one Spark session that is there for all.

Rule 1: a JVM still compiles: each has a short turn before the first round, and what is sent in the first `WARM_UP_S`
        seconds of a turn is not counted.
Rule 2: a row is committed when its sink has said so; in which batch that was, the row itself says.
Rule 3: every message must have one row, and those of a key must stand in order.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyspark
from pyspark.sql import SparkSession

from waterclock.bench.broker.workloads import create, percentile
from waterclock.bench.latency import contenders
from waterclock.bench.latency.contenders import Committed, Course, Row, Sink
from waterclock.bench.latency.sender import RATE, Sender
from waterclock.bench.servers import connector
from waterclock.bench.servers.ours import OurBroker
from waterclock.clock import SystemClock
from waterclock.errors import EnvironmentMissing
from waterclock.examples.cdc.servers import Postgres, programs
from waterclock.sinks.postgres.destination import PostgresDatabase
from waterclock.sinks.sqlite.sqlite import SQLiteFile
from waterclock.spark.session.session import start

PARTITIONS: Final = 4
WARM_UP_S = 10.0
SQLITE, POSTGRES = "SQLite", "PostgreSQL"
OURS, LOCAL = "waterclock: order, deduplicate", "waterclock, local: the same"
SPARK, CONSUMER = "Spark alone: read and write", "a consumer alone: the same"
CONTENDERS: Final = {
    OURS: contenders.ours,
    LOCAL: contenders.local,
    SPARK: contenders.spark_alone,
    CONSUMER: contenders.consumer_alone,
}
Report = Callable[[str], None]
Figures = dict[str, Any]


@dataclass(slots=True)
class Ground:
    """What all runs stand on; `notes` are who is left out, and why."""

    folder: Path
    broker: OurBroker
    spark: SparkSession
    url: str
    notes: dict[str, str] = field(default_factory=dict)

    def course(self, sink: str, topic: str) -> Course:
        """A fresh topic, and a place for the rows."""
        create(self.broker.bootstrap, topic, PARTITIONS)
        place: Sink = SQLiteFile(self.folder / f"{topic}.db", "results")
        if sink == POSTGRES:
            place = PostgresDatabase(self.url, "public", topic)
        return Course(self.spark, self.broker.bootstrap, topic, self.folder / topic, place)


def measure(rounds: int, seconds: float, report: Report) -> dict[str, Any]:
    """`records`: one a contender and sink, medians over the rounds; `notes`: who was left out, and why."""
    runs: dict[tuple[str, str], list[Figures]] = {}
    with _ground(report) as ground:
        turns = [
            (name, sink) for sink in (SQLITE, POSTGRES) for name in CONTENDERS if not {name, sink} & {*ground.notes}
        ]
        for place, (name, sink) in enumerate(turns):
            report(f"latency, warm-up: {name}, {sink}; {WARM_UP_S + 1:.0f} s")
            _run(ground.course(sink, f"latency_0_{place}"), name, 1)
        for number in range(1, rounds + 1):
            for place, (name, sink) in enumerate(turns):
                report(f"latency, round {number} of {rounds}: {name}, {sink}; {WARM_UP_S + seconds:.0f} s")
                run = _run(ground.course(sink, f"latency_{number}_{place}"), name, seconds)
                runs.setdefault((name, sink), []).append(run)
        records = [{"contender": name, "sink": sink, "rate": RATE, **_medians(of)} for (name, sink), of in runs.items()]
        return {"warm_up_s": WARM_UP_S, "records": records, "notes": ground.notes}


@contextmanager
def _ground(report: Report) -> Iterator[Ground]:
    report("latency: starting the broker, PostgreSQL and Spark")
    with ExitStack() as opened:
        folder = Path(
            tempfile.mkdtemp(prefix="waterclock-bench-", dir="/tmp")
        )  # short: a socket's path has 107 letters
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)  # PostgreSQL does not run as root, and has to enter
        broker = OurBroker(folder / "broker", {})
        opened.callback(broker.kill)
        notes: dict[str, str] = {}
        url = _postgres(folder, opened, notes)
        try:
            connector.fetch(pyspark.__version__)
        except RuntimeError as why:
            notes[SPARK] = f"not measured: {why}"
        spark = start("bench", extra=connector.CLASS_PATH, log=folder / "spark.log").spark
        opened.callback(spark.stop)
        yield Ground(folder, broker, spark, url, notes)


def _postgres(folder: Path, opened: ExitStack, notes: dict[str, str]) -> str:
    """The address of a server that flushes what it commits; or a note."""
    try:
        found = programs("the part with PostgreSQL", [POSTGRES])
    except EnvironmentMissing as why:
        notes[POSTGRES] = f"not measured: {why}"
        return ""
    postgres = Postgres(folder / "postgres", folder / "postgres.log", found, SystemClock())
    opened.callback(postgres.process.stop)
    postgres.start("bench")
    return postgres.url("bench")


def _run(course: Course, name: str, seconds: float) -> Figures:
    sender = Sender(course.bootstrap, course.topic, 1 + round((WARM_UP_S + seconds) * RATE))
    sender.begin()
    try:
        committed = CONTENDERS[name](course, sender)
    except BaseException:
        sender.over = True
        raise
    sender.end()
    return figures(committed, sender.sent_s, WARM_UP_S)


def figures(committed: Committed, sent_s: list[float], warm_up_s: float) -> Figures:
    """Latencies of what was sent after the warm-up, and whether every message has its one row, in order.

    The warm-up begins with the second message: the first one only wakes the reader.

    >>> some = Committed({0: 7.5, 1: 21.5}, [(0, "0", "a", 1), (1, "1", "b", 1), (1, "2", "a", 2)])
    >>> figures(some, [1.0, 11.0, 21.0], 10)
    {'p50_ms': 500.0, 'p99_ms': 500.0, 'max_ms': 500.0, 'messages': 1, 'batches': 1, 'right': True}
    """
    from_s = sent_s[1] + warm_up_s
    counted = [(batch, int(row[0])) for batch, *row in committed.rows if sent_s[int(row[0])] >= from_s]
    ms = [(committed.at_s[batch] - sent_s[number]) * 1e3 for batch, number in counted]
    return {
        "p50_ms": percentile(ms, 0.5),
        "p99_ms": percentile(ms, 0.99),
        "max_ms": max(ms),
        "messages": len(ms),
        "batches": len({batch for batch, _ in counted}),
        "right": sorted(int(row[1]) for row in committed.rows) == [*range(len(sent_s))] and _ordered(committed.rows),
    }


def _ordered(rows: list[Row]) -> bool:
    last: dict[str, int] = {}
    for _, _, key, number in rows:
        if number <= last.get(key, 0):
            return False
        last[key] = number
    return True


def _medians(runs: list[Figures]) -> Mapping[str, Any]:
    return {name: median(run[name] for run in runs) for name in runs[0] if name != "right"} | {
        "right": all(run["right"] for run in runs)
    }
