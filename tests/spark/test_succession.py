"""A run's side of a state that is carried over meanwhile, without Spark: what it answers, and when it goes on alone."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from waterclock.clock import ManualClock
from waterclock.errors import UsageError
from waterclock.spark.checkpoint import state_files
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.packing.recording import BatchNote, Recorder, noted, recorded
from waterclock.spark.succession import (
    ALONE,
    ANSWERED,
    ASKED,
    HALT,
    HALTED,
    PATIENCE_S,
    RECORD,
    RECORDING,
    Halt,
    Succession,
    release,
    said,
)
from waterclock.streaming import frames
from waterclock.streaming.owner import Owner

BATCH = SimpleNamespace(offsets='v1\n{"batchWatermarkMs": 70}\n{}', counters={"events": 3})


class Passing(ManualClock):
    """Time passes while somebody sleeps."""

    def sleep_s(self, duration_s: float) -> None:
        self.advance_s(duration_s)


class Query:
    """What is asked of Spark's query."""

    def __init__(self) -> None:
        self.status, self.stopped = {"isTriggerActive": False}, False

    def stop(self) -> None:
        self.stopped = True


class Pair:
    """A checkpoint with three batches done, a run of it, and a command that works on a new folder."""

    def __init__(self, folder: Path) -> None:
        self.old, self.new, self.records = folder / "old", folder / "new", folder / "new" / "records"
        for part in (self.old / "commits", self.old / "offsets", self.records):
            part.mkdir(parents=True)
        for number in range(3):
            (self.old / "commits" / str(number)).touch()
            (self.old / "offsets" / str(number)).touch()
        self.refusal: UsageError | None = None
        self.query: Any = Query()
        self.run = Succession(Checkpoint(self.old), Passing(), self._check)
        self.command = Owner(self.new)
        self.command.take()

    def _check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def ask(self, step: str, name: str = "1", **other: str) -> None:
        asked = {"id": name, "version": release(), "step": step, "to": str(self.new)}
        asked |= {"records": str(self.records), **other}
        (self.old / ASKED).write_text(json.dumps(asked))
        self.run.look(self.query)
        self.run.look(self.query)

    def answered(self) -> dict[str, Any]:
        return said(self.old / ANSWERED)

    def took(self, batch_id: int, *taken: pa.Table) -> None:
        batch: Any = BATCH
        self.run.batch_begins(batch_id)
        self.run.batch_is_written(batch_id, batch, taken)

    def is_alone(self, why: str) -> bool:
        self.run.look(self.query)
        answer = self.answered()
        assert not (self.old / ASKED).exists()
        assert self.run.flag is not None
        assert not Path(self.run.flag).exists()
        self.run.batch_begins(9)  # and goes on
        return answer["step"] == ALONE and why in answer["why"]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.command.let_go()


def test_an_idle_run_records_from_the_batch_behind_the_last_one_that_is_done(pair: Pair) -> None:
    pair.took(3)  # and Spark did not note it yet
    pair.ask(RECORD)
    assert (pair.answered()["step"], pair.answered()["first"]) == (RECORDING, 4)
    assert pair.run.flag is not None
    assert Path(pair.run.flag).read_text() == str(pair.records)
    pair.took(4)
    assert (noted(pair.records, 3), noted(pair.records, 4)) == (None, BatchNote(70, {"events": 3}))


def test_a_run_that_is_in_the_midst_of_a_batch_records_from_the_next_one(pair: Pair) -> None:
    pair.run.batch_begins(3)
    pair.ask(RECORD)
    assert pair.answered() == {}
    pair.took(4)
    assert pair.answered()["first"] == 4


def test_a_batch_that_is_written_beside_the_next_one_is_not_the_last_that_began(pair: Pair) -> None:
    batch: Any = BATCH
    pair.run.batch_begins(3)
    pair.run.batch_begins(4)
    pair.run.batch_is_written(3, batch, [])
    pair.ask(RECORD)
    assert pair.answered() == {}  # the tasks of batch 4 are at work, and write nothing down
    pair.run.batch_is_written(4, batch, [])
    pair.run.look(pair.query)
    assert pair.answered()["first"] == 5


def test_a_run_halts_where_a_batch_begins_or_while_none_is_under_way(pair: Pair) -> None:
    pair.ask(RECORD)
    pair.query.status = {"isTriggerActive": True}
    pair.ask(HALT)
    assert not pair.query.stopped
    with pytest.raises(Halt):
        pair.run.batch_begins(3)
    pair.query.status = {"isTriggerActive": False}
    pair.run.look(pair.query)
    assert pair.query.stopped
    (pair.new / "metadata").write_text('{"id": "new"}')
    state_files.carried_over(Checkpoint(pair.old), Checkpoint(pair.new))
    pair.command.let_go()
    new = pair.run.wait(lambda: False)
    assert new is not None
    assert new.path == pair.new
    assert (pair.answered()["step"], pair.answered()["done"]) == (HALTED, 2)


