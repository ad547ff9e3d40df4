"""A table that was dropped, and made anew under its name: the target has the new one's rows, and none of the old one's."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.cdc.mariadb import MariaServer
from tests.cdc.postgres import run
from tests.cdc.test_asked_again import Shop, ask, came
from tests.cdc.test_renamed import folded, shown
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc.agreement import INITIAL, Terms
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.postgres.slot import OWN, SlotReader
from waterclock.cdc.source import Item, SourceMark, TableFilter, TablesRenewed
from waterclock.cdc.stored import last_position
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.clock import SystemClock
from waterclock.testing import Broker

FORM = "(id int primary key, v int)"
ANEW = {
    "dropped": ["drop table t", f"create table t {FORM}"],
    "as mysqldump does": ["drop table if exists `t`", "/*!40101 SET NAMES utf8 */", f"create table `t` {FORM}"],
    "with others": ["drop table if exists nix, u, t", f"create table if not exists t {FORM}"],
    "replaced": [f"create or replace table t {FORM}"],
    "filled": ["create or replace table t (primary key (id)) select 3 as id, 3 as v"],
    "dropped and filled": ["drop table t", "create table t (primary key (id)) as select 3 as id, 3 as v"],
    "put away": ["rename table t to aside", "create table t like aside"],
    "put away by alter": ["alter table t rename aside", "create table t like aside"],
    "in another database": ["use mysql", "drop table {0}.t", f"create table {{0}}.t {FORM}"],
    "with its database": ["drop database {0}", "create database {0}", "use {0}", f"create table t {FORM}"],
}


@pytest.fixture
def started(mariadb: MariaServer, database: str, broker: Broker) -> list[str]:
    made = [f"create table {name} {FORM}" for name in ("t", "u")]
    mariadb.run(*made, "insert into t values (1, 1), (2, 2)", "insert into u values (1, 1)", database=database)
    where = [f"mysql://root@127.0.0.1:{mariadb.port}/{database}", "--to", f"kafka://{broker.bootstrap}/{database}"]
    command = ["cdc", *where, "--once", "--order", "global"]
    assert cli.main(command) == 0
    return command


@pytest.mark.mariadb
@pytest.mark.parametrize("stops", [False, True], ids=["in one run", "a start behind each statement"])
@pytest.mark.parametrize("anew", ANEW)
def test_a_table_that_is_made_anew_has_the_new_rows_alone(
    anew: str, stops: bool, started: list[str], mariadb: MariaServer, database: str, broker: Broker
) -> None:
    """The target kept the rows of the old one beside those of the new one, and nothing was said."""
    with mariadb.connection(database=database) as connection, connection.cursor() as cursor:
        for statement in [*ANEW[anew], "insert into {0}.t values (2, 9)"]:
            cursor.execute(statement.format(database))
            if stops and not statement.startswith(("use ", "drop database")):
                assert cli.main(started) == 0
    assert cli.main(started) == 0
    found = folded(broker, database, may_empty=True)
    assert found["t"] == shown(mariadb, database, "t")
    assert found["u"] == {1: {"id": 1, "v": 1}}  # what is dropped, and not made anew, stays
    sent = [json.loads(value) for _, value in committed(broker, database)[0]]
    assert [each["table"] for each in sent if each["type"] == "truncate"] == ["t"]
    assert cli.main(started) == 0
    assert len(committed(broker, database)[0]) == len(sent)


@pytest.mark.mariadb
@pytest.mark.parametrize(
    "statements",
    [
        [f"create table if not exists t {FORM}"],
        [f"create table w {FORM}"],
        [f"create temporary table t {FORM}", "drop temporary table t"],
        ["drop view if exists t", "drop index v on t"],
    ],
)
def test_a_table_that_stays_or_is_new_is_not_emptied(
    statements: list[str], started: list[str], mariadb: MariaServer, database: str, broker: Broker
) -> None:
    mariadb.run("create index v on t (v)", *statements, database=database)
    assert cli.main(started) == 0
    found = folded(broker, database)
    assert found["t"] == shown(mariadb, database, "t")


@pytest.mark.mariadb
def test_a_table_that_comes_back_by_a_rename_is_dropped_no_longer(
    started: list[str], mariadb: MariaServer, database: str, broker: Broker
) -> None:
    """MySQL's binlog has each CREATE TABLE IF NOT EXISTS, also of a table that is there: it would be emptied."""
    mariadb.run("drop table u", "rename table t to u, u to v", "alter table v rename t", database=database)
    assert cli.main(started) == 0
    stored = last_position({"bootstrap.servers": broker.bootstrap}, f"{database}.position")
    assert stored is not None
    assert stored.held is not None
    assert stored.held.dropped() == {f"{database}.u", f"{database}.v"}


