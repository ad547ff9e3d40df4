"""Rows that are older than the log, and --snapshot never: the first start counts them, and begins without them only where
that was said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.cdc.mariadb import NEXT_SECOND, MariaServer, running_server
from tests.cdc.postgres import run
from tests.cdc.test_server import purge
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc import source as older
from waterclock.cdc.mysql import beginning as mysql_beginning
from waterclock.cdc.mysql.server import connected as of_mysql
from waterclock.cdc.postgres import beginning
from waterclock.cdc.postgres.beginning import Older, begun
from waterclock.cdc.postgres.session import ReplicationSlot, connected, walsender
from waterclock.testing import Broker


@pytest.fixture
def purged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaServer]:
    """A server that has thrown away the binlogs of most of its rows."""
    with running_server(tmp_path_factory.mktemp("purged")) as server:
        server.run(
            "create database shop", "create table shop.item (id int primary key)", "create table shop.empty (id int)"
        )
        server.run("create database other", "create table other.t (id int)", "insert into other.t values (1)")
        server.run("use shop", "insert into shop.item select seq from seq_1_to_988", "flush binary logs")
        purge(server)
        server.run("use shop", "insert into shop.item select seq from seq_989_to_999")
        yield server


@pytest.mark.mariadb
def test_rows_that_are_older_than_the_binlogs_are_told_and_not_missed_in_silence(
    purged: MariaServer, broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """11 of 999 rows arrived, and the exit code was 0."""
    command = ["cdc", f"mysql://root@127.0.0.1:{purged.port}/shop", "--to", f"kafka://{broker.bootstrap}/purged"]
    command += ["--order", "global", "--once", "--snapshot", "never"]
    assert cli.main(command) == 2
    told = capsys.readouterr().err
    assert "Rows of these tables may be older than the binlog, which begins after 0-1-" in told
    assert ": shop.item 999 rows (counted). They would not come." in told
    assert "--from-here" in told
    assert committed(broker, "purged") == {}
    monkeypatch.setattr(mysql_beginning, "COUNTED", 50)
    monkeypatch.setattr(older, "COUNTED", 50)
    assert cli.main(command) == 2
    assert "rows (estimated)" in capsys.readouterr().err
    assert cli.main([*command, "--from-here"]) == 0
    assert "They do not come (--from-here)" in caplog.text
    assert len(committed(broker, "purged")[0]) == 11
    assert cli.main(command) == 0  # it has a position


@pytest.mark.mariadb
def test_tables_that_are_older_than_a_binlog_that_was_begun_anew_are_told(
    purged: MariaServer, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """RESET MASTER, or a binlog that was switched on later: its GTIDs begin at the beginning, the rows do not."""
    command = [
        "cdc",
        f"mysql://root@127.0.0.1:{purged.port}/shop",
        "--to",
        f"kafka://{broker.bootstrap}/anew",
        "--once",
        "--snapshot",
        "never",
    ]
    purged.run("reset master", NEXT_SECOND)  # a table of the log's first second may be older
    purged.run("create table shop.young (id int primary key)", "insert into shop.young values (1)")
    assert cli.main(command) == 2
    assert "Rows of these tables may be older than the binlog: shop.item 999 rows" in (told := capsys.readouterr().err)
    assert "shop.young" not in told
    for more in (["--from", "now"], []):
        assert cli.main([*command, *more]) == 0


@pytest.mark.mariadb
def test_a_table_that_was_altered_since_the_binlog_was_switched_on_comes_whole(
    purged: MariaServer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its CREATE_TIME is the ALTER TABLE's: it was taken for younger than the log, and no row came, with exit code 0."""
    monkeypatch.setattr(mysql_beginning, "LIVED_S", 0)
    purged.run(NEXT_SECOND, "reset master", NEXT_SECOND, "alter table shop.item add n int")
    command = ["cdc", f"mysql://root@127.0.0.1:{purged.port}/shop", "--to", f"kafka://{broker.bootstrap}/altered"]
    assert cli.main([*command, "--order", "global", "--once"]) == 0
    rows = [json.loads(value)["data"] for _, value in committed(broker, "altered")[0]]
    assert sorted(row["id"] for row in rows) == list(range(1, 1000))


