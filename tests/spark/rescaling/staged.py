"""A pipeline that is run in stages: more files come before each; between them its state may be carried over."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.spark.pipelines import make_pipeline, orders, run
from waterclock.errors import StateMismatch
from waterclock.spark.pipeline import configured
from waterclock.spark.rescaling.carry import NewState, rescale
from waterclock.streaming.places.place import Place
from waterclock.streaming.toml.config import load

STAGES = 3
FILES = 6
KINDS = ("by sequence", "by time and quiet")
QUIET = '[[rules.quiet]]\nafter = "40 minutes"\nemit = "silent"\n[sink]'
# a process that carries a state over has no Java compiled for the plans of a few rows
INTERPRETED = '"spark.sql.codegen.wholeStage" = "false"\n"spark.sql.codegen.factoryMode" = "NO_CODEGEN"\n'
COLUMNS = "kind, key, rule, due, emitted_at, source_id, result_id, event_what, event_n"


def staged_pipeline(folder: Path, kind: str = "by sequence", rows: int = 90) -> Path:
    """A pipeline of files with the rules of `kind`, none of whose files has come yet."""
    file = make_pipeline(folder, orders(rows), FILES, files_per_batch=FILES // STAGES)
    (folder / "in").rename(folder / "later")
    (folder / "in").mkdir()
    text = file.read_text().replace('watermark_delay = "1 hour"', 'watermark_delay = "1 hour"\nclose = false')
    if kind == "by time and quiet":
        text = text.replace('sequence = "n"\n', "").replace("[sink]", QUIET)
        text = text.replace('[rules.order]\nwait = "1 hour"\n', "[rules.order]\n")
    file.write_text(text + INTERPRETED)
    return file


def next_stage(file: Path, stage: int) -> None:
    """The files of a stage come; before the last one the pipeline is told to close."""
    each = FILES // STAGES
    for number in range(stage * each, (stage + 1) * each):
        name = f"{number:03d}.jsonl"
        (file.parent / "later" / name).rename(file.parent / "in" / name)
    if stage == STAGES - 1:
        file.write_text(file.read_text().replace("close = false", "close = true"))


def carry(spark: SparkSession, file: Path, buckets: int, to: Place | None = None) -> NewState:
    """Carry the state over, and let the pipeline's file name the new checkpoint."""
    with closing(configured(load(file))) as pipeline:
        made = rescale(pipeline, buckets, to, spark)
    go_on_with(file, made.checkpoint)
    return made


def go_on_with(file: Path, checkpoint: Place) -> None:
    """Let the pipeline's file name another checkpoint."""
    file.write_text(
        re.sub(r'^checkpoint = ".*"$', f'checkpoint = "{checkpoint}"', file.read_text(), flags=re.MULTILINE)
    )


def found(file: Path) -> Counter[Any]:
    """All results, whichever batch they came in; and what else the sink says."""
    with closing(sqlite3.connect(file.parent / "out.db")) as db:
        rows = db.execute(f"SELECT {COLUMNS} FROM results").fetchall()
        sums = db.execute(
            "SELECT j.key, sum(j.value) FROM results_batches, json_each(counters) j WHERE j.key != 'state_bytes' GROUP BY 1"
        )
        return Counter([*rows, *(("sum", *each) for each in sums)])


def in_stages(spark: SparkSession, file: Path, carried: tuple[int, ...] = ()) -> Counter[Any]:
    """The results of all stages, with the state carried over to each of these numbers between two."""
    for stage in range(STAGES):
        next_stage(file, stage)
        run(spark, file)
        if stage < len(carried):
            carry(spark, file, carried[stage])
    return found(file)


def outcomes(file: Path) -> Counter[Any]:
    """What came out, whenever it did."""
    with closing(sqlite3.connect(file.parent / "out.db")) as db:
        return Counter(db.execute("SELECT kind, key, rule, due, source_id FROM results").fetchall())


def expected(file: Path) -> Counter[Any]:
    """What the rules give in process: no event of these files is late, whatever the batches."""
    config, rows = load(file), []
    for part in sorted((file.parent / "in").iterdir()):
        rows += [json.loads(line) for line in part.read_text().splitlines()]
    for row in rows:
        row["at"] = datetime.fromisoformat(row["at"])
    assert config.rules is not None
    found = config.rules.run(rows, "1 hour")
    return Counter((r.kind, r.key, r.rule, r.due.strftime("%Y-%m-%d %H:%M:%S.%f"), r.source_id) for r in found)


def refused(spark: SparkSession, file: Path, checkpoint: Place) -> str:
    """What a start with this checkpoint is told; empty where it would go on."""
    before = file.read_text()
    go_on_with(file, checkpoint)
    try:
        with closing(configured(load(file))) as pipeline:
            pipeline.check(spark)
        return ""
    except StateMismatch as error:
        return str(error)
    finally:
        file.write_text(before)


def usable(spark: SparkSession, file: Path, *checkpoints: Place) -> list[Place]:
    """Those with which the pipeline would go on."""
    return [checkpoint for checkpoint in checkpoints if not refused(spark, file, checkpoint)]