def test_a_halted_run_goes_on_alone_if_nothing_comes_or_the_command_is_gone_or_somebody_stops_it(pair: Pair) -> None:
    for name, why, stop in (
        ("1", f"more than {PATIENCE_S:.0f} s", False),
        ("2", "was stopped", True),
        ("3", "gone", False),
    ):
        pair.ask(RECORD, name)
        pair.ask(HALT, name)
        if why == "gone":
            pair.command.let_go()
        assert pair.run.wait(lambda stop=stop: stop) is None
        assert pair.is_alone(why)


def test_a_new_folder_that_is_not_let_go_or_was_begun_anew_since_it_was_carried_over_is_not_gone_on_with(
    pair: Pair,
) -> None:
    """A killed try may have left the note in the old folder, and the next one is at work or was killed as well."""
    (pair.new / "metadata").write_text('{"id": "of the try before"}')
    state_files.carried_over(Checkpoint(pair.old), Checkpoint(pair.new))
    pair.ask(RECORD)
    pair.ask(HALT)
    assert pair.run.wait(lambda: False) is None
    assert pair.is_alone("more than")
    (pair.new / "metadata").write_text('{"id": "of this try"}')
    pair.ask(RECORD, "2")
    pair.ask(HALT, "2")
    pair.command.let_go()
    assert pair.run.wait(lambda: False) is None
    assert pair.is_alone("gone")


def test_what_the_run_cannot_do_is_refused_in_words(pair: Pair) -> None:
    pair.refusal = UsageError("it has two sinks")
    pair.ask(RECORD)
    assert pair.is_alone("it has two sinks")
    pair.refusal = None
    pair.ask(HALT, "2")
    assert pair.is_alone("given up already")
    pair.ask(RECORD, "3", version="0.0.1")
    assert pair.is_alone("the command of 0.0.1: give it with that of the run")
    pair.ask(RECORD, "4", to=str(pair.new / "of another machine"))
    assert pair.is_alone("of another machine, or may not write there")
    pair.run.begin("spark://far:7077")
    pair.ask(RECORD, "5")
    assert pair.is_alone("the run is on spark://far:7077")


def test_what_is_asked_may_be_taken_back_while_it_is_read_or_be_damaged_and_the_run_goes_on(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.ask(RECORD)
    real = Path.read_bytes

    def gone(file: Path) -> bytes:
        file.unlink()
        return real(file)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", gone)
        pair.run.look(pair.query)
    assert pair.is_alone("the command is gone")
    (pair.old / ASKED).write_text("{")
    pair.run.look(pair.query)
    pair.run.begin("local[2]")
    assert not (pair.old / ASKED).exists()


def test_a_command_that_is_gone_is_noticed(pair: Pair) -> None:
    pair.ask(RECORD)
    pair.command.let_go()
    assert pair.is_alone("the command is gone")
    pair.command.take()
    pair.ask(RECORD, "2")
    (pair.old / ASKED).unlink()
    assert pair.is_alone("the command is gone")


def test_results_that_an_executor_put_aside_were_made_by_the_buckets_all_the_same(pair: Pair) -> None:
    pair.ask(RECORD)
    pair.took(3, *(frames.noted(pa.table({}), put_aside=count) for count in (2, 1)))
    assert noted(pair.records, 3) == BatchNote(70, {"events": 3, "results": 3})


def test_a_record_that_cannot_be_written_ends_the_carrying_and_no_batch(pair: Pair) -> None:
    pair.ask(RECORD)
    pair.took(3, frames.noted(pa.table({}), unrecorded="/new: No space left on device"))
    assert noted(pair.records, 3) is None  # so that nobody takes the rest of it for all
    assert pair.is_alone("No space left")
    pair.ask(RECORD, "2")
    shutil.rmtree(pair.records)
    pair.took(4)
    assert pair.is_alone("No such file")


def test_what_a_killed_run_was_asked_counts_no_more_and_is_told(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.ask(RECORD)
    again = Succession(Checkpoint(pair.old), Passing(), lambda: None)
    with caplog.at_level(logging.WARNING):
        again.begin("local[2]")
    assert f"was asked to go on with {pair.new}, and ended before: give the command again" in caplog.text
    assert not (pair.old / ASKED).exists()
    again.look(pair.query)
    again.batch_begins(3)
    assert again.flag is not None
    assert not Path(again.flag).exists()


def test_records_are_read_bucket_by_bucket_and_none_is_written_that_nobody_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(getLocalProperty=lambda name: "12")
    monkeypatch.setattr("waterclock.spark.packing.recording.TaskContext", SimpleNamespace(get=lambda: context))
    flag = tmp_path / "flag"
    assert Recorder(None).take(1, [b"a"]) == Recorder(str(flag)).take(1, [b"a"]) == ""
    flag.write_text(str(tmp_path))
    recorder = Recorder(str(flag))
    for _ in range(2):  # a batch that is run again
        assert recorder.take(7, [b"a", b"b"]) == recorder.take(1, [b"c"]) == ""
    assert [*recorded(tmp_path, 12, (1, 3, 7))] == [b"c", b"a", b"b"]
    flag.write_text(str(tmp_path / "gone"))
    assert "No such file" in Recorder(str(flag)).take(1, [b"a"])
