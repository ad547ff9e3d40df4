"""What a position holds for and what is asked for are compared at every start, in both directions: MariaDB."""

from __future__ import annotations

import json

import pytest

from tests.cdc.mariadb import MariaServer
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc.agreement import FROM_NOW, Terms, agreed
from waterclock.cdc.held import MOST_DROPPED, Held, HeldTable
from waterclock.cdc.position import VERSION, Position
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.stored import last_position
from waterclock.errors import UsageError
from waterclock.testing import Broker

pytestmark = pytest.mark.mariadb


@pytest.fixture
def command(mariadb: MariaServer, broker: Broker, database: str) -> list[str]:
    """Of a database whose tables t and u have 5 and 988 rows; a capture of t alone has read them."""
    rows = (("t", 5), ("u", 988))
    mariadb.run(*[f"create table {database}.{name} (id int primary key)" for name, _ in rows])
    started = ["cdc", f"mysql://root@127.0.0.1:{mariadb.port}", "--to", f"kafka://{broker.bootstrap}/{database}"]
    started += ["--order", "global", "--once"]
    here = mariadb.place()
    mariadb.run(f"use {database}", *[f"insert into {name} select seq from seq_1_to_{count}" for name, count in rows])
    assert cli.main([*started, "--from", here, "--tables", f"{database}.t"]) == 0
    mariadb.run(f"use {database}", "insert into u select seq from seq_989_to_999", "insert into t values (6)")
    return started


def ids(broker: Broker, topic: str, table: str) -> list[int]:
    values = [json.loads(value) for _, value in committed(broker, topic)[0]]
    return [value["data"]["id"] for value in values if value["table"] == table]


def stored(broker: Broker, topic: str) -> Position:
    position = last_position({"bootstrap.servers": broker.bootstrap}, f"{topic}.position")
    assert position is not None
    return position


ASKED = {"two names": ["t", "u"], "a pattern": ["*"]}


