"""A MySQL server, by the command: what is older than its binlog, and how it lets somebody in."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cdc.mariadb import MariaSource
from tests.cdc.mysql import running_server
from tests.cdc.test_renamed import folded, shown
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc.agreement import INITIAL, Terms
from waterclock.cdc.mysql.mysql_chunks import MySqlChunks
from waterclock.clock import SystemClock
from waterclock.testing import Broker

pytestmark = pytest.mark.mysql


@pytest.fixture
def command(of_mysql: MariaSource, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """By the user whom docs/cdc.md sets up."""
    rights = "grant replication slave, replication client, select on *.* to reader"
    of_mysql.run("create user if not exists reader identified by 'secret'", rights)
    monkeypatch.setenv("MYSQL_PWD", "secret")
    where = [f"mysql://reader@127.0.0.1:{of_mysql.server.port}/{of_mysql.name}", "--to"]
    return ["cdc", *where, f"kafka://{broker.bootstrap}/{of_mysql.name}", "--order", "global", "--once"]


def came(broker: Broker, source: MariaSource) -> list[dict[str, Any]]:
    return [json.loads(value) for _, value in committed(broker, source.name)[0]]


def thrown_away(source: MariaSource) -> None:
    """All binlogs but the newest, which is bare."""
    source.run("flush binary logs")
    source.run(f"purge binary logs to '{source.run('show binary logs')[-1][0]}'")


def test_a_first_start_brings_all_that_the_binlogs_no_longer_have(
    command: list[str], of_mysql: MariaSource, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    of_mysql.run("create table item (id int primary key, n decimal(9,2))", "create table hollow (id int primary key)")
    of_mysql.run(f"insert into item select seq, seq * 1.10 from {of_mysql.server.numbers(1, 2999)}")
    thrown_away(of_mysql)
    assert cli.main([*command, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [figures[name] for name in ("changes", "older_rows", "older_tables_left")] == [2999, 2999, 0]
    found = came(broker, of_mysql)
    assert [(row["type"], row["data"]["id"]) for row in found] == [("bootstrap-insert", n) for n in range(1, 3000)]
    positions = [(row["sequence"], row["xoffset"]) for row in found]
    assert positions == sorted(set(positions))
    of_mysql.run("update item set n = 0 where id = 7")
    assert cli.main(command) == 0
    (last,) = came(broker, of_mysql)[2999:]
    assert (last["type"], last["sequence"] > found[-1]["sequence"]) == ("update", True)


def test_a_table_that_is_asked_for_later_comes_whole_where_the_user_has_a_word_for_it(
    command: list[str], of_mysql: MariaSource, broker: Broker
) -> None:
    for name in ("a", "b"):
        of_mysql.run(f"create table {name} (id int primary key)", f"insert into {name} values (1)")
    thrown_away(of_mysql)
    assert cli.main([*command, "--tables", f"{of_mysql.name}.a"]) == 0
    assert cli.main(command) == 2
    assert cli.main([*command, "--snapshot", "when-needed"]) == 0
    kinds = [(row["table"], row["type"]) for row in came(broker, of_mysql)]
    assert kinds == [("a", "bootstrap-insert"), ("b", "bootstrap-insert"), ("b", "bootstrap-complete")]


def test_a_column_that_cannot_be_read_is_named_before_anything_and_both_remedies_help(
    command: list[str], of_mysql: MariaSource, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    of_mysql.run("create table bare (id int primary key)", "create table v (id int primary key, e vector(2))")
    of_mysql.run("insert into bare values (1)", "insert into v values (1, to_vector('[1,2]'))")
    thrown_away(of_mysql)
    assert cli.main(command) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"{of_mysql.name}.v: Column e is of the type vector, which has no reader here." in told
    assert came(broker, of_mysql) == []
    assert cli.main([*command, "--name", "without", "--tables", f"{of_mysql.name}.bare"]) == 0
    of_mysql.run("alter table v modify e varbinary(8)")
    assert cli.main(command) == 0
    tables = [(row["table"], row["data"]) for row in came(broker, of_mysql)]
    assert tables == [("bare", {"id": 1}), ("bare", {"id": 1}), ("v", {"id": 1, "e": "AACAPwAAAEA="})]


@pytest.mark.parametrize("swap", ["rename table t to _t_del, _t_gho to t", "alter table t rename aside"])
def test_a_table_with_another_name_comes_whole(
    swap: str, command: list[str], of_mysql: MariaSource, broker: Broker
) -> None:
    """Among them one that takes another one's place, as gh-ost has it: the target was never empty."""
    of_mysql.run(*[f"create table {name} (id int primary key, v int)" for name in ("t", "_t_gho")])
    of_mysql.run(f"insert into t select seq, 1 from {of_mysql.server.numbers(1, 5)}")
    of_mysql.run(f"insert into _t_gho select seq, 2 from {of_mysql.server.numbers(3, 6)}")
    assert cli.main(command) == 0
    of_mysql.run(swap)
    assert cli.main(command) == 0
    name = "aside" if "aside" in swap else "t"
    assert folded(broker, of_mysql.name)[name] == shown(of_mysql.server, of_mysql.name, name)


def test_a_table_is_told_as_large_as_it_is_now(of_mysql: MariaSource) -> None:
    of_mysql.run("create table t (id int primary key)", "insert into t values (1)")
    with closing(of_mysql.reader(terms=Terms(snapshot=INITIAL))) as reader:
        chunks, name = MySqlChunks(reader, of_mysql.server.login(), SystemClock()), f"{of_mysql.name}.t"
        assert chunks.look([name]).get(name, 0) <= 1
        of_mysql.run(f"insert into t select seq from {of_mysql.server.numbers(2, 5000)}")
        end = time.monotonic() + 30  # the server counts from time to time
        while chunks.look([name]).get(name, 0) < 4000:
            assert time.monotonic() < end
            time.sleep(0.1)


def test_a_server_without_tls_is_told_with_what_lets_a_password_go_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broker: Broker
) -> None:
    monkeypatch.setattr("pymysql._auth._have_cryptography", False)
    monkeypatch.setenv("MYSQL_PWD", "secret")
    with running_server(tmp_path / "m", "--tls-version=") as server:
        server.run("create database shop", "create table shop.t (id int primary key)")
        server.run("create user reader identified by 'secret'", "grant all on *.* to reader")
        where = ["--to", f"kafka://{broker.bootstrap}/without-tls", "--once"]
        command = ["cdc", f"mysql://reader@127.0.0.1:{server.port}/shop", *where]
        assert cli.main(command) == 1
        told = " ".join(capsys.readouterr().err.split())
        assert "The server offers no TLS, and no password goes there in clear text: 'cryptography' package is" in told
        server.run("set global tls_version = 'TLSv1.3'", "alter instance reload tls")
        assert cli.main(command) == 0
