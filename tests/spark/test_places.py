"""Places behind a URI: the same as a path, through Spark's Java. Here it is file://, the same code without a server."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import behind, make_pipeline, orders, table
from tests.streaming.places.place_contract import PlaceContract, RemoteContract
from waterclock.errors import EnvironmentMissing, UsageError
from waterclock.spark.fresh import start_over
from waterclock.spark.pipeline import Summary, configured
from waterclock.streaming.places.hadoop import HadoopPath
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark


class TestPath(PlaceContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path / "place"


class TestUri(RemoteContract):
    @pytest.fixture
    def place(self, spark: SparkSession, tmp_path: Path) -> HadoopPath:
        return HadoopPath(f"file://{tmp_path}/place")


class FullStream:
    """A stream of Java's to a store of objects, whose disk is full: what is closed is seen, but for what was given up."""

    def __init__(self) -> None:
        self.seen: bytes | None = None
        self._begun = b""

    def write(self, data: bytearray) -> None:
        self._begun = bytes(data[:2])
        raise OSError(28, "No space left on device")

    def abort(self) -> None:
        self._begun = b""

    def close(self) -> None:
        self.seen = self._begun or None


def test_half_of_a_file_that_could_not_be_written_is_never_shown() -> None:
    # a manifest, or an epoch, that was cut short stood there for good: nothing is written over one
    stream = FullStream()
    with pytest.raises(OSError, match="No space left"):
        HadoopPath._close(stream, b"a whole manifest")
    assert stream.seen is None


def test_a_store_that_spark_does_not_know_is_told_with_the_way_out(spark: SparkSession) -> None:
    with pytest.raises(
        EnvironmentMissing, match=r"Spark has no file system for s3a://: give its jars under \[spark\.conf\]"
    ):
        HadoopPath("s3a://bucket/a").exists()


# Pipelines


def run(spark: SparkSession, file: Path) -> Summary:
    with closing(configured(load(file))) as pipeline:
        return pipeline.run(spark)


def letters(folder: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return db.execute("SELECT file, line, text FROM results_dead_letters").fetchall()


@pytest.mark.long(seconds=12)
def test_a_pipeline_behind_a_uri_gives_the_table_of_one_on_paths_and_is_started_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = orders(60)
    here = make_pipeline(tmp_path / "here", rows, files=2)
    there = behind(f"file://{tmp_path}/there", make_pipeline(tmp_path / "there", rows, files=2))
    for file in (here, there):
        with (file.parent / "in" / "001.jsonl").open("a") as last:
            last.write("rubbish\n")
    run(spark, here)
    assert run(spark, there).events == len(rows)
    assert table(tmp_path / "there") == table(tmp_path / "here")
    ((name, line, text),) = letters(tmp_path / "there")
    assert (name, text) == (f"file:{tmp_path}/there/in/001.jsonl", "rubbish")
    assert line == letters(tmp_path / "here")[0][1]
    assert run(spark, there).events == 0
    (tmp_path / "there" / "in" / "late.jsonl").write_text("rubbish")
    with pytest.raises(UsageError, match=r"was closed, and 1 file came after that \(late\.jsonl\)"):
        run(spark, there)
    start_over(load(there))
    (tmp_path / "there" / "in" / "late.jsonl").unlink()
    run(spark, there)
    assert table(tmp_path / "there") == table(tmp_path / "here")
    assert sorted(path.name for path in (tmp_path / "there" / "checkpoint" / "waterclock.owners").glob("0*")) == [
        "000000000004",
        "000000000005",
    ]


@pytest.mark.long(seconds=15)
def test_the_command_starts_spark_first_and_starts_over_behind_a_uri(tmp_path: Path) -> None:
    rows = orders(20)
    file = behind(f"file://{tmp_path}", make_pipeline(tmp_path, rows, files=1))
    command = [sys.executable, "-m", "waterclock.cli", "run", str(file), "--json", "--fresh"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["totals"]["events"] == len(rows)
    assert (tmp_path / "orders-spark.log").exists()
    assert not (tmp_path / "checkpoint" / "spark.log").exists()
