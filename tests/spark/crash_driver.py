"""A pipeline that kills itself: `python crash_driver.py PIPELINE.toml POINT BATCH [SIGNAL]`, SIGKILL at that point of that
batch, or another signal to its whole group of processes.

The points stand between the numbered steps of sinks/base.py; RANDOM kills after so many milliseconds instead of batches,
and NEVER not at all. Those of AHEAD are Spark's, which goes on while the sink lacks the batch: it has noted it as done, has
planned the next one, has stored the state of that, or a snapshot of it. Those of BACK stand behind the steps of
taken_back.py: the first store's state of two is gone, the plan too, the note too; of the next batch that a run takes back.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from waterclock.sinks import Batch, Sink
from waterclock.spark.checkpoint import taken_back
from waterclock.spark.pipeline import configured
from waterclock.spark.session.session import conf_for, start
from waterclock.streaming.toml.config import load

POINTS = ("taken", "begun", "looked", "written", "committed", "told")
AHEAD = ("noted", "planned", "stored", "snapshot")
BACK = {"back-state": "0", "back-plan": "offsets", "back-note": "commits"}  # the folder that is flushed then
PATIENCE_S = 90


def die() -> None:
    if sys.argv[-1].startswith("SIG"):
        os.killpg(os.getpgrp(), signal.Signals[sys.argv[-1]])  # Java and the workers too
    else:
        os.kill(os.getpid(), signal.SIGKILL)


class CrashingSink:
    """The real sink, until the chosen point of the chosen batch."""

    def __init__(self, sink: Sink, point: str, batch_id: int, checkpoint: Path) -> None:
        self._sink, self._point, self._fatal, self._batch_id = sink, point, batch_id, -1
        self._checkpoint = checkpoint

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def begin(self) -> None:
        self._die_at("taken")
        if self._point in AHEAD:
            self._die_when_ahead()
        self._sink.begin()
        self._die_at("begun")

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        self._batch_id = batch_id
        applied = self._sink.is_applied(query_id, batch_id)
        self._die_at("looked")
        return applied

    def write(self, batch: Batch) -> None:
        self._sink.write(batch)
        self._die_at("written")

    def commit(self) -> None:
        self._sink.commit()
        self._die_at("committed")

    def _die_at(self, point: str) -> None:
        # `taken` and `begun` come before the sink knows the batch: it is the one after the last
        at = self._batch_id + 1 if point in ("taken", "begun") else self._batch_id
        if point == self._point and at >= self._fatal:
            die()

    def _die_when_ahead(self) -> None:
        last = self._sink.last_applied()
        lacking, until_s = 0 if last is None else last.batch_id + 1, time.monotonic() + PATIENCE_S
        while lacking >= self._fatal:
            if is_ahead(self._checkpoint, self._point, lacking):
                die()
            assert time.monotonic() < until_s, f"Spark waits for the sink: {self._point} of batch {lacking}"
            time.sleep(0.005)


def is_ahead(checkpoint: Path, point: str, lacking: int) -> bool:
    """Whether Spark has come to that point behind the batch which the sink lacks."""
    if point == "noted":
        return (checkpoint / "commits" / str(lacking)).exists()
    if point == "planned":
        return (checkpoint / "offsets" / str(lacking + 1)).exists()
    kinds = ("zip",) if point == "snapshot" else ("zip", "changelog")
    return all(
        any((checkpoint / "state" / "0" / partition / f"{lacking + 2}.{kind}").exists() for kind in kinds)
        for partition in "01"
    )


def die_behind(step: str) -> None:
    """Have the process die when that step of taken_back.py is done, and on the disk."""
    flushed = taken_back.flush_folder

    def flush(folder: Path) -> None:
        flushed(folder)
        if folder.name == BACK[step]:
            die()

    taken_back.flush_folder = flush


def main() -> None:
    file, point, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    config = load(file)
    sink: Any = config.sink.sink()
    if point in BACK:
        die_behind(point)
    elif point != "random":
        sink = CrashingSink(sink, point, number, config.checkpoint)
    session = start("crash", 2, conf_for(config.checkpoint, config.spark_conf), Path(file).with_name("spark.log"))
    if point == "random":
        threading.Timer(number / 1000, die).start()

    def tell(progress: object) -> None:
        if point == "told":
            die()

    configured(config, sink).run(session.spark, report=tell)


if __name__ == "__main__":
    main()
