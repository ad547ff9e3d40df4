"""Folders and files that are not where they were: moved, deleted, dated in another century. Nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import make_pipeline, orders, table
from waterclock.errors import StateMismatch, WaterclockError
from waterclock.sinks import Batch
from waterclock.spark.pipeline import configured
from waterclock.streaming.summary import Summary
from waterclock.streaming.toml.config import load

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long(seconds=8),
]  # each makes several starts; test_checkpoint.py has what each asks of it


def run(spark: SparkSession, file: Path, dying: bool = False) -> Summary:
    config = load(file)
    sink: Any = config.sink.sink()
    if dying:
        sink.write = refuse
    with closing(configured(config, sink)) as pipeline:
        return pipeline.run(spark)


def refuse(batch: Batch) -> Batch:
    raise WaterclockError("the disk is full")


def opened(folder: Path, files: int, **more: int) -> Path:
    """A pipeline that stays open behind a run."""
    file = make_pipeline(folder, orders(20), files=files, **more)
    file.write_text(file.read_text().replace("[rules]\n", "close = false\n[rules]\n", 1))
    return file


def letters(folder: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return db.execute("SELECT file, reason FROM results_dead_letters").fetchall()


def test_a_pipeline_whose_folder_was_moved_is_refused_and_reads_nothing_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    # a server was replaced, or a disk mounted elsewhere: with the checkpoint elsewhere Spark failed in its own words, with
    # the source elsewhere all files were read again, and results stood there twice
    old, new = tmp_path / "old", tmp_path / "new"
    run(spark, opened(old, files=2))
    old.rename(new)
    file, before = new / "pipeline.toml", table(new)
    with pytest.raises(StateMismatch, match=rf"{new}/checkpoint was made as {old}/checkpoint, and nothing .* a link"):
        run(spark, file)
    old.symlink_to(new)
    with pytest.raises(StateMismatch, match=rf"the folder {old}/in when .* is {new}/in now.*--fresh"):
        run(spark, file)
    file.write_text(file.read_text().replace('path = "in"', f'path = "{old}/in"'))
    assert (run(spark, file).events, table(new)) == (0, before)


def test_a_file_that_is_gone_when_its_batch_is_run_again_is_a_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    # Spark passes over it without a word, and its events were missing
    file = opened(tmp_path, files=1)
    with pytest.raises(WaterclockError, match="the disk is full"):
        run(spark, file, dying=True)
    (tmp_path / "in" / "000.jsonl").rename(tmp_path / "in" / "again.jsonl")
    run(spark, file)
    ((name, reason),) = letters(tmp_path)
    assert (Path(name).name, reason.partition(":")[0]) == ("000.jsonl", "it was moved or deleted before it was read")
    assert Counter(kind for (kind,) in table(tmp_path, "kind"))["event"] > 0  # of the same file under its other name


def test_a_file_from_the_far_future_hides_no_later_one(spark: SparkSession, tmp_path: Path) -> None:
    # a clock that was wrong once: Spark passes over what is older than the newest file by more than it is told
    file = opened(tmp_path, files=1)
    os.utime(tmp_path / "in" / "000.jsonl", (8_000_000_000, 8_000_000_000))
    run(spark, file)
    (tmp_path / "in" / "later.jsonl").write_text("{}\n")
    assert run(spark, file).totals["files"] == 2


def test_names_of_files_are_seen_where_the_locale_knows_no_such_letters(tmp_path: Path) -> None:
    # under LC_ALL=C, as services run, the JVM saw no file é.jsonl: nothing was read, and the run ended well
    file = opened(tmp_path, files=2)
    (tmp_path / "in" / "000.jsonl").rename(tmp_path / "in" / "é.jsonl")
    command = [sys.executable, "-m", "waterclock.cli", "run", str(file), "--json"]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "LC_ALL": "C"}, check=True)
    assert json.loads(done.stdout)["totals"]["files"] == 2


def test_what_spark_refuses_at_the_start_is_told_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    # a folder in a folder, named like a column's value: it was a traceback
    file = opened(tmp_path, files=1)
    (tmp_path / "in" / "deep" / "day=1").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "day=1" / "a.jsonl").touch()
    with pytest.raises(WaterclockError, match=r"the pipeline failed: .*[Cc]onflicting directory structures"):
        run(spark, file)
