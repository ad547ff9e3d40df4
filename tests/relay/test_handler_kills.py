"""Processes with a handler that are killed with SIGKILL: what they write to PostgreSQL is there once."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest

from tests.postgres_server import PostgresServer
from tests.relay.test_delays import _run
from tests.relay.world import World
from waterclock.clock import SystemClock
from waterclock.testing import Broker

MESSAGES = 300
OVER_MS = 20_000


@pytest.mark.postgres
@pytest.mark.long(seconds=60)
def test_each_message_is_written_once_though_processes_are_killed(
    relay_broker: Broker, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small ones of its kind are in tests/relay/test_handled.py."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance, table = random.Random(seed), "done_by_many"
    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.execute(f"CREATE TABLE {table} (id text, value text, attempt integer)")
    with World(relay_broker, tmp_path, "handled", 3) as world:
        world.clock = SystemClock()  # type: ignore[assignment]
        relay, ended = world.started(), threading.Event()
        thread = threading.Thread(target=_run, args=(relay, ended))
        thread.start()
        for number in range(MESSAGES):
            world.send(str(number), in_ms=chance.randrange(OVER_MS), partition=number % 3)
        arguments = [relay_broker.bootstrap, world.topic, world.target, postgres.url(), table]
        command = [sys.executable, "-m", "tests.relay.handling", *arguments]
        with (tmp_path / "out.txt").open("w") as out:
            running = [subprocess.Popen(command, stdout=out, stderr=out) for _ in range(2)]
            try:
                until_s = time.monotonic() + 120
                kills = 0
                while len(rows(postgres, table)) < MESSAGES:
                    assert time.monotonic() < until_s, (tmp_path / "out.txt").read_text()
                    time.sleep(chance.uniform(1.0, 4.0))
                    if kills < 6:
                        kills += 1
                        which = chance.randrange(2)
                        running[which].kill()
                        running[which].wait(10)
                        running[which] = subprocess.Popen(command, stdout=out, stderr=out)
            finally:
                for process in running:
                    process.kill()
                    process.wait(10)
                ended.set()
                thread.join()
    found = rows(postgres, table)
    assert sorted(int(value) for value, _ in found) == list(range(MESSAGES))
    assert {value for value, attempt in found if attempt > 1} == {str(n) for n in range(MESSAGES) if n % 10 == 7}


def rows(postgres: PostgresServer, table: str) -> list[tuple[str, int]]:
    with psycopg.connect(postgres.url()) as db:
        return db.execute(f"SELECT value, attempt FROM {table}").fetchall()
