"""The pipeline against what a user writes by hand, on the same orders, in one run, taking turns.

Speed is the wall time of a batch that takes one whole file, the median over batches and rounds; the first batch of a run
(plans, workers) is not counted. Before the first round everybody goes once over an eighth of the rows, not counted either
(the JVM's warm-up). Answers are checked beside it: every order's four events delivered, each once, whoever did it.

A contender is compared with ours doing the same one rule, and with ours doing all three at once. One more does nothing but
read and write: no rules could be quicker than that.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from waterclock import Rules
from waterclock.bench import contenders, orders
from waterclock.sinks.sqlite.sqlite import SQLiteFile
from waterclock.spark.pipeline import configured
from waterclock.spark.session.session import start
from waterclock.streaming.toml.config import Config, Files
from waterclock.streaming.toml.steps import Outlet

DELIVER = orders.RULES.deduplicate(within="10 minutes").deliver_at("deliver_at")
WHOLE_BATCHES = 4  # of a run; the first one is not counted
WARM_UP = 8  # the part of the rows that everybody begins with
Recipe = Callable[[DataFrame], DataFrame]
Report = Callable[[str], None]
OURS = {
    "waterclock: order, deliver, expect": orders.ALL,
    "waterclock: order": orders.ORDER,
    "waterclock: deliver": DELIVER,
}
# by hand -> ours that does the same
OTHERS: dict[str, tuple[Recipe, str]] = {
    "rows a key: order": (contenders.rows_per_key, "waterclock: order"),
    "timer a message: deliver": (contenders.timer_per_message, "waterclock: deliver"),
    "DataFrame: deliver": (contenders.data_frame, "waterclock: deliver"),
}
NOTHING = "no rules: read and write"
EVERYBODY = (*OURS, *OTHERS, NOTHING)
BESIDE_NOTHING = (next(iter(OURS)), NOTHING)


@dataclass(frozen=True, slots=True)
class Run:
    """One contender's run: milliseconds of each batch that took a whole file, and whether the answer was right."""

    batch_ms: list[int]
    right: bool


@dataclass(frozen=True, slots=True)
class Course:
    """The files that a round is run over, in a folder of its own."""

    folder: Path
    made: orders.Orders
    files: int
    files_a_batch: int = 1


