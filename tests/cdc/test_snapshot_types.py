"""A row of a snapshot has the bytes that the log brings for it: of every type, as a value and as a key."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

import pytest

from tests.cdc.both import through_both
from tests.cdc.mariadb import MariaServer, MariaSource
from tests.cdc.postgres import changes, run
from tests.cdc.test_types import CASES, SHAPES
from waterclock.cdc import snapshot
from waterclock.cdc.agreement import INITIAL, Terms
from waterclock.cdc.mysql.chunks import BinlogChunks
from waterclock.cdc.mysql.mysql_chunks import MySqlChunks
from waterclock.cdc.part import OlderPart
from waterclock.cdc.position import Position
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.chunks import SlotChunks
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.postgres.slot import OWN, SlotReader
from waterclock.cdc.snapshot import SnapshotSource, WholePlace
from waterclock.cdc.source import TableFilter
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.changes.sql_types import ColumnTypes
from waterclock.clock import SystemClock

TERMS, CLOCK = Terms(snapshot=INITIAL), SystemClock()
MORE = [
    ("float", ["0.1", "123456.7", "16777216", "-3.40282e38", "1e-45", "3.4028234663852886e38"]),
    ("double", ["1.7976931348623157e308", "0.1", "1e22", "5e-324"]),
    ("int(6) unsigned zerofill", ["42"]),
    ("decimal(9,2) zerofill", ["0.5", "12.30", "0"]),
    ("geometry", [f"st_geomfromtext('{shape}', 4326)" for shape in SHAPES]),
    ("set('','a','it''s')", ["''", "'a'", "1", "7"]),
    ("set('a\\\\b','a\\nb')", ["1", "3"]),
    ("enum('a\\\\b','a\"b')", ["1", "2"]),
    ("longtext collate utf8mb4_unicode_ci check (json_valid(c))", ["'{\"a\": 1}'"]),
    ("int generated always as (d * 2) stored", ["default"]),
    ("int generated always as (d * 2) virtual", ["default"]),
    ("varchar(9) collate utf8mb4_bin", ["'a'", "'null'"]),
    ("longtext collate utf8mb4_bin", ["'[1]'", "'null'"]),
]
KEYS = [
    ("smallint", ["-5", "0", "7"]), ("bigint unsigned", ["1", "18446744073709551615"]),
    ("decimal(30,2)", ["12345678901234567.01", "12345678901234567.02", "-1"]), ("float", ["0.1", "0.2", "-3.5"]),
    ("double", ["0.1", "1e300"]), ("date", ["'2024-01-01'", "'2024-01-02'"]),
    ("datetime(6)", ["'2024-01-01 00:00:00.000001'", "'2024-01-02'"]),
    ("time", ["'-01:00:00'", "'02:00:00'"]), ("timestamp", ["'2024-01-01 00:00:01'", "'2024-06-01 00:00:01'"]),
    ("varchar(20)", ["'a'", "'B'", "'ö'", "'it''s \\\\\\\\'", "'z'"]),
    ("varchar(20) character set latin1", ["'é'", "'a'", "'z'"]),
    ("varchar(20) character set sjis", ["'日本'", "'a'"]), ("char(5)", ["'a'", "'b'"]),
    ("varbinary(9)", ["x'00ff'", "x'61'", "''"]),
    ("binary(4)", ["x'61'", "x'62'"]), ("enum('z','a')", ["'z'", "'a'"]), ("set('z','a')", ["'z'", "'a'", "'z,a'"]),
    ("bit(9)", ["1", "300"]),
    ("year", ["1999", "2024"]),
    ("uuid", ["'6ba7b810-9dad-11d1-80b4-00c04fd430c8'", "'123e4567-e89b-42d3-a456-426614174000'"]),
    ("inet6", ["'::1'", "'2001:db8::1'"]),
]  # fmt: skip


def older(source: SnapshotSource) -> dict[bytes, MaxwellMessage]:
    found = {}
    with closing(source):
        for item in source.items():
            if isinstance(item, OlderPart):
                assert not item.rows.keys() & found.keys()
                found.update((message.as_key(), message) for message in item.messages())
                written = [(message.as_key(), message.as_json()) for message in item.messages()]
                assert list(item.written()) == written
            if source.reached(WholePlace()):
                return found
    raise AssertionError


def said(rows: Iterable[MaxwellMessage]) -> dict[bytes, tuple[bytes, ColumnTypes]]:
    """Key and value, but for what says when, and in which transaction; and the types."""
    bare = {"type": "insert", "ts": 0, "gtid": "", "sequence": 0, "xoffset": 0, "commit": False}
    found = [row._replace(**bare) for row in rows]  # type: ignore[arg-type]
    assert found
    assert all(row.types.keys() >= set(row.data) for row in found)
    return {row.as_key(): (row.as_json(), row.types) for row in found}


@pytest.mark.mariadb
def test_every_type_of_mariadb_comes_as_the_binlog_brings_it(
    mariadb: MariaServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "FIRST_ROWS", 2)
    monkeypatch.setattr(snapshot, "MOST_ROWS", 2)
    monkeypatch.setattr(snapshot, "LEAST_ROWS", 2)
    before = mariadb.place()
    mariadb.run(
        "set time_zone = '+02:00'", "set sql_mode = ''", f"use {database}", *statements([*plain_cases(), *MORE], KEYS)
    )
    after = Position(mariadb.place())
    by_log = said(mariadb.changes(before, f"{database}.*"))
    mariadb.run("set global time_zone = '+03:00'")
    try:
        reader = mariadb.reader(after, f"{database}.*", terms=TERMS)
        found = older(SnapshotSource(reader, BinlogChunks(reader, mariadb.login(), CLOCK), CLOCK))
    finally:
        mariadb.run("set global time_zone = 'SYSTEM'")
    assert said(found.values()) == by_log
    assert len(found) > 250


MARIA = ("uuid", "inet6", "inet4")  # has these types alone
DOUBLES = """1e15 1e16 123456789012345.0 1234567890123456.0 0.1 -0.0 0.0 1e-15 -1.5e-15 1e-16 1.5e-16 1e100 5e-324 1e0 1e-5
             -1.7976931348623157e308 9007199254740993.5"""
JSON = [
    r"""[true, false, null, {}, [], "", " : , ", "it's"]""",
    r"""{"b": {"": 1}, "a \\\" ,": "\u0001\u001f\b\f\n\r\t\/\u007fä😀"}""",
    "null", '"null"', "12345678901234567890", "-5", *DOUBLES.split(),
]  # fmt: skip
OPAQUE = ["1.10", "-0.00", "1e30", "date'2024-02-29'", "time'-12:00:01.5'", "timestamp'2024-02-29 01:02:03.000004'",
          "st_geomfromtext('point(1 2)')"]  # fmt: skip
LARGE = ["json_array(repeat('a ', 40000), 1)", "json_object('b', repeat('ä', 40000), 'd', x'00ff')"]


def literal(text: str) -> str:
    """Of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


