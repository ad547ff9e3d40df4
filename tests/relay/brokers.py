"""What the relay's promises are shown on: our broker in the tests' own process, Apache Kafka, relays as processes.

`make test-servers` runs what is marked `ON_APACHE`, with BROKERS=ours,apache.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.relay.world import World

SETTINGS: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
ON_APACHE: Final = (
    pytest.mark.servers,
    pytest.mark.skipif("apache" not in os.environ.get("BROKERS", ""), reason="BROKERS names no apache"),
)
BOTH: Final = ("ours", pytest.param("apache", marks=ON_APACHE))
MAIN = "import sys; from waterclock.cli import main; sys.exit(main())"
Start = Callable[[str], subprocess.Popen[str]]


@contextmanager
def running(kind: str, folder: Path, more: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A broker of a kind whose groups do not wait for more members; `more` settings."""
    settings = {**SETTINGS, **(more or {})}
    if kind == "apache":
        from waterclock.bench.servers.apache import ApacheKafka

        server = ApacheKafka(folder, settings)
        try:
            yield server
        finally:
            server.kill()
    else:
        from waterclock.testing import Broker

        with Broker(settings=settings) as broker:
            yield broker


def chosen(request: pytest.FixtureRequest, folders: pytest.TempPathFactory) -> Iterator[Any]:
    """The broker that a fixture with `params=BOTH` asks for: one of ours, or the one Apache Kafka of all tests."""
    if request.param == "apache":
        yield request.getfixturevalue("apache")
    else:
        with running("ours", folders.mktemp("broker")) as broker:
            yield broker


@contextmanager
def relays(world: World, folder: Path) -> Iterator[Start]:
    """Starts `waterclock relay`, with its files and its output in a folder of the name; in the end they are killed."""
    processes: list[subprocess.Popen[str]] = []

    def start(name: str) -> subprocess.Popen[str]:
        with (folder / f"{name}.txt").open("a") as out:
            options = ["--bootstrap", world.broker.bootstrap, "--topic", world.topic, "--folder", str(folder / name)]
            options += ["--group", world.topic, "--name", name]
            command = [sys.executable, "-c", MAIN, "relay", *options]
            processes.append(subprocess.Popen(command, stdout=out, stderr=out, text=True))
        return processes[-1]

    try:
        yield start
    finally:
        for process in processes:
            process.kill()
            process.wait(10)
