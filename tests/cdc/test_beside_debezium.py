"""Our messages beside those of Debezium itself, which reads the same log: each key and value, of every type. And what
`waterclock move debezium` makes of the place where it was stopped while somebody wrote.

Debezium's engine comes by Maven, and so these are among the tests with servers.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cdc.debezium_types import MARIADB_DIFFERS, MORE_MARIADB, MORE_POSTGRES, POSTGRES_DIFFERS, PREPARED
from tests.cdc.mariadb import MariaSource
from tests.cdc.postgres import changes, run
from tests.cdc.test_debezium_form import OF_MARIADB, OF_POSTGRES
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.bench.kafka.harness import class_path, compile_all, missing
from waterclock.cdc.debezium.envelope import DebeziumForm
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.testing import Broker

pytestmark = pytest.mark.servers
JAVA = Path(__file__).parent / "java"
ROWS = int(os.environ.get("ROWS_MOVED", 20_000))  # written while the capture changes hands
Told = tuple[str | None, str | None]  # key and value
Change = tuple[str, int, int | None]

COMMON = {
    "name": "p",
    "topic.prefix": "p",
    "snapshot.mode": "no_data",
    "converter.schemas.enable": "false",
    "include.schema.changes": "false",
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.flush.interval.ms": "100",
    "database.hostname": "127.0.0.1",
    "database.password": "",
}
MARIADB = {
    "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
    "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
    "database.user": "root",
    "database.server.id": "4712",
    "connect.keep.alive": "false",
}
POSTGRES = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "disabled",
    "database.user": "postgres",
}


@dataclass(frozen=True)
class Engine:
    """Debezium's, with its jars; its place and its history are files in `folder`."""

    path: str
    folder: Path

    def settings(self, more: Mapping[str, str]) -> Path:
        own = {
            "offset.storage.file.filename": f"{self.folder}/offsets",
            "schema.history.internal.file.filename": f"{self.folder}/history",
        }
        file = self.folder / "engine.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in {**COMMON, **own, **more}.items()))
        return file

    def until(
        self, count: int, topic: str, settings: Path, mark: Callable[[], object], write: Callable[[], object]
    ) -> list[Told]:
        """What it tells of a topic until there was so much, or a little more. Its place is made by `mark`, which is called
        until it has told of it; then `write` is."""
        told, options = (
            self.folder / "told",
            [
                "-Xmx512m",
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            ],
        )
        command = ["java", *options, "-cp", self.path, "Told", str(settings), str(count), topic]
        with (
            told.open("wb") as out,
            subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True) as process,
        ):
            try:
                while process.poll() is None and not told.stat().st_size:
                    mark()
                    time.sleep(0.5)
                write()
                _, said = process.communicate(timeout=600 + ROWS // 500)
            finally:
                process.kill()
        assert process.returncode == 0, said[-2000:]
        lines = [None if line == "null" else line for line in told.read_text().split("\n")]
        found = zip(lines[:-1:3], lines[1::3], lines[2::3], strict=True)
        return [(key, value) for where, key, value in found if where == topic]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The class path for a `postgres` or a `mariadb`; Maven is asked once for each."""
    if missing():
        pytest.skip("Debezium comes by Maven (Debian: apt install default-jdk-headless maven)")
    folder = tmp_path_factory.mktemp("debezium")

    @cache
    def build(kind: str) -> str:
        jars = class_path(JAVA / f"{kind}.xml", folder / f"{kind}.txt")
        compile_all([JAVA / "Told.java"], folder / kind, jars)
        return os.pathsep.join([str(folder / kind), jars])

    return build


@pytest.fixture
def for_postgres(built: Callable[[str], str], tmp_path: Path) -> Engine:
    return Engine(built("postgres"), tmp_path)


@pytest.fixture
def for_mariadb(built: Callable[[str], str], tmp_path: Path) -> Engine:
    return Engine(built("mariadb"), tmp_path)


def slot_of(port: int, name: str) -> ReplicationSlot:
    at = f"postgresql://postgres@127.0.0.1:{port}"
    run(f"{at}/postgres", f"create database {name}")
    return ReplicationSlot(f"{at}/{name}", name, name)


def settings_of(port: int, slot: ReplicationSlot) -> dict[str, str]:
    own = {"slot.name": f"{slot.name}d", "publication.name": slot.publication}
    return {**POSTGRES, "database.port": str(port), "database.dbname": slot.name, **own}


def statements(cases: list[tuple[str, str]]) -> tuple[str, list[str]]:
    """A table with a column of each case; a row of the literals, all of it null, another key, no row, no rows."""
    columns = {f"c{place}": declared for place, (declared, _) in enumerate(cases)}
    nulls = ", ".join(f"{name} = null" for name, declared in columns.items() if "generated" not in declared)
    made = f"create table t (id int primary key, {', '.join(f'{name} {kind}' for name, kind in columns.items())})"
    row = f"insert into t (id, {', '.join(columns)}) values (1, {', '.join(literal for _, literal in cases)})"
    return made, [row, f"update t set {nulls}", "update t set id = 2", "delete from t", "truncate t"]


def check(
    theirs: list[Told],
    found: list[MaxwellMessage],
    form: DebeziumForm,
    cases: list[tuple[str, str]],
    differs: set[tuple[str, str]],
) -> None:
    """Seven messages, two of them tombstones; and ours of TRUNCATE."""
    mine = [(key, value) for change in found for key, value, _ in form.messages(change)]
    assert json.loads(mine.pop()[1] or b"")["op"] == "t"
    assert [key for key, _ in theirs] == [key and key.decode() for key, _ in mine]
    differing: list[str] = []
    for (_, text), (_, own_text) in zip(theirs, mine, strict=True):
        one, own = json.loads(text or "null"), json.loads(own_text or b"null")
        if one is None or own is None:
            assert (one, own) == (None, None)
            continue
        assert list(one) == list(own)
        assert list(one["source"]) == list(own["source"])
        told = ("connector", "name", "snapshot", "db", "table")
        assert [one["op"], *(one["source"][name] for name in told)] == [
            own["op"],
            *(own["source"][name] for name in told),
        ]
        for part in ("before", "after"):
            row, own_row = one[part], own[part]
            assert (row is None) == (own_row is None)
            if row is not None:
                assert list(row) == [name for name in own_row if name in row]
                differing += [name for name, value in row.items() if not same(value, own_row[name])]
    assert {cases[int(name[1:])] for name in differing} == differs


def same(value: object, own: object) -> bool:
    """1 is not 1.0, and -0.0 not 0.0; an object in a text has no order."""
    if isinstance(value, str) and isinstance(own, str) and value[:1] == own[:1] == "{":
        return value == own or bool(json.loads(value) == json.loads(own))
    return repr(value) == repr(own)


@pytest.mark.postgres
def test_every_type_of_postgresql_is_written_as_debezium_writes_it(port: int, for_postgres: Engine) -> None:
    slot = slot_of(port, "types")
    cases = [*((case[0], case[1]) for case in OF_POSTGRES), *MORE_POSTGRES]
    made, written = statements(cases)
    run(slot.conninfo, *PREPARED, made, "create table mark (id serial primary key)")
    start = begun(slot, [])
    theirs = for_postgres.until(
        7,
        "p.public.t",
        for_postgres.settings(settings_of(port, slot)),
        lambda: run(slot.conninfo, "insert into mark default values"),
        lambda: run(slot.conninfo, *written),
    )
    check(theirs, changes(slot, start, "public.t"), DebeziumForm("p", "postgresql", slot.name), cases, POSTGRES_DIFFERS)


@pytest.mark.mariadb
def test_every_type_of_mariadb_is_written_as_debezium_writes_it(source: MariaSource, for_mariadb: Engine) -> None:
    # at INET6 Debezium's reader of DDL ends
    cases = [*((case[0], case[1]) for case in OF_MARIADB if case[0] != "inet6"), *MORE_MARIADB]
    made, written = statements(cases)
    source.run(made, "create table mark (id int auto_increment primary key)")
    settings = {**MARIADB, "database.port": str(source.server.port), "database.include.list": source.name}
    theirs = for_mariadb.until(
        7,
        f"p.{source.name}.t",
        for_mariadb.settings(settings),
        lambda: source.run("insert into mark values ()"),
        lambda: source.run("set time_zone = '+00:00'", "set sql_mode = ''", *written),
    )
    found = source.server.changes(source.here, f"{source.name}.t")
    check(theirs, found, DebeziumForm("p", "mariadb"), cases, MARIADB_DIFFERS)


class Till:
    """One writer: transactions of one row to many, inserts, updates and deletes. `written` is what they did, in order."""

    def __init__(self, write: Callable[..., object], rows: int) -> None:
        self._write, self._rows = write, rows
        self.written: list[Change] = []

    def run(self) -> None:
        chance, there, last = random.Random(29), list[int](), 0
        while len(self.written) < self._rows:
            statements = []
            for _ in range(chance.choice((1, 2, 7, 300))):
                number, kind = len(self.written), chance.choice("ccud") if there else "c"
                if kind == "c":
                    last += 1
                    there.append(last)
                    statements.append(f"insert into item values ({last}, {number})")
                    self.written.append((kind, last, number))
                elif kind == "u":
                    changed = chance.choice(there)
                    statements.append(f"update item set n = {number} where id = {changed}")
                    self.written.append((kind, changed, number))
                else:
                    gone = there.pop(chance.randrange(len(there)))
                    statements.append(f"delete from item where id = {gone}")
                    self.written.append((kind, gone, None))
            self._write("begin", *statements, "commit")


def changes_of(told: Iterable[tuple[Any, Any]]) -> list[Change]:
    """What messages say was done; a tombstone says nothing."""
    found = [(json.loads(key), json.loads(value)) for key, value in told if value is not None]
    return [(value["op"], key["id"], (value["after"] or {}).get("n")) for key, value in found]


def goes_on(
    engine: Engine, given: Mapping[str, str], topic: str, write: Callable[..., object], mark: str, broker: Broker,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Debezium reads about half of what is written, and is stopped; the capture that it was goes on here, in its topic,
    and so do its consumers, one of which is a pipeline."""
    till, settings = Till(write, ROWS), engine.settings(given)
    writer = Thread(target=till.run)
    told = engine.until(ROWS // 2, topic, settings, lambda: write(mark), writer.start)
    theirs = changes_of(told)
    produced(broker, topic, told)
    assert mirrored(engine.folder, topic, broker) == at_end(theirs)
    to = ["--to", f"kafka://{broker.bootstrap}"]
    offsets = ["--offset", f"{engine.folder}/offsets"]
    assert cli.main(["move", "debezium", str(settings), *offsets, *to, "--write"]) == 0
    said = capsys.readouterr().out.splitlines()
    writer.join()
    assert cli.main([*shlex.split(said[-1])[1:], "--once", "--order", "global"]) == 0
    mine = changes_of(committed(broker, topic)[0][len(told) :])
    print(len(theirs), len(mine), said[0])
    assert theirs == till.written[: len(theirs)]
    assert mine == till.written[len(theirs) :]
    assert len(mine) > ROWS // 10
    assert mirrored(engine.folder, topic, broker) == at_end(till.written)
    assert mirrored(engine.folder, topic, broker, "--fresh") == at_end(till.written)


def produced(broker: Broker, topic: str, told: Iterable[Told]) -> None:
    """Debezium's messages where its connector would have them: in a topic of one partition."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value in told:
        producer.produce(topic, value, key, 0)
        producer.poll(0)
    assert producer.flush(60) == 0


def at_end(written: Iterable[Change]) -> dict[int, int | None]:
    """The rows that are there behind changes."""
    found = {}
    for kind, key, number in written:
        found[key] = (kind, number)
    return {key: number for key, (kind, number) in found.items() if kind != "d"}


def mirrored(folder: Path, topic: str, broker: Broker, *words: str) -> dict[int, int | None]:
    """What a pipeline makes of the topic, with all that is there by now."""
    file = folder / "mirror.toml"
    file.write_text(f"""
        [pipeline]
        name = "mirror"
        [source]
        format = "kafka"
        servers = "{broker.bootstrap}"
        topics = ["{topic}"]
        value = "debezium"
        [sink]
        path = "mirror.db"
    """)
    assert cli.main(["run", str(file), *words]) == 0
    with closing(sqlite3.connect(folder / "mirror.db")) as db:
        ((table,),) = db.execute("select name from sqlite_master where name like '%.item'").fetchall()
        return dict(db.execute(f'select id, n from "{table}"').fetchall())


@pytest.mark.postgres
def test_what_debezium_was_for_postgresql_goes_on_here(
    port: int, for_postgres: Engine, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    slot = slot_of(port, "moved")
    run(
        slot.conninfo,
        "create table item (id int primary key, n int)",
        "create table mark (id serial primary key)",
        f"create publication {slot.publication} for all tables",
    )
    given = {**settings_of(port, slot), "table.include.list": "public\\\\..*"}
    mark = "insert into mark default values"
    goes_on(for_postgres, given, "p.public.item", lambda *done: run(slot.conninfo, *done), mark, broker, capsys)


@pytest.mark.mariadb
def test_what_debezium_was_for_mariadb_goes_on_here(
    source: MariaSource, for_mariadb: Engine, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    source.run("create table item (id int primary key, n int)", "create table mark (id int auto_increment primary key)")
    own = {"database.port": str(source.server.port), "table.include.list": rf"{source.name}\\..*"}
    own["topic.prefix"] = "q"  # this broker has a capture of the other database already
    mark = "insert into mark values ()"
    goes_on(for_mariadb, {**MARIADB, **own}, f"q.{source.name}.item", source.run, mark, broker, capsys)
