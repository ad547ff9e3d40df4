"""Some columns of the results for a sink: those of the file's or the program's choice, and no others."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import make_pipeline, orders, table
from tests.spark.test_pipeline_api import COLUMNS, ORDERS
from waterclock.errors import UsageError
from waterclock.sinks import SQLiteSink
from waterclock.spark import Pipeline, folder, reshaped
from waterclock.spark.pipeline import configured
from waterclock.streaming import frames
from waterclock.streaming.toml.config import load

ASKED = ("event_at", "key", "due", "result_id")


def columns_of(place: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(place / "out.db")) as db:
        return [(name, kind) for _, name, kind, *_ in db.execute("PRAGMA table_info(results)")]


def asking(file: Path, columns: Sequence[str]) -> Path:
    file.write_text(file.read_text().replace('path = "out.db"', f'path = "out.db"\ncolumns = {list(columns)}'))
    return file


@pytest.mark.spark
@pytest.mark.long(seconds=12)
def test_the_table_has_the_columns_that_are_asked_for_with_the_values_that_it_always_had(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = orders(8)
    make_pipeline(tmp_path / "all", rows, files=2)
    asking(make_pipeline(tmp_path / "some", rows, files=2), ASKED)
    for place in ("all", "some"):
        with configured(load(tmp_path / place / "pipeline.toml")) as pipeline:
            pipeline.run(spark)
    whole = table(tmp_path / "all", f"batch_id, {', '.join(ASKED)}")
    assert table(tmp_path / "some") == whole
    assert {row[1] is None for row in whole} == {True, False}, "of each kind"
    assert columns_of(tmp_path / "some") == [("batch_id", "INTEGER"), *((name, "TEXT") for name in ASKED)]


@pytest.mark.spark
@pytest.mark.long(seconds=5)
def test_in_python_a_sink_is_given_the_columns_that_it_is_reshaped_to(spark: SparkSession, tmp_path: Path) -> None:
    make_pipeline(tmp_path, orders(4), files=1)
    source = folder(tmp_path / "in", columns=COLUMNS)
    sink = reshaped(SQLiteSink(tmp_path / "out.db"), columns=["event_n"])
    with Pipeline(source, ORDERS, sink, tmp_path / "checkpoint", watermark_delay="1 hour") as pipeline:
        done = pipeline.run(spark)
    assert columns_of(tmp_path) == [("batch_id", "INTEGER"), ("event_n", "INTEGER")]
    assert len(table(tmp_path)) == done.totals["results"]


def test_a_table_with_all_columns_goes_on_with_all_and_is_not_taken_for_one_with_some(tmp_path: Path) -> None:
    file = make_pipeline(tmp_path, orders(2), files=1)
    for _ in range(2):
        with configured(load(file)) as pipeline:
            pipeline.check()
    asking(file, ASKED)
    with configured(load(file)) as pipeline, pytest.raises(UsageError, match=r"'kind' is only there.*--fresh"):
        pipeline.check()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('columns = ["due", "n"]', r"\[sink\]: 'columns' names the column 'n'; results have kind, key, .*, event_n"),
        ('columns = ["due", "due"]', r"\[sink\]: 'columns' must be a list of columns' names, each once, got"),
        ("columns = []", r"\[sink\]: 'columns' must be a list of columns' names, each once, got \[\]"),
        ('columns = "due"', r"\[sink\]: 'columns' must be a list"),
        ('columns = ["due"]\nquery = "SELECT due FROM results"', r"and 'query' makes columns of its own: leave one"),
    ],
)
def test_columns_that_cannot_be_are_refused_before_spark_is_started(tmp_path: Path, line: str, told: str) -> None:
    file = make_pipeline(tmp_path, orders(2), files=1)
    file.write_text(file.read_text().replace('path = "out.db"', f'path = "out.db"\n{line}'))
    with pytest.raises(UsageError, match=told), configured(load(file)) as pipeline:
        pipeline.check()
    with pytest.raises(ValueError, match="needs query="):
        reshaped(SQLiteSink(tmp_path / "x.db"))


def test_a_frame_without_an_event_keeps_its_rows_and_what_it_says_of_its_batch() -> None:
    whole = frames.with_counters(pa.table({"kind": ["expired"] * 3, "key": ["a"] * 3}), {"expired": 3})
    some = frames.chosen(whole, ("event_n", "due"))
    assert (some.column_names, some.num_rows, frames.counters_of(some)) == (["kind"], 3, {"expired": 3})
