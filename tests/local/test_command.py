"""`waterclock run --engine local` as a process: Ctrl-C and SIGTERM, its statistics and its page while it runs; `linger`."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.local.running import counts, living, until
from tests.local.test_pipeline import change, replayed
from tests.samples import free_port
from tests.spark.pipelines import make_pipeline, orders, write_files
from tests.spark.topics import Sender, make_topic_pipeline
from tests.web.reading import get, read_back
from waterclock.testing import Broker

ROWS = orders(40)


@contextmanager
def started(file: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "waterclock.cli", "run", str(file), "--engine", "local", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def batches(folder: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{folder}/out.db?mode=ro", uri=True)) as db:
            return int(db.execute("SELECT count(*) FROM results_batches").fetchone()[0])
    except sqlite3.OperationalError:  # not made yet
        return 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_live_run_that_is_stopped_ends_with_its_summary_and_leaves_nothing_to_read_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    file = make_pipeline(tmp_path, ROWS, files=4)
    change(file, "[time]\n", "[time]\nclose = false\n")
    with started(file, "--live") as process:
        until(lambda: batches(tmp_path) == 4, "it does not read what is there")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, json.loads(out)["totals"]["events"]) == (0, len(ROWS)), err
    assert "Traceback" not in err
    assert replayed(file) == 0


def test_a_run_to_the_end_that_is_stopped_goes_on_behind_its_last_batch(tmp_path: Path) -> None:
    file = make_pipeline(tmp_path, orders(600), files=400)
    with started(file) as process:
        until(lambda: batches(tmp_path) > 2, "it does not begin")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (
        1,
        "waterclock: stopped; what was committed stays, and the same command goes on from there",
    )
    assert 2 < batches(tmp_path) < 400
    with started(file) as process:
        out, err = process.communicate(timeout=60)
    assert json.loads(out)["totals"]["events"] == len(orders(600)), err
    assert batches(tmp_path) == 401


def test_a_run_to_the_end_that_waits_for_a_broker_is_stopped_too(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path
) -> None:
    # it was waited for to the end of its patience, a minute, before the process ended
    Sender(kafka_broker.bootstrap, kafka_topic).orders(orders(600))
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, kafka_topic, more="per_batch = 10")
    slow = kafka_broker.faults.delay("Fetch", 100, topic=kafka_topic)
    with started(file) as process:
        until(lambda: batches(tmp_path) > 2, "it does not begin")
        dropped = kafka_broker.faults.drop("ListOffsets", times=None, topic=kafka_topic)
        time.sleep(2)  # what was on its way is done
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        dropped.clear()
        slow.clear()
    assert "waterclock: stopped; what was committed stays" in err
    assert "Traceback" not in err
    with started(file) as process:
        out, err = process.communicate(timeout=60)
    assert json.loads(out)["totals"]["events"] == len(orders(600)), err


def test_while_it_runs_it_tells_its_statistics_and_shows_its_page(tmp_path: Path) -> None:
    file, port = make_pipeline(tmp_path, ROWS, files=4), free_port()
    with started(file, "--live", "--metrics", str(port), "--console") as process:
        until(lambda: batches(tmp_path) == 4, "it does not read what is there")
        at = f"http://127.0.0.1:{port}"
        until(lambda: read_back(get(f"{at}/metrics")[1])["waterclock_events"][1][0][2] == len(ROWS), "it tells others")
        status, page, _ = get(f"{at}/")
        assert (status, "<html" in page) == (200, True)
        write_files(ROWS[:10], tmp_path / "more", 1)
        (tmp_path / "more" / "000.jsonl").rename(tmp_path / "in" / "more.jsonl")
        until(
            lambda: read_back(get(f"{at}/metrics")[1])["waterclock_events"][1][0][2] == len(ROWS) + 10,
            "it stands still",
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.parametrize(("linger", "is_gathered"), [("", False), ('[local]\nlinger = "400 ms"\n', True)])
def test_with_linger_a_live_run_rests_behind_each_batch_and_gathers_what_comes(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path, linger: str, is_gathered: bool
) -> None:
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, kafka_topic)
    file.write_text(linger + file.read_text())
    sender = Sender(kafka_broker.bootstrap, kafka_topic)
    sender.orders(ROWS[:1])
    with living(file) as (pipeline, _):
        counts(pipeline, "records", 1)
        began_s, before = time.monotonic(), pipeline.statistics().batches
        for row in ROWS[1:31]:
            sender.orders([row])
            time.sleep(0.04)
        counts(pipeline, "records", 31)
        count, seconds = pipeline.statistics().batches - before, time.monotonic() - began_s
    if is_gathered:
        assert count <= seconds / 0.4 + 1
    else:
        assert count > seconds / 0.4 + 1
