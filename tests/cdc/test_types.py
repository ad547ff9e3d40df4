"""What the binlog gives is what SELECT shows, of every type and every byte of a character set; and Maxwell's own examples
against a real server: its statements are run, and the changes are what Maxwell makes of them.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cdc.both import through_both
from tests.cdc.mariadb import MariaServer, MariaSource
from waterclock.cdc.mysql.columns import decoder
from waterclock.changes.maxwell import JSON_NULL
from waterclock.errors import Unreadable

pytestmark = pytest.mark.mariadb

BIG = "9" * 35 + "." + "9" * 30
TEXTS = ["''", "'a'", "'  two  '", "'ä€😀'", "'\"\\\\\\n\\t\\0'", "null"]
BYTES = ["''", "x'00'", "x'61000000'", "x'ff00fe'", "x'20202020'"]

# how a type is asked for, and how what came is made of what SELECT shows
NUMBER = ("cast(c as char)", lambda shown: shown)
YEAR = ("c + 0", str)
TEXT = ("cast(c as char)", lambda shown: json.dumps(shown, ensure_ascii=False).replace("\\u007f", "\x7f"))
RAW = ("hex(c)", lambda shown: f'"{b64encode(bytes.fromhex(shown)).decode()}"')
SET = ("cast(c as char)", lambda shown: json.dumps(shown.split(",") if shown else [], separators=(",", ":")))
JSON = ("cast(c as char)", lambda shown: JSON_NULL if shown == "null" else shown)

CASES: list[tuple[str, tuple[str, Callable[[Any], str]], list[str]]] = [
    ("tinyint", NUMBER, ["-128", "127", "0"]),
    ("tinyint unsigned", NUMBER, ["0", "255"]),
    ("boolean", NUMBER, ["true", "false"]),
    ("smallint", NUMBER, ["-32768", "32767"]),
    ("smallint unsigned", NUMBER, ["65535"]),
    ("mediumint", NUMBER, ["-8388608", "8388607", "-1"]),
    ("mediumint unsigned", NUMBER, ["16777215"]),
    ("int", NUMBER, ["-2147483648", "2147483647"]),
    ("int unsigned", NUMBER, ["4294967295"]),
    ("bigint", NUMBER, ["-9223372036854775808", "9223372036854775807"]),
    ("bigint unsigned", NUMBER, ["18446744073709551615", "9223372036854775808"]),
    ("decimal(65,30)", NUMBER, [BIG, "-" + BIG, "0", "1e-30", "-1e-30"]),
    ("decimal(1,0)", NUMBER, ["-9", "9", "0"]),
    ("decimal(5,5)", NUMBER, ["-0.99999", "0.00001", "0"]),
    ("decimal(18,9)", NUMBER, ["123456789.987654321", "-1", "-0.000000001"]),
    ("decimal(10,2) unsigned", NUMBER, ["99999999.99", "0.01"]),
    ("decimal(38,0)", NUMBER, ["9" * 38, "-" + "9" * 38]),
    ("bit(1)", YEAR, ["b'1'", "b'0'"]),
    ("bit(12)", YEAR, ["b'101010101010'"]),
    ("bit(64)", YEAR, ["18446744073709551615", "9223372036854775808"]),
    ("year", YEAR, ["0", "1901", "2155", "1999"]),
    ("date", TEXT, ["'0000-00-00'", "'9999-12-31'", "'0001-01-01'", "'2024-02-00'", "'2024-00-00'"]),
    ("datetime", TEXT, ["0", "'9999-12-31 23:59:59'", "'0003-00-00 00:00:01'"]),
    ("datetime(1)", TEXT, ["'2024-02-29 12:34:56.7'", "0"]),
    ("datetime(2)", TEXT, ["'2024-02-29 12:34:56.07'"]),
    ("datetime(3)", TEXT, ["'1000-01-01 00:00:00.001'"]),
    ("datetime(5)", TEXT, ["'2024-02-29 12:34:56.00001'"]),
    ("datetime(6)", TEXT, ["'9999-12-31 23:59:59.999999'", "'0001-01-01 00:00:00.000001'", "'0000-00-00 00:00:00.000000'"]),
    ("timestamp null", TEXT, ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "0"]),
    ("timestamp(4) null", TEXT, ["'2012-01-01 22:32:34.1234'", "0", "'2000-01-01 00:00:00'"]),
    ("timestamp(6) null", TEXT, ["'2038-01-19 03:14:07.999999'", "'1970-01-01 00:00:01.000001'"]),
    ("time", TEXT, ["'838:59:59'", "'-838:59:59'", "'00:00:00'", "'-00:00:01'"]),
    ("time(1)", TEXT, ["'-12:34:56.7'", "'00:00:00.1'", "'-00:00:00.1'"]),
    ("time(2)", TEXT, ["'-12:34:56.07'", "'838:59:59.99'"]),
    ("time(3)", TEXT, ["'-00:00:01.999'", "'-01:00:00.000'"]),
    ("time(4)", TEXT, ["'-00:00:00.0001'"]),
    ("time(5)", TEXT, ["'-12:34:56.00007'"]),
    ("time(6)", TEXT, ["'-12:34:56.000078'", "'-838:59:59.999999'", "'838:59:59.999999'", "'-00:00:00.000001'"]),
    ("char(10)", TEXT, TEXTS),
    ("char(255)", TEXT, TEXTS),
    ("char(10) character set latin1", TEXT, ["'é'", "x'81'", "'ÿ€'"]),
    ("char(10) character set ucs2", TEXT, ["'é€'"]),
    ("varchar(10)", TEXT, TEXTS),
    ("varchar(300)", TEXT, [*TEXTS, "repeat('ä', 300)"]),
    ("varchar(300) character set latin1", TEXT, ["repeat('ÿ', 300)"]),
    ("varchar(20) character set utf32", TEXT, ["'ä€😀'"]),
    ("varchar(20) character set cp1251", TEXT, ["'Привет'"]),
    ("varchar(20) character set sjis", TEXT, ["'日本'"]),
    ("char(10) character set greek", TEXT, ["x'a1a2e1'"]),
    ("char(10) character set hebrew", TEXT, ["x'afe0'"]),
    ("char(10) character set cp866", TEXT, ["x'80fcfd'"]),
    ("char(10) character set koi8u", TEXT, ["x'95c1'"]),
    ("char(10) character set ujis", TEXT, ["x'a1c0a4a2'"]),
    ("char(10) character set sjis", TEXT, ["x'815f88a0'"]),
    ("tinytext", TEXT, TEXTS),
    ("text", TEXT, [*TEXTS, "repeat('ä', 30000)"]),
    ("mediumtext", TEXT, TEXTS),
    ("longtext", TEXT, TEXTS),
    ("binary(4)", RAW, BYTES),
    ("binary(16)", RAW, BYTES),
    ("binary(255)", RAW, BYTES),
    ("varbinary(4)", RAW, BYTES),
    ("varbinary(300)", RAW, BYTES),
    ("tinyblob", RAW, BYTES),
    ("blob", RAW, BYTES),
    ("mediumblob", RAW, BYTES),
    ("longblob", RAW, [*BYTES, "repeat(x'00', 70000)"]),
    ("enum('a','b''c','ä','')", TEXT, ["'a'", "'b''c'", "'ä'", "''", "'none of them'"]),
    ("enum('é','b') character set latin1", TEXT, ["'é'", "'b'"]),
    (f"enum({','.join(repr(f'l{n}') for n in range(300))})", TEXT, ["'l0'", "'l299'"]),
    ("set('x','y','z')", SET, ["''", "'z,x'", "'x,y,z'"]),
    (f"set({','.join(repr(f'l{n}') for n in range(64))})", SET, ["'l63'", "'l0,l63,l31'", "18446744073709551615"]),
    ("json", JSON, ['\'{"a": 1.10, "b": [null, true, 12345678901234567890]}\'', "'\"text\"'", "'null'", "'[]'"]),
    ("uuid", TEXT, ["'00000000-0000-0000-0000-000000000000'", "'6ba7b810-9dad-11d1-80b4-00c04fd430c8'",
                    "'123e4567-e89b-42d3-a456-426614174000'", "'018f4e3e-6d2a-7c1b-9f00-0123456789ab'",
                    "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'00000000-0000-0000-0000-000000000001'",
                    "'12345678-1234-5234-7234-567812345678'", "'12345678-1234-8234-8234-567812345678'",
                    "'12345678-1234-8234-1234-567812345678'",
                    "'12345678-1234-1234-1234-567812345678'", "'12345678-1234-f234-f234-567812345678'",
                    "'12345678-1234-4234-e234-567812345678'", "'12345678-0034-0034-8834-567812345678'",
                    "'12345678-0034-6034-8834-567812345678'"]),
    ("inet6", TEXT, ["'::'", "'::1'", "'::1.2.3.4'", "'::ffff:1.2.3.4'",
                     "'2001:db8::1'", "'1:0:2:3:4:5:6:7'", "'::ffff:0:0'",
                     "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'", "'1:0:0:2:0:0:0:3'", "'::1:0:0'"]),
    ("inet4", TEXT, ["'0.0.0.0'", "'255.255.255.255'", "'1.2.0.0'"]),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "how", "values"), CASES, ids=[case[0][:40] for case in CASES])
def test_what_the_binlog_gives_is_what_select_shows(
    declared: str,
    how: tuple[str, Callable[[Any], str]],
    values: list[str],
    source: MariaSource,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, expected = how
    if declared == "inet4" and source.run("select version() < '10.10'")[0][0]:
        pytest.skip("this MariaDB has no INET4")
    rows = [f"insert into t (c) values ({value})" for value in (*values, "null")]
    shown = source.run(
        "set time_zone = '+00:00'",
        "set sql_mode = ''",
        f"create table t (id int primary key auto_increment, c {declared})",
        *rows,
        f"select {asked} from t order by id",
    )
    found = [change.data["c"] for change in through_both(monkeypatch, source.changes)]
    assert found == ["null" if row[0] is None else expected(row[0]) for row in shown]


FLOATS = {
    "0.1": "0.1",
    "123456.7": "123456.7",
    "16777216": "16777216.0",
    "0": "0.0",
    "-0.5": "-0.5",
    "8388608.5": "8388608.0",
}


@pytest.mark.parametrize("value", [*FLOATS, "-3.40282e38", "1.17549e-38", "1e-45", "3.4028234663852886e38"])
def test_a_float_is_a_short_number_that_is_that_float(value: str, source: MariaSource) -> None:
    source.run("create table t (c float)", f"insert into t values ({value})")
    (found,) = [change.data["c"] for change in source.changes()]
    assert struct.pack("<f", float(found)) == struct.pack("<f", float(value))
    assert found == FLOATS.get(value, found)


@pytest.mark.parametrize("value", ["1.7976931348623157e308", "-2.2250738585072014e-308", "0.1", "1e22", "0", "5e-324"])
def test_a_double_comes_as_it_is(value: str, source: MariaSource) -> None:
    source.run("create table t (c double)", f"insert into t values ({value})")
    (found,) = [change.data["c"] for change in source.changes()]
    assert float(found) == float(value)


SHAPES = [
    "POINT(3 2)",
    "POINT(-1.5 1e300)",
    "LINESTRING(0 0,1 1,2.5 2)",
    "POLYGON((0 0,4 0,4 4,0 0),(1 1,2 1,2 2,1 1))",
    "MULTIPOINT(1 1,2 2)",
    "MULTILINESTRING((0 0,1 1),(2 2,3 3))",
    "MULTIPOLYGON(((0 0,4 0,4 4,0 0)),((5 5,6 5,6 6,5 5)))",
    "GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 1,1 2))",
]


def test_geometries_are_text_and_keep_their_reference_system(source: MariaSource) -> None:
    source.run(
        "create table t (g geometry)", *[f"insert into t values (st_geomfromtext('{shape}', 4326))" for shape in SHAPES]
    )
    found = [change.values()["g"] for change in source.changes()]
    plain = [re.sub(r"(, | (?=\())", lambda space: "," if "," in space[0] else "", shape) for shape in found]
    assert plain == [
        f"SRID=4326;{shape.replace('1e300', '1e+300').replace('(1 1,2 2)', '((1 1),(2 2))')}" for shape in SHAPES
    ]


LARGEST = {
    "year": 2155,
    "tinyint": 255,
    "bigint": 2**64 - 1,
    "float": 1,
    "decimal(4,1)": 1,
    "int": 2**32 - 1,
    "bit(3)": 7,
    "double": 1,
    "mediumint": 2**24 - 1,
    "smallint": 2**16 - 1,
}


def test_signs_are_told_right_in_a_table_of_all_kinds(source: MariaSource) -> None:
    """The table map has a bit for every number, and does not say which columns are numbers: is YEAR, is BIT?"""
    for unsigned in LARGEST:
        if unsigned.startswith(("year", "bit")):
            continue
        columns = [f"c{n} {kind}{' unsigned' * (kind == unsigned)}" for n, kind in enumerate(LARGEST)]
        values = [LARGEST[kind] if kind in (unsigned, "year", "bit(3)") else -1 for kind in LARGEST]
        source.run(
            f"create or replace table t ({', '.join(columns)})", f"insert into t values ({','.join(map(str, values))})"
        )
        found = source.changes()[-1].values()
        assert [Decimal(value) for value in found.values()] == values


def test_character_sets_are_told_right_beside_a_geometry(source: MariaSource) -> None:
    """The table map counts character columns, and does not say which those are: MariaDB counts geometries."""
    source.run(
        "create table t (a text character set latin1, g geometry, b text character set utf8mb4, g2 point, "
        "c varchar(9) character set ucs2, d blob, e enum('é') character set latin1, f char(3) character set cp1251)",
        "insert into t values ('é', point(1, 2), 'é', null, 'é', x'e9', 'é', 'я')",
    )
    (found,) = source.changes()
    shown = {"a": "é", "g": "POINT (1 2)", "b": "é", "g2": None, "c": "é", "d": "6Q==", "e": "é", "f": "я"}
    assert found.values() == shown


SINGLE = ["ascii", "latin1", "latin2", "latin5", "latin7", "greek", "hebrew", "cp1250", "cp1251", "cp1256", "cp1257",
          "cp850", "cp852", "cp866", "koi8r", "koi8u", "tis620"]  # fmt: skip
DOUBLE = ["gbk", "gb2312", "big5", "ujis", "sjis", "cp932", "euckr", "ucs2", "utf16", "utf16le"]
NONE = ("?", "\ufffd")  # what the server shows where it knows no character: it is refused, or our codec knows one
NUMBERS_OF = {
    1: "seq_0_to_255",
    2: "seq_0_to_65535",
    3: "seq_9413025_to_9436926",
}  # of three bytes: from 8fa1a1 to 8ffefe


def sequences(mariadb: MariaServer, charset: str, size: int) -> Iterator[tuple[bytes, str]]:
    """Every sequence of bytes that the server takes for one character, and the character; "?" where it knows none."""
    raw = f"unhex(lpad(hex(seq), {2 * size}, '0'))"
    taken = f"convert({raw} using {charset})"
    query = f"select {raw}, hex(convert({taken} using utf8mb4)), char_length({taken})"
    kept = f"{query}, hex({taken}) = hex({raw}) from {NUMBERS_OF[size]}"
    for found, text, length, same in mariadb.run("use mysql", "set sql_mode = ''", kept):
        if same and length == 1:
            shown = bytes.fromhex(text).decode("utf-8", "replace")
            yield found, shown if len(shown) == 1 else "?"  # half a character is none


@pytest.mark.parametrize(
    ("charset", "size"), [*((name, 1) for name in SINGLE), *((name, 2) for name in DOUBLE), ("ujis", 3)]
)
def test_every_character_is_the_one_that_the_server_shows(charset: str, size: int, mariadb: MariaServer) -> None:
    decode, wrong, right = decoder(charset), [], 0
    for raw, shown in sequences(mariadb, charset, size):
        try:
            found = decode(raw)
        except UnicodeError:
            found = "?"  # refused by name, where the server makes a question mark of it
        if found != shown and shown not in NONE:
            wrong.append((raw.hex(), shown, found))
        right += found == shown != "?"
    assert wrong == []
    assert right > (100 if size == 1 else 5000)


@pytest.mark.parametrize(("charset", "count"), [("euckr", 17_048), ("big5", 13_710)])
def test_a_whole_character_set_goes_through_the_capture(charset: str, count: int, source: MariaSource) -> None:
    known = [(raw, shown) for raw, shown in sequences(source.server, charset, 2) if shown not in NONE or raw == b"?"]
    source.run(f"create table t (id int primary key, c varchar(9) character set {charset})")
    with source.server.connection(database=source.name) as connection, connection.cursor() as cursor:
        for start in range(0, len(known), 5000):
            some = enumerate(known[start : start + 5000], start)
            cursor.execute("insert into t values " + ", ".join(f"({n}, x'{raw.hex()}')" for n, (raw, _) in some))
    found = [change.values()["c"] for change in source.changes()]
    assert found == [shown for _, shown in known]
    assert len(found) == count


FILES = [
    "test_1j",
    "test_bignum",
    "test_bit",
    "test_blob",
    "test_case_insensitive",
    "test_charsets",
    "test_column_case",
    "test_create_like",
    "test_create_select",
    "test_enum",
    "test_gis",
    "test_invalid_time",
    "test_json",
    "test_latin1",
    "test_row_query_log_is_on",
    "test_set",
    "test_time",
    "test_ucs2",
    "test_zero_created_at",
]
# Where Maxwell loses something and SELECT does not, we are with SELECT: (file, number of the change) -> its data.
OURS: dict[tuple[str, int], dict[str, Any]] = {
    ("test_blob", 1): {"id": 1, "binary_field": "AAECAwAAAAAAAA=="},  # BINARY(10) has ten bytes
    ("test_zero_created_at", 1): {"id": 2, "ch": "a", "datecol": "0003-00-00 00:00:01"},
}


def parsed(text: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The statements and the expected changes of a file, in which names may stand without quotes."""
    statements, expected = [], []
    parts = iter(text.splitlines())
    for line in parts:
        if line.strip().startswith("->"):
            found = line.strip()[2:]
            while found.count("{") > found.count("}"):
                found += next(parts)
            expected.append(json.loads(re.sub(r"([{,]\s*)([A-Za-z_]\w*)\s*:", r'\1"\2":', found)))
        elif line.strip() and not line.startswith("#"):
            statements.append(line.strip())
    return statements, expected


