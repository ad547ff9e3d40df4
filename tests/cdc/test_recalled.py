"""MariaDB's binlog does not tell a UUID from a BINARY, nor JSON from text, and the catalog says how a table is now. What it
was for rows from before an ALTER stands in NAME.schema; where a statement may have changed it, nobody guesses.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cdc.mariadb import MariaServer
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc.mysql.alterations import altered_columns
from waterclock.testing import Broker

pytestmark = pytest.mark.mariadb

VALUE = "123e4567-e89b-42d3-a456-426614174000"
ROW = f"'{VALUE}', '{{\"a\": 1}}', '[]', 'abcdefghijklmnop'"
WHOLE = {"u": VALUE, "doc": {"a": 1}, "plain": "[]", "b": "YWJjZGVmZ2hpamtsbW5vcA=="}


@pytest.fixture
def started(mariadb: MariaServer, database: str, here: str, broker: Broker) -> list[str]:
    """A capture that has read a row of a table with all that is in doubt."""
    columns = "u uuid, doc json, plain longtext character set utf8mb4 collate utf8mb4_bin, b binary(16)"
    made = f"create table t (id int primary key, {columns})"
    mariadb.run(made, f"insert into t values (1, {ROW})", database=database)
    where = [f"mysql://root@127.0.0.1:{mariadb.port}/{database}", "--to", f"kafka://{broker.bootstrap}/{database}"]
    command = ["cdc", *where, "--once", "--order", "global", "--from", here]
    assert cli.main(command) == 0
    return command


def older(number: int, row: str = ROW) -> list[str]:
    """A row that was written before the ALTER behind it; CREATE_TIME has whole seconds."""
    names = "id, u, doc, plain, b"
    insert = f"insert into t ({names}) values ({number}, {row})"
    return ["set timestamp = unix_timestamp() - 10", insert, "set timestamp = default"]


def rows(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [json.loads(value)["data"] for _, value in committed(broker, topic)[0]]


@pytest.mark.parametrize(
    "alter",
    [
        "add column c int after u",
        "add column (c int, d uuid)",
        "add index (u), drop primary key, add primary key (id)",
        "modify id bigint",
        "engine = innodb, force",
        "convert to character set utf8mb4",
        "modify u binary(16)",
    ],
)
def test_rows_from_before_an_alter_are_read_without_a_question(
    alter: str, started: list[str], mariadb: MariaServer, database: str, broker: Broker
) -> None:
    """Whatever it was: the capture stopped, and asked for --type."""
    mariadb.run(*older(2), f"alter table t {alter}", database=database)
    assert cli.main(started) == 0
    assert rows(broker, database) == [{"id": 1, **WHOLE}, {"id": 2, **WHOLE}]


@pytest.mark.parametrize(
    ("alter", "asks", "stops"),
    [
        ("add column c int after u", "", False),
        ("add column c int after u", "", True),
        ("add index (u), comment = 'u'", "", True),
        ("modify id bigint", "", True),
        ("modify u binary(16)", "u", False),
        ("modify u binary(16)", "u", True),
        ("modify doc longtext collate utf8mb4_bin", "doc", True),
        ("add check (json_valid(plain))", "b, doc, plain, u", True),
        ("partition by range (id) (partition p values less than (9))", "b, doc, plain, u", True),
    ],
)
def test_rows_between_two_alters_are_read_if_none_may_have_changed_their_types(
    stops: bool,
    alter: str,
    asks: str,
    started: list[str],
    mariadb: MariaServer,
    database: str,
    broker: Broker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mariadb.run(f"alter table t {alter}", database=database)
    if stops:
        assert cli.main(started) == 0
    pause = "do 0" if stops else "do sleep(2.1)"  # a start knows when an ALTER ended that it has passed itself
    row = ROW.replace(VALUE, "x") if "modify u" in alter else ROW
    mariadb.run(*older(2, row), pause, "alter table t add column last int", database=database)
    assert cli.main(started) == (2 if asks else 0)
    told = " ".join(capsys.readouterr().err.split())
    assert (f"whether {asks} is BINARY, UUID" in told) == bool(asks), told
    if not asks:
        assert rows(broker, database)[1:] == [{"id": 2, **WHOLE, **({"c": None} if "c int" in alter else {})}]


@pytest.mark.parametrize("made", ["create or replace table t {}", "drop table t; create table t {}"])
def test_a_table_that_was_made_anew_is_asked_about(
    made: str, started: list[str], mariadb: MariaServer, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    anew = made.format("(id int primary key, u binary(16), doc longtext, plain int, b uuid)").split("; ")
    row = f"'abcdefghijklmnop', '[]', 1, '{VALUE}'"
    mariadb.run(*anew, *older(2, row), "alter table t add column c int", database=database)
    assert cli.main(started) == 2
    assert "is BINARY, UUID" in " ".join(capsys.readouterr().err.split())


def test_a_column_that_a_statement_made_is_of_the_type_that_it_says(
    started: list[str], mariadb: MariaServer, database: str, broker: Broker
) -> None:
    mariadb.run("alter table t add column w uuid, add column i inet4 after u", database=database)
    insert = f"insert into t values (2, '{VALUE}', '10.0.0.1', '{{}}', '', 'x', '{VALUE}')"
    mariadb.run("set timestamp = unix_timestamp() - 10", insert, "set timestamp = default", database=database)
    mariadb.run("alter table t drop column w", database=database)
    assert cli.main(started) == 0
    found = rows(broker, database)[-1]
    assert (found["w"], found["i"], found["u"]) == (VALUE, "10.0.0.1", VALUE)


@pytest.mark.parametrize(
    ("clauses", "doubted"),
    [
        ("add c int first", ""),
        ("add column if not exists c json after `u`", ""),
        ("add (c uuid, d int)", ""),
        ("add c longtext check (json_valid(c))", "c"),
        ("drop index u, rename index u to w, algorithm=inplace", ""),
        ("rename column u to c", ""),
        ("alter column u set default 1", "u"),
        ("drop column `U`, add c int", "u"),
        ("change c u binary(16)", "cu"),
        ("convert to character set latin1", "all"),
        ("add c int, rename to u", "all"),
        ("drop constraint k", "all"),
        ("some new clause", "all"),
    ],
)
def test_what_a_clause_may_have_changed(clauses: str, doubted: str) -> None:
    found = altered_columns(f"alter table t {clauses}").doubted
    assert ("all" if found is None else "".join(sorted(found & {"u", "c"}))) == doubted
