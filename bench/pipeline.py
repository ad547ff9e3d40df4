"""The pipeline against what a user writes by hand, on the same orders, in one run, taking turns.

Speed is the wall time of a batch that takes one whole file, the median over batches and rounds; the first batch of a run
(plans, workers) and the whole first round (the JVM's warm-up) are not counted. Answers are checked beside it: every
order's four events delivered, each once, whoever did it.

A contender is compared with ours doing the same one rule, and with ours doing all three at once.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from waterclock import Rules
from waterclock.bench import contenders, orders
from waterclock.spark.config import Config, Source
from waterclock.spark.destination import SQLiteFile
from waterclock.spark.pipeline import Pipeline
from waterclock.spark.session import start

ORDERS = Rules(key="key", time="ts", type="kind", id="id", sequence="seq")
ORDER = ORDERS.order(wait="2 minutes")
DELIVER = ORDERS.deduplicate(within="10 minutes").deliver_at("deliver_at")
ALL = ORDER.deliver_at("deliver_at").expect("paid", after="created", within="60 s", otherwise="unpaid")
KINDS = {"id": "string", "key": "string", "seq": "long", "kind": "string", "ts": "timestamp", "deliver_at": "timestamp"}
Recipe = Callable[[DataFrame], DataFrame]
OURS = {"waterclock: order, deliver, expect": ALL, "waterclock: order": ORDER, "waterclock: deliver": DELIVER}
# by hand -> ours that does the same
OTHERS: dict[str, tuple[Recipe, str]] = {
    "rows a key: order": (contenders.rows_per_key, "waterclock: order"),
    "timer a message: deliver": (contenders.timer_per_message, "waterclock: deliver"),
    "DataFrame: deliver": (contenders.data_frame, "waterclock: deliver"),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One contender's run: milliseconds of each batch that took a whole file, and whether the answer was right."""

    batch_ms: list[int]
    right: bool


def measure(keys: int, rows_a_batch: int, rounds: int, folder: Path) -> dict[str, list[Run]]:
    """Every contender `rounds` times after one that is not counted, taking turns, on the same files."""
    made = orders.make(keys)
    files = orders.write(made, folder / "in", rows_a_batch)
    spark = start(
        "bench", extra={"spark.sql.streaming.numRecentProgressUpdates": "1000"}, log=folder / "spark.log"
    ).spark
    runs: dict[str, list[Run]] = {name: [] for name in (*OURS, *OTHERS)}
    for turn in range(rounds + 1):
        for place, (name, rules) in enumerate(OURS.items()):
            runs[name].append(_ours(spark, folder, f"ours-{place}-{turn}", rules, made, files))
        for place, (name, (recipe, _)) in enumerate(OTHERS.items()):
            runs[name].append(_other(spark, folder, f"other-{place}-{turn}", recipe, made, files))
        print(f"round {turn} of {rounds} done" + (", not counted" if turn == 0 else ""), file=sys.stderr)
    spark.stop()
    return {name: each[1:] for name, each in runs.items()}


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
            "all_rules_faster_by": round(ms[name] / ms[next(iter(OURS))], 1),
            "right": all(run.right for run in made),
        }
        for name, made in runs.items()
    ]


def _ours(spark: SparkSession, folder: Path, name: str, rules: Rules, made: orders.Orders, files: int) -> Run:
    source = Source("parquet", folder / "in", 1, KINDS)
    sink = SQLiteFile(folder / f"{name}.db", "results")
    config = Config(name, folder / name, source, 120_000_000, True, rules, sink, None, {})
    pipeline = Pipeline(config)
    pipeline.run(spark)
    ms = _batch_ms(pipeline.progress(), files)
    pipeline.close()
    with closing(sqlite3.connect(folder / f"{name}.db")) as db:
        rows = db.execute("SELECT event_key, event_seq FROM results WHERE kind = 'event' AND key != 'end'").fetchall()
    shutil.rmtree(folder / name)
    return Run(ms, _all_once(rows, made))


def _other(
    spark: SparkSession,
    folder: Path,
    name: str,
    recipe: Callable[[DataFrame], DataFrame],
    made: orders.Orders,
    files: int,
) -> Run:
    with closing(sqlite3.connect(folder / f"{name}.db", check_same_thread=False)) as db:
        db.execute("CREATE TABLE results (id TEXT, key TEXT, seq INTEGER, kind TEXT, ts INTEGER, deliver INTEGER)")

        def keep(batch: DataFrame, batch_id: int) -> None:
            taken = batch.toArrow()
            with db:
                db.executemany(
                    "INSERT INTO results VALUES (?, ?, ?, ?, ?, ?)",
                    zip(*(c.to_pylist() for c in taken.columns), strict=True),
                )

        stream = spark.readStream.schema(_ddl()).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
        query = recipe(stream).writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / name)).start()
        query.processAllAvailable()
        ms = _batch_ms(query.recentProgress, files)
        query.stop()
        rows = db.execute("SELECT key, seq FROM results WHERE key != 'end'").fetchall()
    shutil.rmtree(folder / name)
    return Run(ms, _all_once(rows, made))


def _batch_ms(progress: Iterable[Any], files: int) -> list[int]:
    """Milliseconds of the batches that took a whole file, without the first."""
    taken = [p.durationMs["triggerExecution"] for p in progress if p.numInputRows]
    return taken[1 : files - 1]


def _all_once(rows: list[tuple[str, int]], made: orders.Orders) -> bool:
    return len(rows) == made.distinct == len(set(rows))


def _ddl() -> str:
    return "id string, key string, seq bigint, kind string, ts timestamp, deliver_at timestamp"
