"""`waterclock cdc` as a user starts it: what it does, what it prints, and how it says what is wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from tests.cdc.mariadb import MariaServer
from tests.cdc.topics import messages, shop
from tests.kafka.reader import committed
from tests.web.reading import get, read_back
from waterclock import cli
from waterclock.cdc.mysql.beginning import began, oldest
from waterclock.cdc.mysql.server import MySqlLogin, _remedy, answer
from waterclock.cdc.origin import database as address
from waterclock.cdc.origin import kafka
from waterclock.cdc.position import MariaGtidList, MySqlGtidSet
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.source import TableFilter
from waterclock.errors import UsageError
from waterclock.testing import Broker

pytestmark = pytest.mark.mariadb


@pytest.fixture
def command(mariadb: MariaServer, broker: Broker, database: str) -> list[str]:
    source = f"mysql://root@127.0.0.1:{mariadb.port}/{database}"
    return ["cdc", source, "--to", f"kafka://{broker.bootstrap}/{database}", "--order", "global"]


def test_once_copies_what_is_there_and_says_how_much(
    command: list[str],
    mariadb: MariaServer,
    broker: Broker,
    database: str,
    here: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shop(mariadb, database, 3)
    assert cli.main([*command, "--once", "--from", here, "--json"]) == 0
    expected = messages(mariadb.changes(here, f"{database}.*"))
    assert committed(broker, database)[0] == expected
    told = json.loads(capsys.readouterr().out)
    assert (told["changes"], told["place"], told["breaks"]) == (len(expected), mariadb.place(), 0)


def test_tables_that_foreign_keys_change_without_a_word_are_named(
    command: list[str], mariadb: MariaServer, database: str, here: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refers = "(p int, foreign key (p) references p (id)"
    mariadb.run(
        f"use {database}",
        "create table p (id int primary key)",
        f"create table a {refers} on delete cascade)",
        f"create table b {refers} on update set null)",
        f"create table c {refers})",
    )
    assert cli.main([*command, "--once", "--from", here]) == 0
    assert f"Such changes of {database}.a, {database}.b will be missing." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tables", "missing"), [([], ""), (["item", "imet"], "imet"), (["item", "im*"], "im*"), (["it*"], "")]
)
def test_what_is_not_there_is_an_error_where_it_is_not_waited_for(
    tables: list[str],
    missing: str,
    command: list[str],
    mariadb: MariaServer,
    database: str,
    here: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was told, and the command ended with 0."""
    if tables:
        mariadb.run(f"create table {database}.item (id int primary key)")
    asked = [word for table in tables for word in ("--tables", f"{database}.{table}")]
    assert cli.main([*command, *asked, "--once", "--from", here]) == (1 if missing else 0)
    out, told = capsys.readouterr()
    assert f"there is no table {database}.{missing}, or" in told if missing else "there is no" not in told
    assert ("0 changes" in out) == (not missing)


