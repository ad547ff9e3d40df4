"""The same pipeline on one CPU and on two, over a standalone cluster: does throughput grow with cores?

The pipeline takes one worker of the cluster, or both; each worker has one core and one executor, and state is kept in as
many parts as there are cores. A batch is two files, for a file is read by one task. Rules, rows and how a batch is timed
are those of `bench pipeline` (all rules at once): the median of the whole batches, without the first. Everybody's answer
is checked.

Rule 1: everything, the driver too, is held to as many CPUs of this machine as the pipeline has cores: with one core of two
        the driver, Java and Python of the only executor would run beside each other on both, and nothing would be left.
Rule 2: contenders take turns, each with a session of its own; the first round's order is turned in the next.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from waterclock.bench.orders import ALL
from waterclock.bench.pipeline import WARM_UP, Course, Run, course, ours
from waterclock.bench.standalone import two_workers
from waterclock.bench.tables import aligned, short
from waterclock.bench.trees import hold
from waterclock.spark.session.session import start

FILES = 2  # a batch
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
    courses = course(folder / "short", max(FILES, rows // WARM_UP), FILES), course(folder / "whole", rows, FILES)
    runs: dict[tuple[int, int], list[Run]] = {each: [] for each in CONTENDERS}
    for turn in range(rounds):
        for cores, buckets in CONTENDERS[:: 1 if turn % 2 == 0 else -1]:
            what = f"round {turn + 1} of {rounds}: {cores} cores, {buckets} buckets"
            runs[cores, buckets].append(_run(courses, url, (cores, buckets), partial(_told, tell, what)))
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


def _run(courses: tuple[Course, Course], url: str, contender: tuple[int, int], tell: Callable[[int], None]) -> Run:
    """One session: the short course to warm up, then the whole one."""
    short_one, whole = courses
    extra = {
        "spark.master": url,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "768m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # as the driver's; the other one compiles for minutes
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    cores, buckets = contender
    spark = start("bench", cores, extra, whole.folder / "spark.log", buckets).spark
    try:
        _through(spark, short_one, buckets, tell)  # executors have started then
        with _held_to(cores):
            return _through(spark, whole, buckets, tell)
    finally:
        spark.stop()


@contextmanager
def _held_to(cores: int) -> Iterator[None]:
    """This process, the cluster and the driver's Java, which are below it, on so many CPUs."""
    every = os.sched_getaffinity(0)
    hold(os.getpid(), sorted(every)[:cores])
    try:
        yield
    finally:
        hold(os.getpid(), every)


def _through(spark: Any, over: Course, buckets: int, tell: Callable[[int], None]) -> Run:
    number = sum(1 for _ in over.folder.glob("*.db"))
    places = over.folder / f"checkpoint-{number}", over.folder / f"{number}.db"
    return ours(spark, over, ALL, places, tell, buckets)


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
