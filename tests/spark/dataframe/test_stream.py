"""Any streaming DataFrame as the source of a pipeline: once, closed, and refused where that could not be promised."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.pipelines import orders, table, write_files
from tests.spark.test_pipeline_api import ORDERS, TOLD, expected
from waterclock import Rules
from waterclock.errors import StateMismatch, UsageError
from waterclock.sinks import SQLiteSink
from waterclock.spark import Pipeline

pytestmark = pytest.mark.spark
DDL = "order string, at timestamp, what string, id string, n long"


def stream_of(spark: SparkSession, folder: Path, ddl: str = DDL) -> DataFrame:
    return spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).json(str(folder / "in"))


def run(rows: DataFrame, folder: Path, rules: Rules = ORDERS, **more: Any) -> Any:
    sink, delay = SQLiteSink(folder / "out.db"), {"watermark_delay": "1 hour", **more}
    with Pipeline(rows, rules, sink, folder / "checkpoint", **delay) as pipeline:
        return pipeline.run()


@pytest.mark.long(seconds=15)
def test_a_dataframe_gives_what_the_rules_give_in_process_and_is_closed(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(30)
    write_files(rows, tmp_path / "in", 3)
    names = spark.createDataFrame([("created", "opened")], "what string, name string")
    joined = (
        stream_of(spark, tmp_path)
        .join(F.broadcast(names), "what", "left")
        .select("order", "at", "what", "id", "n", "name")
    )
    summary = run(joined, tmp_path)
    assert Counter(table(tmp_path, TOLD)) == expected(rows)
    assert {name for (name,) in table(tmp_path, "event_name", "event_what = 'created'")} == {"opened"}
    assert (summary.events, summary.totals["held"], summary.totals["pending"]) == (len(rows), 0, 0)
    assert (
        run(stream_of(spark, tmp_path).withColumn("name", F.lit("a")), tmp_path).batches == 0
    )  # again, nothing is new


@pytest.mark.long(seconds=10)
def test_rows_after_the_close_are_refused_and_rules_or_columns_that_changed_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_files(orders(3), tmp_path / "in", 1)
    run(stream_of(spark, tmp_path), tmp_path)
    before = table(tmp_path)
    with pytest.raises(StateMismatch, match=r"the pipeline changed .*\(rules\)"):
        run(stream_of(spark, tmp_path), tmp_path, rules=ORDERS.quiet("1 day", "quiet"))
    with pytest.raises(StateMismatch, match=r"the pipeline changed .*\(columns\)"):
        run(stream_of(spark, tmp_path, DDL.replace("n long", "n int")), tmp_path)
    (tmp_path / "in" / "more.jsonl").write_text((tmp_path / "in" / "000.jsonl").read_text())
    for _ in range(2):
        with pytest.raises(UsageError, match=r"the pipeline was closed, and rows came after that.*set close=False"):
            run(stream_of(spark, tmp_path), tmp_path)
    assert table(tmp_path) == before


def test_a_row_that_the_rules_cannot_take_is_a_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(3)
    write_files(rows, tmp_path / "in", 1)
    with (tmp_path / "in" / "000.jsonl").open("a") as file:
        file.write('{"order": "o1", "what": "created", "n": 1}\n')
    summary = run(stream_of(spark, tmp_path), tmp_path)
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        ((reason, text),) = db.execute("SELECT reason, text FROM results_dead_letters").fetchall()
    assert (reason, json.loads(text)["order"]) == ("column 'at' (the time) is missing", "o1")
    assert summary.totals["dead_letters"] == 1
    assert Counter(table(tmp_path, TOLD)) == expected(rows)


@pytest.mark.long(seconds=8)
def test_a_pipeline_that_stays_open_goes_on_where_it_ended(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(12)
    write_files(rows[:18], tmp_path / "in", 1)
    run(stream_of(spark, tmp_path), tmp_path, close=False)
    write_files(rows[18:], tmp_path / "more", 1)
    (tmp_path / "more" / "000.jsonl").rename(tmp_path / "in" / "more.jsonl")
    run(stream_of(spark, tmp_path), tmp_path)
    assert Counter(table(tmp_path, TOLD)) == expected(rows)


def test_what_keeps_state_of_its_own_or_depends_on_chance_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = stream_of(spark, tmp_path)
    delay = rows.withWatermark("at", "1 hour")
    wrong = {
        r"holds withWatermark, .* by watermark_delay": delay,
        r"holds dropDuplicates, .*deduplicate\(within": rows.dropDuplicates(["id"]),
        r"holds an aggregation, .* a query of its own": delay.groupBy("order", "at")
        .agg(F.max("n").alias("n"))
        .selectExpr("order", "at", "'a' what", "'b' id", "n"),
        r"holds a join of two streams": rows.join(rows.select("id"), "id"),
        r"holds EXCEPT, .* a query of its own": rows.exceptAll(spark.createDataFrame([], DDL)),
        r"holds INTERSECT, ": rows.intersect(spark.createDataFrame([], DDL)),
        r"depends on chance": rows.withColumn("x", F.rand()),
    }
    for told, frame in wrong.items():
        with pytest.raises(UsageError, match=rf"Pipeline\(source=\) {told}"):
            run(frame, tmp_path)
    counts = spark.sql("SELECT 'created' AS what, 1 AS a").groupBy("what").count()
    with Pipeline(rows.join(counts, "what"), ORDERS, SQLiteSink(tmp_path / "a.db"), tmp_path / "cp") as pipeline:
        pipeline.check()  # a static side may be whatever it is


def test_a_dataframe_that_cannot_be_a_source_is_refused_at_the_call(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = stream_of(spark, tmp_path)
    with pytest.raises(UsageError, match=r"a batch DataFrame: read it with spark\.readStream"):
        run(spark.createDataFrame([], DDL), tmp_path)
    with pytest.raises(UsageError, match=r"the rules name the column 'at'"):
        run(rows.drop("at"), tmp_path)
    with pytest.raises(UsageError, match=r"Pipeline\(source=\): a column's name must be printable"):
        run(rows.withColumn("a\tb", F.lit(1)), tmp_path)
    with pytest.raises(UsageError, match=r"Pipeline\(source=\): two columns are called 'n': rename one"):
        run(rows.selectExpr("*", "n"), tmp_path)
    with pytest.raises(UsageError, match=r"the column 'event_x' is of the type struct.*not kept in SQLite: cast it"):
        run(rows.withColumn("x", F.struct("n")), tmp_path)
    with pytest.raises(UsageError, match=r"delay 'late' waits for more than 10,000 years"):
        run(rows, tmp_path, rules=ORDERS.delay(after="created", by=timedelta(days=4_000_000), emit="late"))
