"""A pipeline that kills itself: `python crash_driver.py PIPELINE.toml POINT BATCH [SIGNAL]`, SIGKILL at that point of that
batch, or another signal to its whole group of processes.

The points stand between the numbered steps of sinks/base.py; RANDOM kills after so many milliseconds instead of batches,
and NEVER not at all.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from waterclock.sinks import Batch, Sink
from waterclock.spark.pipeline import configured
from waterclock.spark.session.session import conf_for, start
from waterclock.streaming.toml.config import load

POINTS = ("taken", "begun", "looked", "written", "committed", "told")


def die() -> None:
    if sys.argv[-1].startswith("SIG"):
        os.killpg(os.getpgrp(), signal.Signals[sys.argv[-1]])  # Java and the workers too
    else:
        os.kill(os.getpid(), signal.SIGKILL)


class CrashingSink:
    """The real sink, until the chosen point of the chosen batch."""

    def __init__(self, sink: Sink, point: str, batch_id: int) -> None:
        self._sink, self._point, self._fatal, self._batch_id = sink, point, batch_id, -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def begin(self) -> None:
        self._die_at("taken")
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


def main() -> None:
    file, point, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    config = load(file)
    sink: Any = config.sink.sink()
    if point != "random":
        sink = CrashingSink(sink, point, number)
    session = start("crash", 2, conf_for(config.checkpoint, config.spark_conf), Path(file).with_name("spark.log"))
    if point == "random":
        threading.Timer(number / 1000, die).start()

    def tell(progress: object) -> None:
        if point == "told":
            die()

    configured(config, sink).run(session.spark, report=tell)


if __name__ == "__main__":
    main()
