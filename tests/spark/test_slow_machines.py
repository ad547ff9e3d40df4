"""A machine that has too much to do: Spark gives a Python worker ten seconds to start, and then its query has failed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if not importlib.util.find_spec("confluent_kafka") or not importlib.util.find_spec("kio"):
    pytest.skip("needs waterclock[kafka,broker]", allow_module_level=True)

from tests.spark.pipelines import orders
from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.testing import Broker

pytestmark = [pytest.mark.spark, pytest.mark.long(seconds=60)]
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


def test_a_worker_that_starts_too_slowly_is_started_again(kafka_broker: Broker, tmp_path: Path) -> None:
    done = run(kafka_broker, tmp_path, 2)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == len(orders(20))


def test_a_worker_that_never_starts_in_time_is_told_in_the_end(kafka_broker: Broker, tmp_path: Path) -> None:
    done = run(kafka_broker, tmp_path, 100)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "Python worker failed to connect back" in done.stderr
    assert len((tmp_path / "left").read_text()) == 95
