"""Everything that README shows, from a wheel with extras and the demos' one: outside of the clone."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from subprocess import Popen

import pytest

from tests.installed.environments import ROOT, Environment

README = (ROOT / "README.md").read_text(encoding="utf-8")
MINUTE = "2026-03-01T10:{:02}:00Z"
EVENTS = [
    {"order": "A", "n": 2, "at": MINUTE.format(5), "what": "packed"},
    {"order": "A", "n": 1, "at": MINUTE.format(0), "what": "created"},
]
FIXTURES = """
def test_a_topic(kafka_broker, kafka_topic):
    assert kafka_broker.statistics().topics >= 1

def test_one_of_its_own(kafka_broker_factory):
    assert ":" in kafka_broker_factory().bootstrap
"""
Start = Callable[..., str]


@pytest.fixture
def start(whole: Environment, tmp_path: Path) -> Iterator[Start]:
    """Starts a command that goes on, and gives its first line; all are ended behind the test."""
    running: list[Popen[str]] = []

    def started(*command: str) -> str:
        running.append(whole.start("waterclock", *command, cwd=tmp_path))
        assert running[-1].stdout is not None
        return running[-1].stdout.readline()

    yield started
    for process in running:
        process.terminate()
        process.communicate(timeout=60)


def test_readmes_pipeline_goes_from_files_to_sqlite_and_writes_nothing_into_the_package(
    whole: Environment, tmp_path: Path
) -> None:
    before = whole.files()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in EVENTS))
    (pipeline,) = re.findall(r"```toml[^\n]*\n(source = .+?)```", README, re.S)
    (tmp_path / "orders.toml").write_text(pipeline)
    done = whole.run("waterclock", "run", "orders.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(tmp_path / "orders.db")) as database:
        kinds = [kind for (kind,) in database.execute("SELECT kind FROM results ORDER BY due")]
    assert kinds == ["event", "event", "expired"]
    assert whole.files() == before


def test_the_doctor_finds_every_door_at_work_that_was_installed(whole: Environment, tmp_path: Path) -> None:
    doors = ("timers", "broker", "relay", "spark", "kafka")
    done = whole.run("waterclock", "doctor", *doors, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert [line for line in done.stdout.splitlines() if line.endswith(" works")] == [
        f"{door:12} works" for door in doors
    ]


def test_a_delayed_message_is_delivered(whole: Environment, start: Start, tmp_path: Path) -> None:
    ready = start("relay", "--embedded", "out/relay", "--port", "0")
    (servers,) = re.findall(r"ready: requests go to \w+ on ([\d.:]+),", ready)
    where = ("--bootstrap", servers)
    sent = whole.run("waterclock", "relay", "send", "reminders", "hello", "--delay", "1s", *where, cwd=tmp_path)
    assert sent.returncode == 0, sent.stderr
    read = whole.run("waterclock", "relay", "read", "reminders", "--most", "1", *where, cwd=tmp_path)
    assert (read.returncode, "hello" in read.stdout) == (0, True), read.stderr


def test_a_broker_starts(start: Start) -> None:
    assert re.match(
        r"waterclock broker ready on 127\.0\.0\.1:\d+, data in data$", start("broker", "--data", "data", "--port", "0")
    )


def test_readmes_test_with_a_kafka_in_it_passes(whole: Environment, tmp_path: Path) -> None:
    (sample,) = re.findall(r"```python[^\n]*\n(from confluent_kafka .+?)```", README, re.S)
    (tmp_path / "test_orders.py").write_text(sample)
    done = whole.run("pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "1 passed" in done.stdout, done.stdout


def test_pytest_has_the_fixtures(whole: Environment, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FIXTURES)
    done = whole.run("pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "2 passed" in done.stdout, done.stdout


def test_a_lesson_runs(whole: Environment, tmp_path: Path) -> None:
    done = whole.run("waterclock", "demo", "order", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_a_benchmark_runs(whole: Environment, tmp_path: Path) -> None:
    command = ("bench", "wheel", "--sizes", "50", "--rounds", "1", "--out", "figures")
    done = whole.run("waterclock", *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "figures" / "wheel.json").exists()
