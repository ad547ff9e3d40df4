"""Pipelines whose results executors write: the rows and counts of the driver's way, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.lakes import BY_EXECUTORS, DELTA, ICEBERG, beside, held, lake_pipeline, orphans
from tests.spark.pipelines import orders
from waterclock.spark.pipeline import configured
from waterclock.streaming.summary import Summary
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark
# the command, and SIGKILL before the commit of Delta of that number
DELTA_DRIVER = """
import os, signal, sys
from deltalake import DeltaTable
from waterclock import cli
from waterclock.sinks.delta import delta
commits = iter(range(1000))
def dying(real):
    def call(*arguments, **more):
        if next(commits) == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **more)
    return call
delta.write_deltalake = dying(delta.write_deltalake)
DeltaTable.create_write_transaction = dying(DeltaTable.create_write_transaction)
cli.main(["run", sys.argv[1]])
"""


def run(spark: SparkSession, file: Path) -> Summary:
    with closing(configured(load(file))) as pipeline:
        return pipeline.run(spark)


@pytest.mark.long(seconds=10)
@pytest.mark.parametrize("sink", [DELTA, ICEBERG], ids=["delta", "iceberg"])
def test_executors_write_the_rows_that_the_driver_would_have_written(
    spark: SparkSession, tmp_path: Path, sink: str
) -> None:
    rows = orders(20)
    files = [
        lake_pipeline(tmp_path / name, rows, sink + more, files=2) for name, more in (("d", ""), ("e", BY_EXECUTORS))
    ]
    totals = [run(spark, file).totals for file in files]
    assert totals[0] == totals[1]
    assert held(tmp_path / "d", numbered=False) == held(tmp_path / "e", numbered=False)
    assert beside(tmp_path / "d") == beside(tmp_path / "e")
    numbers = [row[:2] for row in held(tmp_path / "e")]
    assert len(set(numbers)) == len(numbers) > 20
    assert {number >> 32 for _, number in numbers} == {0, 1}
    assert run(spark, files[1]).batches == 0
    if sink != ICEBERG:
        assert orphans(tmp_path / "e") == set()


@pytest.mark.long(seconds=10)
def test_chosen_columns_go_the_same_way_and_who_writes_may_change_between_two_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows, chosen = orders(20), '\ncolumns = ["key", "event_n", "due"]'
    clean = lake_pipeline(tmp_path / "clean", rows, DELTA + chosen)
    turned = lake_pipeline(tmp_path / "turned", rows, DELTA + chosen)
    late = turned.parent / "in" / "003.jsonl"
    text, moment = late.read_text(), late.stat()
    late.unlink()
    turned.write_text(turned.read_text().replace("[time]", "[time]\nclose = false"))
    run(spark, turned)
    late.write_text(text)
    os.utime(late, (moment.st_atime, moment.st_mtime))
    turned.write_text(turned.read_text().replace("close = false\n", "").replace(DELTA, DELTA + BY_EXECUTORS))
    run(spark, turned)
    run(spark, clean)
    found = [sorted(repr(row[1:]) for row in held(tmp_path / name, numbered=False)) for name in ("turned", "clean")]
    assert found[0] == found[1]  # a batch without rows lies between the two runs, so the numbers of batches differ


@pytest.mark.long(seconds=30)
def test_a_driver_that_is_killed_between_files_and_commits_writes_no_row_twice_and_a_vacuum_takes_what_is_left(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = orders(40)
    clean, killed = (lake_pipeline(tmp_path / name, rows, DELTA + BY_EXECUTORS) for name in ("clean", "killed"))
    run(spark, clean)
    for commit in ("1", "1"):  # before the first results, then before those of a later batch
        command = [sys.executable, "-c", DELTA_DRIVER, str(killed), commit]
        assert subprocess.run(command, capture_output=True, timeout=240).returncode == -signal.SIGKILL
    run(spark, killed)
    assert held(tmp_path / "killed") == held(tmp_path / "clean")
    assert beside(tmp_path / "killed") == beside(tmp_path / "clean")
    named = {name.partition("-")[0] for name in orphans(tmp_path / "killed")}
    assert named == {"part"}
