"""A snapshot under write load, killed again and again: at the end the topic is the source, and no row
was ever another one."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from confluent_kafka import Consumer

from tests.cdc.door_copy import connected
from tests.cdc.mariadb import MariaSource
from tests.cdc.mariadb import running_server as maria_server
from tests.cdc.mysql import running_server as mysql_server
from tests.cdc.postgres import run
from tests.cdc.snapshot_load import KEYS, FullDatabase, Writers, folded
from tests.cdc.snapshot_run import capture_of
from tests.kafka.reader import committed
from tests.postgres_server import PostgresServer
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.produce import Target
from waterclock.cdc.stored import last_position
from waterclock.testing import Broker

MARIADB, MYSQL, POSTGRES = (
    pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in ("mariadb", "mysql", "postgres")
)
KINDS = [MARIADB, POSTGRES]
SELDOM = pytest.mark.long(seconds=20)
STEPS = ("fence", "begin", "send", "store", "finish")
QUICK = {
    ("store", "after", "mariadb"),
    ("send", "before", "mysql"),
    ("finish", "before", "postgres"),
    ("send", "after", "postgres"),
}
Found = tuple[FullDatabase, str, str, str]


@pytest.fixture
def full(request: pytest.FixtureRequest) -> Callable[[str, int], Found]:
    """A full database of a kind: with its server, its topic, and the pattern of its tables."""

    def made(kind: str, rows: int) -> Found:
        if kind != "postgres":
            source: MariaSource = request.getfixturevalue("source" if kind == "mariadb" else "of_mysql")
            port, name = source.server.port, source.name
            settings = {"host": "127.0.0.1", "port": port, "user": "root", "database": name, "autocommit": True}
            database = FullDatabase(lambda: pymysql.connect(**settings, charset="utf8mb4"), kind, rows)
            where = (str(port), name, f"{name}.*")
        else:
            slot: ReplicationSlot = request.getfixturevalue("slot")
            database = FullDatabase(lambda: psycopg.connect(slot.conninfo, autocommit=True), kind, rows)
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
    for kind in (*KINDS, MYSQL)
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


@pytest.mark.parametrize("kind", [*KINDS, MYSQL])
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


def older_in_kafka(broker: Broker, topic: str) -> dict[str, int]:
    """How many rows came of each table of which some are to come; before the first chunk, none has any."""
    position = last_position({"bootstrap.servers": broker.bootstrap}, f"{topic}.position")
    held = position.held if position else None
    return {name: rest.rows for name, rest in held.older().items()} if held else {}


@pytest.mark.parametrize("kind", [pytest.param("mariadb", marks=[pytest.mark.mariadb, SELDOM]), MYSQL, POSTGRES])
def test_a_server_that_is_killed_under_a_snapshot_is_waited_for_and_nothing_is_lost(
    kind: str, broker: Broker, full: Callable[[str, int], Found], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    rows = 3000
    with ExitStack() as opened:
        if kind != "postgres":  # what it committed is to be there after a kill: the shared one keeps that in memory
            of_kind = maria_server if kind == "mariadb" else mysql_server
            killed: Any = opened.enter_context(of_kind(tmp_path / "m", "--innodb-flush-log-at-trx-commit=2"))
            killed.run("create database shop")
            settings = {
                "host": "127.0.0.1",
                "port": killed.port,
                "user": "root",
                "database": "shop",
                "autocommit": True,
            }
            database = FullDatabase(lambda: pymysql.connect(**settings, charset="utf8mb4"), kind, rows)
            server, topic, pattern, kill = str(killed.port), f"killed-{kind}", "shop.*", killed.kill
            database.fill()
        else:
            database, server, topic, pattern = full(kind, rows)
            killed = request.getfixturevalue("logical")
            kill = killed.crash
        writers = Writers(database, 5, count=1, rest_s=0.02)
        opened.callback(writers.stop)
        process = started(kind, server, broker, topic, pattern)
        opened.callback(process.wait)
        opened.callback(process.kill)
        until = time.monotonic() + 120
        while f"{topic}.position" not in topics_of(broker) or not any(older_in_kafka(broker, topic).values()):
            assert (process.poll(), time.monotonic() < until) == (None, True)
            time.sleep(0.05)
        kill()
        before = older_in_kafka(broker, topic)
        assert before
        time.sleep(1)
        killed.start()
        while (now := older_in_kafka(broker, topic)) == before and now:
            assert (process.poll(), time.monotonic() < until) == (None, True)
            time.sleep(0.1)
        writers.stop()
        process.kill()
        process.wait()
        capture, end = capture_of(kind, server, Target(broker.bootstrap, topic), pattern)
        capture.run(end())
        found = folded(broker, topic)
        assert found.wrong == {}
        assert found.held() == database.held()


def topics_of(broker: Broker) -> set[str]:
    return set(Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "looks"}).list_topics(timeout=10).topics)


class Keyless(FullDatabase):
    """One table without a primary key, in which many rows are alike."""

    def fill(self) -> None:
        self.run("create table d (n int, s varchar(20))")
        self.run(f"insert into d select g % 50, null from {self.series(self.rows)}")
        if not self.maria:
            self.run("alter table d replica identity full")

    def change(self, draw: random.Random) -> Iterator[str]:
        n, other = draw.randrange(50), draw.randrange(50)
        yield draw.choice([
            f"insert into d values ({n}, null), ({n}, null), ({other}, 's')",
            f"update d set s = 'u{other}' where n = {n} and s is null",
            f"update d set n = {other} where n = {n} and s = 's'",
            f"delete from d where n = {n} and s like 'u%'",
        ])  # fmt: skip

    def counted(self) -> Counter[tuple[Any, ...]]:
        with closing(self.connected()) as connection, connection.cursor() as cursor:
            cursor.execute("select n, s from d")
            return Counter(cursor.fetchall())


@pytest.mark.parametrize("kind", [MARIADB, MYSQL, pytest.param("postgres", marks=[pytest.mark.postgres, SELDOM])])
def test_a_table_without_a_key_is_the_source_row_for_row_with_kills(
    kind: str, broker: Broker, full: Callable[[str, int], Found]
) -> None:
    """Whoever has one of its rows twice has two of them."""
    other, server, topic, pattern = full(kind, 0)
    database = Keyless(other.connected, kind, 400)
    database.fill()
    writers = Writers(database, 3, rest_s=0.02)
    for number in ("1", "2"):
        assert started(kind, server, broker, topic, pattern, "finish", "after", number).wait(timeout=120) == -9
    capture, end = capture_of(kind, server, Target(broker.bootstrap, topic), pattern)
    capture.run(end())
    writers.stop()
    capture, end = capture_of(kind, server, Target(broker.bootstrap, topic), pattern)
    capture.run(end())
    found = sum((kept(part) for part in committed(broker, topic).values()), Counter[tuple[Any, ...]]())
    assert found == database.counted()
    assert writers.transactions > 20


def kept(part: Iterable[tuple[bytes, bytes]]) -> Counter[tuple[Any, ...]]:
    """The rows of d that a partition ends with; those whose count is below zero too."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for message in (json.loads(value) for _, value in part):
        data = message["data"]
        if message["table"] != "d":
            continue
        if message["type"] == "truncate":
            rows.clear()
            continue
        rows[data["n"], data["s"]] += -1 if message["type"] == "delete" else 1
        if message["type"] == "update":
            old = {**data, **message["old"]}
            rows[old["n"], old["s"]] -= 1
    assert all(count >= 0 for count in rows.values())
    return rows


