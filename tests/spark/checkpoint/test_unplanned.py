"""Notes of files that no batch takes yet, as a kill leaves them between two of Spark's steps: before the next start."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.checkpoint.test_source_files import write_entry
from tests.spark.pipelines import make_pipeline, orders, table
from waterclock.errors import WaterclockError
from waterclock.sinks import SQLiteSink
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.checkpoint.reads import ASIDE, set_aside
from waterclock.spark.pipeline import configured
from waterclock.streaming.toml.config import load


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """Batch 5 ends with entry 7 of the source's log."""
    made = Checkpoint(tmp_path / "checkpoint")
    (made.path / "offsets").mkdir(parents=True)
    (made.path / "offsets" / "5").write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":7}\n{"logOffset":0}')
    note(made, "7", "a")
    return made


def note(checkpoint: Checkpoint, name: str, *files: str, source: str = "0", at_ms: int = 7) -> None:
    """An entry with files that are there, beside the checkpoint."""
    for file in files:
        path = checkpoint.local.with_name(file)
        path.touch()
        os.utime(path, ns=(0, at_ms * 1_000_000))
    number, folder = int(name.partition(".")[0]), str(checkpoint.local.parent)
    own = [(f"{folder.removeprefix('/')}/{file}", number) for file in files]
    log = checkpoint.local / "sources" / source
    write_entry(log, name, *own, written_ms=at_ms)
    text = (log / name).read_text().replace("file:///in/", "file:///")
    (log / name).write_text(text)


def noted(checkpoint: Checkpoint, source: str = "0") -> list[str]:
    return sorted(os.listdir(checkpoint.local / "sources" / source))


def aside(checkpoint: Checkpoint) -> list[str]:
    folder = checkpoint.local / ASIDE
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_a_note_that_no_batch_takes_is_set_aside_and_said(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    note(checkpoint, "8", "b", "c d")
    written = (checkpoint.local / "sources" / "0" / "8").read_bytes()
    with caplog.at_level(logging.WARNING):
        set_aside(checkpoint)
    assert (noted(checkpoint), aside(checkpoint)) == ([".7.crc", "7"], ["0-8"])
    assert (checkpoint.local / ASIDE / "0-8").read_bytes() == written
    assert "noted 2 files (such as b)" in caplog.text
    set_aside(checkpoint)
    assert noted(checkpoint) == [".7.crc", "7"]


def test_so_are_one_of_the_first_batch_one_that_holds_all_before_it_and_heartbeats(tmp_path: Path) -> None:
    made = Checkpoint(tmp_path / "checkpoint")
    note(made, "0", "a")
    note(made, "0", "beat", source="1")
    set_aside(made)
    assert (noted(made), noted(made, "1"), aside(made)) == ([], [], ["0-0", "1-0"])
    (made.local / "offsets").mkdir()
    (made.local / "offsets" / "8").write_text('v1\n{}\n{"logOffset":8}')
    note(made, "8", "a")
    note(made, "9.compact", "b")
    set_aside(made)
    assert (noted(made), aside(made)) == ([".8.crc", "8"], ["0-0", "0-9.compact", "1-0"])


def test_notes_of_which_a_file_is_gone_or_was_written_again_stay_for_nothing_else_knows_of_it(
    checkpoint: Checkpoint,
) -> None:
    note(checkpoint, "8", "b", "c")
    note(checkpoint, "9", "d")
    before = noted(checkpoint)
    os.utime(checkpoint.local.with_name("c"), ns=(0, 8_000_000))
    set_aside(checkpoint)
    assert (noted(checkpoint), aside(checkpoint)) == (before, [])
    checkpoint.local.with_name("c").unlink()
    set_aside(checkpoint)
    assert (noted(checkpoint), aside(checkpoint)) == (before, [])


@pytest.mark.parametrize(
    "text", ['\0v1\n{"orders":{"0":5}}', 'v1\n{"orders":{"0":5}}', "v1\n1767225600000", "", "v1\n{"]
)
def test_what_is_no_list_of_files_is_left_alone(checkpoint: Checkpoint, text: str) -> None:
    # Spark's Kafka notes there where it begins, its rate source when
    note(checkpoint, "9", "b")
    (checkpoint.local / "sources" / "0" / "8").write_text(text)
    set_aside(checkpoint)
    assert "9" in noted(checkpoint)


def test_a_kill_in_the_middle_leaves_what_the_next_start_does_again(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in ("8", "9"):
        note(checkpoint, number, f"file-{number}")
    removals: list[str] = []

    def die(place: Path) -> None:
        removals.append(place.name)
        raise InterruptedError

    with monkeypatch.context() as killed:
        killed.setattr("waterclock.spark.checkpoint.reads.remove", die)
        with pytest.raises(InterruptedError):
            set_aside(checkpoint)
    assert (removals, aside(checkpoint)) == (["9"], ["0-9"])
    set_aside(checkpoint)
    assert (noted(checkpoint), aside(checkpoint)) == ([".7.crc", "7"], ["0-8", "0-9"])


class Blocked(SQLiteSink):
    """A sink behind whose batch 0 Spark cannot plan the next one: it notes its files, and cannot write its offsets."""

    def commit(self) -> None:
        super().commit()
        offsets = self.path.parent / "checkpoint" / "offsets"
        if (offsets / "0").exists():
            (offsets / "1" / "x").mkdir(parents=True, exist_ok=True)


def batches(folder: Path) -> list[Any]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        found = db.execute("SELECT batch_id, counters, watermark FROM results_batches ORDER BY rowid").fetchall()
    counted = [(number, json.loads(counters), watermark) for number, counters, watermark in found]
    return [(number, counters.get("files"), counters.get("events"), at) for number, counters, at in counted]


@pytest.mark.spark
@pytest.mark.long(seconds=15)
def test_a_kill_between_a_note_and_its_batch_changes_no_batch_and_no_row(spark: SparkSession, tmp_path: Path) -> None:
    # one batch took two files where one goes: 8,702 events instead of 4,351, and what is late could differ
    rows = orders(20)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        make_pipeline(folder, rows, files=4)
    with configured(load(whole / "pipeline.toml")) as pipeline:
        pipeline.run(spark)
    blocked = Blocked(killed / "out.db")
    with configured(load(killed / "pipeline.toml"), blocked) as pipeline, pytest.raises(WaterclockError):
        pipeline.run(spark)
    shutil.rmtree(killed / "checkpoint" / "offsets" / "1")
    assert {"0", "1"} <= {*os.listdir(killed / "checkpoint" / "sources" / "0")}
    assert Checkpoint(killed / "checkpoint").last_batch() == 0
    with configured(load(killed / "pipeline.toml")) as pipeline:
        pipeline.run(spark)
    assert batches(killed) == batches(whole)
    assert table(killed) == table(whole)


def test_a_batch_that_is_only_planned_keeps_its_note(checkpoint: Checkpoint) -> None:
    note(checkpoint, "8", "b")
    (checkpoint.local / "offsets" / "6").write_text('v1\n{}\n{"logOffset":8}\n{"logOffset":0}')
    set_aside(checkpoint)
    assert "8" in noted(checkpoint)
