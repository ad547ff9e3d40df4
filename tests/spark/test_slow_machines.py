"""A machine that has too much to do: Spark gives a Python worker ten seconds to start, and then its query has failed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

if not importlib.util.find_spec("confluent_kafka") or not importlib.util.find_spec("kio"):
    pytest.skip("needs waterclock[kafka,broker]", allow_module_level=True)

from tests.sinks.five_verbs import FiveVerbs
from tests.spark.pipelines import make_pipeline, orders
from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.errors import WaterclockError
from waterclock.spark.pipeline import configured
from waterclock.streaming.toml.config import load
from waterclock.testing import Broker

pytestmark = pytest.mark.spark
# a Python whose planner of topics sleeps until Spark has lost its patience, as often as the file has bytes
SLOW = """#!/bin/sh
case "$*" in *python_streaming_source_runner*)
    if [ -s "{left}" ]; then truncate -s -1 "{left}"; sleep 12; fi
esac
exec "{python}" "$@"
"""


def run(kafka_broker: Broker, folder: Path, slow_starts: int) -> subprocess.CompletedProcess[str]:
    kafka_broker.create_topic(f"orders-slow-{slow_starts}", 1)
    Sender(kafka_broker.bootstrap, f"orders-slow-{slow_starts}").orders(orders(20))
    file = make_topic_pipeline(folder, kafka_broker.bootstrap, f"orders-slow-{slow_starts}")
    python = folder / "python"
    python.write_text(SLOW.format(left=folder / "left", python=sys.executable))
    python.chmod(0o755)
    (folder / "left").write_text("x" * slow_starts)
    command = [sys.executable, "-m", "waterclock.cli", "run", str(file), "--json"]
    environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.long(seconds=60)
def test_a_worker_that_starts_too_slowly_is_started_again(kafka_broker: Broker, tmp_path: Path) -> None:
    done = run(kafka_broker, tmp_path, 2)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == len(orders(20))


class SlowMoments(FiveVerbs):
    """A sink before which a worker starts too slowly, so often before each batch; to the pipeline it is all the same."""

    often = 1

    def begin(self) -> None:
        self.left -= 1
        if self.left >= 0:
            raise RuntimeError("SparkException: Python worker failed to connect back.")
        super().begin()

    def commit(self) -> None:
        super().commit()
        self.left = self.often

    left = often


def test_each_committed_batch_gives_a_query_all_its_starts_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a live run of weeks ended at its fifth slow moment
    monkeypatch.setattr("waterclock.spark.session.starts.FIRST_PAUSE_S", 0)
    monkeypatch.setattr("waterclock.spark.session.starts.MOST", 2)
    sink = SlowMoments(tmp_path / "mine.db")
    with configured(load(make_pipeline(tmp_path, orders(5))), sink) as pipeline:
        assert pipeline.run(spark).batches > 3
    sink.finish()


def test_a_machine_that_is_too_busy_for_good_is_named_as_what_is_the_matter(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waterclock.spark.session.starts.FIRST_PAUSE_S", 0)
    sink = SlowMoments(tmp_path / "mine.db")
    sink.left = 100
    too_busy = pytest.raises(
        WaterclockError, match=r"^the machine has too much to do: .* 6 in a row .*checkpoint/spark.log"
    )
    with configured(load(make_pipeline(tmp_path, orders(5))), sink) as pipeline, too_busy:
        pipeline.run(spark)
    assert (sink.left, sink.rows()) == (100 - 6, [])
    sink.finish()
