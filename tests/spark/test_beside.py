"""A batch is written while Spark is at the next one: it is, where it may be, and a failure of the last one is not lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import make_pipeline, orders, run, table
from waterclock.errors import UsageError
from waterclock.sinks import Batch, SQLiteSink
from waterclock.spark.batch.beside import BesideWriter
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.checkpoint.taken_back import BESIDE
from waterclock.spark.pipeline import configured
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark
PATIENCE_S = 60


def until(is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    end_s = time.monotonic() + patience_s
    while not is_so() and time.monotonic() < end_s:
        time.sleep(0.02)
    return is_so()


class Looking(SQLiteSink):
    """A sink that looks how far Spark is while it writes batch 1, for at most so many seconds."""

    def __init__(self, path: Path, checkpoint: Checkpoint, patience_s: float) -> None:
        super().__init__(path)
        self._checkpoint, self._patience_s = checkpoint, patience_s
        self.seen: Any = None

    def write(self, batch: Batch) -> Batch:
        if batch.batch_id == 1:
            until(lambda: self._checkpoint.last_batch() == 2, self._patience_s)
            self.seen = self._checkpoint.last_done(), self._checkpoint.last_batch()
        return super().write(batch)


class Refusing(SQLiteSink):
    """A sink that keeps batch 1 back; `first` comes before that."""

    def __init__(self, path: Path, first: Callable[[], object]) -> None:
        super().__init__(path)
        self._first = first

    def write(self, batch: Batch) -> Batch:
        if batch.batch_id == 1:
            self._first()
            raise UsageError("the disk is full")
        return super().write(batch)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_pipeline(tmp_path, orders(20), files=3)


@pytest.mark.parametrize("beside", [True, False], ids=["one of ours", "one that needs Spark"])
def test_spark_plans_the_next_batch_while_a_sink_writes_that_needs_nothing_of_it(
    spark: SparkSession, file: Path, beside: bool
) -> None:
    config = load(file)
    with closing(Looking(file.parent / "out.db", Checkpoint(config.checkpoint), PATIENCE_S if beside else 1)) as sink:
        sink.needs_no_spark = beside
        with closing(configured(config, sink)) as pipeline:
            pipeline.run(spark)
    assert sink.seen == ((1, 2) if beside else (0, 1))
    assert not (config.checkpoint / BESIDE).exists()


@pytest.mark.long(seconds=10)
@pytest.mark.parametrize("ended", [False, True], ids=["nothing comes behind it", "while the run is ended"])
def test_a_live_run_whose_last_batch_was_not_written_says_so_and_the_next_one_writes_it(
    spark: SparkSession, file: Path, ended: bool
) -> None:
    (file.parent / "in" / "002.jsonl").rename(file.parent / "later")
    config = load(file)
    checkpoint = Checkpoint(config.checkpoint)

    def first() -> None:
        assert until(lambda: checkpoint.last_done() == 1)  # Spark has nothing more to do
        if ended:
            pipeline.end()
            time.sleep(1)

    sink = Refusing(file.parent / "out.db", first)
    with closing(configured(config, sink)) as pipeline, pytest.raises(UsageError, match="the disk is full"):
        pipeline.run(spark, live=True)
    assert (checkpoint.local / BESIDE).exists()
    (file.parent / "later").rename(file.parent / "in" / "002.jsonl")
    run(spark, file)
    again = make_pipeline(file.parent / "clean", orders(20), files=3)
    run(spark, again)
    assert table(file.parent) == table(again.parent)


@pytest.mark.long(seconds=10)
@pytest.mark.parametrize("live", [True, False])
def test_the_mark_goes_when_no_batch_can_begin_any_more(
    spark: SparkSession, file: Path, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    end, is_active = BesideWriter.end, list[bool]()

    def looking(writer: BesideWriter) -> None:
        assert pipeline._query is not None
        is_active.append(pipeline._query.isActive)
        end(writer)

    monkeypatch.setattr(BesideWriter, "end", looking)
    with closing(configured(load(file))) as pipeline:
        pipeline.run(spark, live, report=lambda told: pipeline.end())
    assert is_active == [False]


@pytest.mark.long(seconds=10)
def test_the_same_pipeline_goes_on_behind_a_run_that_failed_and_behind_one_that_was_ended(
    spark: SparkSession, file: Path
) -> None:
    # the next run raised the failure of the one before, whatever the sink did; and one behind a live run closed nothing
    failing = [True]

    class Mended(SQLiteSink):
        def write(self, batch: Batch) -> Batch:
            if batch.batch_id == 1 and failing.pop():
                raise UsageError("the disk is full")
            return super().write(batch)

    with closing(Mended(file.parent / "out.db")) as sink, closing(configured(load(file), sink)) as pipeline:
        with pytest.raises(UsageError, match="the disk is full"):
            pipeline.run(spark)
        failing.append(False)
        pipeline.run(spark, live=True, report=lambda told: pipeline.end())
        whole = pipeline.run(spark)
        assert (pipeline.run(spark).batches, pipeline.statistics().batches) == (0, 0)
    again = make_pipeline(file.parent / "clean", orders(20), files=3)
    assert whole.totals == run(spark, again).totals
    assert table(file.parent) == table(again.parent)
