"""A driver whose executors write results: `python killed_executor_driver.py PIPELINE.toml MASTER MARK [ASTRAY]`.

The first task that has written its file, and finds no file MARK, makes one and kills its executor with SIGKILL before
Spark hears of what was written. With ASTRAY executors believe that the table lies in that folder.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from waterclock.sinks.base import ResultFile
from waterclock.sinks.files import PartWriter, ResultFiles
from waterclock.spark.pipeline import configured
from waterclock.spark.session.session import conf_for, start
from waterclock.spark.toml.config import load


@dataclass(frozen=True)
class DeadlyFiles:
    """Files of a batch, of which the first one is never told of; it travels to the executors as it stands here."""

    files: ResultFiles
    mark: str

    def begin(self, part: int, attempt: int) -> Any:
        return DeadlyWriter(self.files.begin(part, attempt), self.mark)


class DeadlyWriter:
    def __init__(self, writer: PartWriter, mark: str) -> None:
        self._writer, self._mark = writer, mark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def end(self) -> ResultFile | None:
        file = self._writer.end()
        if file is not None and not os.path.exists(self._mark):
            Path(self._mark).write_text(file.name)
            os.kill(executor(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return file


def executor() -> int:
    """The Java process that this worker of Python belongs to: its own grandparent."""
    process = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{process}/cmdline").read_bytes():
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process


class DeadlySink:
    def __init__(self, sink: Any, mark: str, astray: str) -> None:
        self._sink, self._mark, self._astray = sink, mark, astray

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def result_files(self, batch_id: int) -> Any:
        files = self._sink.result_files(batch_id)
        return replace(files, folder=self._astray) if self._astray else DeadlyFiles(files, self._mark)


def main() -> None:
    file, master, mark, astray = Path(sys.argv[1]), sys.argv[2], sys.argv[3], "".join(sys.argv[4:])
    config = load(file)
    conf = {**conf_for(config.checkpoint, config.spark_conf), "spark.master": master}
    session = start("deadly", 2, conf, file.with_name("spark.log"))
    configured(config, DeadlySink(config.sink.sink(), mark, astray)).run(session.spark)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