OF_MYSQL = [
    ("json", [*map(literal, JSON), *(f"cast({each} as json)" for each in OPAQUE), *LARGE]),
    ("int invisible", ["7"]),
    ("int, key ((c + 1))", ["7"]),
    ("varchar(5) collate utf8mb4_0900_ai_ci", ["'ä '"]),
]


@pytest.mark.mysql
def test_every_type_of_mysql_comes_as_the_binlog_brings_it(
    of_mysql: MariaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_ROWS", "MOST_ROWS", "LEAST_ROWS"):
        monkeypatch.setattr(snapshot, name, 2)
    server, before = of_mysql.server, of_mysql.here
    types = [case for case in [*MORE, *OF_MYSQL, *plain_cases()] if case[0] not in MARIA]
    keys = [key for key in KEYS if key[0] not in MARIA]
    made = [each.replace("', 4326)", "', 3857)") for each in statements(types, keys)]  # which has no bounds
    server.run("set time_zone = '+02:00'", "set sql_mode = ''", f"use {of_mysql.name}", *made)
    after = Position(server.place())
    by_log = said(server.changes(before, of_mysql.every))
    reader = server.reader(after, of_mysql.every, terms=TERMS)
    found = older(SnapshotSource(reader, MySqlChunks(reader, server.login(), CLOCK), CLOCK))
    assert said(found.values()) == by_log
    assert len(found) > 250


def plain_cases() -> list[tuple[str, list[str]]]:
    return [(case[0], case[2]) for case in CASES]


def statements(types: list[tuple[str, list[str]]], keys: list[tuple[str, list[str]]]) -> list[str]:
    made = []
    for n, (declared, values) in enumerate(types):
        null = [] if "generated" in declared else ["null"]
        made += [f"create table v{n} (id int auto_increment primary key, d int default 21, c {declared})"]
        made += [f"insert into v{n} (c) values ({value})" for value in (*values, *null)]
    for n, (declared, values) in enumerate(keys):
        made += [f"create table k{n} (a int, c {declared}, primary key (c, a))"]
        made += [f"insert into k{n} values ({a}, {value})" for value in values for a in (1, 2, 3)]
    return made


POSTGRES = {
    "bool": ["true", "false"], "int2": ["-5"], "int8": ["9223372036854775807"], "numeric": ["1.10", "'NaN'", "1e30"],
    "float4": ["0.1", "'Infinity'"], "float8": ["0.1", "1e300"], "text": ["''", "'ä\"\\n'"], "varchar(5)": ["'a'"],
    "char(5)": ["'a'"],
    "bytea": ["'\\x00ff'"], "timestamptz": ["'2024-01-02 03:04:05.678+02'"], "timestamp": ["'infinity'"],
    "date": ["'2024-01-02'"],
    "time": ["'01:02:03.4'"], "interval": ["'1 mon 2 days 03:00'"], "uuid": ["'6ba7b810-9dad-11d1-80b4-00c04fd430c8'"],
    "json": ["'{\"a\": 1.10}'", "'null'"], "jsonb": ["'null'", "'[1]'"], "int[]": ["'{1,null}'"], "inet": ["'::1'"],
    "int4range": ["'[1,5)'"],
    "bit(3)": ["B'101'"], "money": ["1"], "point": ["'(1,2)'"], "oid": ["7"],
    "int generated always as (id * 2) stored": ["default"],
}  # fmt: skip
POSTGRES_KEYS = {"int8": ["-5", "7"], "text": ["'a'", "'B'", "'it''s %s'"], "numeric": ["1.1", "1.10001"],
    "uuid": POSTGRES["uuid"],
                 "timestamptz": ["'2024-01-02 03:04:05.678+02'", "'infinity'"], "bool": ["true", "false"],
    "float4": ["0.1", "0.2"],
                 "bytea": ["'\\x00ff'", "'\\x01'"], "date": ["'2024-01-02'"], "char(5)": ["'a'", "'b'"]}  # fmt: skip


@pytest.mark.postgres
@pytest.mark.parametrize("identity", ["default", "full"])
def test_every_type_of_postgresql_comes_as_the_log_brings_it(
    identity: str, slot: ReplicationSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_ROWS", "MOST_ROWS", "LEAST_ROWS"):
        monkeypatch.setattr(snapshot, name, 2)
    start, made = begun(slot, []), []
    for n, (declared, values) in enumerate(POSTGRES.items()):
        null = [] if "generated" in declared else ["null"]
        made += [
            f"create table v{n} (id serial primary key, c {declared})",
            f"alter table v{n} replica identity {identity}",
        ]
        made += [f"insert into v{n} (c) values ({value})" for value in (*values, *null)]
    for n, (declared, values) in enumerate(POSTGRES_KEYS.items()):
        made += [
            f"create table k{n} (a int, c {declared}, primary key (c, a))",
            f"alter table k{n} replica identity {identity}",
        ]
        made += [f"insert into k{n} values ({a}, {value})" for value in values for a in (1, 2, 3)]
    run(slot.conninfo, *made)
    by_log = said(through_both(monkeypatch, lambda: changes(slot, start)))
    run(slot.conninfo, f"select pg_drop_replication_slot('{slot.name}')")
    reader = SlotReader(slot, begun(slot, []), TableFilter([], OWN), CLOCK, terms=TERMS)
    found = older(SnapshotSource(reader, SlotChunks(reader, slot, CLOCK), CLOCK))
    assert said(found.values()) == by_log
    assert len(found) > 100


@pytest.mark.mariadb
def test_keys_that_differ_behind_their_first_thousand_bytes_come_all(
    mariadb: MariaServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server sorts by the first 1024 bytes, where no index has the order: rows behind a chunk's end never came."""
    monkeypatch.setattr(snapshot, "FIRST_ROWS", 50)
    monkeypatch.setattr(snapshot, "MOST_ROWS", 50)
    monkeypatch.setattr(snapshot, "LEAST_ROWS", 50)
    path = "concat(repeat('p', 600), lpad(mod(seq * 7919, 1000), 4, '0'))"
    mariadb.run(
        "create table kinds (kind enum('a'), path varchar(700), primary key (kind, path))",
        f"insert into kinds select 'a', {path} from seq_1_to_400",
        "create table paths (path text, primary key (path(700)))",
        f"insert into paths select {path} from seq_1_to_400",
        database=database,
    )
    reader = mariadb.reader(Position(mariadb.place()), f"{database}.*", terms=TERMS)
    found = older(SnapshotSource(reader, BinlogChunks(reader, mariadb.login(), CLOCK), CLOCK))
    assert [sum(row.table == table for row in found.values()) for table in ("kinds", "paths")] == [400, 400]
