"""The example pipelines run as they stand, and their tables are right."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from waterclock.examples.pipelines.sensors import silent
from waterclock.spark.pipeline import configured
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark
EXAMPLES = Path(silent.__file__).parents[1]


def copied(name: str, folder: Path) -> Path:
    shutil.copytree(EXAMPLES / name, folder / name)
    return folder / name


def ask(file: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as db:
        return db.execute(query).fetchall()


@pytest.mark.long(seconds=20)
def test_gzipped_csv_with_german_times_joined_with_a_table_tells_what_is_overdue(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = copied("deliveries", tmp_path)
    with configured(load(place / "pipeline.toml")) as pipeline:
        pipeline.check()
        summary = pipeline.run(spark)
    told = ask(
        place / "deliveries.db", "SELECT kind, key, due FROM results WHERE kind IN ('met', 'expired') ORDER BY 2"
    )
    assert told == [
        ("met", "P1", "2026-03-04 08:10:00.000000"),
        ("expired", "P2", "2026-03-04 09:00:00.000000"),  # delivered to the minute, two days later: too late
        ("met", "P3", "2026-03-05 07:30:00.000000"),
        ("met", "P4", "2026-03-06 10:00:00.000000"),
    ]
    cities = ask(
        place / "deliveries.db", "SELECT DISTINCT key, event_city FROM results WHERE kind = 'event' ORDER BY 1"
    )
    assert cities == [("P1", "München"), ("P2", "Köln"), ("P3", "München"), ("P4", None)]
    letters = ask(place / "deliveries.db", "SELECT file, text FROM results_dead_letters")
    assert [(Path(file).name, text) for file, text in letters] == [("2026-03-03.csv.gz", "Störung im Lesegerät")]
    assert summary.totals["duplicates"] == 1


@pytest.mark.long(seconds=6)
def test_nested_json_without_a_sequence_number_tells_which_sensor_fell_silent(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = copied("sensors", tmp_path)
    silent.run(place, spark)
    assert ask(place / "sensors.db", "SELECT sensor, silent_since FROM results ORDER BY 1, 2") == [
        ("s1", "2026-03-02 08:38:00.000000"),
        ("s2", "2026-03-02 08:14:00.000000"),
        ("s2", "2026-03-02 08:40:00.000000"),
    ]
    ((text,),) = ask(place / "sensors.db", "SELECT text FROM results_dead_letters")
    assert text == '{"device": {"id": "s3"'