TARGETS = ("sqlite", "postgres", "duckdb")
QUICK_COPIES = {("mariadb", "duckdb"), ("mysql", "sqlite"), ("postgres", "sqlite")}
COPIES = [
    pytest.param(
        kind.values[0],
        target,
        marks=[*kind.marks, *([] if (kind.values[0], target) in QUICK_COPIES else [pytest.mark.long(seconds=60)])],
    )
    for kind, target in [*product(KINDS, TARGETS), (MYSQL, "sqlite")]
]


@pytest.mark.parametrize(("kind", "target"), COPIES)
def test_a_program_that_is_killed_at_any_time_has_a_full_database_whole_in_its_own_tables(
    kind: str, target: str, full: Callable[[str, int], Found], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    rows = 2_000 if (kind, target) in QUICK_COPIES else 20_000
    database, server, name, pattern = full(kind, rows)
    url, options = server, {"tables": [pattern], "slot": name, "publication": name}
    if kind != "postgres":
        url, options = f"mysql://root:@127.0.0.1:{server}/{name}", {"begin": "now"}
    options |= {"snapshot": "initial", "most": 300}
    own = str(tmp_path / f"own.{target}")
    if target == "postgres":
        logical: PostgresServer = request.getfixturevalue("logical")
        run(logical.url(), "drop database if exists own with (force)", "create database own")
        own = logical.url(database="own")

    def begun(**more: bool) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.cdc.door_copy", url, json.dumps(options | more), own]
        return subprocess.Popen(command, cwd=Path(__file__).parents[2])

    writers, draw = Writers(database, rows, count=1, rest_s=0.02), random.Random(rows)
    for _ in range(2 if rows == 2_000 else 8):
        process = begun()
        time.sleep(draw.uniform(1.0, 3.0))
        process.kill()
        assert process.wait() == -9
    writers.stop()
    assert begun(once=True).wait(timeout=300) == 0
    with closing(connected(own)[0]) as connection:
        found = connection.execute("select name, row_of from copy").fetchall()
    assert keyed((table, json.loads(row)) for table, row in found) == keyed(
        (table, {column: None if value is None else str(value) for column, value in row.items()})
        for (table, *_), row in database.held().items()
    )
    assert writers.transactions > 30


def keyed(rows: Any) -> dict[tuple[str, ...], dict[str, Any]]:
    return {(table, *(row[name] for name in KEYS[table])): row for table, row in rows}
