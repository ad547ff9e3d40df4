"""The orders through waterclock, Apache Flink and Kafka Streams by turns: rows a second, and CPU of all their processes.

    what a contender does with the results     who is compared
    SQLite: the same table                     the pipeline on both engines; Flink, its state on the heap or in RocksDB;
                                               Spark, and Arrow, without rules
    thrown away                                the pipeline on both engines; Flink
    a topic, for readers of committed records  the pipeline on both engines; Kafka Streams, its stores in RocksDB or in
                                               memory; librdkafka without rules; on Apache Kafka, and on waterclock's broker

Rule 1: everybody's answer is compared with what had to come out, row by row where rows are kept. A wrong one is a WRONG in
        the table.
Rule 2: "steady" is from when a quarter of the rows was taken until all were: no start, no end. "whole" is from the start of
        the run until the last result is committed, in a process that is warm.
Rule 3: a run is at 'notes' where it could not be measured, and its contender is asked no more.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any, Final

from waterclock.bench.broker.campaign import KEPT, SERVER_JVM
from waterclock.bench.broker.workloads import create
from waterclock.bench.kafka.harness import NotMeasured
from waterclock.bench.processors import building
from waterclock.bench.processors.answers import Answer, counted, of_table, of_topic
from waterclock.bench.processors.contender import Contender, Taken, watched
from waterclock.bench.processors.course import PARTITIONS, Course, fill, make
from waterclock.bench.servers.apache import ApacheKafka
from waterclock.bench.servers.ours import OurBroker
from waterclock.bench.servers.server import Server

OURS: Final = "waterclock"
LOCAL: Final = "waterclock, local"  # engine = "local": a process without Spark
SQLITE, NOTHING = "SQLite", "thrown away"
BROKERS: Final = ("Apache Kafka", "waterclock's broker")
WARM_UP: Final = 8  # the part of the fewest events that everybody begins with
Report = Callable[[str], None]
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """Who takes part: the words of his run, with the places in braces filled in; `sink` is where the results go."""

    name: str
    process: str
    words: str
    sink: str
    has_rules: bool = True


_FILES: Final = {
    SQLITE: (
        *(Entry(name, name, "files {input} sqlite {folder}", SQLITE) for name in (OURS, LOCAL)),
        Entry("no rules: Spark reads and writes", OURS, "floor {input} sqlite {folder}", SQLITE, has_rules=False),
        Entry("no rules: Arrow reads, SQLite writes", LOCAL, "floor {input} sqlite {folder}", SQLITE, has_rules=False),
    ),
    NOTHING: tuple(Entry(name, name, "files {input} nothing {folder}", NOTHING) for name in (OURS, LOCAL)),
}
_FLINK: Final = {"flink": ("Flink, hashmap", "hashmap"), "flink-rocksdb": ("Flink, RocksDB", "rocksdb")}
_STREAMS: Final = (("Kafka Streams, RocksDB", "rocksdb"), ("Kafka Streams, in memory", "memory"))


def entries(contenders: Sequence[str]) -> list[Entry]:
    """Who takes part, those of one sink together and waterclock first."""
    found: list[Entry] = []
    flinks = [_FLINK[name] for name in contenders if name in _FLINK]
    for sink, word in ((SQLITE, "sqlite"), (NOTHING, "nothing")) if flinks else ():
        found += _FILES[sink]
        found += [Entry(name, "flink", f"{{input}} {kept} {word} {{folder}}", sink) for name, kept in flinks]
    for broker in BROKERS if "streams" in contenders else ():
        found += [Entry(name, name, "topic {servers} {input} {output} {folder}", broker) for name in (OURS, LOCAL)]
        found.append(
            Entry("no rules: librdkafka", OURS, "loop {servers} {input} {output} {folder}", broker, has_rules=False)
        )
        words = "{{servers}} {{input}} {} {{output}} {{folder}} {{results}}"
        found += [Entry(name, "streams", words.format(kept), broker) for name, kept in _STREAMS]
    return found


@dataclass(slots=True)
class Ground:
    """What the runs stand on: a folder, processes and brokers that were started, and why others were not."""

    folder: Path
    report: Report
    opened: ExitStack
    processes: dict[str, Contender] = field(default_factory=dict)
    brokers: dict[str, Server] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    filled: set[tuple[str, str]] = field(default_factory=set)
    runs: int = 0

    def process(self, name: str) -> Contender:
        """The process of that name; `NotMeasured` where it cannot be started."""
        if name not in self.processes:
            command = self._ours(name) or building.command(name, self.report)
            self.report(f"starting {name}")
            self.processes[name] = Contender(command, self.folder / f"{name}.log")
            self.opened.callback(self.processes[name].close)
        return self.processes[name]

    def _ours(self, name: str) -> list[str]:
        """The command of a process of waterclock's; [] for others."""
        words = {OURS: ["waterclock.bench.processors.ours", str(self.folder / "spark.log")]}
        words[LOCAL] = ["waterclock.bench.processors.local"]
        return [sys.executable, "-P", "-m", *words[name]] if name in words else []

    def broker(self, name: str) -> Server:
        """The broker of that name; `NotMeasured` where it cannot be started."""
        if name not in self.brokers:
            self.report(f"starting {name}")
            folder = self.folder / f"broker-{len(self.brokers)}"
            try:
                made: Server = ApacheKafka(folder, KEPT, SERVER_JVM) if name == BROKERS[0] else OurBroker(folder, KEPT)
            except RuntimeError as why:
                raise NotMeasured(str(why)) from None
            self.brokers[name] = made
            self.opened.callback(made.kill)
        return self.brokers[name]

    def place(self) -> Path:
        """A folder of its own for a run."""
        self.runs += 1
        place = self.folder / f"run-{self.runs}"
        place.mkdir()
        return place


