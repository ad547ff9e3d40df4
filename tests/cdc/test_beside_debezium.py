"""Our messages beside those of Debezium itself, which reads the same log: each key and value, of every type. And what
`waterclock move debezium` makes of the place where it was stopped while somebody wrote.

Debezium's engine comes by Maven, and so these are among the tests with servers.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.cdc.mariadb import MariaSource
from tests.cdc.postgres import changes, run
from tests.cdc.test_debezium_form import OF_MARIADB, OF_POSTGRES
from tests.kafka.reader import committed
from tests.postgres_server import running_server
from waterclock import cli
from waterclock.bench.kafka.harness import class_path, compile_all, missing
from waterclock.cdc.debezium.envelope import DebeziumForm
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.testing import Broker

pytestmark = pytest.mark.servers
JAVA = Path(__file__).parent / "java"
ROWS = 20_000  # written while the capture changes hands
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
MORE_POSTGRES = [
    ("timestamptz", "'2024-01-02 03:04:05+05:30'"), ("timestamptz(3)", "'2024-01-02 03:04:05.12+05:30'"),
    ("timestamptz(0)", "'2024-01-02 03:04:05.12+05:30'"), ("timestamptz", "'infinity'"),
    ("timestamptz", "'10000-01-02 03:04:05.12+05:30'"), ("timestamptz", "'0044-03-15 03:04:05 BC'"),
    ("timestamp(0)", "'2024-01-02 03:04:05'"), ("timestamp", "'infinity'"), ("timestamp", "'-infinity'"),
    ("timestamp", "'0044-03-15 03:04:05 BC'"), ("timestamp", "'10000-01-02 03:04:05'"), ("date", "'infinity'"),
    ("date", "'0044-03-15 BC'"), ("date", "'0001-01-01'"), ("time(0)", "'01:02:03'"), ("time(4)", "'01:02:03.4567'"),
    ("timetz", "'04:05:06+00'"), ("timetz(3)", "'04:05:06.12+05:30'"), ("timetz", "'24:00:00+00'"),
    ("interval", "'1 mon'"), ("interval", "'-1 year -2 mons 3 days -04:05:06.7'"),
    ("interval year to month", "'1-2'"), ("interval", "'0'"), ("numeric(10,2)", "'NaN'"), ("numeric", "'NaN'"),
    ("numeric", "'Infinity'"), ("numeric", "1e30"), ("numeric", "100"), ("numeric(40,0)", "12345678901234567890"),
    ("numeric", "0"), ("numeric", "-1.10"), ("real", "'Infinity'"), ("real", "'0.1'"), ("real", "1e10"),
    ("double precision", "1e300"), ("double precision", "'-Infinity'"), ("double precision", "1"),
    ("double precision", "0.1"), ("double precision", "123456789012345680"), ("real", "16777216"),
    ("double precision", "1e-7"), ("double precision", "'-0'"), ("money", "'1234.56'"), ("money", "'-0.05'"),
    ("name", "'n'"), ("\"char\"", "'c'"), ("varchar(7)", "'v'"), ("mood", "'sad'"), ("mail", "'a@b'"),
    ("posint", "7"), ("price", "1.5"), ("citext", "'Ab'"), ("ltree", "'a.b'"), ("hstore", "'a=>1,b=>NULL'"),
    ("hstore", "''"), ("cidr", "'10.0.0.0/8'"), ("macaddr", "'08:00:2b:01:02:03'"),
    ("macaddr8", "'08:00:2b:01:02:03:04:05'"), ("inet", "'::1'"), ("inet", "'10.0.0.1'"), ("int4range", "'[1,5)'"),
    ("int8range", "'[1,5)'"), ("tsrange", "'[2024-01-01,2024-01-02)'"),
    ("tstzrange", "'[2024-01-01 00:00+00,2024-01-02 00:00+00)'"), ("daterange", "'[2024-01-01,2024-01-02)'"),
    ("tsvector", "'a b'"), ("box", "'(1,2),(3,4)'"), ("line", "'{1,2,3}'"), ("circle", "'<(1,2),3>'"),
    ("polygon", "'((0,0),(1,1),(1,0))'"), ("path", "'[(0,0),(1,1)]'"), ("lseg", "'[(0,0),(1,1)]'"),
    ("bit(8)", "B'00000001'"), ("bit varying(12)", "B'1010'"), ("jsonb", "'null'"), ("jsonb", "'\"a\"'"),
    ("json", "'{ \"a\" : 1.10 }'"), ("smallint[]", "'{1,NULL}'"), ("bigint[]", "'{1,NULL}'"),
    ("boolean[]", "'{t,f,NULL}'"), ("numeric(5,2)[]", "'{1.5,NULL}'"), ("numeric[]", "'{1.5,NULL}'"),
    ("real[]", "'{1.5}'"), ("double precision[]", "'{1.5,NaN}'"), ("varchar(5)[]", "'{a}'"), ("char(3)[]", "'{a}'"),
    ("date[]", "'{2024-01-02}'"), ("time[]", "'{01:02:03}'"), ("timestamp[]", "'{2024-01-02 03:04:05}'"),
    ("timestamptz[]", "'{2024-01-02 03:04:05+00}'"), ("uuid[]", "'{123e4567-e89b-42d3-a456-426614174000}'"),
    ("inet[]", "'{10.0.0.1}'"), ("jsonb[]", "array['{\"a\": 1}']::jsonb[]"), ("bytea[]", "array['\\x00ff']::bytea[]"),
    ("mood[]", "'{sad}'"), ("citext[]", "'{Ab}'"), ("oid[]", "'{1}'"), ("interval[]", "'{1 day}'"),
    ("numrange[]", "array['[1,2)']::numrange[]"), ("int4range[]", "array['[1,2)']::int4range[]"), ("int[]", "'{}'"),
    ("macaddr[]", "'{08:00:2b:01:02:03}'"), ("cidr[]", "'{10.0.0.0/8}'"), ("xid", "'7'"), ("pg_lsn", "'0/10'"),
    ("regclass", "'pg_class'"), ("tsquery", "'a & b'"), ("int4multirange", "'{[1,3)}'"),
    ("timestamp(3)", "'infinity'"), ("timestamptz", "'-infinity'"), ("date", "'-infinity'"), ("numeric", "0.00"),
    ("numeric", "1.500"), ("numeric", "100.00"), ("bit varying(20)", "B'00000000000000000101'"),
    ("bit(12)", "B'000000000001'"), ("bit(12)", "B'000000000000'"), ("bit varying", "B'0000000000000000'"),
    ("flag", "true"), ("deep", "7"), ("words", "'{a,b}'"), ("blob", "'\\x00ff'"),
    ("stamp", "'2024-01-02 03:04:05.12'"), ("interval", "'-0.000001 seconds'"),
    ("interval", "'100 years 1 day 00:00:01.000001'"), ("money", "'7'"),
    ("hstore", "'\"a\\\"b\"=>\"c, d=>e\", x=>\"\"'"), ("flag[]", "'{t,f}'"), ("jsonpath", "'$.a'"), ("bytea", "''"),
    ("text", "''"), ("int generated always as (id * 2) stored", "default"), ("money[]", "'{1.5}'"),
    ("bit(3)[]", "array[B'101']::bit(3)[]"), ("time with time zone[]", "'{04:05:06+00}'"),
    ("xml[]", "array['<a/>']::xml[]"), ("json[]", "array['{\"a\": 1}']::json[]"),
    ("point[]", "array['(1,2)']::point[]"), ("posint[]", "'{7}'"), ("pair", "row(1, 'a')"),
    ("pair[]", "array[row(1, 'a')::pair]"), ("ltree[]", "'{a.b}'"),
    ("bit(64)", "B'1010101010101010101010101010101010101010101010101010101010101010'"),
]  # fmt: skip
PREPARED = [
    "create type mood as enum ('sad', 'ok')",
    "create domain mail as text",
    "create domain posint as int check (value > 0)",
    "create domain price as numeric(8,3)",
    "create type pair as (a int, b text)",
    "create domain flag as boolean",
    "create domain deep as posint",
    "create domain words as text[]",
    "create domain blob as bytea",
    "create domain stamp as timestamp(3)",
    "create extension citext",
    "create extension ltree",
    "create extension hstore",
]
MORE_MARIADB = [
    ("tinyint unsigned", "255"), ("boolean", "true"), ("smallint", "-5"), ("mediumint unsigned", "16777215"),
    ("int", "-7"), ("int(5) zerofill", "42"), ("bigint", "7"), ("bigint unsigned", "7"), ("float", "0.1"),
    ("float", "123456.7"), ("float(7,3)", "1.5"), ("double", "1e300"), ("double", "1"), ("double", "1e22"),
    ("double(7,3)", "1.5"), ("double", "123456789012345680"), ("float", "16777216"), ("float", "1e10"),
    ("double", "1e-7"), ("decimal", "7"), ("decimal(5,5)", "0.00001"), ("decimal(10,2) unsigned", "1"),
    ("decimal(9,2) zerofill", "1.5"), ("bit", "0"), ("bit(8)", "1"), ("bit(64)", "18446744073709551615"),
    ("year", "0"), ("year", "2155"), ("year(2)", "'69'"), ("date", "'0000-00-00'"), ("date", "'0001-01-01'"),
    ("date", "'2024-00-00'"), ("datetime", "0"), ("datetime", "'9999-12-31 23:59:59'"),
    ("datetime(1)", "'2024-02-29 12:34:56.7'"), ("datetime(3)", "'1000-01-01 00:00:00.001'"),
    ("datetime(4)", "'2024-02-29 12:34:56.7891'"), ("timestamp null", "'2024-01-02 03:04:05'"),
    ("timestamp(6) null", "'2012-01-01 22:32:34.120000'"), ("timestamp(6) null", "'2012-01-01 22:32:34'"),
    ("timestamp(1) null", "'2012-01-01 22:32:34.1'"), ("timestamp null", "0"), ("time", "'12:34:56'"),
    ("time", "'-00:00:01'"), ("time(3)", "'12:34:56.789'"), ("time", "'838:59:59'"), ("char(10)", "''"),
    ("varchar(10)", "'  a '"), ("text", "'x'"), ("longtext", "'y'"), ("char(10) character set latin1", "'é'"),
    ("varchar(9) character set sjis", "'日本'"), ("varchar(20) collate utf8mb4_bin", "'b'"), ("binary(16)", "x'00ff'"),
    ("varbinary(4)", "x'6100'"), ("tinyblob", "''"), ("longblob", "x'ff'"), ("char(4) character set binary", "'a'"),
    ("varchar(4) character set binary", "'a'"), ("text character set binary", "'a'"),
    ("enum('a','b''c','e','')", "'b''c'"), ("enum('a','b')", "'none'"), ("set('x','y','z')", "''"),
    ("set('x','y','z')", "'z,x'"), ("enum('a,b','c')", "'a,b'"), ("json", "'[1, 2.50]'"), ("json", "'\"t\"'"),
    ("uuid", "'6ba7b810-9dad-11d1-80b4-00c04fd430c8'"),
    ("point", "st_geomfromtext('POINT(1 2)')"), ("geometry", "st_geomfromtext('LINESTRING(0 0,1 1)', 4326)"),
    ("polygon", "st_geomfromtext('POLYGON((0 0,1 1,1 0,0 0))')"),
    ("int generated always as (id * 2) stored", "default"), ("int generated always as (id * 2) virtual", "default"),
]  # fmt: skip
# what the docs say that differs: what is declared, and a literal
POSTGRES_DIFFERS = {
    ("numeric(4,-2)", "1200"), ("int[]", "'{{1,2},{3,4}}'"), ("name", "'n'"), ("bit(3)[]", "array[B'101']::bit(3)[]"),
    ("date", "'infinity'"), ("date", "'-infinity'"),
}  # fmt: skip
MARIADB_DIFFERS = {
    ("bigint unsigned", "18446744073709551615"), ("datetime(6)", "'0001-01-01 00:00:00.000001'"), ("date", "'0001-01-01'"),
    ("uuid", "'123e4567-e89b-42d3-a456-426614174000'"), ("year", "0"), ("timestamp null", "0"),
    ("enum('a,b','c')", "'a,b'"),
    ("geometry", "st_geomfromtext('POINT(1 2)')"), ("geometry", "st_geomfromtext('LINESTRING(0 0,1 1)', 4326)"),
    ("point", "st_geomfromtext('POINT(1 2)')"), ("polygon", "st_geomfromtext('POLYGON((0 0,1 1,1 0,0 0))')"),
}  # fmt: skip


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
                _, said = process.communicate(timeout=600)
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


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    """Of a PostgreSQL that Debezium reaches, in another time zone than the capture's."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = str(free.getsockname()[1])
    settings = {"listen_addresses": "127.0.0.1", "port": number, "wal_level": "logical", "timezone": "Asia/Kolkata"}
    with running_server(settings):
        yield number


