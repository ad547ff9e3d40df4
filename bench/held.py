"""What a batch costs when more is held: the same rows while ten times the keys wait, and beside a million expectations.

    keys held            each has an event that waits for a gap, and one that waits for its day; the rows fill the gaps of
                         some keys, and go on with them: the same number of keys, however many are held
    expectations open    orders that were created and not paid yet; the rows are other orders, created and paid at once

Speed is the wall time of a batch that takes one file, the median over batches and rounds; the files that bring what is
held come before, and the first batch after them is not counted. Before the first round the smallest of each kind goes
once, not counted either (the JVM's warm-up). Nothing is closed, so all stays held to the end.

Rule 1: every event that is due has its one row, and nothing that is held has any.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql import SparkSession

from waterclock import Rules
from waterclock.bench import orders
from waterclock.bench.orders import COLUMNS, KINDS, START_US, Row
from waterclock.sinks.sqlite.sqlite import SQLiteFile
from waterclock.spark.pipeline import configured
from waterclock.spark.session.session import start
from waterclock.streaming.toml.config import Config, Files
from waterclock.streaming.toml.steps import Outlet

KEYS, EXPECTATIONS = "keys held", "expectations open"
RULES: Final = {
    KEYS: orders.RULES.order(wait="30 days").deliver_at("deliver_at"),
    EXPECTATIONS: orders.RULES.expect("paid", after="created", within="30 days", otherwise="unpaid"),
}
BATCHES: Final = 5  # that are measured; the first one is not counted
EVENTS: Final = 16  # a key in a batch
TOUCHED: Final = 8  # of the least keys held, each batch touches one in so many
FILL_ROWS: Final = 100_000  # a file of what is held
DAY_US: Final = 86_400_000_000
SPACE_US: Final = 72_000  # 50,000 orders an hour
STEP_US: Final = (
    SPACE_US // EVENTS // 1000 * 1000
)  # Spark's watermark counts whole milliseconds: it must reach the last
Report = Callable[[str], None]
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """`held` of a kind are held while batches touch `keys` keys each."""

    what: str
    held: int
    keys: int

    @property
    def rules(self) -> Rules:
        return RULES[self.what]

    def fill(self) -> Iterator[Row]:
        """What brings all that is held, and ends before the batches begin."""
        for number in range(self.held):
            time_us = START_US - (self.held - number) * SPACE_US
            far_us = START_US + DAY_US + number * SPACE_US
            yield f"h{number}-1", f"h{number}", 1, "created", time_us, far_us
            if self.what == KEYS:
                yield f"h{number}-3", f"h{number}", 3, "shipped", time_us, time_us

    def batch(self, number: int) -> list[Row]:
        """The rows of one batch."""
        first = number * self.keys
        rows = [self._row(first + key, event) for event in range(EVENTS) for key in range(self.keys)]
        start_us = START_US + first * SPACE_US
        times_us = (start_us + place * STEP_US for place in range(len(rows)))
        return [(*row, time_us, time_us) for row, time_us in zip(rows, times_us, strict=True)]

    def _row(self, key: int, event: int) -> tuple[str, str, int, str]:
        if self.what == KEYS:
            number = event + 3 if event else 2  # 3 is there, and waits for 2
            return f"h{key}-{number}", f"h{key}", number, "paid"
        order, number = f"n{key}-{event // len(KINDS)}", event % len(KINDS)
        return f"{order}-{number + 1}", order, number + 1, KINDS[number]

    def due(self) -> set[str]:
        """The ids of the events that must have come out. Without `order` the last one waits for time to pass it."""
        ids = {row[0] for number in range(BATCHES) for row in self.batch(number)}
        if self.what == KEYS:
            return ids | {f"h{key}-3" for key in range(BATCHES * self.keys)}
        return (ids | {row[0] for row in self.fill()}) - {self.batch(BATCHES - 1)[-1][0]}


def measure(sizes: Sequence[int], expectations: int, rounds: int, report: Report) -> list[Figures]:
    """A record for each number of keys, for no expectation and for all; medians over batches and rounds."""
    keys = max(1, min(sizes) // TOUCHED)
    cases = [*(Case(KEYS, held, keys) for held in sizes), *(Case(EXPECTATIONS, n, keys) for n in (0, expectations))]
    runs: dict[Case, list[Figures]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report("held: starting Spark")
        spark = start("bench", extra={"spark.sql.streaming.numRecentProgressUpdates": "1000"}, log=folder / "log").spark
        try:
            for case in (cases[0], cases[len(sizes)]):
                _run(spark, case, folder, _Reporter(report, "warm-up", case))
            for number in range(1, rounds + 1):
                for case in cases:
                    reported = _Reporter(report, f"round {number} of {rounds}", case)
                    runs[case].append(_run(spark, case, folder, reported))
        finally:
            spark.stop()
    return [_record(case, of) for case, of in runs.items()]


class _Reporter:
    """What is going on, batch by batch."""

    def __init__(self, report: Report, which: str, case: Case) -> None:
        self._report, self._what = report, f"held, {which}, {case.held:,} {case.what}"

    def say(self, what: str) -> None:
        self._report(f"{self._what}: {what}")


def _run(spark: SparkSession, case: Case, under: Path, reported: _Reporter) -> Figures:
    """One run from nothing, in a folder of its own: Spark goes on tending a state for a while when its query is over."""
    folder = Path(tempfile.mkdtemp(dir=under))
    reported.say("making the files")
    files = _write(case, folder / "in")
    source, sink = Files("parquet", folder / "in", 1, COLUMNS), SQLiteFile(folder / "db", "results")
    config = Config("held", folder / "checkpoint", source, 0, False, case.rules, (Outlet(sink),), None, {})
    try:
        with closing(configured(config)) as pipeline:
            summary = pipeline.run(
                spark, report=lambda p: reported.say(f"batch {min(p.batch_id + 1, files)} of {files} done")
            )
            taken = [p.durationMs["triggerExecution"] for p in pipeline.progress() if p.numInputRows]
        return {
            "batch_ms": taken[files - BATCHES + 1 : files],
            "state_mb": summary.totals.get("state_bytes", 0) / 1e6,
            "checkpoint_mb": sum(f.stat().st_size for f in config.checkpoint.rglob("*") if f.is_file()) / 1e6,
            "right": _right(folder / "db", case),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(case: Case, folder: Path) -> int:
    """How many files there are: what is held, then the batches."""
    folder.mkdir(parents=True)
    files, part = 0, list[Row]()
    for row in case.fill():
        part.append(row)
        if len(part) == FILL_ROWS:
            orders.write_file(part, folder, files)
            files, part = files + 1, []
    for rows in ([part] if part else []) + [case.batch(number) for number in range(BATCHES)]:
        orders.write_file(rows, folder, files)
        files += 1
    return files


def _right(file: Path, case: Case) -> bool:
    with closing(sqlite3.connect(file)) as db:
        rows = db.execute("SELECT kind, event_id FROM results").fetchall()
    ids = [row_id for kind, row_id in rows if kind == "event"]
    return len(ids) == len(set(ids)) and set(ids) == case.due() and not any(kind == "unpaid" for kind, _ in rows)


def _record(case: Case, runs: list[Figures]) -> Figures:
    return {
        "what": case.what,
        "held": case.held,
        "rows_a_batch": case.keys * EVENTS,
        "batch_ms": median(ms for run in runs for ms in run["batch_ms"]),
        "state_mb": median(run["state_mb"] for run in runs),
        "checkpoint_mb": median(run["checkpoint_mb"] for run in runs),
        "right": all(run["right"] for run in runs),
    }
