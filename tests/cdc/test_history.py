"""Whose log it is: a server with another history under the same numbers is noticed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.cdc import mariadb
from tests.cdc.mariadb import MariaServer
from tests.cdc.postgres import run
from tests.kafka.reader import committed
from tests.postgres_server import PostgresServer, running_server
from waterclock import cli
from waterclock.testing import Broker


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaServer]:
    with mariadb.running_server(tmp_path_factory.mktemp("anew")) as server:
        server.run("create database shop", "create table shop.t (id int primary key)")
        yield server


ANEW = {"begun again": (0, 50), "begun again, with as many": (3, 200)}  # binlogs and rows since


@pytest.mark.mariadb
@pytest.mark.parametrize("anew", ANEW)
def test_a_server_with_another_history_under_the_same_numbers_is_refused(
    anew: str, server: MariaServer, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """RESET MASTER, and more was written than the capture had read: what came first was passed over, with exit code 0."""
    logs, rows = ANEW[anew]
    topic = f"anew{logs}"
    started = ["cdc", f"mysql://root@127.0.0.1:{server.port}/shop", "--once", "--from-here", "--order", "global"]
    started += ["--to", f"kafka://{broker.bootstrap}/{topic}"]
    server.run("truncate shop.t", *["flush binary logs"] * 3, "insert into shop.t values (1)")
    assert cli.main(started) == 0
    server.run("reset master", "do sleep(1.1)")  # a binlog keeps the second in which it was begun

    server.run(*["flush binary logs"] * logs, *[f"insert into shop.t values ({n + 100})" for n in range(rows)])
    assert cli.main(started) == 2
    told = capsys.readouterr().err
    assert "The server has another history under the same numbers: its binlog" in told
    assert cli.main([*started, "--name", f"{topic}-anew"]) == 0


@pytest.mark.mariadb
def test_binlogs_that_were_thrown_away_in_their_turn_are_no_other_history(server: MariaServer, broker: Broker) -> None:
    started = ["cdc", f"mysql://root@127.0.0.1:{server.port}/shop", "--once", "--from", "now"]
    started += ["--to", f"kafka://{broker.bootstrap}/turn"]
    assert cli.main(started) == 0
    server.run("flush binary logs")
    assert cli.main(started) == 0
    last = str(server.run("show binary logs")[-1][0])
    while len(server.run(f"purge binary logs to '{last}'", "show binary logs")) > 1:
        pass
    assert cli.main(started) == 0


@pytest.mark.mariadb
def test_another_server_is_said(server: MariaServer, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    started = ["cdc", f"mysql://root@127.0.0.1:{server.port}/shop", "--once", "--from", "now"]
    started += ["--to", f"kafka://{broker.bootstrap}/other"]
    assert cli.main(started) == 0
    server.run("set global server_id = 2")
    try:
        assert cli.main(started) == 0
    finally:
        server.run("set global server_id = 1")
    assert "This is another server than before: 2, and it was 1." in caplog.text


# PostgreSQL ----------------------------------------------------------------------------------------------------


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    with running_server({"wal_level": "logical", "restore_command": "false"}) as started:
        monkeypatch.setattr("psycopg.conninfo.make_conninfo", lambda **given: started.url())
        run(started.url(), "create table t (id int primary key)")
        yield started


def takes_over(server: PostgresServer) -> None:
    """It comes up as a standby does that is promoted: on the next timeline."""
    (server.folder / "data" / "recovery.signal").touch()
    server.start()
    while run(server.url(), "select pg_is_in_recovery()")[0][0]:
        pass


@pytest.mark.postgres
def test_a_server_that_took_over_behind_the_place_is_gone_on_with_and_one_before_it_is_refused(
    standing: PostgresServer, broker: Broker, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brought back from an older copy, it wrote on past the place: what it wrote up to there never came."""
    command = ["cdc", "postgres://postgres@localhost/postgres", "--to", f"kafka://{broker.bootstrap}/turn-pg"]
    command += ["--order", "global", "--once"]
    assert cli.main(command) == 0
    run(standing.url(), "insert into t values (1)", "checkpoint")
    standing.crash()
    takes_over(standing)
    run(standing.url(), "insert into t values (2)")
    assert cli.main(command) == 0
    assert "The server is on the timeline 2, which left 1 at" in caplog.text
    assert [json.loads(value)["data"]["id"] for _, value in committed(broker, "turn-pg")[0]] == [1, 2]
    standing.crash()
    copy = ["cp", "-a", "data", "older"]
    subprocess.run(copy, cwd=standing.folder, check=True)
    standing.start()
    run(standing.url(), "insert into t values (3)")
    assert cli.main(command) == 0
    standing.crash()
    subprocess.run("mv data younger && mv older data", cwd=standing.folder, check=True, shell=True)
    takes_over(standing)
    run(standing.url(), "insert into t select generate_series(10, 9999)")
    assert cli.main(command) == 2
    told = capsys.readouterr().err
    assert "another history under the same numbers: its timeline 3 left 2, which was read, at" in told


@pytest.mark.postgres
def test_a_standby_that_answers_for_the_primary_is_waited_for_and_nothing_is_given_up(
    standing: PostgresServer, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """While one server takes over from another the capture ended with exit code 2, and advised to begin anew."""
    command = ["cdc", "postgres://postgres@localhost/postgres", "--to", f"kafka://{broker.bootstrap}/standby"]
    command += ["--order", "global", "--once"]
    assert cli.main(command) == 0
    run(standing.url(), "insert into t values (1)", "checkpoint")
    standing.crash()
    (standing.folder / "data" / "standby.signal").touch()
    standing.start()
    assert cli.main(command) == 1
    assert "A standby answers in place of the primary, whose changes are read" in capsys.readouterr().err
    run(standing.url(), "select pg_promote()")
    assert cli.main(command) == 0
    assert [json.loads(value)["data"]["id"] for _, value in committed(broker, "standby")[0]] == [1]