def test_a_database_that_is_not_there_is_an_error(
    command: list[str], database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended with 0, and nothing of what was meant was in Kafka; without --once it waited for good."""
    command[1] = command[1].replace(database, f"{database}s")
    for once in (["--once"], []):
        assert cli.main([*command, *once, "--from", "now"]) == 1
        assert f"there is no table {database}s.*, or" in capsys.readouterr().err


def test_tls_that_the_server_has_not_is_said(
    command: list[str], database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was asked whether the server runs; and an older client went on in clear text."""
    assert cli.main([*command, "--once", "--from", "now", "--tls"]) == 2
    assert "There is no TLS with 127.0.0.1:" in capsys.readouterr().err


def test_what_is_refused_has_no_figures(
    command: list[str], mariadb: MariaServer, database: str, here: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mariadb.run(f"create table {database}.item (id int primary key)")
    assert cli.main([*command, "--once", "--from", "0-1-999999999"]) != 0
    assert capsys.readouterr().out == ""


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("tables", "code", "words"),
    [
        ([], 2, "does not exist. Give the right role, database and password"),
        (["--tables", "public.im*"], 1, "there is no table public.im*, or"),
    ],
)
def test_nor_is_it_waited_for_with_postgresql(
    tables: list[str],
    code: int,
    words: str,
    slot: ReplicationSlot,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The tests' server is reached by a socket, which no address of the command names."""
    where = make_conninfo(slot.conninfo, **({} if tables else {"dbname": "nodb"}))
    monkeypatch.setattr("psycopg.conninfo.make_conninfo", lambda **given: where)
    to = ["--to", f"kafka://{broker.bootstrap}/{slot.name}", "--once"]
    assert cli.main(["cdc", "postgres://postgres@localhost/nodb", *to, *tables]) == code
    out, told = capsys.readouterr()
    assert (out, words in " ".join(told.split())) == ("", True), told


def test_from_now_leaves_out_what_was_before(
    command: list[str], mariadb: MariaServer, broker: Broker, database: str
) -> None:
    shop(mariadb, database, 2)
    assert cli.main([*command, "--once", "--from", "now"]) == 0
    assert committed(broker, database) == {}


def test_where_it_began_is_kept_though_nothing_was_written_yet(
    command: list[str], mariadb: MariaServer, broker: Broker, database: str
) -> None:
    """The next start asked for "now" again, and what was written in between was missed without a word."""
    for _ in range(2):
        assert cli.main([*command, "--once", "--from", "now"]) == 0
        mariadb.run(f"create table if not exists {database}.t (id int)", f"insert into {database}.t values (1)")
    assert len(committed(broker, database)[0]) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_next_run_goes_on(
    number: int, command: list[str], mariadb: MariaServer, broker: Broker, database: str, here: str
) -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "waterclock.cli", *command, "--from", here],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    shop(mariadb, database, 3)
    while not (broker_has := committed_or_none(broker, database)):
        time.sleep(0.1)
    assert broker_has
    started.send_signal(number)
    out, err = started.communicate(timeout=30)
    assert (started.returncode, err) == (0, "")
    assert "changes of" in out
    shop(mariadb, database, 2)
    assert cli.main([*command, "--once", "--from", here]) == 0
    assert committed(broker, database)[0] == messages(mariadb.changes(here, f"{database}.*"))


def test_a_capture_is_asked_for_its_statistics_over_http_while_it_runs(
    command: list[str], mariadb: MariaServer, broker: Broker, database: str, here: str
) -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "waterclock.cli", *command, "--from", here, "--metrics", "0", "--name", "till"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stderr is not None
        url = started.stderr.readline().removeprefix("metrics at ").strip()
        shop(mariadb, database, 3)
        expected = mariadb.changes(here, f"{database}.*")
        for _ in range(300):
            found = json.loads(get(url.replace("/metrics", "/statistics.json"))[1])
            if found["statistics"]["place"] == mariadb.place():
                break
            time.sleep(0.1)
        page = read_back(get(url)[1])
    finally:
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=30)
    assert (found["command"], found["statistics"]["changes"]) == ("cdc", len(expected)), err
    figures = {"changes", "transactions", "commits", "breaks", "place", "dead_letters", "letters"}
    assert found["statistics"].keys() == figures | {"older_rows", "older_tables_left", "older_rows_left"}
    for name in ("changes", "transactions", "commits", "breaks", "dead_letters"):
        sample = (f"waterclock_capture_{name}_total", {"capture": "till"}, float(found["statistics"][name]))
        assert page[f"waterclock_capture_{name}"] == ("counter", [sample])
    assert f"{len(expected):,} changes of" in out


def committed_or_none(broker: Broker, topic: str) -> object:
    try:
        return committed(broker, topic)
    except KeyError:
        return None


