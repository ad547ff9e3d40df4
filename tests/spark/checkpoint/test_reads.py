"""A file of Spark's that a driver wrote over after it was taken over is told at the next start. Without Spark:
tests/spark/test_late_notes.py has a pipeline started on such; tests/streaming/places/test_late_writes.py has it happen
on S3.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from waterclock.errors import StateMismatch
from waterclock.sinks.ledger import Epoch
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.checkpoint.reads import READS, Reads

FIRST, SECOND = Epoch("a", 1), Epoch("a", 2)


def offsets(checkpoint: Checkpoint, batch: int, *sources: object, at: int = 0) -> None:
    lines = ["v1", json.dumps({"batchTimestampMs": at}), *map(json.dumps, sources)]
    (checkpoint.local / "offsets" / str(batch)).write_text("\n".join(lines))


def files(checkpoint: Checkpoint, entry: int, *names: str) -> None:
    lines = [
        json.dumps({"path": f"file:/in/{name}", "timestamp": 1, "batchId": entry}, separators=(",", ":"))
        for name in names
    ]
    (checkpoint.local / "sources" / "0" / str(entry)).write_text("\n".join(["v1", *lines]))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """One of three batches: of a topic, and of a folder beside it."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "metadata").write_text('{"id": "one"}')
    made = Checkpoint(tmp_path)
    for batch in range(3):
        files(made, batch, f"{batch}.jsonl", f"{batch}-more.jsonl")
        offsets(made, batch, {"logOffset": batch}, {"clicks": {"0": 10 * batch}})
    return made


def noted_by(checkpoint: Checkpoint, epoch: Epoch, held: int = -1, batches: int = 3) -> Reads:
    reads = Reads(checkpoint)
    reads.begin(epoch, held)
    for batch in range(batches):
        reads.note(batch)
    return reads


def test_what_is_as_it_was_goes_on_with_another_moment_too(checkpoint: Checkpoint) -> None:
    noted_by(checkpoint, FIRST)
    offsets(checkpoint, 2, {"logOffset": 2}, {"clicks": {"0": 20}}, at=7)
    Reads(checkpoint).begin(SECOND, 2)


@pytest.mark.parametrize("batch", [1, 2])
def test_offsets_that_were_written_over_are_refused_for_the_two_batches_that_a_start_goes_by(
    checkpoint: Checkpoint, batch: int
) -> None:
    noted_by(checkpoint, FIRST)
    offsets(checkpoint, batch, {"logOffset": batch}, {"clicks": {"0": 5}})
    with pytest.raises(StateMismatch, match=f"offsets/{batch} is not what it was when batch {batch} was taken"):
        Reads(checkpoint).begin(SECOND, 2)


def test_older_offsets_and_those_of_a_batch_that_no_sink_holds_lead_nobody_astray(checkpoint: Checkpoint) -> None:
    noted_by(checkpoint, FIRST)
    offsets(checkpoint, 0, {"logOffset": 0}, {"clicks": {"0": 5}})
    Reads(checkpoint).begin(SECOND, 2)
    offsets(checkpoint, 2, {"logOffset": 2}, {"clicks": {"0": 5}})
    Reads(checkpoint).begin(SECOND, 1)


def test_a_list_of_files_that_was_written_over_is_refused_however_old_it_is(checkpoint: Checkpoint) -> None:
    noted_by(checkpoint, FIRST)
    files(checkpoint, 0, "0.jsonl")
    with pytest.raises(StateMismatch, match=r"sources/0/0 is not what it was when batch 0 was taken"):
        Reads(checkpoint).begin(SECOND, 2)


def test_what_is_gone_and_what_nobody_noted_is_passed_over(checkpoint: Checkpoint) -> None:
    Reads(checkpoint).begin(FIRST, 2)
    noted_by(checkpoint, FIRST)
    (checkpoint.local / "sources" / "0" / "0").unlink()
    (checkpoint.local / "offsets" / "1").unlink()
    Reads(checkpoint).begin(SECOND, 2)


def test_what_a_run_that_was_taken_over_notes_does_not_count(checkpoint: Checkpoint) -> None:
    old = noted_by(checkpoint, FIRST)
    new = Reads(checkpoint)
    new.begin(SECOND, 1)
    new.note(2)
    assert [file.name for file in (checkpoint.local / READS).iterdir()] == ["000000000002"]
    before = (checkpoint.local / "offsets" / "2").read_text()
    offsets(checkpoint, 2, {"logOffset": 2}, {"clicks": {"0": 5}})
    old.note(2)
    with pytest.raises(StateMismatch, match="offsets/2"):
        Reads(checkpoint).begin(Epoch("a", 3), 2)
    (checkpoint.local / "offsets" / "2").write_text(before)
    Reads(checkpoint).begin(Epoch("a", 3), 2)


def test_a_checkpoint_that_was_begun_anew_is_another_one(checkpoint: Checkpoint) -> None:
    noted_by(checkpoint, FIRST)
    (checkpoint.local / "metadata").write_text('{"id": "two"}')
    offsets(checkpoint, 2, {"logOffset": 2}, {"clicks": {"0": 5}})
    Reads(checkpoint).begin(SECOND, 2)


def test_where_nobody_is_taken_over_nothing_is_written(checkpoint: Checkpoint) -> None:
    reads = Reads(checkpoint)
    reads.begin(None, 2)
    reads.note(2)
    assert not (checkpoint.local / READS).exists()
