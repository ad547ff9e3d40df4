"""Program, relay, broker and database are killed while orders are placed, half of them rolled back: a message is delivered
if and only if its order is committed, once, and never early."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pytest

from tests.outbox.program import ORDERS, TARGET, connected
from tests.outbox.taking import until
from waterclock.clock import SystemClock
from waterclock.kafka.client import committed
from waterclock.kafka.settings import READING, base_settings

ROOT = Path(__file__).parents[2]
TOPIC = "delays"
KILLED = ("program", "relay", "broker", "database")
DURABLE = "--innodb-flush-log-at-trx-commit=2"  # what was committed outlasts a kill


class Server(Protocol):
    """A database that is killed and started again."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


@contextmanager
def database(kind: str, folder: Path) -> Iterator[tuple[Server, str]]:
    if kind == "postgres":
        from tests.postgres_server import running_server

        with running_server({"wal_level": "logical"}) as postgres:
            postgres.kill = postgres.crash  # type: ignore[attr-defined]
            yield postgres, postgres.url()  # type: ignore[misc]
    else:
        from tests.cdc.mariadb import running_server as running_maria

        with running_maria(folder / "mariadb", DURABLE) as maria:
            maria.run("create database shop")
            yield maria, f"mysql://root@127.0.0.1:{maria.port}/shop"


class Stage:
    """The processes, by name; each is started again where it was."""

    def __init__(self, folder: Path, server: Server, url: str, last: int) -> None:
        self._folder, self._server, self._url, self._last = folder, server, url, last
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.servers = f"127.0.0.1:{free.getsockname()[1]}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        if name == "database":
            self._server.start()
            return
        command = ["-m", "waterclock.cli", name]
        if name == "broker":
            command += ["--data", str(self._folder / "broker"), "--port", self.servers.rpartition(":")[2]]
            command += ["--set", "group.initial.rebalance.delay.ms=0"]
        elif name == "relay":
            command += ["--bootstrap", self.servers, "--folder", str(self._folder / "relay"), "--make-targets"]
            command += ["--outbox", self._url]
        else:
            first = self.tried() + 1
            command = ["-m", "tests.outbox.program", self._url, TOPIC, str(first), str(self._last)]
        with (self._folder / f"{name}.txt").open("ab") as out:
            self._processes[name] = subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=out, stderr=out)

    def tried(self) -> int:
        """The last number of the program's."""
        file = self._folder / "program.txt"
        return max(map(int, re.findall(r"^\d+$", file.read_text(), re.M)), default=0) if file.exists() else 0

    def kill(self, name: str) -> None:
        if name == "database":
            self._server.kill()
        elif (process := self._processes.pop(name, None)) is not None:
            process.kill()
            process.wait(10)

    def said(self, name: str) -> str:
        return (self._folder / f"{name}.txt").read_text()


def delivered(servers: str) -> list[tuple[str, int, int]]:
    """Text, moment at which it was due, and moment at which it came."""
    from confluent_kafka import Consumer, TopicPartition

    settings = base_settings(servers, {})
    consumer, found = Consumer({**settings, **READING, "group.id": "unused"}), []
    try:
        topics = consumer.list_topics(timeout=10).topics
        places = [TopicPartition(TARGET, each) for each in (topics[TARGET].partitions if TARGET in topics else ())]
        ends = [consumer.get_watermark_offsets(place, timeout=10)[1] for place in places]
    finally:
        consumer.close()
    for place, end in zip(places, ends, strict=True):
        for message in committed(settings, (TARGET, place.partition), 0, end, SystemClock()):
            due = dict(message.headers() or [])["delayed-until"]
            found.append(((message.value() or b"").decode(), int(due or b"0"), message.timestamp()[1]))
    return found


def play(folder: Path, kind: str, transactions: int, kills: int, seed: int) -> None:
    chance = Random(f"outbox {seed}")
    with database(kind, folder) as (server, url):
        stage = Stage(folder, server, url, transactions)
        with connected(url) as db:
            db.cursor().execute(ORDERS)
            db.commit()
        try:
            for name in ("broker", "relay"):
                stage.start(name)
            until(lambda: "relay ready" in stage.said("relay"), 120)
            stage.start("program")
            for number in range(kills):
                name = KILLED[number % len(KILLED)]
                upto = transactions * (number + 1) // (kills + 1) - chance.randrange(transactions // (4 * kills))
                until(lambda upto=upto: stage.tried() >= upto, 300)  # type: ignore[misc]
                stage.kill(name)
                time.sleep(chance.random())
                stage.start(name)
            until(lambda: stage.tried() >= transactions, 600)
            until(lambda: ended(stage, "program"), 60)
            wanted = orders(url)
            settle(lambda: len(delivered(stage.servers)) >= len(wanted))
            came = delivered(stage.servers)
        finally:
            for name in ("program", "relay", "broker"):
                stage.kill(name)
    assert sorted(text for text, _, _ in came) == sorted(wanted)
    assert len(wanted) > transactions // 4
    assert [text for text, due_ms, came_ms in came if came_ms < due_ms or due_ms < wanted[text]] == []


def ended(stage: Stage, name: str) -> bool:
    return stage._processes[name].poll() == 0


def settle(enough: Callable[[], bool]) -> None:
    """Until there is enough, and a moment longer: what comes twice comes then."""
    until(enough, 300)
    time.sleep(3)


def orders(url: str) -> dict[str, int]:
    """What is to be delivered by what is committed, and when at the earliest."""
    with connected(url) as db, db.cursor() as cursor:
        cursor.execute("select delivers, due_ms from orders where delivers is not null")
        found: list[tuple[Any, ...]] = list(cursor.fetchall())
    return {str(text): int(due_ms) for text, due_ms in found}


@pytest.mark.postgres
def test_500_orders_and_a_kill_of_each_over_postgresql(tmp_path: Path) -> None:
    play(tmp_path, "postgres", 500, 4, seed=1)


@pytest.mark.mariadb
def test_500_orders_and_a_kill_of_each_over_mariadb(tmp_path: Path) -> None:
    play(tmp_path, "mariadb", 500, 4, seed=2)


@pytest.mark.long(seconds=300)
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_10000_orders_and_20_kills(kind: str, tmp_path: Path) -> None:
    play(tmp_path, kind, 10_000, 20, seed=3)
