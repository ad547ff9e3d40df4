"""Program, relay, broker and database are killed while orders are placed, half of them rolled back: a message is delivered
if and only if its order is committed, once, and never early.

    python -m tests.outbox.kills --database mariadb --brokers apache --transactions 10000 --kills 20      by hand

Rule 1: program, relay, broker and database are killed in turns, and are started again where they were.
Rule 2: Apache Kafka that says itself that it has not ended a transaction (docs/relay.md) proves nothing: `Unended`.
Rule 3: a relay that librdkafka has aborted (docs/relay.md) is started again, as by systemd: one more kill. How often is in
        the figures. One that ends for any other reason fails the run.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Protocol

from tests.outbox.program import ORDERS, TARGET, connected
from tests.outbox.taking import until
from tests.relay.kills.processes import Apache, Own, Suffering
from waterclock.clock import SystemClock
from waterclock.kafka.client import committed
from waterclock.kafka.settings import READING, base_settings

ROOT = Path(__file__).parents[2]
TOPIC = "delays"
KILLED = ("program", "relay", "broker", "database")
ABORTED = "rd_kafka_enq_once_del_source_return: Assertion"  # librdkafka's issue 4605
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


class Unended(Exception):
    """Rule 2."""


class Stage:
    """The processes, by name; each is started again where it was."""

    def __init__(self, folder: Path, broker: Suffering, server: Server, url: str, last: int) -> None:
        self._folder, self._broker, self._server, self._url, self._last = folder, broker, server, url, last
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.aborted = 0

    def start(self, name: str) -> None:
        if name in ("database", "broker"):
            self._server.start() if name == "database" else self._broker.back()
            return
        if name == "relay":
            command = ["-m", "waterclock.cli", "relay", "--bootstrap", self._broker.bootstrap, "--make-targets"]
            command += ["--folder", str(self._folder / "relay"), "--outbox", self._url]
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
        if name in ("database", "broker"):
            self._server.kill() if name == "database" else self._broker.kill()
        elif (process := self._processes.pop(name, None)) is not None:
            process.kill()
            process.wait(10)

    def until(self, holds: Callable[[], bool], patience_s: float) -> None:
        """Rule 3, meanwhile."""

        def held() -> bool:
            relay = self._processes["relay"]
            if relay.poll() is not None:
                self.aborted += 1
                assert self.said("relay").count(ABORTED) == self.aborted, self.said("relay")[-2_000:]
                self.start("relay")
            return holds()

        until(held, patience_s)

    def has_ended(self, name: str) -> bool:
        return self._processes[name].poll() == 0

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


def play(folder: Path, kind: str, broker: Suffering, transactions: int, kills: int, seed: int) -> dict[str, int]:
    """What was done, in figures; AssertionError with what is not as promised, or Unended."""
    chance = Random(f"outbox {seed}")
    with database(kind, folder) as (server, url):
        stage = Stage(folder, broker, server, url, transactions)
        with connected(url) as db:
            db.cursor().execute(ORDERS)
            db.commit()
        try:
            stage.start("relay")
            stage.until(lambda: "relay ready" in stage.said("relay"), 120)
            stage.start("program")
            for number in range(kills):
                name = KILLED[number % len(KILLED)]
                upto = transactions * (number + 1) // (kills + 1) - chance.randrange(transactions // (4 * kills))
                stage.until(lambda upto=upto: stage.tried() >= upto, 300)  # type: ignore[misc]
                stage.kill(name)
                time.sleep(chance.random())
                stage.start(name)
            stage.until(lambda: stage.tried() >= transactions and stage.has_ended("program"), 600)
            wanted = orders(url)
            stage.until(lambda: len(delivered(broker.bootstrap)) >= len(wanted) or bool(broker.unended), 300)
            time.sleep(3)  # what comes twice comes then
            came = delivered(broker.bootstrap)
        finally:
            for name in ("program", "relay", "broker"):
                stage.kill(name)
    if broker.unended:
        raise Unended
    assert sorted(text for text, _, _ in came) == sorted(wanted)
    assert len(wanted) > transactions // 4
    assert [text for text, due_ms, came_ms in came if came_ms < due_ms or due_ms < wanted[text]] == []
    figures = {"transactions": transactions, "kills": kills, "committed": len(wanted), "delivered": len(came)}
    return figures | ({"aborted": stage.aborted} if stage.aborted else {})


def orders(url: str) -> dict[str, int]:
    """What is to be delivered by what is committed, and when at the earliest."""
    with connected(url) as db, db.cursor() as cursor:
        cursor.execute("select delivers, due_ms from orders where delivers is not null")
        found: list[tuple[Any, ...]] = list(cursor.fetchall())
    return {str(text): int(due_ms) for text, due_ms in found}


BROKERS = {"own": Own, "apache": Apache}
DATABASES = ("postgres", "mariadb")


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.outbox.kills")
    parser.add_argument("--database", choices=DATABASES, default="postgres", help="default: %(default)s")
    parser.add_argument("--brokers", choices=sorted(BROKERS), default="own", help="ours, or Apache Kafka")
    parser.add_argument("--transactions", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--kills", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        broker = BROKERS[asked.brokers](Path(name) / "broker")
        try:
            print(play(Path(name), asked.database, broker, asked.transactions, asked.kills, asked.seed))
        except Unended:
            sys.exit("Kafka has not ended a transaction: this run proves nothing")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it has started ends with it
    main()