def measure(contenders: Sequence[str], events: Sequence[int], rounds: int, report: Report) -> Figures:
    """`records`: a contender, sink and size, medians over the rounds; `versions`; `notes`: who is left out, and why."""
    runs: dict[tuple[Entry, int], list[Figures]] = {}
    with _ground(report) as ground:
        report("making the orders")
        short = make(max(4, min(events) // WARM_UP), ground.folder / "short")
        courses = [make(size, ground.folder / f"orders-{size}") for size in events]
        taking_part = [entry for entry in entries(contenders) if _is_ready(ground, entry, [short, *courses])]
        rounds_of = [("warm-up", [short]), *((f"round {n} of {rounds}", courses) for n in range(1, rounds + 1))]
        for which, over in rounds_of:
            for course in over:
                for entry in taking_part:
                    if (run := _run(ground, entry, course, which)) and course is not short:
                        runs.setdefault((entry, course.events), []).append(run)
        return {
            "records": [_record(entry, size, of) for (entry, size), of in runs.items()],
            "versions": sorted({run["version"] for of in runs.values() for run in of}),
            "notes": ground.notes,
        }


@contextmanager
def _ground(report: Report) -> Iterator[Ground]:
    with ExitStack() as opened:
        folder = Path(mkdtemp(prefix="waterclock-bench-"))
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        yield Ground(folder, report, opened)


def _is_ready(ground: Ground, entry: Entry, courses: Sequence[Course]) -> bool:
    """Have all that it needs started before anything is measured, and its topics filled."""
    try:
        ground.process(entry.process)
        if entry.sink in BROKERS:
            server = ground.broker(entry.sink)
            for course in courses:
                if (entry.sink, course.folder.name) not in ground.filled:
                    ground.report(f"{entry.sink}: {course.rows:,} orders into a topic")
                    fill(server.bootstrap, course.folder.name, course.folder)
                    ground.filled.add((entry.sink, course.folder.name))
    except NotMeasured as why:
        ground.notes[f"{entry.name}, {entry.sink}"] = f"not measured: {why}"
        return False
    return True


def _run(ground: Ground, entry: Entry, course: Course, which: str) -> Figures | None:
    """One run's figures; None, and a note, where there are none."""
    who = f"{entry.name}, {entry.sink}"
    if who in ground.notes:
        return None
    ground.report(f"{which}, {course.events:,} events: {who}")
    place = ground.place()
    try:
        return _asked(ground, entry, course, place)
    except NotMeasured as why:
        ground.notes[who] = f"not measured: {why}"
        return None
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _asked(ground: Ground, entry: Entry, course: Course, place: Path) -> Figures:
    contender, server = ground.process(entry.process), ground.brokers.get(entry.sink)
    words = {"input": course.folder, "folder": place, "results": sum(course.answer.counts.values())}
    if server is not None:
        words |= {"servers": server.bootstrap, "input": course.folder.name, "output": f"out-{place.name}"}
        if entry.process not in (OURS, LOCAL) or not entry.has_rules:  # the pipeline makes its topics
            create(server.bootstrap, f"out-{place.name}", PARTITIONS)
    with watched(contender.pid) as taken, watched(server.pid if server else contender.pid) as served:
        record = contender.ask(*entry.words.format_map(words).split())
    found = _answer(entry, server, place, record)
    is_right = course.answer.is_right(found) if entry.has_rules else record["counts"]["rows"] >= course.rows
    return {**figures(record, course.rows, taken, served if server else None), "right": is_right}


def _answer(entry: Entry, server: Server | None, place: Path, record: Figures) -> Answer:
    if not entry.has_rules or entry.sink == NOTHING:
        return counted(record["counts"])
    return of_table(place / "results.db") if server is None else of_topic(server.bootstrap, f"out-{place.name}")


def figures(record: Figures, rows: int, taken: Taken, served: Taken | None) -> Figures:
    """Speeds of one run; steady ones are None where too few moments were noted.

    >>> taken = Taken()
    >>> taken._looks = [(0, 0.0), (10 * 10**9, 20.0)]
    >>> run = {"version": "it 1", "began_ns": 0, "ended_ns": 10 * 10**9, "marks": [[2 * 10**9, 50], [6 * 10**9, 200]]}
    >>> found = figures(run, 200, taken, None)
    >>> found["rows_per_s"], found["cpu_s_per_million"], found["whole_s"], found["whole_cpu_s_per_million"]
    (37.5, 53333.333333333336, 10.0, 100000.0)
    """
    began, ended, marks = record["began_ns"], record["ended_ns"], record["marks"]
    of = {
        "version": record["version"],
        "whole_s": (ended - began) / 1e9,
        "whole_cpu_s_per_million": (taken.until(ended) - taken.until(began)) / rows * 1e6,
        "broker_cpu_s_per_million": served and (served.until(ended) - served.until(began)) / rows * 1e6,
    }
    first = next((mark for mark in marks if mark[1] * 4 >= rows), None)
    last = next((mark for mark in marks if mark[1] >= rows), None)
    if first is None or last is None or last[1] == first[1]:
        return {**of, "rows_per_s": None, "cpu_s_per_million": None}
    steady = last[1] - first[1]
    cpu_s = taken.until(last[0]) - taken.until(first[0])
    return {
        **of,
        "rows_per_s": steady / ((last[0] - first[0]) / 1e9),
        "cpu_s_per_million": cpu_s / steady * 1e6,
    }


def _record(entry: Entry, events: int, runs: list[Figures]) -> Figures:
    return {
        "contender": entry.name,
        "sink": entry.sink,
        "has_rules": entry.has_rules,
        "events": events,
        "rounds": len(runs),
        "right": all(run["right"] for run in runs),
        **{name: _median([run[name] for run in runs]) for name in runs[0] if name not in ("right", "version")},
    }


def _median(values: list[Any]) -> float | None:
    measured = [value for value in values if value is not None]
    return median(measured) if measured else None