def measure(
    rows_a_batch: int, rounds: int, folder: Path, report: Report, who: Sequence[str] = EVERYBODY
) -> dict[str, list[Run]]:
    """Each of `who` `rounds` times, taking turns on the same files, after a warm-up; `report` hears of each batch."""
    short, whole = course(folder / "short", max(1, rows_a_batch // WARM_UP)), course(folder / "whole", rows_a_batch)
    extra = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
    report("starting Spark")
    spark = start("bench", extra=extra, log=folder / "spark.log").spark
    try:
        _round(spark, short, "warm-up", report, who)
        turns = [_round(spark, whole, f"round {turn} of {rounds}", report, who) for turn in range(1, rounds + 1)]
    finally:
        spark.stop()
    return {name: [turn[name] for turn in turns] for name in who}


def course(folder: Path, rows_a_batch: int, files_a_batch: int = 1) -> Course:
    """The files of a round: whole ones, and a rest; a task reads a file, so a batch of several is read side by side."""
    made = orders.make(round(rows_a_batch * (WHOLE_BATCHES + 0.2) / 4.2))  # four events an order, one in twenty twice
    return Course(folder, made, orders.write(made, folder / "in", rows_a_batch // files_a_batch), files_a_batch)


def _round(spark: SparkSession, course: Course, which: str, report: Report, who: Sequence[str]) -> dict[str, Run]:
    runs = {}
    for place, name in enumerate(who, 1):
        what = f"{which}, {place} of {len(who)}: {name}"
        report(what)
        reported = partial(_tell_batch, report, what)
        if name in OURS:
            runs[name] = ours(spark, course, OURS[name], _places(course, name), reported)
        else:
            runs[name] = _other(spark, course, name, reported)
    return runs


def _tell_batch(report: Report, what: str, batch_id: int) -> None:
    report(f"{what}, batch {batch_id + 1} done")


def table(runs: dict[str, list[Run]], rows_a_batch: int) -> list[dict[str, Any]]:
    """A record a contender: rows a second, how many times faster ours is, and whether every answer was right."""
    ms = {name: median(ms for run in made for ms in run.batch_ms) for name, made in runs.items()}
    return [
        {
            "contender": name,
            "rows_a_batch": rows_a_batch,
            "batch_ms": round(ms[name]),
            "rows_per_second": round(rows_a_batch / ms[name] * 1000),
            "same_rule_faster_by": round(ms[name] / ms[OTHERS[name][1]], 1) if name in OTHERS else None,
            "all_rules_faster_by": round(ms[name] / ms[next(iter(OURS))], 2 if name == NOTHING else 1),
            "right": all(run.right for run in made),
        }
        for name, made in runs.items()
    ]


def ours(
    spark: SparkSession,
    course: Course,
    rules: Rules,
    places: tuple[Path, Path],
    reported: Callable[[int], None],
    buckets: int | None = None,
) -> Run:
    """A run of the pipeline with `rules`; its checkpoint, which is removed, and its table lie at `places`."""
    folder, file = places
    source, sink = (
        Files("parquet", course.folder / "in", course.files_a_batch, orders.COLUMNS),
        SQLiteFile(file, "results"),
    )
    config = Config(folder.name, folder, source, 120_000_000, True, rules, (Outlet(sink),), None, {}, buckets=buckets)
    with closing(configured(config)) as pipeline:
        pipeline.run(spark, report=lambda progress: reported(progress.batch_id))
        ms = _batch_ms(pipeline.progress(), -(-course.files // course.files_a_batch))
    with closing(sqlite3.connect(file)) as db:
        rows = db.execute("SELECT event_key, event_seq FROM results WHERE kind = 'event' AND key != 'end'").fetchall()
    shutil.rmtree(folder)
    return Run(ms, _all_once(rows, course.made))


def _other(spark: SparkSession, course: Course, name: str, reported: Callable[[int], None]) -> Run:
    folder, file = _places(course, name)
    recipe = OTHERS[name][0] if name in OTHERS else contenders.as_it_comes
    with closing(sqlite3.connect(file, check_same_thread=False)) as db:
        db.execute("CREATE TABLE results (id TEXT, key TEXT, seq INTEGER, kind TEXT, ts INTEGER, deliver INTEGER)")

        def keep(batch: DataFrame, batch_id: int) -> None:
            taken = batch.toArrow()
            with db:
                db.executemany(
                    "INSERT INTO results VALUES (?, ?, ?, ?, ?, ?)",
                    zip(*(c.to_pylist() for c in taken.columns), strict=True),
                )
            reported(batch_id)

        stream = spark.readStream.schema(_ddl()).option("maxFilesPerTrigger", 1).parquet(str(course.folder / "in"))
        query = recipe(stream).writeStream.foreachBatch(keep).option("checkpointLocation", str(folder)).start()
        query.processAllAvailable()
        ms = _batch_ms(query.recentProgress, course.files)
        query.stop()
        rows = db.execute("SELECT key, seq FROM results WHERE key != 'end'").fetchall()
    shutil.rmtree(folder)
    return Run(ms, len(rows) == len(course.made.rows) if name == NOTHING else _all_once(rows, course.made))


def _places(course: Course, name: str) -> tuple[Path, Path]:
    """An empty checkpoint and an empty file for one run."""
    number = sum(1 for _ in course.folder.glob("*.db"))
    plain = f"{number}-{EVERYBODY.index(name)}"
    return course.folder / plain, course.folder / f"{plain}.db"


def _batch_ms(progress: Iterable[Any], files: int) -> list[int]:
    """Milliseconds of the batches that took a whole file, without the first."""
    taken = [p.durationMs["triggerExecution"] for p in progress if p.numInputRows]
    return taken[1 : files - 1]


def _all_once(rows: list[tuple[str, int]], made: orders.Orders) -> bool:
    """Whether each event that was made is among `rows`, once."""
    return len(rows) == made.distinct == len(set(rows))


def _ddl() -> str:
    return "id string, key string, seq bigint, kind string, ts timestamp, deliver_at timestamp"