@pytest.mark.mariadb
def test_what_was_dropped_does_not_hide_what_is_held(
    mariadb: MariaServer, database: str, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """The way on named the dropped table alone: with it the others would have been let go."""
    mariadb.run(*[f"create table {name} {FORM}" for name in ("t", "t2", "u")], database=database)
    mariadb.run("insert into u values (1, 1)", database=database)
    where = [f"mysql://root@127.0.0.1:{mariadb.port}/{database}", "--to", f"kafka://{broker.bootstrap}/{database}"]
    command = ["cdc", *where, "--once", "--tables", f"{database}.t*"]
    assert cli.main(command) == 0
    mariadb.run("drop table t", database=database)
    assert cli.main(command) == 0
    assert cli.main([*command, "--tables", f"{database}.u"]) == 2
    assert f"ask for what is held: {database}.t* (--tables)" in " ".join(capsys.readouterr().err.split())


@pytest.mark.mariadb
def test_one_that_may_have_been_made_anew_is_told_with_a_remedy(
    started: list[str], mariadb: MariaServer, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """DROP DATABASE names no tables, and IF NOT EXISTS does not say whether one was made."""
    anew = ["drop database {0}", "create database {0}", "use {0}", f"create table if not exists t {FORM}"]
    mariadb.run(*[statement.format(database) for statement in anew])
    assert cli.main(started) == 0
    assert f"{database}.t may have been made anew behind a DROP DATABASE" in caplog.text
    assert "To have all of it again: waterclock cdc snapshot." in caplog.text


def made_anew(slot: ReplicationSlot) -> None:
    anew = ["drop table t", f"create table t {FORM}", "insert into t values (2, 9)", "update t set v = 10 where id = 2"]
    run(slot.conninfo, *anew)


@pytest.mark.postgres
@pytest.mark.parametrize(
    "former", ["met in the same run", "met in the run before", "never met", "met in the transaction"]
)
def test_a_table_of_postgresql_that_is_made_anew_has_the_new_rows_alone(
    former: str, command: list[str], slot: ReplicationSlot, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """By the number that the position has of it: a run that had not met the former table kept its rows in the target."""
    run(slot.conninfo, f"create table t {FORM}", "insert into t values (1, 1), (2, 2)")
    assert cli.main(command) == 0
    if former == "met in the run before":
        run(slot.conninfo, "insert into t values (3, 3)")
        assert cli.main(command) == 0
    if former == "met in the same run":
        run(slot.conninfo, "insert into t values (3, 3)")
    if former == "met in the transaction":
        run(slot.conninfo, "begin", "insert into t values (4, 4)", "drop table t", f"create table t {FORM}",
            "insert into t values (2, 10)", "commit")  # fmt: skip
    else:
        made_anew(slot)
    assert cli.main(command) == 0
    assert folded(broker, slot.name)["t"] == {2: {"id": 2, "v": 10}}
    assert caplog.text.count("All of it comes again") == 1
    run(slot.conninfo, "update t set v = 11")
    assert cli.main(command) == 0
    assert caplog.text.count("All of it comes again") == 1
    assert folded(broker, slot.name)["t"] == {2: {"id": 2, "v": 11}}


NO_ROW_SINCE = {
    "dropped": ["drop table t", f"create table t {FORM}"],
    "put away": ["alter table t rename to aside", f"create table t {FORM}"],
    "exchanged": ["begin; alter table t rename to x; alter table u rename to t; alter table x rename to u; commit"],
    "renamed": ["alter table t rename to w"],
}


@pytest.mark.postgres
@pytest.mark.parametrize("anew", NO_ROW_SINCE)
@pytest.mark.parametrize("is_met", [True, False], ids=["the log named it", "the log never named it"])
def test_a_table_of_postgresql_that_gets_no_row_once_it_is_made_anew_is_noticed(
    is_met: bool, anew: str, command: list[str], slot: ReplicationSlot, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names a table with its first change: until then a target kept the former one's rows."""
    run(slot.conninfo, *[f"create table {name} {FORM}" for name in "tu"])
    run(slot.conninfo, "insert into t values (1, 1), (2, 2)", "insert into u values (1, 7)")
    assert cli.main(command) == 0
    changed = ["update t set v = 3 where id = 1", "insert into t values (3, 3)"] if is_met else []
    run(slot.conninfo, *changed, *NO_ROW_SINCE[anew])
    assert cli.main(command) == 0
    found = folded(broker, slot.name)
    there = [
        name for (name,) in run(slot.conninfo, "select tablename::text from pg_tables where schemaname = 'public'")
    ]
    for name in {"t", "u", "w"} & set(there):
        rows = run(slot.conninfo, f"select id, v from {name}")
        assert found[name] == {number: {"id": number, "v": v} for number, v in rows}
    told = "Another table than before: public.t" if anew in ("dropped", "put away") else "Renamed: public."
    assert told in caplog.text
    assert caplog.text.count("All of it comes again") == (2 if anew in ("exchanged", "put away") else 1)
    count = len(committed(broker, slot.name)[0])
    assert cli.main(command) == 0
    assert len(committed(broker, slot.name)[0]) == count  # and it comes once


@pytest.mark.postgres
def test_a_capture_that_runs_notices_it_too(slot: ReplicationSlot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waterclock.cdc.postgres.slot.LOOK_S", 0.1)
    run(slot.conninfo, f"create table t {FORM}")
    terms = Terms(snapshot=INITIAL)
    with closing(SlotReader(slot, begun(slot, []), TableFilter([], OWN), SystemClock(), terms=terms)) as reader:
        items = reader.items()
        assert next(items) in (SourceMark.QUIET, SourceMark.MOVED)
        run(slot.conninfo, "insert into t values (1, 1)", "drop table t", f"create table t {FORM}")
        found = [item for item in until_renewed(items) if not isinstance(item, SourceMark)]
        since = reader.position().sequence
        assert found[-1] == TablesRenewed(("public.t",), since, "Another table than before")
        assert isinstance(found[-2], MaxwellMessage)
        assert found[-2].sequence == since
        assert next(items) is SourceMark.COMMITTED
        number = run(slot.conninfo, "select 't'::regclass::oid::bigint")[0][0]
        held = reader.position().held
        assert held is not None
        assert held.numbers["public.t"] == number


def until_renewed(items: Iterator[Item]) -> Iterator[Item]:
    end = time.monotonic() + 30
    for item in items:
        yield item
        if isinstance(item, TablesRenewed):
            return
        assert time.monotonic() < end


@pytest.mark.postgres
def test_of_a_table_of_postgresql_that_is_renamed_away_and_back_all_comes_again(
    command: list[str], slot: ReplicationSlot, broker: Broker
) -> None:
    """Each name's rows are those of the table that has it; what came meanwhile under another name is not lost."""
    run(slot.conninfo, f"create table t {FORM}", "insert into t values (1, 1)")
    assert cli.main(command) == 0
    for statements in (["alter table t rename to u", "insert into u values (2, 2)"],
                       ["alter table u rename to t", "insert into t values (3, 3)"]):  # fmt: skip
        run(slot.conninfo, *statements)
        assert cli.main(command) == 0
    assert folded(broker, slot.name)["t"].keys() == {1, 2, 3}


@pytest.mark.postgres
def test_without_a_snapshot_it_is_told_that_rows_of_the_former_one_stay(
    command: list[str],
    slot: ReplicationSlot,
    broker: Broker,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:
    never = [*command, "--snapshot", "never", "--from-here"]
    run(slot.conninfo, f"create table t {FORM}")
    assert cli.main(never) == 0
    run(slot.conninfo, "insert into t values (1, 1)")
    assert cli.main(never) == 0
    made_anew(slot)
    assert cli.main(never) == 0
    assert "public.t is another table than before, or had another name" in caplog.text
    assert folded(broker, slot.name)["t"].keys() == {1, 2}
    assert "again: waterclock cdc snapshot, while the capture runs without --snapshot never." in caplog.text
    shop = Shop("postgres", request)
    with shop.captured(broker):
        run(slot.conninfo, "insert into t values (3, 3)")
        came(broker, slot.name, lambda found: found[-1]["data"] == {"id": 3, "v": 3})
        assert ask(broker, shop, "--tables", "public.t") == 0
        came(broker, slot.name, lambda found: found[-1]["type"] == "bootstrap-complete")
    assert folded(broker, slot.name)["t"].keys() == {2, 3}


@pytest.mark.postgres
def test_rows_that_have_one_key_for_a_while_are_told_and_come_again_on_request(
    command: list[str],
    slot: ReplicationSlot,
    broker: Broker,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:
    """A key that is deferred is given to a row before the other one has left it: two of three were missing in silence."""
    run(slot.conninfo, "create table t (id int primary key deferrable, v int)", "alter table t replica identity full")
    assert cli.main(command) == 0
    assert "Their primary keys are DEFERRABLE: public.t." in caplog.text
    run(slot.conninfo, "insert into t values (1, 1), (2, 2), (3, 3)", "update t set id = id + 1")
    assert cli.main(command) == 0
    assert len(folded(broker, slot.name)["t"]) < 3
    shop = Shop("postgres", request)
    with shop.captured(broker):
        run(slot.conninfo, "insert into t values (9, 9)")
        came(broker, slot.name, lambda found: found[-1]["data"] == {"id": 9, "v": 9})
        assert ask(broker, shop, "--tables", "public.t") == 0
        came(broker, slot.name, lambda found: found[-1]["type"] == "bootstrap-complete")
    assert {number: row["v"] for number, row in folded(broker, slot.name)["t"].items()} == {2: 1, 3: 2, 4: 3, 9: 9}
