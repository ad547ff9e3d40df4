"""The same pipeline on one core and on two of a standalone cluster: does throughput grow with cores?

Each worker of the cluster has one core and one executor; the pipeline takes one of them, or both, and keeps its state in as
many parts as it has cores. Rules, rows and how a batch is timed are those of `bench pipeline` (all rules at once): the
median of the batches that took a whole file, without the first. Everybody's answer is checked.

What is not the executors' stays one core's work, whatever the cluster: the driver plans each batch, takes its results and
writes them into SQLite. On this machine it also takes its share of the same cores.

Rule 1: contenders take turns, each with a session of its own; the first round's order is turned in the next.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from waterclock.bench.pipeline import ALL, KINDS, WARM_UP, Course, Run, all_once, batch_ms, course
from waterclock.bench.standalone import two_workers
from waterclock.bench.tables import aligned, short
from waterclock.spark.pipeline import configured
from waterclock.spark.session.session import start
from waterclock.spark.toml.config import Config, Files, Outlet
from waterclock.spark.toml.sink import SQLiteFile

CONTENDERS = ((1, 64), (2, 64), (2, 16))  # cores, buckets
Tell = Callable[[str], None]


def measure(sizes: list[int], rounds: int, tell: Tell) -> list[dict[str, Any]]:
    """A record for each contender and number of rows a batch."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tell("starting a cluster")
        with two_workers(place) as url:
            return [record for rows in sizes for record in _of_size(place / str(rows), url, rows, rounds, tell)]


def _of_size(folder: Path, url: str, rows: int, rounds: int, tell: Tell) -> list[dict[str, Any]]:
    short_one, whole = course(folder / "short", max(1, rows // WARM_UP)), course(folder / "whole", rows)
    runs: dict[tuple[int, int], list[Run]] = {each: [] for each in CONTENDERS}
    for turn in range(rounds):
        for cores, buckets in CONTENDERS[:: 1 if turn % 2 == 0 else -1]:
            what = f"round {turn + 1} of {rounds}: {cores} cores, {buckets} buckets"
            runs[cores, buckets].append(_run(short_one, whole, url, (cores, buckets), partial(_told, tell, what)))
    first = _ms(runs[CONTENDERS[0]])
    return [_record(rows, each, made, first) for each, made in runs.items()]


def _told(tell: Tell, what: str, batch_id: int) -> None:
    tell(f"{what}, batch {batch_id + 1} done")


def _ms(runs: list[Run]) -> float:
    return median(ms for run in runs for ms in run.batch_ms)


def _record(rows: int, contender: tuple[int, int], runs: list[Run], first: float) -> dict[str, Any]:
    cores, buckets = contender
    ms = _ms(runs)
    return {
        "rows_a_batch": rows,
        "cores": cores,
        "buckets": buckets,
        "batch_ms": round(ms),
        "rows_per_second": round(rows / ms * 1000),
        "times_one_core": round(first / ms, 2),
        "right": all(run.right for run in runs),
    }


def _run(short_one: Course, whole: Course, url: str, contender: tuple[int, int], tell: Callable[[int], None]) -> Run:
    """One session: the short course to warm up, then the whole one."""
    extra = {
        "spark.master": url,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "768m",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    cores, buckets = contender
    spark = start("bench", cores, extra, whole.folder / "spark.log", buckets).spark
    try:
        _ours(spark, short_one, buckets, tell)
        return _ours(spark, whole, buckets, tell)
    finally:
        spark.stop()


def _ours(spark: Any, over: Course, buckets: int, tell: Callable[[int], None]) -> Run:
    number = sum(1 for _ in over.folder.glob("*.db"))
    folder, file = over.folder / f"checkpoint-{number}", over.folder / f"{number}.db"
    source, sink = Files("parquet", over.folder / "in", 1, KINDS), SQLiteFile(file, "results")
    config = Config("cores", folder, source, 120_000_000, True, ALL, (Outlet(sink),), None, {}, buckets=buckets)
    with closing(configured(config)) as pipeline:
        pipeline.run(spark, report=lambda progress: tell(progress.batch_id))
        ms = batch_ms(pipeline.progress(), over.files)
    with closing(sqlite3.connect(file)) as db:
        rows = db.execute("SELECT event_key, event_seq FROM results WHERE kind = 'event' AND key != 'end'").fetchall()
    shutil.rmtree(folder)
    return Run(ms, all_once(rows, over.made))


def table(figures: list[dict[str, Any]]) -> str:
    """A line a contender."""
    head = ["cores", "buckets", "rows a batch", "batch, ms", "rows a second", "times one core", "right"]
    rows = [
        [
            str(each["cores"]),
            str(each["buckets"]),
            short(each["rows_a_batch"]),
            f"{each['batch_ms']:,}",
            f"{each['rows_per_second']:,}",
            f"{each['times_one_core']:.2f}",
            "yes" if each["right"] else "NO",
        ]
        for each in figures
    ]
    return "All rules at once on a cluster of two workers with one core each; medians\n\n" + aligned(head, rows)
