"""A live run that is asked to go on with another checkpoint while its sink lacks a batch that Spark notes as done.

`python -m tests.spark.rescaling.lagging FOLDER WAY`: this process, with run and command in it, kills itself then; WAY is
"idle", where Spark has nothing more to do, or "ahead", where it has taken the next batch and waits for the sink; or
"over", where the sink was handed over and lacks the new checkpoint's first batch.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.rescaling.living import Living, until
from waterclock.sinks import Batch
from waterclock.spark.batch.outlets import Outlets
from waterclock.spark.checkpoint.state_files import number_in_sink
from waterclock.spark.session.session import conf_for, start
from waterclock.spark.succession import ANSWERED, said
from waterclock.streaming.toml.config import load

WAYS, OVER = ("idle", "ahead"), "over"
MOMENT_S = 1.0  # in which a run that does not wait for its sink would have answered


class Lagging:
    """Whoever writes the batch that comes when the command has nearly caught up waits until the run was told to halt; then
    comes `then`, and the batch is written."""

    def __init__(self, living: Living, way: str, then: Callable[[], object]) -> None:
        self._living, self._way, self._then = living, way, then
        self._is_due = self._has_rows = False
        self._lacking: int | None = None
        self._write = Outlets.write

    def report(self, line: str) -> None:
        """The command does a step."""
        if line.startswith("what the run did meanwhile") and not self._is_due:
            self._is_due = True
            self._living.come()
            until(lambda: self._lacking == (self._living.old.last_done() or 0), "Spark is ahead of the sink")
            if self._way == "ahead":
                self._living.come()
                until(self._is_ahead, "Spark is at the next batch")

    def first_of_the_new(self) -> None:
        """The sink was handed over."""
        self._is_due = True
        self._living.come()
        until(lambda: False, "the process is killed")

    def write(self, outlets: Outlets, session: SparkSession, batch: Batch) -> Batch | None:
        """In the place of Outlets.write. Behind a file's batch comes one without rows, for its watermark, and then none."""
        has_rows = bool(batch.counters.get("events"))
        if self._is_due and self._lacking is None and (self._has_rows > has_rows if self._way == "idle" else has_rows):
            self._lacking = batch.batch_id
            pipeline, new = self._living.pipeline, self._living.new
            if self._way == OVER:
                until(lambda: number_in_sink(new, new.last_done()) == self._lacking, "Spark is ahead of the sink")
            else:
                until(lambda: pipeline._succession.halts, "the run is told to halt")
            if self._way == "idle":
                until(lambda: pipeline._query is not None and not pipeline._query.isActive, "the query halts")
            time.sleep(MOMENT_S)
            self._then()
        self._has_rows = self._is_due and has_rows
        return self._write(outlets, session, batch)

    def _is_ahead(self) -> bool:
        return self._lacking is not None and self._living.pipeline._succession._begun > self._lacking

    def answered(self) -> str:
        """What the run answered last."""
        return str(said(self._living.old.local / ANSWERED)["step"])


def main(folder: Path, way: str) -> None:
    config = load(folder / "pipeline.toml")
    session = start("lagging", 2, conf_for(config.checkpoint, config.spark_conf), folder / "spark.log").spark
    living = Living(session, folder)
    lagging = Lagging(living, way, lambda: os.kill(os.getpid(), signal.SIGKILL))
    Outlets.write = lambda *given: lagging.write(*given)  # type: ignore[method-assign]
    living.begin()
    living.more(3)
    living.carry(report=None if way == OVER else lagging.report)
    lagging.first_of_the_new()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
