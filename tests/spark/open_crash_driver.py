"""A DataFrame's pipeline, or `write_once`, that kills itself.

    python -m tests.spark.open_crash_driver FOLDER WAY POINT BATCH

WAY is one of WAYS. POINT and BATCH are those of crash_driver.py; RANDOM kills after so many milliseconds.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.spark.crash_driver import CrashingSink, die
from waterclock import Rules
from waterclock.sinks import SQLiteSink
from waterclock.spark import Pipeline, write_once
from waterclock.spark.session.session import start

RULES = (
    Rules(key="order", time="at", type="what", id="id", sequence="n")
    .deduplicate(within="1 day")
    .order(wait="1 hour")
    .expect("paid", after="created", within="20 minutes", otherwise="unpaid")
    .quiet("2 hours", "quiet")
)
QUICK = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def rows_of(spark: SparkSession, folder: Path) -> DataFrame:
    """The orders of pipelines.py, with a name for what happened."""
    ddl = "order string, at timestamp, what string, id string, n long"
    names = spark.createDataFrame([("created", "opened"), ("paid", "closed")], "what string, name string")
    rows = spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    return rows.join(names.hint("broadcast"), "what", "left").select("order", "at", "what", "id", "n", "name")


def as_source(spark: SparkSession, folder: Path, sink: Any) -> None:
    """The DataFrame is a pipeline's source."""
    rows = rows_of(spark, folder)
    with Pipeline(rows, RULES, sink, folder / "checkpoint", watermark_delay="1 hour") as pipeline:
        pipeline.run()


def as_results(spark: SparkSession, folder: Path, sink: Any) -> None:
    """The DataFrame goes through `on_spark` and a filter, and is written once."""
    results = rows_of(spark, folder).transform(RULES.on_spark("1 hour")).where("kind <> 'met'")
    write_once(results, sink, folder / "checkpoint")


WAYS: dict[str, Callable[[SparkSession, Path, Any], None]] = {"source": as_source, "write_once": as_results}


def main() -> None:
    folder, way, point, number = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    sink: Any = SQLiteSink(folder / "out.db")
    if point != "random":
        sink = CrashingSink(sink, point, number, folder / "checkpoint")
    spark = start("crash", 2, QUICK, folder / "spark.log").spark
    if point == "random":
        threading.Timer(number / 1000, die).start()
    WAYS[way](spark, folder, sink)


if __name__ == "__main__":
    main()