def slot_of(port: str, name: str) -> ReplicationSlot:
    at = f"postgresql://postgres@127.0.0.1:{port}"
    run(f"{at}/postgres", f"create database {name}")
    return ReplicationSlot(f"{at}/{name}", name, name)


def settings_of(port: str, slot: ReplicationSlot) -> dict[str, str]:
    own = {"slot.name": f"{slot.name}d", "publication.name": slot.publication}
    return {**POSTGRES, "database.port": port, "database.dbname": slot.name, **own}


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
def test_every_type_of_postgresql_is_written_as_debezium_writes_it(port: str, for_postgres: Engine) -> None:
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
    """Debezium reads about half of what is written, and is stopped; the capture that it was goes on here."""
    till, settings = Till(write, ROWS), engine.settings(given)
    writer = Thread(target=till.run)
    theirs = changes_of(engine.until(ROWS // 2, topic, settings, lambda: write(mark), writer.start))
    to = ["--to", f"kafka://{broker.bootstrap}"]
    offsets = ["--offset", f"{engine.folder}/offsets"]
    assert cli.main(["move", "debezium", str(settings), *offsets, *to, "--write"]) == 0
    told = capsys.readouterr().out.splitlines()
    writer.join()
    assert cli.main([*shlex.split(told[-1])[1:], "--once", "--order", "global"]) == 0
    mine = changes_of(committed(broker, topic)[0])
    print(len(theirs), len(mine), told[0])
    assert theirs == till.written[: len(theirs)]
    assert mine == till.written[len(theirs) :]
    assert len(mine) > ROWS // 10


@pytest.mark.postgres
def test_what_debezium_was_for_postgresql_goes_on_here(
    port: str, for_postgres: Engine, broker: Broker, capsys: pytest.CaptureFixture[str]
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
    mark = "insert into mark values ()"
    goes_on(for_mariadb, {**MARIADB, **own}, f"p.{source.name}.item", source.run, mark, broker, capsys)