@pytest.mark.parametrize("asked", ASKED)
def test_a_table_that_is_asked_for_later_is_counted_and_not_begun_in_silence(
    asked: str, command: list[str], broker: Broker, database: str, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """11 of 999 rows of u came, the exit code was 0, and not a word was said."""
    more = [word for name in ASKED[asked] for word in ("--tables", f"{database}.{name}")]
    assert cli.main([*command, *more]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"does not hold for tables that are asked for: {database}.u 999 rows (counted)." in told
    assert f"--new-tables from-now. To go on without them ask for what is held: {database}.t (--tables)" in told
    assert (ids(broker, database, "t"), ids(broker, database, "u")) == ([1, 2, 3, 4, 5], [])
    at = stored(broker, database).place
    assert cli.main([*command, *more, "--new-tables", "from-now"]) == 0
    assert f"{database}.u 999 rows (counted). What is older than the position does not come" in caplog.text
    assert (ids(broker, database, "t"), ids(broker, database, "u")) == ([1, 2, 3, 4, 5, 6], [*range(989, 1000)])
    held = stored(broker, database).held
    assert held is not None
    assert held.tables == {f"{database}.u": HeldTable(at)}
    assert cli.main([*command, *more]) == 0  # it is held now


def test_all_tables_of_a_server_are_more_than_one(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(command) == 2
    told = capsys.readouterr().err
    assert "does not hold for tables" in told
    assert "mysql." not in told


def test_a_table_that_is_made_while_nobody_reads_is_held_from_its_first_row_on(
    mariadb: MariaServer, broker: Broker, database: str, here: str
) -> None:
    """A capture of all that a database has would be stopped by every new table."""
    started = ["cdc", f"mysql://root@127.0.0.1:{mariadb.port}/{database}", "--once", "--order", "global"]
    started += ["--to", f"kafka://{broker.bootstrap}/{database}", "--from", here]
    for name in "ab":
        mariadb.run(f"create table {database}.{name} (id int)", f"insert into {database}.{name} values (7)")
        assert cli.main(started) == 0
        assert ids(broker, database, name) == [7]


def test_a_table_that_is_asked_for_no_longer_is_said_and_new_when_it_comes_back(
    command: list[str], mariadb: MariaServer, broker: Broker, database: str, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Less is asked for, something is written, and more is asked for again: what was written is missing."""
    both = ["--tables", f"{database}.t", "--tables", f"{database}.u"]
    assert cli.main([*command, *both, "--new-tables", "from-now"]) == 0
    assert cli.main([*command, *both[:2]]) == 0
    assert f"No longer asked for, or not brought any more: {database}.u. What changes in them after" in caplog.text
    caplog.clear()
    mariadb.run(f"insert into {database}.u values (1000)")
    assert cli.main([*command, *both[:2]]) == 0
    assert caplog.text == ""  # it was said
    assert cli.main([*command, *both]) == 2
    assert f"{database}.u 1,000 rows (counted)" in capsys.readouterr().err


def test_it_is_known_after_a_start_that_read_nothing(
    mariadb: MariaServer, broker: Broker, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mariadb.run(f"create table {database}.u (id int)", f"insert into {database}.u values (7)")
    started = ["cdc", f"mysql://root@127.0.0.1:{mariadb.port}", "--once", "--from", "now"]
    started += ["--to", f"kafka://{broker.bootstrap}/{database}", "--tables", f"{database}.*t"]
    mariadb.run(f"create table {database}.t (id int)")
    assert cli.main(started) == 0
    assert cli.main([*started, "--tables", f"{database}.u"]) == 2
    assert f"{database}.u 1 row (counted)" in capsys.readouterr().err


def test_a_position_of_an_older_version_is_read_and_said_for_what_it_is(
    command: list[str], broker: Broker, database: str, caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    class Old(Position):
        def as_json(self) -> bytes:
            return json.dumps({**self._asdict(), "held": None}).replace(', "held": null', "").encode()

    at = stored(broker, database)
    publisher = Publisher(Target(broker.bootstrap, database), database)
    publisher.commit(Old(at.place, at.sequence))
    publisher.close()
    assert cli.main([*command, "--tables", f"{database}.t"]) == 0
    assert f"It is taken to hold for all that is asked for now: {database}.t." in caplog.text
    assert ids(broker, database, "t") == [1, 2, 3, 4, 5, 6]
    assert cli.main([*command, "--tables", f"{database}.u"]) == 2  # now it says


def test_a_position_says_what_it_holds_for_and_a_newer_one_is_not_guessed_at() -> None:
    held = Held(("a.*", "b.c"), ("*",), {"d.e": HeldTable("0-1-7", "5:6")}, {"id": "1"}, "7:8")
    position = Position("0-1-9", 17, 3, "0-1-10", held)
    assert Position.parsed(position.as_json()) == position
    fields = json.loads(position.as_json())
    with pytest.raises(UsageError, match=rf"by a newer waterclock \(version {VERSION + 1} of positions"):
        Position.parsed(json.dumps({**fields, "version": VERSION + 1}).encode())


@pytest.mark.parametrize("asked", [("shop.t", "shop.u"), ("shop.*",), ("shop.u",)])
def test_nothing_else_is_asked_for_while_a_transaction_is_half_in_kafka(asked: tuple[str, ...]) -> None:
    """Its records that are there are counted by the tables that were asked for: the rest would be others."""
    position = Position("0-1-7", 17, 1000, "0-1-8", Held(("shop.t",)))
    with pytest.raises(
        UsageError, match=r"The transaction 0-1-8 is half in Kafka.*asked for when it began: shop\.t\. Ask"
    ):
        agreed(position, Held(asked), ["shop.t", "shop.u"], lambda names: [], Terms(FROM_NOW))
    assert agreed(position, Held(("shop.t",)), ["shop.t", "shop.u"], lambda names: [], Terms()).scope == ("shop.t",)


def test_a_position_does_not_grow_with_every_table_that_is_dropped() -> None:
    """A job that makes and drops a table each minute: after three weeks the position was larger than its topic took."""
    dropped = {f"shop.job_{n}" for n in range(1 + MOST_DROPPED)}
    held = Held(("shop.*", "till.s*"), tables={"shop.t": HeldTable("0-1-7")}).with_dropped(dropped | {"till.sale"})
    assert held.dropped() == {"shop.*", "till.s*"}
    assert held.with_dropped(held.dropped()).tables == held.tables
    assert len(Position("0-1-9", held=held).as_json()) < 400
    few = {*sorted(dropped)[1:]}
    assert held.with_dropped(few).dropped() == few


def test_what_is_held_is_written_once_and_stored_with_each_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 20,000 tables of PostgreSQL each commit took 35 ms for it."""
    held = Held(("shop.*",), numbers={"shop.t": 7})
    position = Position("0/1", 7, 2, "0/2", held)
    stored = {"version": 2, **position._asdict(), "held": held.as_fields()}
    assert json.loads(position.as_json()) == json.loads(json.dumps(stored))
    monkeypatch.setattr(Held, "as_fields", None)
    assert Position.parsed(position._replace(place="0/3").as_json()) == position._replace(place="0/3")
    monkeypatch.undo()
    assert Position.parsed(Position("0/4", held=held.with_numbers({})).as_json()).held == held.with_numbers({})
    assert Position.parsed(Position("null}").as_json()) == Position("null}")
