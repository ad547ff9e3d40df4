"""A driver with one slow task: `python slow_task_driver.py PIPELINE.toml MASTER MARK`.

The first task that has written its file of results makes a file MARK with the file's name, and stands still. Its state is
stored by then or not, and its file lies there. Spark begins the task again on the other machine, and takes that one.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.spark.first_file import FatedSink
from waterclock.spark.pipeline import configured
from waterclock.spark.session.session import conf_for, start
from waterclock.streaming.toml.config import load

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.01",
}
STANDS_STILL_S = 600


def stand_still() -> None:
    time.sleep(STANDS_STILL_S)


def main() -> None:
    file, master, mark = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    config = load(file)
    conf = {**conf_for(config.checkpoint, config.spark_conf), **SPECULATION, "spark.master": master}
    session = start("slow", 2, conf, file.with_name("spark.log"))
    configured(config, FatedSink(config.sink.sink(), mark, stand_still)).run(session.spark)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
