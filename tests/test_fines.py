"""The main job: every penalty re-created, whatever the seed, the batches and the partitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from waterclock.examples.fines import main
from waterclock.examples.fines.check import check
from waterclock.examples.fines.log import penalties, read_log, unpaid, without_penalties
from waterclock.examples.fines.main import answers, prepare, run_pipeline
from waterclock.examples.fines.tables import SQLiteTables
from waterclock.spark.session import Session


def test_the_log_is_the_one_that_the_job_is_about() -> None:
    cases = read_log()
    assert (len(cases), sum(map(len, cases.values()))) == (10_000, 34_724)
    assert (len(penalties(cases)), len(unpaid(cases))) == (4_635, 4_617)
    assert sum(map(len, without_penalties(cases).values())) == 30_089


def test_the_same_seed_makes_the_same_replay_and_another_one_another(tmp_path: Path) -> None:
    assert prepare(tmp_path, 5) == prepare(tmp_path, 5)
    assert prepare(tmp_path, 6) != prepare(tmp_path, 5)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("seed", "shuffle", "partitions", "per_batch", "rate"),
    [
        (3, 3, 3, 9000, 10_000),
        pytest.param(2, 2, 4, 4000, 1_000_000, marks=pytest.mark.long),
        pytest.param(4, 1, 1, 7000, 20_000, marks=pytest.mark.long),
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
    assert {name: found[name] for name in right} == right
    assert found["duplicates_removed"] == found["duplicates_injected"] > 1_400
    assert (found["out_of_order_cases"], found["verdict"]) == (0, "right")
    assert len(run.latencies_s) == replay.events
    assert 0 < found["latency_p50_s"] <= found["latency_p99_s"]


@pytest.mark.spark
def test_a_wrong_table_is_called_wrong(tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "fines.db")) as db, db:
        db.execute("CREATE TABLE results (kind, key, rule, due, event_event_id)")
        db.execute("INSERT INTO results VALUES ('emit', 'A100', 'Add penalty', '2007-03-15 00:00:00.000000', NULL)")
    verdict = check(read_log(), SQLiteTables(tmp_path / "fines.db"))
    assert (verdict.recreated, verdict.missing, verdict.extra, verdict.right) == (0, 4635, 1, False)
    assert verdict.out_of_order_cases == 10_000
