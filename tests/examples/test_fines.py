"""The main job: every penalty re-created, whatever the seed, the batches and the partitions."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from waterclock.examples.fines import main
from waterclock.examples.fines.check import Verdict, check
from waterclock.examples.fines.log import (
    NOTIFIED,
    PAYMENT,
    PENALTY,
    LogEvent,
    paid,
    penalties,
    read_log,
    unpaid,
    without_penalties,
)
from waterclock.examples.fines.main import answers, prepare, run_pipeline
from waterclock.examples.fines.tables import SQLiteTables
from waterclock.spark.session.session import Session


def test_the_log_is_the_one_that_the_job_is_about() -> None:
    cases = read_log()
    assert (len(cases), sum(map(len, cases.values()))) == (10_000, 34_724)
    assert (len(penalties(cases)), len(unpaid(cases)), len(paid(cases))) == (4_635, 4_617, 18)
    assert sum(map(len, without_penalties(cases).values())) == 30_089


@pytest.mark.long(seconds=3)
def test_the_same_seed_makes_the_same_replay_and_another_one_another(tmp_path: Path) -> None:
    assert prepare(tmp_path, 5) == prepare(tmp_path, 5)
    assert prepare(tmp_path, 6) != prepare(tmp_path, 5)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("seed", "shuffle", "partitions", "per_batch", "rate"),
    [
        pytest.param(3, 3, 3, 9000, 10_000, marks=pytest.mark.long(seconds=20)),
        pytest.param(2, 2, 4, 4000, 1_000_000, marks=pytest.mark.long(seconds=25)),
        pytest.param(4, 1, 1, 7000, 20_000, marks=pytest.mark.long(seconds=15)),
    ],
)
def test_every_penalty_is_made_on_its_day_whatever_the_seed_batches_and_partitions(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    shuffle: int,
    partitions: int,
    per_batch: int,
    rate: int,
) -> None:
    monkeypatch.setattr(main, "PARTITIONS", partitions)
    replay = prepare(tmp_path, seed)
    pipeline = tmp_path / "pipeline.toml"
    pipeline.write_text(pipeline.read_text().replace("per_batch = 4000", f"per_batch = {per_batch}"))
    spark.conf.set("spark.sql.shuffle.partitions", shuffle)
    try:
        run = run_pipeline(tmp_path, Session(spark, "the tests' Java"), replay, rate)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", 2)
    found = answers(tmp_path, replay, run, seed, "the tests' Java")
    right = {"recreated": 4635, "missing": 0, "extra": 0, "unpaid_expected": 4617, "unpaid_found": 4617, "late": 0}
    assert found["others_wrong"] == 0
    assert {name: found[name] for name in right} == right
    assert found["duplicates_removed"] == found["duplicates_injected"] > 1_400
    assert (found["out_of_order_cases"], found["verdict"]) == (0, "right")
    assert len(run.latencies_s) == replay.events
    assert 0 < found["latency_p50_s"] <= found["latency_p99_s"]


@pytest.mark.parametrize(
    "seed", [pytest.param(3, marks=pytest.mark.long(seconds=10)), pytest.param(2, marks=pytest.mark.long(seconds=10))]
)
def test_without_spark_and_java_the_verdict_is_the_same(tmp_path: Path, seed: int) -> None:
    block = "import sys; sys.modules['pyspark'] = None\nfrom waterclock.cli import main; sys.exit(main(sys.argv[1:]))"
    asked = ["demo", "fines", "--engine", "local", "--folder", str(tmp_path / "out"), "--seed", str(seed), "--json"]
    hidden = {"PATH": os.path.dirname(sys.executable), "JAVA_HOME": "/nowhere", "MPLCONFIGDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", block, *asked], env=hidden, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["recreated"], found["missing"], found["extra"], found["others_wrong"]) == (4635, 0, 0, 0)
    assert (found["unpaid_expected"], found["unpaid_found"], found["out_of_order_cases"]) == (4617, 4617, 0)
    assert (found["verdict"], found["late"]) == ("right", 0)
    assert found["duplicates_removed"] == found["duplicates_injected"] > 1_400
    assert 0 < found["latency_p50_s"] <= found["latency_p99_s"]
    assert (tmp_path / "out" / "report.html").exists()


# The check ---------------------------------------------------------------------------------------------------------


RIGHT = [
    ("event", "A1", None, "2007-01-01", ("A1", "Create Fine", "2007-01-01", "fine-1", 1)),
    ("event", "A1", None, "2007-01-10", ("A1", "Insert Fine Notification", "2007-01-10", "fine-2", 2)),
    ("event", "B2", None, "2007-01-12", ("B2", "Insert Fine Notification", "2007-01-12", "fine-4", 1)),
    ("event", "B2", None, "2007-02-01", ("B2", "Payment", "2007-02-01", "fine-5", 2)),
    ("met", "B2", "unpaid", "2007-03-13", None),
    ("emit", "A1", "Add penalty", "2007-03-11", None),
    ("expired", "A1", "unpaid", "2007-03-11", None),
    ("emit", "B2", "Add penalty", "2007-03-13", None),
]
Row = tuple[str, str, str | None, str, tuple[Any, ...] | None]


def event(case: str, activity: str, day: str, number: int) -> LogEvent:
    return LogEvent(case, activity, date.fromisoformat(day), number)


LOG = {
    "A1": [event("A1", "Create Fine", "2007-01-01", 1), event("A1", NOTIFIED, "2007-01-10", 2),
           event("A1", PENALTY, "2007-03-11", 3)],
    "B2": [event("B2", NOTIFIED, "2007-01-12", 4), event("B2", PAYMENT, "2007-02-01", 5),
           event("B2", PENALTY, "2007-03-13", 6)],
}  # fmt: skip


def verdict(folder: Path, rows: Sequence[Row]) -> Verdict:
    """Of tables with these rows; a day is its first moment."""
    with closing(sqlite3.connect(folder / "fines.db")) as db, db:
        of_event = "event_case_id, event_activity, event_ts, event_event_id, event_seq"
        db.execute(f"CREATE TABLE results (kind, key, rule, due, {of_event})")
        for kind, key, rule, due, told in rows:
            values = [f"{value} 00:00:00.000000" if place == 2 else value for place, value in enumerate(told or [])]
            row = (kind, key, rule, due if " " in due else f"{due} 00:00:00.000000", *(values or [None] * 5))
            db.execute(f"INSERT INTO results VALUES ({', '.join('?' * 9)})", row)
    return check(LOG, SQLiteTables(folder / "fines.db"))


def test_what_the_log_says_is_right(tmp_path: Path) -> None:
    assert verdict(tmp_path, RIGHT) == Verdict(2, 0, 0, 1, 1, 0, 0, 0, ())


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        (RIGHT[:5] + RIGHT[6:], {"missing": 1}),
        ([*RIGHT, RIGHT[5]], {"extra": 1}),
        ([*RIGHT[:5], ("emit", "A1", "Add penalty", "2007-03-11 01:00:00.000000", None), *RIGHT[6:]],
         {"missing": 1, "extra": 1}),
        (RIGHT[:6] + RIGHT[7:], {"unpaid_wrong": 1}),
        (RIGHT[:4] + RIGHT[5:], {"others_wrong": 1}),
        ([*RIGHT, RIGHT[4]], {"others_wrong": 1}),
        ([*RIGHT, ("late", "A1", "order", "2007-01-01", None)], {"others_wrong": 1}),
        ([*RIGHT, ("emit", "A1", "Second penalty", "2007-03-11", None)], {"others_wrong": 1}),
        (RIGHT[1:], {"out_of_order_cases": 1}),
        ([*RIGHT, RIGHT[0]], {"out_of_order_cases": 1}),
        ([RIGHT[1], RIGHT[0], *RIGHT[2:]], {"out_of_order_cases": 1}),
        *(([("event", "A1", None, "2007-01-01", told), *RIGHT[1:]], {"out_of_order_cases": 1}) for told in [
            ("B2", "Create Fine", "2007-01-01", "fine-1", 1), ("A1", "Payment", "2007-01-01", "fine-1", 1),
            ("A1", "Create Fine", "2007-01-02", "fine-1", 1), ("A1", "Create Fine", "2007-01-01", "fine-1", 2),
        ]),
    ],
)  # fmt: skip
def test_each_kind_of_wrong_result_is_counted(tmp_path: Path, rows: list[Row], wrong: dict[str, int]) -> None:
    found = verdict(tmp_path, rows)
    assert not found.right
    names = ("missing", "extra", "unpaid_wrong", "out_of_order_cases", "others_wrong")
    assert {name: getattr(found, name) for name in names if getattr(found, name)} == wrong


def test_tables_without_a_row_are_wrong(tmp_path: Path) -> None:
    found = verdict(tmp_path, [])
    assert (found.recreated, found.missing, found.unpaid_wrong, found.others_wrong, found.right) == (0, 2, 1, 1, False)
    assert found.wrong_cases == ("A1", "B2")