def databases(statements: list[str]) -> Iterator[str]:
    for statement in statements:
        if match := re.match(r"create database (?:if not exists )?`?(\w+)", statement, re.IGNORECASE):
            yield match[1]


@pytest.mark.parametrize("file", FILES)
def test_maxwells_examples_come_out_as_maxwell_writes_them(
    file: str, mariadb: MariaServer, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements, expected = parsed((data / "maxwell" / file).read_text())
    start = mariadb.place()
    try:
        mariadb.run("set sql_mode = ''", *statements)
        changes = through_both(monkeypatch, partial(mariadb.changes, start, queries=True))
    finally:
        mariadb.run(
            *[f"drop database if exists {name}" for name in databases(statements)], "set global time_zone = 'SYSTEM'"
        )
    assert len(changes) == len(expected)
    for number, (change, wanted) in enumerate(zip(changes, expected, strict=True)):
        found = json.loads(change.as_json())
        if (file, number) in OURS:
            wanted["data"] = OURS[file, number]
        if file == "test_case_insensitive":  # written for a server that does not keep the case of names
            found["data"] = {name.lower(): value for name, value in found["data"].items()}
        assert {name: found.get(name) for name in wanted} == wanted


def test_a_partial_row_image_is_refused_by_the_name_of_the_setting(mariadb: MariaServer, data: Path) -> None:
    statements, _ = parsed((data / "maxwell" / "test_minimal").read_text())
    start = mariadb.place()
    mariadb.run("create or replace database test", "set binlog_row_image = minimal", *statements)
    with pytest.raises(Unreadable, match="binlog_row_image is not FULL"):
        mariadb.changes(start, "test.*")


def test_rows_without_the_blobs_that_an_update_did_not_touch_are_refused(mariadb: MariaServer) -> None:
    mariadb.run("create or replace database test", "create table test.t (id int primary key, n int, b blob)")
    mariadb.run("insert into test.t values (1, 0, 'x')")
    start = mariadb.place()
    mariadb.run("set binlog_row_image = noblob", "update test.t set n = 1")
    with pytest.raises(Unreadable, match=r"Rows of test.t lack b: binlog_row_image is not FULL"):
        mariadb.changes(start, "test.*")


def test_the_same_with_whole_rows_has_what_maxwell_makes_of_the_parts(mariadb: MariaServer, data: Path) -> None:
    statements, expected = parsed((data / "maxwell" / "test_minimal").read_text())
    mariadb.run("create or replace database test")
    start = mariadb.place()
    mariadb.run(*statements)
    found = [change.values() for change in mariadb.changes(start, "test.*") if change.type != "truncate"]
    assert [{name: row[name] for name in wanted["data"]} for row, wanted in zip(found, expected, strict=True)] == [
        wanted["data"] for wanted in expected
    ]
