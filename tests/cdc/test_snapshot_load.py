"""A snapshot under write load, killed again and again: at the end the topic is the source, and no row
was ever another one."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pymysql
import pytest

from tests.cdc.mariadb import MariaServer
from tests.cdc.snapshot_load import FullDatabase, Writers, folded
from tests.cdc.snapshot_run import capture_of
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.produce import Target
from waterclock.testing import Broker

KINDS = [pytest.param("mariadb", marks=pytest.mark.mariadb), pytest.param("postgres", marks=pytest.mark.postgres)]
STEPS = ("fence", "begin", "send", "store", "finish")
QUICK = {("store", "after", "mariadb"), ("finish", "before", "postgres"), ("send", "after", "postgres")}
Found = tuple[FullDatabase, str, str, str]


@pytest.fixture
def full(request: pytest.FixtureRequest) -> Callable[[str, int], Found]:
    """A full database of a kind: with its server, its topic, and the pattern of its tables."""

    def made(kind: str, rows: int) -> Found:
        if kind == "mariadb":
            server: MariaServer = request.getfixturevalue("mariadb")
            name: str = request.getfixturevalue("database")
            settings = {"host": "127.0.0.1", "port": server.port, "user": "root", "database": name, "autocommit": True}
            database = FullDatabase(lambda: pymysql.connect(**settings, charset="utf8mb4"), True, rows)
            where = (str(server.port), name, f"{name}.*")
        else:
            slot: ReplicationSlot = request.getfixturevalue("slot")
            database = FullDatabase(lambda: psycopg.connect(slot.conninfo, autocommit=True), False, rows)
            where = (slot.conninfo, slot.name, "public.*")
        database.fill()
        return (database, *where)

    return made


def started(kind: str, server: str, broker: Broker, topic: str, pattern: str, *die: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.cdc.snapshot_run", kind, server, broker.bootstrap, topic, pattern]
    return subprocess.Popen([*command, *(die or ("", "", "0"))], cwd=Path(__file__).parents[2])


EACH = [
    pytest.param(step, when, kind.values[0], marks=[*kind.marks, *seldom])
    for step in STEPS
    for when in ("before", "after")
    for kind in KINDS
    for seldom in ([] if (step, when, kind.values[0]) in QUICK else [pytest.mark.long(seconds=25)],)
]


@pytest.mark.parametrize(("step", "when", "kind"), EACH)
def test_a_kill_at_each_step_of_a_snapshot_loses_nothing_and_doubles_nothing(
    step: str, when: str, kind: str, broker: Broker, full: Callable[[str, int], Found]
) -> None:
    database, server, topic, pattern = full(kind, 1500)
    writers = Writers(database, 7, count=1, rest_s=0.02)
    for number in ("1",) if step == "fence" else ("1", "2", "4"):
        times = "900" if (step, number) == ("send", "4") else number  # in the middle of a chunk
        assert started(kind, server, broker, topic, pattern, step, when, times).wait(timeout=60) == -9
    writers.stop()
    capture, end = capture_of(kind, server, Target(broker.bootstrap, topic), pattern)
    capture.run(end())
    found = folded(broker, topic)
    assert found.wrong == {}
    assert found.held() == database.held()
    assert found.kinds["bootstrap-insert"] > 1500


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.long(seconds=240))])
def test_a_snapshot_under_load_that_is_killed_at_any_time_is_the_source(
    kills: int, kind: str, broker: Broker, full: Callable[[str, int], Found]
) -> None:
    database, server, topic, pattern = full(kind, 1500 * kills)
    writers, draw = Writers(database, kills), random.Random(kills)
    for _ in range(kills):
        process = started(kind, server, broker, topic, pattern)
        time.sleep(draw.uniform(1.5, 4.0))
        process.kill()
        assert process.wait() == -9
    writers.stop()
    capture, end = capture_of(kind, server, Target(broker.bootstrap, topic), pattern)
    capture.run(end())
    found = folded(broker, topic)
    assert found.wrong == {}
    assert found.held() == database.held()
    assert writers.transactions > 100 * kills
