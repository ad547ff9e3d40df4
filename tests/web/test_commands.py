"""`--metrics` of the commands that run for long: asked over HTTP while they do. A pipeline's is in tests/spark."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from typing import Any

import pytest

from tests.web.reading import get, read_back
from waterclock import __version__, cli
from waterclock.broker import BrokerStatistics


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command with --metrics, and its server's address; killed where the test does not end it."""
    command = [sys.executable, "-W", "error", "-m", "waterclock.cli", *arguments, "--metrics", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        try:
            assert started.stderr is not None
            line = started.stderr.readline()
            assert line.startswith("metrics at http://127.0.0.1:")
            yield started, line.removeprefix("metrics at ").strip().removesuffix("/metrics")
        finally:
            started.kill()


def record(url: str) -> Any:
    status, page, headers = get(f"{url}/statistics.json")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    return json.loads(page)


def test_the_broker_command_serves_its_pages_until_it_ends() -> None:
    with process("broker", "--port", "0") as (broker, url):
        status, page, headers = get(f"{url}/metrics")
        assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert read_back(page)["waterclock_broker_leads"][1] == [("waterclock_broker_leads", {}, 1.0)]
        found = record(url)
        assert (found["command"], found["version"]) == ("broker", __version__)
        assert found["statistics"].keys() == {field.name for field in fields(BrokerStatistics)}
        assert get(url)[1].count("<a href=") == 3
        broker.terminate()
        assert broker.wait(timeout=20) == 0
    with pytest.raises(OSError, match="refused"):
        get(url)


def test_what_a_broker_cannot_know_is_null_and_has_no_sample() -> None:
    with process("broker", "--port", "0") as (leader, url):
        flushes = record(url)["statistics"]["flushes"]
        assert (flushes["count"], flushes["last_ms"], flushes["worst_ms"]) == (0, None, None)
        page = read_back(get(f"{url}/metrics")[1])
        assert "waterclock_broker_last_flush_seconds" not in page
        assert page["waterclock_broker_follower_lag_records"][1][0][2] == 0.0
        assert leader.stdout is not None
        address = leader.stdout.readline().split(" on ")[1].partition(",")[0]
        with process("broker", "--port", "0", "--follow", address) as (_, other):
            replication = record(other)["statistics"]["replication"]
            assert replication == {"leads": False, "peer": address, "in_sync": None, "lag": None}
            page = read_back(get(f"{other}/metrics")[1])
            assert page["waterclock_broker_leads"][1] == [("waterclock_broker_leads", {}, 0.0)]
            assert "waterclock_broker_follower_lag_records" not in page
            assert "waterclock_broker_in_sync_partitions" not in page


def test_the_broker_command_ends_though_clients_say_nothing() -> None:
    with process("broker", "--port", "0") as (broker, url):
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            broker.send_signal(signal.SIGINT)
            assert broker.wait(timeout=8) == 0


@pytest.mark.parametrize("port", ["-1", "65536", "http", "", "1.5"])
@pytest.mark.parametrize(
    "command", [["run", "orders.toml"], ["broker"], ["cdc", "mysql://a@h/b", "--to", "kafka://h/t"]]
)
def test_what_is_no_port_is_wrong_usage(command: list[str], port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main([*command, f"--metrics={port}"])
    assert f"{port!r} is no port from 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["broker", "--port", "0"], ["cdc", "mysql://root@127.0.0.1:1/a", "--to", "kafka://127.0.0.1:1/t"]]
)
def test_a_port_that_is_taken_is_refused_with_a_sentence_before_anything_begins(command: list[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = str(other.getsockname()[1])
        command = [sys.executable, "-m", "waterclock.cli", *command, "--metrics", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"port {port} of 127.0.0.1" in done.stderr
    assert "Name another port" in done.stderr
