"""A driver with one slow task: `python slow_task_driver.py PIPELINE.toml MASTER MARK`.

The first task that has written its file of results makes a file MARK with the file's name, and stands still. Its state is
stored by then or not, and its file lies there. Spark begins the task again on the other machine, and takes that one.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waterclock.sinks.base import ResultFile
from waterclock.sinks.files import PartWriter, ResultFiles
from waterclock.spark.pipeline import configured
from waterclock.spark.session.session import conf_for, start
from waterclock.spark.toml.config import load

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.01",
}
STANDS_STILL_S = 600


@dataclass(frozen=True)
class SlowFiles:
    """Files of a batch, of which the first one is not told of; it travels to the executors as it stands here."""

    files: ResultFiles
    mark: str

    def begin(self, part: int, attempt: int) -> Any:
        return SlowWriter(self.files.begin(part, attempt), self.mark)


class SlowWriter:
    def __init__(self, writer: PartWriter, mark: str) -> None:
        self._writer, self._mark = writer, mark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def end(self) -> ResultFile | None:
        file = self._writer.end()
        if file is not None and not Path(self._mark).exists():
            Path(self._mark).write_text(file.name)
            time.sleep(STANDS_STILL_S)
        return file


class SlowSink:
    def __init__(self, sink: Any, mark: str) -> None:
        self._sink, self._mark = sink, mark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def result_files(self, batch_id: int) -> Any:
        return SlowFiles(self._sink.result_files(batch_id), self._mark)


def main() -> None:
    file, master, mark = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    config = load(file)
    conf = {**conf_for(config.checkpoint, config.spark_conf), **SPECULATION, "spark.master": master}
    session = start("slow", 2, conf, file.with_name("spark.log"))
    configured(config, SlowSink(config.sink.sink(), mark)).run(session.spark)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
