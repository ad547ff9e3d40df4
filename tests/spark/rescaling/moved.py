"""What a pipeline that goes from one engine to the other is tried with: its inputs by stages, the way there and back, and
all that came out."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.local.running import run_locally
from tests.spark.pipelines import orders
from tests.spark.rescaling.staged import FILES, STAGES, found, go_on_with, next_stage, staged_pipeline
from waterclock.errors import StateMismatch
from waterclock.pipelines.moving import to_spark
from waterclock.pipelines.returning import to_local
from waterclock.streaming.toml.config import load

ODD = "1 [ä]%20+?.jsonl"  # what Spark writes otherwise in its log than it lies there


def move(spark: SparkSession, file: Path, new: Path, buckets: int | None = None) -> None:
    to_spark(load(file), new, lambda count: spark, buckets)


def all_of(file: Path) -> Counter[Any]:
    """Results, sums of the counters, dead letters."""
    with closing(sqlite3.connect(file.parent / "out.db")) as db:
        dead = db.execute("SELECT line, reason, text FROM results_dead_letters").fetchall()
    return found(file) + Counter(("dead", *each) for each in dead)


def watermarks(file: Path) -> list[str]:
    """Of all batches but the one that handed the sink over; "" for one that had none."""
    with closing(sqlite3.connect(file.parent / "out.db")) as db:
        rows = db.execute("SELECT watermark FROM results_batches WHERE counters LIKE '%events%' ORDER BY batch_id")
        return [row[0] or "" for row in rows]


def mixed_pipeline(folder: Path, delay: str = "1 minute") -> Path:
    """Files with events that are late and lines that are none, one of them under an odd name."""
    file = staged_pipeline(folder, rows=40)
    file.write_text(file.read_text().replace('watermark_delay = "1 hour"', f'watermark_delay = "{delay}"'))
    for number in (1, FILES - 1):
        with (folder / "later" / f"{number:03d}.jsonl").open("a") as lines:
            lines.write('{\n{"order": "o1", "at": "never"}\n')
    return file


def stage_of(file: Path, stage: int) -> None:
    next_stage(file, stage)
    if stage == 0:
        (file.parent / "in" / "001.jsonl").rename(file.parent / "in" / ODD)


def in_peace(file: Path, run_it: Callable[[Path], object]) -> Counter[Any]:
    for stage in range(STAGES):
        stage_of(file, stage)
        run_it(file)
    return all_of(file)


def refused(file: Path, check: Callable[[Path], Any], checkpoint: Path) -> str:
    """What a start with this checkpoint is told; empty where it would go on."""
    before = file.read_text()
    go_on_with(file, checkpoint)
    try:
        with closing(check(file)) as pipeline:
            pipeline.check()
        return ""
    except StateMismatch as error:
        return str(error)
    finally:
        file.write_text(before)


def back(spark: SparkSession, file: Path, new: Path) -> None:
    to_local(load(file), new, lambda count: spark)
    go_on_with(file, new)


def nothing(count: int) -> Any:
    raise AssertionError("it is refused before Spark is started")


def of_a_topic(
    broker: Any,
    folder: Path,
    first: Callable[[Path], object],
    carry: Callable[[Path], object],
    then: Callable[[Path], object],
    silent: int,
) -> None:
    """A pipeline of a topic is run by `first`, carried, and goes on by `then`; beside it another one runs in peace. In the
    stage `silent`, one partition brings nothing."""
    from tests.spark.topics import Sender, make_topic_pipeline, value

    broker.create_topic(f"orders-{folder.name}", 3)
    sender, rows, files = Sender(broker.bootstrap, f"orders-{folder.name}"), orders(60), []
    for name in ("moved", "peace"):
        file = make_topic_pipeline(folder / name, broker.bootstrap, f"orders-{folder.name}", more="per_batch = 60")
        text = file.read_text().replace('watermark_delay = "1 hour"', 'watermark_delay = "1 minute"\nclose = false')
        file.write_text(text)
        files.append(file)
    third = len(rows) // STAGES
    for stage in range(STAGES):
        for row in rows[stage * third : (stage + 1) * third]:
            sender.put(value(row), partition=int(row["order"][1:]) % (2 if stage == silent else 3))
        sender.put("{", partition=stage % 2)
        if stage == STAGES - 1:
            for file in files:
                file.write_text(file.read_text().replace("close = false", "close = true"))
        run_locally(files[1])
        if stage == 0:
            first(files[0])
            carry(files[0])
        else:
            then(files[0])
    assert all_of(files[0]) == all_of(files[1])
