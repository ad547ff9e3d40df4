"""The thread that writes a batch while Spark is at the next one, and its mark in the checkpoint."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from waterclock.errors import SinkLost
from waterclock.spark.batch.beside import BesideWriter
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.checkpoint.taken_back import BESIDE


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


@pytest.fixture
def writer(checkpoint: Checkpoint) -> BesideWriter:
    return BesideWriter(checkpoint)


def fail() -> None:
    raise SinkLost("the server went away")


def test_batches_are_written_one_by_one_in_their_order_and_nobody_waits_but_for_the_one_before(
    writer: BesideWriter,
) -> None:
    may_end, written = threading.Event(), list[int]()

    def slow() -> None:
        assert may_end.wait(20)
        written.append(0)

    writer.begin(slow)
    assert not written
    threading.Timer(0.05, may_end.set).start()
    writer.begin(lambda: written.append(1))
    assert written[:1] == [0]
    writer.end()
    assert written == [0, 1]


def test_the_mark_is_there_before_the_first_batch_is_written_and_goes_at_the_end(
    writer: BesideWriter, checkpoint: Checkpoint
) -> None:
    seen = list[bool]()
    for _ in range(2):
        writer.begin(lambda: seen.append((checkpoint.local / BESIDE).exists()))
    writer.settle()
    assert (checkpoint.local / BESIDE).exists()
    writer.end()
    assert seen == [True, True]
    assert not (checkpoint.local / BESIDE).exists()


def test_after_a_failure_nothing_more_is_written_each_call_says_why_and_the_mark_stays(
    writer: BesideWriter, checkpoint: Checkpoint
) -> None:
    written = list[int]()
    writer.begin(fail)
    writer.wait()
    assert isinstance(writer.failure, SinkLost)
    for ask in (lambda: writer.begin(lambda: written.append(1)), writer.settle, writer.end):
        with pytest.raises(SinkLost, match="the server went away"):
            ask()
    assert not written
    assert (checkpoint.local / BESIDE).exists()


def test_a_run_that_wrote_nothing_beside_leaves_no_mark(writer: BesideWriter, checkpoint: Checkpoint) -> None:
    writer.end()
    assert list(checkpoint.local.iterdir()) == []