@pytest.mark.mariadb
def test_a_table_of_an_hour_that_comes_twice_is_no_younger_than_it_is(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clocks were put back behind it: its CREATE_TIME was taken for that of the second hour, and its rows did not come."""
    now = datetime.now(UTC) + timedelta(hours=2)  # local, in summer; then the clock goes back by two hours
    began, ends = (
        f"{day.timetuple().tm_yday - 1}/{day.hour}" for day in (now - timedelta(days=1), now + timedelta(hours=2))
    )
    monkeypatch.setenv("TZ", f"AAA0BBB-2,{began},{ends}")
    with running_server(tmp_path_factory.mktemp("twice")) as server:
        server.run("create database shop", "create table shop.item (id int)", "insert into shop.item values (1)")
        server.run(NEXT_SECOND, "reset master")
        with closing(of_mysql(server.login())) as connection:
            since = mysql_beginning.began(server.login(), True)
            found = mysql_beginning.older(connection.cursor(), lambda database, table: database == "shop", since)
    assert [each.table for each in found] == ["shop.item"]


@pytest.fixture
def command(command: list[str]) -> list[str]:
    """Without the snapshot, which would bring them."""
    return [*command, "--snapshot", "never"]


@pytest.fixture
def filled(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table item (id int primary key)", "insert into item select generate_series(1, 999)")
    run(slot.conninfo, "create table empty (id int primary key)", "create table other (id int primary key)")
    run(slot.conninfo, "insert into other values (1)", "analyze")


@pytest.mark.postgres
@pytest.mark.usefixtures("filled")
def test_rows_that_are_older_than_a_new_slot_are_told_and_no_slot_is_made(
    command: list[str], slot: ReplicationSlot, broker: Broker, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    assert cli.main(command) == 2
    told = capsys.readouterr().err
    assert (
        "brings none of the rows that are there: public.item 999 rows (counted), public.other 1 row (counted). They would "
        "not come." in told
    )
    assert run(slot.conninfo, f"select 1 from pg_replication_slots where slot_name = '{slot.name}'") == []
    monkeypatch.setattr(beginning, "COUNTED", 50)
    monkeypatch.setattr(older, "COUNTED", 50)
    assert cli.main(command) == 2
    assert "public.item about 999 rows (estimated), public.other 1 row (counted)" in capsys.readouterr().err
    assert cli.main([*command, "--from-here"]) == 0
    assert "They do not come (--from-here)" in caplog.text
    run(slot.conninfo, "insert into item values (1000)")
    assert cli.main(command) == 0
    assert [json.loads(value)["data"] for _, value in committed(broker, slot.name)[0]] == [{"id": 1000}]


@pytest.mark.postgres
@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("more", [["--tables", "public.e*"], ["--from", "now"]])
def test_where_no_wanted_row_is_older_or_the_user_said_where_it_begins_nothing_is_asked(
    more: list[str], command: list[str]
) -> None:
    assert cli.main([*command, *more]) == 0


@pytest.mark.postgres
def test_a_row_that_is_written_between_the_question_and_the_slot_is_older_too(
    command: list[str], slot: ReplicationSlot, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(slot.conninfo, "create table item (id int primary key)")
    make = beginning._with_snapshot

    def late(making: psycopg.Connection[Any], name: str) -> tuple[str, str]:
        run(slot.conninfo, "insert into item values (1)")
        made = make(making, name)
        run(slot.conninfo, "insert into item values (2)")
        return made

    monkeypatch.setattr(beginning, "_with_snapshot", late)
    assert cli.main(command) == 2
    assert "public.item 1 row (counted)" in capsys.readouterr().err
    assert run(slot.conninfo, f"select 1 from pg_replication_slots where slot_name = '{slot.name}'") == []


@pytest.mark.postgres
def test_what_is_written_while_a_slot_begins_comes(
    command: list[str], slot: ReplicationSlot, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(slot.conninfo, "create table item (id int primary key)")
    make = beginning._with_snapshot

    def early(making: psycopg.Connection[Any], name: str) -> tuple[str, str]:
        made = make(making, name)
        run(slot.conninfo, "insert into item values (1)")
        return made

    monkeypatch.setattr(beginning, "_with_snapshot", early)
    for _ in range(2):  # the end of the first run was asked for before
        assert cli.main(command) == 0
    assert len(committed(broker, slot.name)[0]) == 1


@pytest.mark.postgres
@pytest.mark.usefixtures("filled")
def test_of_a_publication_that_is_there_its_tables_count(
    command: list[str], slot: ReplicationSlot, capsys: pytest.CaptureFixture[str]
) -> None:
    run(slot.conninfo, f"create publication {slot.publication} for table other, empty")
    assert cli.main(command) == 2
    assert "that are there: public.other 1 row (counted). They" in capsys.readouterr().err


@pytest.mark.postgres
@pytest.mark.usefixtures("filled")
def test_a_slot_that_was_there_already_is_a_place_and_says_nothing_of_older_rows(
    command: list[str], slot: ReplicationSlot, broker: Broker, caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A first start that was killed left its slot. The next one took it for somebody's who knows: 1 of 1,000 rows came."""
    begun(slot, [])
    run(slot.conninfo, "insert into item values (1000)")
    assert cli.main(command) == 2
    told = capsys.readouterr().err
    assert f"The slot {slot.name} is there already, at " in told
    assert "may be older (if nobody knows the slot, a first start that was killed left it: drop it)" in told
    assert "public.item 1,000 rows (counted), public.other 1 row (counted). They would not come." in told
    assert cli.main([*command, "--from-here"]) == 0
    assert f"The slot {slot.name} is there already: the capture begins at its place" in caplog.text
    assert [json.loads(value)["data"] for _, value in committed(broker, slot.name)[0]] == [{"id": 1000}]


@pytest.mark.postgres
@pytest.mark.usefixtures("filled")
def test_rows_that_this_role_may_not_read_are_told_as_far_as_they_are_known(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "drop role if exists nobody_here", "create role nobody_here login replication")
    run(slot.conninfo, f"create publication {slot.publication} for all tables")
    who = ReplicationSlot(slot.conninfo.replace("postgres@", "nobody_here@"), slot.name, slot.publication)
    run(slot.conninfo, "create table unseen (id int)", "insert into unseen values (1)")
    found: list[str] = []
    begun(who, [], Older(lambda schema, table: True, lambda rows, place: found.extend(each.as_text() for each in rows)))
    assert found == [
        "public.item about 999 rows (estimated)", "public.other about 1 row (estimated)",
        "public.unseen an unknown number of rows (this user may not read them)",
    ]  # fmt: skip


@pytest.mark.postgres
def test_rows_that_a_policy_hides_are_not_missed_in_silence(slot: ReplicationSlot) -> None:
    """Row-level security shows a role none of them, without an error: nothing was older, and nothing was there to read."""
    role = f"{slot.name}_reader"
    run(slot.conninfo, "create table t (id int primary key)", "insert into t values (1)")
    run(slot.conninfo, "alter table t enable row level security", f"create role {role} login")
    run(slot.conninfo, f"grant select on t to {role}")
    hidden = replace(slot, conninfo=make_conninfo(slot.conninfo, user=role))
    with connected(hidden) as connection:
        (found,) = beginning.older_rows(connection, hidden, lambda schema, table: True)
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            connection.execute("select * from t")
    assert found.table == "public.t"
    assert found.as_text().endswith("(this user may not read them)") or found.estimated
    run(slot.conninfo, f"drop owned by {role}", f"drop role {role}")


def test_every_session_refuses_to_hide_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    slot, connect = ReplicationSlot("host=h", "s", "p"), Mock()
    monkeypatch.setattr(psycopg, "connect", connect)
    connected(slot)
    walsender(slot)
    assert connect.call_count == 2
    assert all("row_security=off" in each.kwargs["options"] for each in connect.call_args_list)