def test_a_server_that_cannot_be_read_exactly_is_refused_with_all_that_is_wrong(
    command: list[str], mariadb: MariaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    mariadb.run("set global binlog_format = 'MIXED', global binlog_row_image = 'MINIMAL'")
    try:
        assert cli.main([*command, "--once"]) == 2
    finally:
        mariadb.run("set global binlog_format = 'ROW', global binlog_row_image = 'FULL'")
    told = capsys.readouterr().err
    assert "binlog_format is MIXED and must be ROW; binlog_row_image is MINIMAL and must be FULL" in told
    mariadb.run("set global binlog_format = 'MIXED', global binlog_row_image = 'MINIMAL'")
    mariadb.run(told.partition("run: ")[2].partition(". ")[0])  # the remedy
    assert cli.main([*command, "--once"]) == 0
    assert "Connections that are open keep the old value" in told


def test_gtids_are_switched_on_in_the_configuration_for_a_running_server_takes_no_such_leap() -> None:
    told = _remedy({"gtid_mode": ("ON",), "binlog_format": ("ROW",)})
    assert "SET GLOBAL binlog_format = 'ROW'. " in told
    assert "gtid_mode=ON and enforce_gtid_consistency=ON into the server's configuration" in told


@pytest.mark.parametrize(
    ("rights", "ask"),
    [
        ("replication client, select", lambda login, file: began(login, maria=True, file=file)),
        ("replication slave, select", lambda login, _: answer(login, oldest)),
    ],
    ids=["the stream", "the place"],
)
def test_a_right_that_is_missing_is_named_with_the_statement_that_gives_it(
    mariadb: MariaServer, rights: str, ask: Callable[[MySqlLogin, str], object]
) -> None:
    mariadb.run("create or replace user copier@'%'", f"grant {rights} on *.* to copier@'%'")
    login = MySqlLogin("127.0.0.1", mariadb.port, "copier", "", 77)
    file = answer(mariadb.login(78), lambda cursor: cursor.execute("show binary logs") and cursor.fetchall()[0][0])
    with pytest.raises(UsageError, match=r"does not let copier read its binlog: .*you need ") as told:
        ask(login, file)
    _, _, statement = str(told.value).rstrip(".").rpartition("It lacks a right: ")
    mariadb.run(statement)
    ask(login, file)


def test_a_wrong_password_is_said_without_it(
    mariadb: MariaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mariadb.run("create or replace user reader identified by 'right'")
    (tmp_path / "secret").write_text("wr0ng\n")
    arguments = ["cdc", f"mysql://reader@127.0.0.1:{mariadb.port}", "--to", "kafka://127.0.0.1:1/t"]
    assert cli.main([*arguments, "--password-file", str(tmp_path / "secret"), "--from", "now", "--once"]) == 2
    told = capsys.readouterr().err
    assert "does not let reader read its binlog" in told
    assert "for no other host either" in told  # else a second account is made beside the one of %
    assert "wr0ng" not in told


def test_who_is_not_there_is_made_by_what_the_error_says(
    mariadb: MariaServer, broker: Broker, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_text("the password")
    arguments = ["cdc", f"mysql://nobody@127.0.0.1:{mariadb.port}", "--to", f"kafka://{broker.bootstrap}/{database}"]
    arguments += ["--password-file", str(tmp_path / "secret"), "--from", "now", "--once"]
    assert cli.main(arguments) == 2
    said = " ".join(capsys.readouterr().err.split())
    statements = re.findall(r"(?:CREATE USER|GRANT) [^;]+(?=;)", said)
    assert len(statements) == 2
    mariadb.run(*statements)
    try:
        assert cli.main(arguments) == 0
    finally:
        mariadb.run("drop user nobody@127.0.0.1")


def test_a_user_without_the_right_to_replicate_is_told_the_grant(
    mariadb: MariaServer, broker: Broker, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mariadb.run("create or replace user reader identified by 'right'")
    (tmp_path / "secret").write_text("right")
    arguments = ["cdc", f"mysql://reader@127.0.0.1:{mariadb.port}", "--to", f"kafka://{broker.bootstrap}/{database}"]
    assert cli.main([*arguments, "--password-file", str(tmp_path / "secret")]) == 2
    assert "GRANT REPLICATION SLAVE" in capsys.readouterr().err


UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["mysql://root@127.0.0.1:1/a"], "no MySQL or MariaDB to talk to at 127.0.0.1:1"),
        (["mysql://root:secret@127.0.0.1/a"], "A password in an address is seen"),
        (["oracle://root@127.0.0.1/a"], "no address of a database"),
        (["mysql://127.0.0.1/a"], "no address of a database"),
        (["mysql://root@127.0.0.1:99999/a"], "no address"),
        (["postgres://root@127.0.0.1"], "names no database"),
        (["mysql://root@h/a", "--password-file", "nowhere/at/all"], "--password-file: nowhere/at/all cannot be read"),
        (["mysql://root@h/a", "--type", "a.b=uuid"], "--type a.b=uuid: write DATABASE.TABLE.COLUMN=TYPE"),
        (["mysql://root@h/a", "--type", "a.b.c=int"], "with a type of uuid"),
        (["mysql://root@h/a", "--skip", "0-1"], "--skip 0-1: write one transaction's GTID"),
        (["mysql://root@h/a", "--skip", "0-1-7,0-1-8"], "--skip 0-1-7,0-1-8: write one transaction's GTID"),
        (["mysql://root@h/a", "--from", f"{UUID}:57"], f"it would not. Write all up to it: {UUID}:1-57."),
        (
            ["mysql://root@h/a", "--partial-rows", "--form", "debezium-schemas"],
            "--partial-rows: a schema has no word for",
        ),
        (["mysql://root@h/a", "--tables", "item"], "--tables item: write DATABASE.TABLE"),
        (["mysql://root@h/a", "--as-published", "--skip-to", "0/1"], "--as-published, --skip-to: only for PostgreSQL"),
        (
            ["postgres://root@h/a", "--tls"],
            "--tls: only for MySQL and MariaDB. Leave it out. TLS to PostgreSQL is asked",
        ),
        (["postgres://root@h/a", "--skip-to", "0-1-7"], "--skip-to 0-1-7: write an LSN"),
        (["mysql://root@h/a", "--partitions", "0"], "partitions must be 1 or more, got 0"),
    ],
)
def test_a_mistake_is_one_sentence_and_no_traceback(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["cdc", *arguments, "--to", "kafka://127.0.0.1:1/t", "--once"]) in (1, 2)
    found = capsys.readouterr().err
    assert told in found
    assert "secret" not in found


@pytest.mark.parametrize(
    "text", ["127.0.0.1:9092/t", "kafka://h:9092", "kafka:///t", "kafka://u@h:9092/t", "kafka://h/a/b"]
)
def test_a_wrong_address_of_a_topic_is_shown_a_right_one(text: str) -> None:
    with pytest.raises(UsageError, match="kafka://host:9092/topic"):
        kafka(text)


def test_addresses_have_defaults() -> None:
    assert (address("mariadb://a@h").port, address("postgresql://a@h/b").port) == (3306, 5432)


def test_places_of_mysql_merge_and_cover() -> None:
    a, b = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
    place = MySqlGtidSet(f"{a}:1-3:7-9,{b}:5")
    for gtid in (f"{a}:5", f"{a}:6", f"{a}:4", f"{b}:6", f"{a}:10", f"{a}:2"):
        place.add(gtid)
    assert str(place) == f"{a}:1-10,{b}:5-6"
    assert place.covers(MySqlGtidSet(f"{a}:2-10"))
    assert not place.covers(MySqlGtidSet(f"{a}:2-11"))
    assert not MariaGtidList("0-1-7").covers(MariaGtidList("0-1-7,1-1-1"))


@pytest.mark.parametrize("text", ["7", "0-1", "a-b-c", "0-1-2;"])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    for kind in (MariaGtidList, MySqlGtidSet):
        with pytest.raises(UsageError, match="no GTID"):
            kind(text)


def test_wanted_names_are_patterns_as_in_a_shell() -> None:
    wanted = TableFilter(["shop.order*", "crm.*"])
    assert [wanted("shop", "orders"), wanted("shop", "items"), wanted("crm", "x"), wanted("mysql", "user")] == [
        True,
        False,
        True,
        False,
    ]
