"""State carried over into other numbers of buckets in the middle of a run: same results, and one checkpoint that counts."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tests.spark.rescaling.kill_driver import STEPS, death_behind
from tests.spark.rescaling.staged import (
    KINDS,
    STAGES,
    carry,
    expected,
    go_on_with,
    in_stages,
    next_stage,
    outcomes,
    refused,
    run,
    staged_pipeline,
    usable,
)
from waterclock import cli
from waterclock.errors import StateMismatch, UsageError, WaterclockError
from waterclock.sinks import Batch, Sink, written_once
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.pipeline import configured
from waterclock.spark.rescaling.carry import rescale
from waterclock.spark.rescaling.stored import look
from waterclock.streaming.places.hadoop import HadoopPath
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark


@pytest.mark.long(seconds=14)
def test_a_state_that_is_carried_over_in_the_middle_changes_no_result_and_the_old_checkpoint_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    file, old, new = staged_pipeline(tmp_path, rows=30), tmp_path / "checkpoint", tmp_path / "wide"
    next_stage(file, 0)
    run(spark, file)
    new.mkdir()
    (new / ".waterclock.carrying.new").touch()  # what a kill leaves that comes in the middle of the first mark
    made = carry(spark, file, 21, new)
    assert f"was carried over to {new}" in refused(spark, file, old)
    for stage in range(1, STAGES):
        next_stage(file, stage)
    run(spark, file)
    assert outcomes(file) == expected(file)
    assert (made.buckets, made.keys > 0, made.deadlines > 0) == (21, True, True)
    assert not (new / "waterclock.parts").exists()


@pytest.mark.long(seconds=30)
def test_a_state_is_carried_over_to_a_uri_and_from_there_to_one_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    file, far = staged_pipeline(tmp_path, rows=30), HadoopPath(f"file://{tmp_path}/far")
    next_stage(file, 0)
    run(spark, file)
    assert carry(spark, file, 21, far).checkpoint == far
    next_stage(file, 1)
    run(spark, file)
    made = carry(spark, file, 8)
    assert made.checkpoint == HadoopPath(f"{far}-8")
    assert f"was carried over to {made.checkpoint}" in refused(spark, file, far)
    next_stage(file, 2)
    run(spark, file)
    assert outcomes(file) == expected(file)


@pytest.mark.long(seconds=30)
@pytest.mark.parametrize("kind", KINDS)
def test_sixteen_to_sixty_four_to_eight_in_the_middle_of_a_run_gives_the_same_table(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    plain = in_stages(spark, staged_pipeline(tmp_path / "plain", kind))
    file = staged_pipeline(tmp_path / "carried", kind)
    assert in_stages(spark, file, (64, 8)) == plain
    assert Checkpoint(tmp_path / "carried" / "checkpoint-64-8").buckets() == 8


@pytest.mark.long(seconds=60)
def test_a_death_behind_each_step_leaves_one_of_the_two_to_be_used(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, old = staged_pipeline(tmp_path), tmp_path / "checkpoint"
    next_stage(file, 0)
    run(spark, file)
    new = tmp_path / "new"
    for step in STEPS:
        with death_behind(step, monkeypatch):
            carry(spark, file, 64, new)
        assert usable(spark, file, old, new) == [new if step == 7 else old], step
        assert step < 3 or "did not come to its end" in refused(spark, file, new) or step == 7
    go_on_with(file, new)
    for stage in range(1, STAGES):
        next_stage(file, stage)
    run(spark, file)
    assert outcomes(file) == expected(file)


@pytest.mark.long(seconds=30)
@pytest.mark.parametrize("applied", [False, True], ids=["before the sink's commit", "behind it"])
def test_a_batch_that_was_under_way_when_its_run_was_killed_is_run_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    file = staged_pipeline(tmp_path)
    next_stage(file, 0)
    run(spark, file)
    next_stage(file, 1)

    def dying(sink: Sink, batch: Batch) -> None:
        if applied:
            written_once(sink, batch)
        raise RuntimeError("dead")

    with monkeypatch.context() as patched:
        patched.setattr("waterclock.spark.batch.outlets.written_once", dying)
        with pytest.raises(WaterclockError, match="dead"):
            run(spark, file)
    old = Checkpoint(tmp_path / "checkpoint")
    last, done = old.last_batch(), old.last_done()
    assert last is not None
    assert done == last - 1
    carry(spark, file, 5)
    next_stage(file, 2)
    run(spark, file)
    assert outcomes(file) == expected(file)


@pytest.mark.long(seconds=20)
def test_the_same_buckets_go_into_more_partitions_and_are_shown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, name = staged_pipeline(tmp_path), "spark.sql.shuffle.partitions"
    next_stage(file, 0)
    run(spark, file)
    with pytest.raises(UsageError, match="16 buckets in 2 partitions already"):
        carry(spark, file, 16)
    before = look(spark, Checkpoint(tmp_path / "checkpoint"))
    spark.conf.set(name, "4")
    try:
        made = carry(spark, file, 16)
    finally:
        spark.conf.set(name, "2")
    after = look(spark, Checkpoint(made.checkpoint))
    assert (before.partitions, after.partitions, made.partitions) == (2, 4, 4)
    assert (after.keys, after.clock) == (before.keys, before.clock)
    held = [{bucket.place: bucket.keys for bucket in each.stored if bucket.keys} for each in (before, after)]
    assert held[0] == held[1]
    assert after.bytes == made.bytes
    run(spark, file)  # nothing new: it goes on all the same
    assert spark.conf.get(name) == "2"


def test_what_cannot_be_carried_over_is_refused_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    file = staged_pipeline(tmp_path, rows=5)
    with closing(configured(load(file))) as pipeline:
        with pytest.raises(UsageError, match="holds no state of rules yet"):
            rescale(pipeline, 64, session=spark)
        with pytest.raises(ValueError, match=r"rescale\(buckets=\) must be from 2 to 4096, got 1"):
            rescale(pipeline, 1, session=spark)
    for stage in range(STAGES):
        next_stage(file, stage)
    file.write_text(file.read_text().replace("close = true", "close = false"))
    run(spark, file)
    with pytest.raises(UsageError, match="lie in each other"):
        carry(spark, file, 64, tmp_path / "checkpoint" / "inside")
    with pytest.raises(UsageError, match=r"source folder .* lie in each other"):
        carry(spark, file, 64, tmp_path / "in" / "new")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("kept")
    with pytest.raises(UsageError, match=r"holds other things \(mine.txt"):
        carry(spark, file, 64, tmp_path / "other")
    assert (tmp_path / "other" / "mine.txt").read_text() == "kept"
    (tmp_path / "checkpoint" / "source-closed").touch()
    with pytest.raises(UsageError, match="was closed"):
        carry(spark, file, 64)


def test_another_number_of_buckets_than_the_checkpoints_is_refused_with_the_way_out(tmp_path: Path) -> None:
    file = staged_pipeline(tmp_path, rows=5)
    with closing(configured(load(file))) as pipeline:
        pipeline.check()
    file.write_text(file.read_text().replace("[spark.conf]", "[spark]\nbuckets = 64\n[spark.conf]"))
    with closing(configured(load(file))) as pipeline, pytest.raises(StateMismatch) as caught:
        pipeline.check()
    assert "keeps its state in 16 buckets, and 64 are asked for" in str(caught.value)
    assert "waterclock state rescale PIPELINE.toml --buckets 64" in str(caught.value)


def test_without_a_word_about_buckets_a_pipeline_has_those_of_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = staged_pipeline(tmp_path, rows=5)
    for cores in (40, 3):  # on a large machine first, then on a small one
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        with closing(configured(load(file))) as pipeline:
            pipeline.check()
            assert pipeline.buckets == 40
    assert json.loads((tmp_path / "checkpoint" / "waterclock.json").read_text())["buckets"] == 40


@pytest.mark.parametrize("given", ["1", "4097", "x"])
def test_the_command_takes_two_to_4096_buckets(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["state", "rescale", "orders.toml", "--buckets", given])
    assert "--buckets" in capsys.readouterr().err


def test_what_is_no_checkpoint_with_state_is_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["state", "show", str(tmp_path)]) == 2
    assert "holds no state of rules yet" in capsys.readouterr().err


def test_what_spark_throws_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def damaged(*_: object) -> None:
        raise Py4JError(
            "An error occurred while calling o7.load.\norg.apache.spark.SparkException: 5.changelog is cut\n\tat f"
        )

    monkeypatch.setattr("waterclock.spark.session.session.start", lambda *_: SimpleNamespace(spark=None))
    monkeypatch.setattr("waterclock.spark.rescaling.stored.look", damaged)
    (tmp_path / "waterclock.json").write_text('{"buckets": 4}')
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    assert cli.main(["state", "show", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "SparkException: 5.changelog is cut. What was committed stays" in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("command", [("rescale", "--buckets", "64", "--live"), ("move", "--engine", "local")])
def test_a_new_checkpoint_among_what_the_source_reads_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    """The next start would refuse it, when the sink is handed over."""
    file = staged_pipeline(tmp_path, rows=5)
    assert cli.main(["state", command[0], str(file), *command[1:], "--to", str(tmp_path / "in" / "new")]) == 2
    assert re.search("source folder .* lie in each other", capsys.readouterr().err)


@pytest.mark.parametrize(
    "command", [("rescale", "--buckets", "64"), ("move", "--engine", "local")], ids=lambda each: each[0]
)
def test_where_nothing_ran_yet_the_command_makes_nothing_and_the_pipeline_begins_as_it_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    file = staged_pipeline(tmp_path, rows=5)
    assert cli.main(["state", command[0], str(file), *command[1:]]) == 2
    assert "holds no state of rules yet" in capsys.readouterr().err
    assert not (tmp_path / "checkpoint").exists()
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == []
