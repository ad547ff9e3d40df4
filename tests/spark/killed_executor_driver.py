"""A driver whose executors write results: `python killed_executor_driver.py PIPELINE.toml MASTER MARK [ASTRAY]`.

The first task that has written its file, and finds no file MARK, makes one and kills its executor with SIGKILL before
Spark hears of what was written. With ASTRAY executors believe that the table lies in that folder.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.spark.first_file import FatedSink
from waterclock.spark.pipeline import configured
from waterclock.spark.session.session import conf_for, start
from waterclock.streaming.toml.config import load


def kill_executor() -> None:
    os.kill(executor(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def executor() -> int:
    """The Java process that this worker of Python belongs to: its own grandparent."""
    process = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{process}/cmdline").read_bytes():
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process


class AstraySink:
    """Its executors believe that the table lies in another folder."""

    def __init__(self, sink: Any, folder: str) -> None:
        self._sink, self._folder = sink, folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def result_files(self, batch_id: int) -> Any:
        return replace(self._sink.result_files(batch_id), folder=self._folder)


def main() -> None:
    file, master, mark, astray = Path(sys.argv[1]), sys.argv[2], sys.argv[3], "".join(sys.argv[4:])
    config = load(file)
    conf = {**conf_for(config.checkpoint, config.spark_conf), "spark.master": master}
    session = start("deadly", 2, conf, file.with_name("spark.log"))
    sink = config.sink.sink()
    fated = AstraySink(sink, astray) if astray else FatedSink(sink, mark, kill_executor)
    configured(config, fated).run(session.spark)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
