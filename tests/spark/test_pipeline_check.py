"""What a pipeline refuses before Spark is started, by what it finds of an earlier run; and the watermark of a batch."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from tests.spark.least_pipeline import LEAST
from waterclock.errors import StateMismatch, UsageError
from waterclock.rules.engine import NO_WATERMARK
from waterclock.spark.batch.batches import watermark_of
from waterclock.spark.batch.outlets import Outlets
from waterclock.spark.fresh import start_over
from waterclock.spark.pipeline import configured
from waterclock.streaming import frames
from waterclock.streaming.layout import EARLIEST_US
from waterclock.streaming.toml.config import load


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (b"day=1/", "holds the folder 'day=1', and Spark takes"),
        (b"caf\xe9", r"holds the file 'caf\\udce9', whose name"),
    ],
)
def test_a_source_with_something_that_spark_would_not_read_is_refused(tmp_path: Path, name: bytes, told: str) -> None:
    # the folder was an error of Spark's with a traceback; the file was passed over without a word
    (tmp_path / "in").mkdir()
    (tmp_path / "p.toml").write_text(LEAST)
    path = os.fsencode(tmp_path / "in") + b"/" + name
    os.mkdir(path) if name.endswith(b"/") else os.mknod(path)
    with closing(configured(load(tmp_path / "p.toml"))) as pipeline, pytest.raises(UsageError, match=told):
        pipeline.check()


def test_a_sink_that_lost_the_only_batch_is_refused_where_spark_noted_it_as_done(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "p.toml").write_text(LEAST)
    config = load(tmp_path / "p.toml")
    for name in ("offsets/0", "commits/0"):
        (config.checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (config.checkpoint / name).write_text("v1\n{}\n")
    (config.checkpoint / "metadata").write_text('{"id": "q"}')
    with (
        closing(configured(config)) as pipeline,
        pytest.raises(StateMismatch, match=r"holds no results, but .* up to 0:"),
    ):
        pipeline.check()
    (config.checkpoint / "commits" / "0").unlink()  # killed before that: the batch is run again
    with closing(configured(config)) as pipeline:
        pipeline.check()


def test_who_finds_results_of_a_run_that_began_meanwhile_hears_of_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two were started at once on a new checkpoint: one was told that it was deleted, and to restore it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "p.toml").write_text(LEAST)
    config = load(tmp_path / "p.toml")
    other = configured(config)

    def began(*_: object) -> None:
        monkeypatch.undo()
        other.check()
        raise StateMismatch("the checkpoint is new or was deleted")

    monkeypatch.setattr(Outlets, "open", began)
    told = pytest.raises(UsageError, match=r"another run has the checkpoint .* open")
    with closing(other), closing(configured(config)) as pipeline, told:
        pipeline.check()


def test_the_files_of_a_table_of_delta_lake_are_no_source(tmp_path: Path) -> None:
    # compacted, it holds each row in an old file and in a new one: all of them came twice
    (tmp_path / "in" / "_delta_log").mkdir(parents=True)
    (tmp_path / "p.toml").write_text(LEAST)
    refused = pytest.raises(UsageError, match=r"is a table of Delta Lake.*to another folder")
    with closing(configured(load(tmp_path / "p.toml"))) as pipeline, refused:
        pipeline.check()


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("in", r"the source folder .*/in cannot be read by this user"),
        ("p-checkpoint", r"who may not read and write .*/p-checkpoint: run .* as the user who made it"),
        ("p-checkpoint/spark.log", r"who may not read and write .*/p-checkpoint/spark.log: run"),
    ],
)
def test_what_belongs_to_another_user_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, told: str
) -> None:
    # each was a traceback, the first one of Java's; root may do everything, so the system's answer is played
    (tmp_path / "in").mkdir()
    (tmp_path / "p-checkpoint").mkdir()
    (tmp_path / "p-checkpoint" / "spark.log").touch()
    (tmp_path / "p.toml").write_text(LEAST)
    config = load(tmp_path / "p.toml")
    monkeypatch.setattr("os.access", lambda path, rights: path != tmp_path / part)
    with closing(configured(config)) as pipeline, pytest.raises(UsageError, match=told):
        pipeline.check()
    with pytest.raises(UsageError, match=told):
        start_over(config)


@pytest.mark.parametrize(
    ("spark_ms", "told_us", "watermark_us"),
    [
        (0, [], None),
        (5, [], 5_000),
        (0, [NO_WATERMARK], None),
        (0, [-7, NO_WATERMARK, -9], -7),
        (0, [0], 0),
        (5, [-7], 5_000),
        (0, [EARLIEST_US], EARLIEST_US),
        (0, [EARLIEST_US - 1], None),
    ],
)
def test_a_watermark_of_a_topic_may_lie_before_1970_and_one_of_spark_does_not(
    spark_ms: int, told_us: list[int], watermark_us: int | None
) -> None:
    taken = [frames.noted(pa.table({}), watermark=us) for us in told_us]
    assert watermark_of(f'v1\n{{"batchWatermarkMs": {spark_ms}}}\n-', [pa.table({}), *taken]) == watermark_us


def test_a_query_that_begins_behind_a_stop_is_not_waited_for(tmp_path: Path) -> None:
    # Ctrl-C while a query was started again: the live run went on, and nothing ended it
    (tmp_path / "in").mkdir()
    (tmp_path / "p.toml").write_text(LEAST)
    with closing(configured(load(tmp_path / "p.toml"))) as pipeline:
        pipeline._stop()
        pipeline._query = MagicMock(awaitTermination=MagicMock(side_effect=AssertionError("it waits")))
        pipeline._go_on()
