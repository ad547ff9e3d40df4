"""A pipeline from files to SQLite: right, once, and refusing what would make it wrong."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import make_pipeline, orders, table, write_files
from waterclock.errors import StateMismatch, UsageError, WaterclockError
from waterclock.spark.fresh import start_over
from waterclock.spark.pipeline import configured
from waterclock.streaming.buckets import BUCKETS
from waterclock.streaming.statistics import Summary
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark


def run(spark: SparkSession, file: Path) -> Summary:
    pipeline = configured(load(file))
    try:
        return pipeline.run(spark)
    finally:
        pipeline.close()


def told(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(rows)


def expected(file: Path, rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    results = load(file).rules.run(rows, "1 hour")
    return Counter((r.kind, r.key, r.rule, f"{r.due:%Y-%m-%d %H:%M:%S.%f}", r.source_id) for r in results)


COLUMNS = "kind, key, rule, due, source_id"


class Done(NamedTuple):
    """A pipeline that ran to its end. Who changes its folder puts it back: all tests that look at it share one run."""

    file: Path
    rows: list[dict[str, Any]]
    summary: Summary

    @property
    def folder(self) -> Path:
        return self.file.parent


@pytest.fixture(scope="module")
def done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Done:
    rows = orders(80)
    file = make_pipeline(tmp_path_factory.mktemp("done"), rows)
    return Done(file, rows, run(spark, file))


@pytest.mark.always
def test_the_table_holds_what_the_rules_give_in_process(done: Done) -> None:
    assert told(table(done.folder, COLUMNS)) == expected(done.file, done.rows)


def test_a_session_that_makes_no_batch_without_input_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    # the batch behind the closing heartbeat never came: a run was done without what was held and due, and said so nowhere
    setting = "spark.sql.streaming.noDataMicroBatches.enabled"
    spark.conf.set(setting, "false")
    try:
        with pytest.raises(UsageError, match=rf'"{setting}" must be true.*Leave the setting out'):
            run(spark, make_pipeline(tmp_path, orders(5)))
    finally:
        spark.conf.unset(setting)


def test_a_session_that_forgets_what_a_start_behind_a_kill_needs_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Spark had forgotten where a batch began that was to be run again, and the checkpoint was of no more use
    setting = "spark.sql.streaming.minBatchesToRetain"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "2")
    try:
        with pytest.raises(UsageError, match=rf'"{setting}" must be 3 at least.*Leave the setting out'):
            run(spark, make_pipeline(tmp_path, orders(5)))
    finally:
        spark.conf.set(setting, before)


def test_what_spark_cannot_start_is_told_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    # it was a traceback, also for an option of Spark's own connector that has a wrong value
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        with pytest.raises(
            WaterclockError, match=r"^the pipeline failed: .*EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE.*goes on from"
        ):
            run(spark, make_pipeline(tmp_path, orders(5)))
    finally:
        spark.conf.unset("spark.sql.timestampType")


@pytest.mark.long(seconds=8)
def test_keys_by_the_thousand_rest_between_batches_and_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(9_000)
    file = make_pipeline(tmp_path, rows, files=6, files_per_batch=1)
    (tmp_path / "in" / "_SUCCESS").touch()  # no input, and so no part of what there is to do
    seen: list[tuple[int, int]] = []
    with closing(configured(load(file))) as pipeline:
        pipeline.run(spark, report=lambda told: seen.append((told.done, told.found)))
        blobs = max(progress.stateOperators[0].numRowsTotal for progress in pipeline.progress())
    assert (seen[0], seen[-1]) == ((1, 6), (6, 6))
    assert blobs >= 3 * BUCKETS  # in each bucket its value, and the index and the states of a page
    assert told(table(tmp_path, COLUMNS)) == expected(file, rows)


@pytest.mark.long(seconds=7)
def test_other_batches_and_partitions_give_the_same_results(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(80)
    file = make_pipeline(tmp_path, rows, files=5, files_per_batch=3)
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        run(spark, file)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert told(table(tmp_path, COLUMNS)) == expected(file, rows)


def test_running_again_adds_nothing(spark: SparkSession, done: Done) -> None:
    before = table(done.folder)
    again = run(spark, done.file)
    assert (again.batches, table(done.folder)) == (0, before)


def test_each_events_come_out_in_sequence_and_once(done: Done) -> None:
    numbers: dict[str, list[int]] = {}
    for key, number in table(done.folder, "key, event_n", "kind = 'event'"):
        numbers.setdefault(key, []).append(number)
    assert all(taken == sorted(set(taken)) for taken in numbers.values())


def test_the_summary_counts_what_was_put_in(done: Done) -> None:
    rows, summary = done.rows, done.summary
    ids = [row["id"] for row in rows]
    assert summary.events == len(rows)
    assert summary.totals["duplicates"] == len(ids) - len(set(ids))
    assert (summary.totals["held"], summary.totals["pending"], summary.totals["files"]) == (0, 0, 3)


def test_a_line_that_cannot_be_read_is_a_dead_letter_and_the_rest_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(10)
    file = make_pipeline(tmp_path, rows, files=1)
    bad = tmp_path / "in" / "bad.jsonl"
    bad.write_text('{"order": "x", "at": "yesterday"}\n\nrubbish\n{"at": "2026-01-01T00:00:00Z", "what": "created"}\n')
    run(spark, file)
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        letters = db.execute("SELECT file, line, reason FROM results_dead_letters ORDER BY line").fetchall()
    assert [(Path(name).name, line) for name, line, _ in letters] == [
        ("bad.jsonl", 1),
        ("bad.jsonl", 3),
        ("bad.jsonl", 4),
    ]
    assert "ISO 8601" in letters[0][2]
    assert "'order' (the key) is missing" in letters[2][2]
    assert told(table(tmp_path, COLUMNS)) == expected(file, rows)


def test_a_deleted_checkpoint_is_refused_with_the_remedy(spark: SparkSession, done: Done) -> None:
    checkpoint, kept = done.folder / "checkpoint", done.folder / "kept"
    checkpoint.rename(kept)
    try:
        with pytest.raises(StateMismatch, match=r"is new or was deleted.*--fresh"):
            run(spark, done.file)
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
        kept.rename(checkpoint)


@pytest.mark.long(seconds=5)
def test_starting_over_removes_both_and_gives_the_same_table(spark: SparkSession, tmp_path: Path) -> None:
    file = make_pipeline(tmp_path, orders(10), files=1)
    run(spark, file)
    before = table(tmp_path)
    start_over(load(file))
    run(spark, file)
    assert table(tmp_path) == before


def test_files_after_the_close_are_refused_and_not_called_late(spark: SparkSession, done: Done) -> None:
    more = done.folder / "in" / "more.jsonl"
    more.write_text("{}\n")
    try:
        with pytest.raises(UsageError, match=r"was closed, and 1 file came after that \(more.jsonl"):
            run(spark, done.file)
    finally:
        more.unlink()


@pytest.mark.long(seconds=10)
def test_a_pipeline_that_stays_open_takes_more_files_later(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(40)
    file = make_pipeline(tmp_path, rows[:60], files=2)
    file.write_text(file.read_text().replace("[rules]\n", "close = false\n[rules]\n", 1))
    run(spark, file)
    write_files(rows[60:], tmp_path / "more", 2)
    for number, part in enumerate(sorted((tmp_path / "more").iterdir())):
        os.utime(part, (1_700_000_100 + number, 1_700_000_100 + number))
        part.rename(tmp_path / "in" / f"more-{part.name}")
    file.write_text(file.read_text().replace("close = false", "close = true"))
    run(spark, file)
    assert told(table(tmp_path, COLUMNS)) == expected(file, rows)


def test_changed_rules_on_an_old_checkpoint_are_refused(spark: SparkSession, done: Done) -> None:
    as_it_was = done.file.read_text()
    done.file.write_text(as_it_was.replace("30 minutes", "31 minutes"))
    try:
        with pytest.raises(StateMismatch, match=r"the pipeline changed .*\(rules\)"):
            run(spark, done.file)
    finally:
        done.file.write_text(as_it_was)


@pytest.mark.long(seconds=7)
def test_a_folder_of_parquet_files_works_the_same(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(30)
    file = make_pipeline(tmp_path, rows, files=1)
    shutil.rmtree(tmp_path / "in")
    ddl = "order string, at timestamp, what string, id string, n long"
    spark.createDataFrame(rows, ddl).coalesce(1).write.parquet(str(tmp_path / "in"))
    for other in (tmp_path / "in").glob("[!p]*"):
        other.unlink()
    file.write_text(file.read_text().replace('path = "in"', 'path = "in"\nformat = "parquet"'))
    run(spark, file)
    assert told(table(tmp_path, COLUMNS)) == expected(file, rows)


@pytest.mark.long(seconds=5)
def test_odd_names_of_files_and_folders_are_read_each_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(30)
    folder = tmp_path / "a b [1] é"
    file = make_pipeline(folder, rows, files=5, files_per_batch=5)
    for number, name in enumerate(("plain", "pl?in", "50%25", "x y#z", "[p]lain")):
        (folder / "in" / f"{number:03d}.jsonl").rename(folder / "in" / f"{name}.jsonl")
    summary = run(spark, file)
    assert (summary.totals["files"], summary.events) == (5, len(rows))
    assert told(table(folder, COLUMNS)) == expected(file, rows)


@pytest.mark.long(seconds=6)
def test_a_file_older_than_a_week_is_read_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(40)
    file = make_pipeline(tmp_path, rows[:60], files=1)
    file.write_text(file.read_text().replace("[rules]\n", "close = false\n[rules]\n", 1))
    run(spark, file)
    write_files(rows[60:], tmp_path / "more", 1)
    os.utime(tmp_path / "more" / "000.jsonl", (1_600_000_000, 1_600_000_000))
    (tmp_path / "more" / "000.jsonl").rename(tmp_path / "in" / "old.jsonl")
    summary = run(spark, file)
    assert (summary.totals["files"], summary.totals["events"]) == (2, len(rows))


def test_a_watermark_delay_below_a_millisecond_makes_nothing_late_too_early() -> None:
    from waterclock.spark.packing.transform import delay_text

    assert [delay_text(us) for us in (0, 1, 1000, 1500)] == [f"{ms} milliseconds" for ms in (0, 1, 1, 2)]


@pytest.mark.long(seconds=5)
def test_the_close_passes_deadlines_of_the_last_days_of_the_calendar_too(spark: SparkSession, tmp_path: Path) -> None:
    # 9999-12-31 stands for "never" in many a column: what waited for it was held for ever
    rows = [{"order": "o", "at": datetime(9999, 12, 30, 23, 50, tzinfo=UTC), "what": "created", "id": "i", "n": 1}]
    file = make_pipeline(tmp_path, rows, files=1)
    summary = run(spark, file)
    assert told(table(tmp_path, COLUMNS)) == expected(file, rows)
    assert (summary.totals["held"], summary.totals["pending"]) == (0, 0)
    assert {at for (at,) in table(tmp_path, "emitted_at", "kind <> 'event'")} == {"9999-12-30 23:00:00.000000"}
