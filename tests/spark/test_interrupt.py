"""Ctrl-C and SIGTERM: a live run ends well, a run to the end is stopped and can go on; nothing is left running."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.spark.pipelines import make_pipeline, orders

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long(seconds=15),
]  # with every run of the tests, test_metrics.py ends one with Ctrl-C


def started(file: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "waterclock.cli", "run", str(file), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_batches(folder: Path, count: int, patience_s: int = 60) -> None:
    """Look at the sink until it holds `count` batches; not longer than `patience_s`."""
    for _ in range(patience_s * 10):
        try:
            with closing(sqlite3.connect(f"file:{folder}/out.db?mode=ro", uri=True)) as db:
                if db.execute("SELECT count(*) FROM results_batches").fetchone()[0] >= count:
                    return
        except sqlite3.OperationalError:
            pass  # not made yet
        time.sleep(0.1)
    pytest.fail(f"the pipeline wrote too little in {patience_s} s")


def left_running(folder: Path) -> list[str]:
    """The command lines of processes that still name the folder."""
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return [line.decode(errors="replace") for line in lines if str(folder).encode() in line]


def command_of_a_child(pid: int) -> bytes:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return Path(f"/proc/{found[0]}/cmdline").read_bytes() if found else b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_live_run_ends_with_its_summary(tmp_path: Path, number: signal.Signals) -> None:
    process = started(make_pipeline(tmp_path, orders(10), files=2), "--live", "--json")
    wait_for_batches(tmp_path, 2)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, json.loads(out)["pipeline"]) == (0, "orders"), err.decode()
    assert b"Traceback" not in err


def test_a_run_that_is_stopped_while_java_starts_leaves_none_behind(tmp_path: Path) -> None:
    # PySpark lost the JVM on its way: it stayed, and who waited for the end of what it prints waited for ever
    process = started(make_pipeline(tmp_path, orders(2), files=1))
    end = time.monotonic() + 60
    while b"org.apache.spark.deploy.SparkSubmit" not in command_of_a_child(process.pid):
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err.decode()
    assert b"Traceback" not in err


def test_a_run_to_the_end_that_is_stopped_says_so_and_closes_nothing_and_leaves_nothing_running(tmp_path: Path) -> None:
    file = make_pipeline(tmp_path, orders(200), files=60)
    process = started(file)
    wait_for_batches(tmp_path, 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"the same command goes on from there" in err
    assert b"Traceback" not in err
    assert left_running(tmp_path) == []
    # it closed: where the next run took files after the closing heartbeat, their events were late
    assert not (file.parent / "checkpoint" / "heartbeats" / "closing.jsonl").exists()
