"""Maxwell's own examples against a real server: its statements are run, and the changes are what Maxwell makes of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cdc.mariadb import MariaServer
from waterclock.errors import Unreadable

pytestmark = pytest.mark.mariadb

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
def test_maxwells_examples_come_out_as_maxwell_writes_them(file: str, mariadb: MariaServer, data: Path) -> None:
    statements, expected = parsed((data / "maxwell" / file).read_text())
    start = mariadb.place()
    try:
        mariadb.run("set sql_mode = ''", *statements)
        changes = mariadb.changes(start, queries=True)
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
    found = [change.values() for change in mariadb.changes(start, "test.*")]
    assert [{name: row[name] for name in wanted["data"]} for row, wanted in zip(found, expected, strict=True)] == [
        wanted["data"] for wanted in expected
    ]
