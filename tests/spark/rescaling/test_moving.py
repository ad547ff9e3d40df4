"""A pipeline begins without Spark, and goes on with it: what comes out is what a run in peace gives."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.local.running import driven, run_locally
from tests.spark.pipelines import make_pipeline, orders, run
from tests.spark.rescaling import kill_driver
from tests.spark.rescaling.kill_driver import STEPS, death_behind
from tests.spark.rescaling.moved import (
    ODD,
    all_of,
    in_peace,
    mixed_pipeline,
    move,
    nothing,
    of_a_topic,
    refused,
    stage_of,
    watermarks,
)  # fmt: skip
from tests.spark.rescaling.staged import STAGES, expected, go_on_with, next_stage, outcomes, staged_pipeline
from waterclock import cli
from waterclock.errors import StateMismatch, UsageError, WaterclockError
from waterclock.local.command import configured
from waterclock.pipelines import moving
from waterclock.pipelines.moving import to_spark
from waterclock.spark.pipeline import configured as on_spark
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark
PATIENCE_S = 150


@pytest.mark.long(seconds=20)
def test_a_pipeline_of_files_goes_on_with_spark_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    file, new = mixed_pipeline(tmp_path / "moved"), tmp_path / "moved" / "wide"
    stage_of(file, 0)
    run_locally(file)
    stage_of(file, 1)
    run_locally(file)
    (file.parent / "in" / ODD).unlink()  # its batch is in every bucket: nobody needs it any more
    move(spark, file, new, 21)
    assert f"was carried over to {new}" in refused(
        file, lambda each: configured(load(each)), tmp_path / "moved/checkpoint"
    )
    (file.parent / "in" / ODD).write_text('{"order": "twice", "at": "2026-01-01T00:00:00Z"}\n')  # nor read again
    go_on_with(file, new)
    next_stage(file, 2)
    run(spark, file)
    peace = in_peace(mixed_pipeline(tmp_path / "peace"), run_locally)
    assert all_of(file) == peace
    assert {row[0] for row in peace} >= {"event", "late", "emit", "dead", "sum"}
    assert watermarks(file) == sorted(watermarks(file))


@pytest.mark.long(seconds=20)
def test_a_watermark_before_1970_which_spark_does_not_know_stays_where_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = staged_pipeline(tmp_path, rows=20)
    for each in (tmp_path / "later").iterdir():
        when = each.stat().st_mtime  # by which files are taken in their order
        each.write_text(each.read_text().replace("2026-", "1926-"))
        os.utime(each, (when, when))
    next_stage(file, 0)
    run_locally(file)
    move(spark, file, tmp_path / "new")
    go_on_with(file, tmp_path / "new")
    row = {"order": "new", "at": "1926-01-01T00:00:01Z", "what": "created", "id": "new-1", "n": 1}
    (tmp_path / "in" / "late.jsonl").write_text(json.dumps(row))
    os.utime(tmp_path / "in" / "late.jsonl", (1, 1))  # the first that Spark takes
    for stage in range(1, STAGES):
        next_stage(file, stage)
        run(spark, file)
    in_process, late = expected(file), ("late", "new", "late", "1926-01-01 00:00:01.000000")
    assert late in {row[:4] for row in outcomes(file)}
    assert {row for row in outcomes(file) if row[1] != "new"} == {row for row in in_process if row[1] != "new"}


@pytest.mark.long(seconds=20)
@pytest.mark.skipif(not importlib.util.find_spec("kio"), reason="needs waterclock[broker]")
def test_a_pipeline_of_a_topic_goes_on_with_spark_where_it_stopped(
    spark: SparkSession, kafka_broker: Any, tmp_path: Path
) -> None:
    def carry(file: Path) -> None:
        move(spark, file, tmp_path / "new")
        go_on_with(file, tmp_path / "new")

    of_a_topic(kafka_broker, tmp_path, run_locally, carry, lambda file: run(spark, file), silent=1)


@pytest.mark.long(seconds=40)
def test_a_death_behind_each_step_leaves_one_of_the_two_to_be_used(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, old, new = mixed_pipeline(tmp_path / "moved"), tmp_path / "moved" / "checkpoint", tmp_path / "new"
    stage_of(file, 0)
    run_locally(file)
    for step in STEPS:
        with death_behind(step, monkeypatch):
            move(spark, file, new)
        here = refused(file, lambda each: configured(load(each)), old)
        there = refused(file, lambda each: on_spark(load(each)), new)
        assert (bool(here), bool(there)) == (step == max(STEPS), step < max(STEPS)), (step, here, there)
        if step == 6:  # the old one goes on, and what was made of it is made anew
            stage_of(file, 1)
            run_locally(file)
    with pytest.raises(StateMismatch, match="was carried over to"):
        move(spark, file, new)
    go_on_with(file, new)
    next_stage(file, 2)
    run(spark, file)
    assert all_of(file) == in_peace(mixed_pipeline(tmp_path / "peace"), run_locally)


@pytest.mark.long(seconds=60)
def test_the_command_killed_by_a_signal_begins_anew_and_behind_the_sinks_commit_the_new_one_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    file, new = mixed_pipeline(tmp_path / "moved"), tmp_path / "new"
    stage_of(file, 0)
    run_locally(file)
    for step in (4, max(STEPS)):
        command = [
            sys.executable,
            kill_driver.__file__,
            str(step),
            "move",
            str(file),
            "--engine",
            "spark",
            "--to",
            str(new),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
        if step == 4:
            stage_of(file, 1)
            run_locally(file)
    assert (new / "waterclock.carrying").exists()
    go_on_with(file, new)
    next_stage(file, 2)
    run(spark, file)
    assert not (new / "waterclock.carrying").exists()
    assert all_of(file) == in_peace(mixed_pipeline(tmp_path / "peace"), run_locally)


def killed(file: Path) -> None:
    assert driven(file, "committed", 3) is None


BROKEN: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "it was closed": (run_locally, 'name = "orders"', "was closed"),
    "it was killed": (killed, 'name = "orders"', r"lacks batches up to \d, which .* did not end cleanly"),
    "other rules": (run_locally, 'wait = "2 hours"', "the pipeline changed"),
    "several sinks": (run_locally, '[[sink]]\npath = "out.db"\n[[sink]]\npath = "two.db"\n', "several sinks"),
    "nothing ran": (lambda file: None, 'name = "orders"', 'is none of engine = "local"'),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_does_not_fit_is_refused_before_spark_is_started(tmp_path: Path, case: str) -> None:
    before, line, told = BROKEN[case]
    file = make_pipeline(tmp_path, orders(40), 6, files_per_batch=1)
    if case == "several sinks":
        file.write_text(file.read_text().replace('[sink]\npath = "out.db"\n', line))
    before(file)
    if case == "other rules":
        file.write_text(file.read_text().replace('wait = "1 hour"', line))
    with pytest.raises(WaterclockError, match=told):
        to_spark(load(file), tmp_path / "new", nothing)
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "checkpoint").exists() == (case != "nothing ran")


def test_what_was_killed_is_carried_over_once_it_has_ended(tmp_path: Path) -> None:
    file = make_pipeline(tmp_path, orders(40), 6, files_per_batch=1)
    file.write_text(file.read_text().replace('watermark_delay = "1 hour"', 'watermark_delay = "1 hour"\nclose = false'))
    killed(file)
    with pytest.raises(StateMismatch, match="did not end cleanly"):
        to_spark(load(file), tmp_path / "new", nothing)
    run_locally(file)
    with pytest.raises(AssertionError, match="before Spark is started"):
        to_spark(load(file), tmp_path / "new", nothing)


def test_files_are_told_by_the_names_that_spark_knows_them_by(tmp_path: Path) -> None:
    """It knows no "..": under another name it would read them again."""
    file, deep = make_pipeline(tmp_path, orders(5), 1), tmp_path / "deep" / "pipeline.toml"
    deep.parent.mkdir()
    deep.write_text(file.read_text().replace('path = "in"', 'path = "../in"'))
    sink = SimpleNamespace(totals=dict)
    kept: Any = SimpleNamespace(
        checkpoint=tmp_path, rules=None, batch_id=1, stored=[], shelf=None, clock={}, sink=sink,
        places=[{"files": [["000.jsonl", 1]]}, {"files": [["gone.jsonl", 1]]}],
    )  # fmt: skip
    written = (tmp_path / "in" / "000.jsonl").stat().st_mtime_ns // 1_000_000
    taken = moving._state_of(load(deep), kept).taken
    assert taken == {f"{tmp_path}/in/000.jsonl": written, f"{tmp_path}/in/gone.jsonl": 0}


def test_csv_is_refused_by_name(tmp_path: Path) -> None:
    file = make_pipeline(tmp_path, [], 1)
    run_locally(file)
    config = load(file)
    with pytest.raises(UsageError, match="a pipeline of CSV is not carried over"):
        to_spark(replace(config, source=replace(config.source, format="csv")), tmp_path / "new", nothing)  # type: ignore[call-overload,type-var]


def test_spark_names_the_command_where_the_checkpoint_is_the_other_engines(tmp_path: Path) -> None:
    file = make_pipeline(tmp_path, orders(5), 1)
    run_locally(file)
    assert "waterclock state move PIPELINE.toml --engine spark" in refused(
        file, lambda each: on_spark(load(each)), tmp_path / "checkpoint"
    )


@pytest.mark.long(seconds=30)
def test_the_command_carries_over_and_says_how_to_go_on(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = mixed_pipeline(tmp_path / "moved")
    stage_of(file, 0)
    run_locally(file)
    assert cli.main(["state", "show", str(file), "--json"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert cli.main(["state", "move", str(file), "--engine", "spark"]) == 0
    told, new = capsys.readouterr().out, tmp_path / "moved" / "checkpoint-spark"
    assert f'engine = "spark"\n    checkpoint = "{new}"' in told
    assert cli.main(["state", "show", str(new), "--json"]) == 0
    after = json.loads(capsys.readouterr().out)
    assert (before["keys"], before["buckets"], before["partitions"]) == (after["keys"], 4, 1)
    assert sorted(path.name for path in (tmp_path / "moved").iterdir() if path.name.startswith("checkpoint")) == [
        "checkpoint", "checkpoint-spark",
    ]  # fmt: skip
