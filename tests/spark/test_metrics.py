"""A pipeline is asked for its statistics while it runs; what it tells at the end is what its tables hold."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import make_pipeline, orders, write_files
from tests.spark.topics import Sender, make_topic_pipeline
from tests.web.reading import get, read_back
from waterclock.broker import Broker
from waterclock.spark.pipeline import configured
from waterclock.streaming.statistics import PipelineStatistics
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark
HOUR_US = 3_600_000_000


def ask(folder: Path, statement: str) -> Any:
    with closing(sqlite3.connect(f"file:{folder}/out.db?mode=ro", uri=True)) as db:
        return db.execute(statement).fetchone()[0]


def newest_us(rows: list[dict[str, Any]]) -> int:
    return max(int(row["at"].timestamp() * 1_000_000) for row in rows)


@pytest.mark.long(seconds=8)
def test_statistics_agree_with_the_table_after_each_batch_and_at_the_end(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(60)
    file, seen = make_pipeline(tmp_path, rows, files=4), list[PipelineStatistics]()
    with closing(configured(load(file))) as pipeline:
        pipeline.run(spark, report=lambda progress: seen.append(pipeline.statistics()))
        last = pipeline.statistics()
    assert [s.batches for s in seen] == list(range(1, len(seen) + 1))
    assert [s.behind for s in seen[:4]] == [{"": left} for left in (3, 2, 1, 0)]
    assert all(s.behind_newest_s is not None and s.behind_newest_s >= 3600 for s in seen[1:4])
    assert max(s.held for s in seen) > 0 < max(s.pending for s in seen)
    assert max(s.state_bytes for s in seen) > last.state_bytes > 0
    assert (last.events, last.newest_us, last.held, last.pending) == (len(rows), newest_us(rows), 0, 0)
    assert last.results == ask(tmp_path, "SELECT count(*) FROM results")
    assert last.late == ask(tmp_path, "SELECT count(*) FROM results WHERE kind = 'late'")
    assert last.totals == json.loads(json.dumps(last.totals))
    phases = last.phases or {}
    assert {"take", "sink", "addBatch", "triggerExecution", "walCommit"} <= phases.keys()
    assert (phases["take"].count, last.state_rows) == (last.batches, 16)
    assert phases["take"].total_s + phases["sink"].total_s < last.batches * 60


@pytest.mark.long(seconds=6)
def test_a_second_run_goes_on_with_the_counts_of_the_first(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(20)
    file = make_pipeline(tmp_path, rows[: len(rows) // 2], files=1)
    file.write_text(file.read_text().replace("[time]", "[time]\nclose = false"))
    found = []
    for _ in range(2):
        with closing(configured(load(file))) as pipeline:
            pipeline.run(spark)
            found.append(pipeline.statistics())
        write_files(rows[len(rows) // 2 :], tmp_path / "in" / "..", 1)
        (tmp_path / "000.jsonl").rename(tmp_path / "in" / "more.jsonl")
    assert [s.events for s in found] == [len(rows) // 2, len(rows)]
    assert found[1].results == ask(tmp_path, "SELECT count(*) FROM results")


@pytest.mark.long(seconds=10)
def test_of_a_topic_the_lag_of_each_partition_and_of_the_watermark_is_told(spark: SparkSession, tmp_path: Path) -> None:
    rows, seen = orders(40), list[PipelineStatistics]()
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        Sender(broker.bootstrap, "orders").orders(rows)
        file = make_topic_pipeline(tmp_path, broker.bootstrap, "orders", more=f"per_batch = {len(rows) // 2}")
        with closing(configured(load(file))) as pipeline:
            pipeline.run(spark, report=lambda progress: seen.append(pipeline.statistics()))
    behind = [sum((s.behind or {}).values()) for s in seen]
    assert (behind[0], behind[-1], seen[0].unit) == (len(rows) - seen[0].events, 0, "records")
    assert set(seen[0].behind or {}) == {"orders/0", "orders/1"}
    lags = [s.behind_newest_s for s in seen if s.behind_newest_s is not None]
    assert lags[0] >= 3600  # the watermark's delay, and what the slower partition adds
    assert (lags[-1], seen[-1].newest_us) == (0.0, newest_us(rows))


def started(file: Path, port: int) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "waterclock.cli", "run", str(file), "--live", "--json", "--metrics", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    return process, process.stderr.readline().removeprefix("metrics at ").strip()


@pytest.mark.long(seconds=20)
def test_a_live_run_is_asked_over_http_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    rows = orders(30)
    process, url = started(make_pipeline(tmp_path, rows, files=2), 0)
    try:
        assert read_back(get(url)[1])["waterclock_events"][1][0][2] == 0.0  # Spark is starting
        early = json.loads(get(url.replace("/metrics", "/statistics.json"))[1])["statistics"]
        assert [early[name] for name in ("watermark_us", "newest_us", "events_per_second", "batch_id")] == [None] * 4
        page: dict[str, Any] = {}
        for _ in range(1200):
            page = read_back(get(url)[1])
            if page["waterclock_events"][1][0][2] == len(rows) and "waterclock_state_rows" in page:
                break
            time.sleep(0.1)
        assert page["waterclock_results"][1] == [
            ("waterclock_results_total", {"pipeline": "orders"}, float(ask(tmp_path, "SELECT count(*) FROM results")))
        ]
        assert page["waterclock_source_behind_files"][1][0][2] == 0.0
        phases = {labels["phase"] for _, labels, _ in page["waterclock_batch_phase_seconds"][1]}
        assert {"sink", "take", "addBatch"} <= phases
        found = json.loads(get(url.replace("/metrics", "/statistics.json"))[1])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    shown = found["statistics"]
    assert (found["command"], shown["pipeline"], shown["totals"]["events"]) == ("run", "orders", len(rows))
    assert (shown["newest_us"], shown["behind"]) == (newest_us(rows), {"": 0})
    assert shown["state_rows"] > 0
    assert shown["phases"]["sink"]["count"] == shown["batches"] > 0
    assert (process.returncode, json.loads(out)["events"]) == (0, len(rows)), err
    with pytest.raises(OSError, match="refused"):
        get(url)


def test_a_port_that_is_taken_is_told_before_spark_starts(tmp_path: Path) -> None:
    file = make_pipeline(tmp_path, orders(2), files=1)
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = str(other.getsockname()[1])
        command = [sys.executable, "-m", "waterclock.cli", "run", str(file), "--metrics", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"port {port} of 127.0.0.1" in done.stderr
    assert not (tmp_path / "checkpoint" / "spark.log").exists()


@pytest.mark.long(seconds=5)
def test_a_query_of_somebody_else_in_the_session_is_not_counted(spark: SparkSession, tmp_path: Path) -> None:
    other = spark.readStream.format("rate").load().writeStream.format("noop").queryName("other").start()
    try:
        file = make_pipeline(tmp_path, orders(10), files=1)
        ended = threading.Event()
        with closing(configured(load(file))) as pipeline:
            pipeline.run(spark, report=lambda progress: ended.set())
            phases = pipeline.statistics().phases or {}
        assert ended.is_set()
        assert phases["triggerExecution"].count <= pipeline.statistics().batches
    finally:
        other.stop()
