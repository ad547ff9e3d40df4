"""A pipeline into a table of Delta Lake: what SQLite would hold, also where the driver is killed between two commits."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.spark.pipelines import make_pipeline, orders, table
from waterclock.spark.pipeline import configured
from waterclock.streaming.summary import Summary
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark
COLUMNS = ["kind", "key", "rule", "due", "source_id", "result_id", "event_id", "event_n"]
# the command, and SIGKILL before the commit of Delta of that number
DRIVER = """
import os, signal, sys
from waterclock import cli
from waterclock.sinks.delta import delta
write, commits = delta.write_deltalake, iter(range(1000))
def dying(*arguments, **more):
    if next(commits) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    write(*arguments, **more)
delta.write_deltalake = dying
cli.main(["run", sys.argv[1]])
"""


def with_rubbish(folder: Path, rows: list[dict[str, Any]]) -> Path:
    file = make_pipeline(folder, rows, files=4)
    second = folder / "in" / "001.jsonl"
    second.write_text(second.read_text() + "rubbish\n")
    return file


def into_delta(folder: Path, rows: list[dict[str, Any]]) -> Path:
    file = with_rubbish(folder, rows)
    file.write_text(file.read_text().replace('path = "out.db"', 'format = "delta"\npath = "lake/orders"'))
    return file


def run(spark: SparkSession, file: Path) -> Summary:
    with closing(configured(load(file))) as pipeline:
        return pipeline.run(spark)


def held(folder: Path, part: str = "", columns: list[str] | None = None) -> list[tuple[Any, ...]]:
    rows = DeltaTable(folder / "lake" / f"orders{part}").to_pyarrow_table()
    order = [("batch_id", "ascending"), *([("batch_row", "ascending")] if not part else [])]
    return [tuple(row.values()) for row in rows.sort_by(order).select(columns or rows.column_names).to_pylist()]


@pytest.mark.long(seconds=8)
def test_a_table_of_delta_lake_holds_what_sqlite_holds(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(40)
    delta, sqlite = into_delta(tmp_path / "delta", rows), with_rubbish(tmp_path / "sqlite", rows)
    totals = [run(spark, file).totals for file in (delta, sqlite)]
    plain = [name for name in COLUMNS if name != "due"]
    assert held(tmp_path / "delta", "", plain) == table(tmp_path / "sqlite", ", ".join(plain))
    assert totals[0] == totals[1]
    assert len(held(tmp_path / "delta", "_dead_letters", ["reason"])) == 1
    assert run(spark, delta).batches == 0


@pytest.mark.long(seconds=25)
def test_a_kill_between_two_commits_of_delta_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(40)
    clean, killed = into_delta(tmp_path / "clean", rows), into_delta(tmp_path / "killed", rows)
    run(spark, clean)
    for commit in (1, 1):  # the first time before the first results, then before those of a later batch
        command = [sys.executable, "-c", DRIVER, str(killed), str(commit)]
        assert subprocess.run(command, capture_output=True, timeout=240).returncode == -signal.SIGKILL
    run(spark, killed)
    assert held(tmp_path / "killed") == held(tmp_path / "clean")
    names = ["batch_id", "line", "reason", "text"]
    assert held(tmp_path / "killed", "_dead_letters", names) == held(tmp_path / "clean", "_dead_letters", names)
    names = ["batch_id", "counters", "watermark"]
    assert held(tmp_path / "killed", "_batches", names) == held(tmp_path / "clean", "_batches", names)
