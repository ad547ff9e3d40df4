"""examples/orders: whoever is killed at which step, each order has its reminder, and its end, once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="it comes with the extra relay")
pytest.importorskip("pymysqlreplication", reason="it comes with the extra cdc")

from examples.orders.orders import TABLES

from tests.cdc.postgres import run
from tests.postgres_server import running_server
from waterclock.clock import SystemClock

pytestmark = pytest.mark.postgres
ROOT = Path(__file__).parents[2]
DAY_MS = 1500
STEPS = ("row", "sent", "before", "after")
# two commits are those of a start; the last one lives
SERVING = (("row", 2), ("sent", 2), ("before", 4), ("after", 4), ("row", 2), ("before", 4), ("after", 4), ("none", 0))


class Shop:
    """The example's processes over one database."""

    def __init__(self, database: str, servers: str) -> None:
        self.database, self._servers = database, servers

    def start(self, step: str, number: int, what: str, argument: str = "") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.examples.order_steps", step, str(number), what, self.database]
        environment = {**os.environ, "DAY_MS": str(DAY_MS)}
        return subprocess.Popen([*command, argument or self._servers], cwd=ROOT, env=environment)

    def call(self, step: str, what: str, number: int) -> int:
        """The exit code of a transaction."""
        return self.start(step, 1, what, str(number)).wait(60)

    def history(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for number, what in run(self.database, "SELECT number, what FROM history ORDER BY number, ctid"):
            found.setdefault(number, []).append(what)
        return found


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with running_server({"wal_level": "logical"}) as server, (tmp_path / "relay.txt").open("w") as out:
        run(server.url(), TABLES)
        options = ["--embedded", str(tmp_path / "data"), "--port", "0", "--outbox", server.url()]
        command = [sys.executable, "-m", "waterclock.cli", "relay", *options]
        relay = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, text=True)
        try:
            assert relay.stdout is not None
            ready = re.search(r"on ([0-9.:]+), files in", relay.stdout.readline())
            assert ready is not None, (tmp_path / "relay.txt").read_text()
            yield Shop(server.url(), ready[1])
        finally:
            relay.kill()
            relay.communicate()


def wait(shop: Shop, server: subprocess.Popen[bytes], wanted: dict[int, list[str]]) -> bool:
    """Until the history is the one that is wanted, or the server has died."""
    clock = SystemClock()
    end_s = clock.monotonic_s() + 90
    while clock.monotonic_s() < end_s:
        if shop.history() == wanted:
            return True
        if server.poll() is not None:
            return False
        time.sleep(0.1)
    raise AssertionError(shop.history())


@pytest.mark.long(seconds=90)
def test_each_order_has_its_reminder_and_its_end_once(shop: Shop) -> None:
    """Placing and paying are killed at each of their steps, and what is called with messages at each of its own."""
    for number, step in enumerate(STEPS, 1):
        assert shop.call(step, "place", number) == -9
        if number not in shop.history():
            assert shop.call("none", "place", number) == 0
    assert shop.call("none", "place", 9) == 0
    for step in STEPS:
        assert shop.call(step, "pay", 9) == -9
    assert shop.call("none", "pay", 9) == 0
    wanted = {number: ["placed", "reminded", "cancelled"] for number in range(1, len(STEPS) + 1)}
    wanted[9] = ["placed", "paid"]
    deaths = 0
    for step, count in SERVING:
        server = shop.start(step, count, "serve")
        if wait(shop, server, wanted):
            break
        deaths += 1
    assert deaths >= len(STEPS)
    assert shop.history() == wanted
    time.sleep(2 * DAY_MS / 1000)  # what comes twice comes by then
    server.kill()
    server.wait()
    assert shop.history() == wanted
