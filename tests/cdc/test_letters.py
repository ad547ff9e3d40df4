"""What cannot be read, in Kafka: put aside once whatever is killed, or a stop that leaves nothing undelivered behind it."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest

from tests.cdc.mariadb import MariaServer, as_found
from tests.cdc.topics import capture_of, messages
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc import capture as capturing
from waterclock.cdc.position import Position
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.source import put_aside
from waterclock.errors import Unreadable, UsageError
from waterclock.testing import Broker

pytestmark = pytest.mark.mariadb
BAD = "x'8fa2a1'"  # of no character in ujis


@pytest.fixture
def table(mariadb: MariaServer, database: str, here: str) -> str:
    """Its rows 1, 2 and 3 are three transactions; a fourth one has a row in its middle that cannot be read."""
    mariadb.run(
        f"use {database}", "create table t (id int primary key, c varchar(9) character set ujis)",
        "insert into t values (1, 'a')", "insert into t values (2, 'b')", "insert into t values (3, 'c')",
        f"insert into t values (4, 'd'), (8, 'e'), (5, {BAD}), (6, 'f')", "insert into t values (7, 'g')",
    )  # fmt: skip
    return here


def ids(broker: Broker, topic: str) -> list[int]:
    return [json.loads(value)["data"]["id"] for _, value in committed(broker, topic).get(0, [])]


def test_what_was_committed_before_it_is_delivered_before_the_stop(
    mariadb: MariaServer, broker: Broker, database: str, table: str
) -> None:
    """The beginning of the bad transaction stood in the same Kafka transaction as those before it."""
    target = Target(broker.bootstrap, database, "global")
    capture = capture_of(mariadb, target, table, f"{database}.*")
    for _ in range(2):
        with pytest.raises(Unreadable, match="does not know"):
            capture.run(mariadb.place())
        assert ids(broker, database) == [1, 2, 3]
    assert capture.statistics().changes == 3


@pytest.mark.parametrize("largest", [1, 2, 1_000_000])
@pytest.mark.long(seconds=3)
def test_a_record_that_is_put_aside_is_in_a_topic_of_its_own(
    largest: int,
    mariadb: MariaServer,
    broker: Broker,
    database: str,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(capturing, "LARGEST", largest)
    command = [
        "cdc",
        f"mysql://root@127.0.0.1:{mariadb.port}/{database}",
        "--to",
        f"kafka://{broker.bootstrap}/{database}",
    ]
    command += ["--order", "global", "--once", "--from", table, "--json", "--dead-letters", f"{database}.aside"]
    for count in (1, 0):
        assert cli.main(command) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["dead_letters"], told["changes"]) == (count, 7 * count)
    assert ids(broker, database) == [1, 2, 3, 4, 8, 6, 7]
    ((key, value),) = committed(broker, f"{database}.aside")[0]
    letter = json.loads(value)
    assert json.loads(key) == {"database": database, "table": "t"}
    assert (letter["xoffset"], letter["data"]) == (2, {"id": 5, "c": "j6Kh"})
    assert "does not know" in letter["reason"]
    assert b"\x8f\xa2\xa1" in b64decode(letter["record"])


def test_a_transaction_in_parts_is_put_aside_once_whatever_breaks(
    mariadb: MariaServer, broker: Broker, database: str, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capturing, "LARGEST", 7)
    rows = ", ".join(f"({n}, {BAD if n % 3 == 0 else repr('a')})" for n in range(1, 41))
    mariadb.run(
        f"use {database}",
        "create table t (id int primary key, c varchar(9) character set ujis)",
        f"insert into t values {rows}",
    )
    target = Target(broker.bootstrap, database, "global", dead_letters=f"{database}.aside")

    class Dying(Publisher):
        def store(self, position: Position) -> None:
            if deaths and deaths.pop():
                raise KeyboardInterrupt
            super().store(position)

    deaths: list[bool] = []
    capture = capture_of(mariadb, target, here, f"{database}.*", Dying, refusal=put_aside)
    for pattern in ([True], [True, False], [True, False, False]):
        deaths = list(pattern)
        with pytest.raises(KeyboardInterrupt):
            capture.run(mariadb.place())
    capture.run(mariadb.place())
    assert ids(broker, database) == [n for n in range(1, 41) if n % 3]
    aside = [json.loads(value) for _, value in committed(broker, f"{database}.aside")[0]]
    assert [letter["data"]["id"] for letter in aside] == [n for n in range(1, 41) if not n % 3]
    assert [letter["xoffset"] for letter in aside] == [n - 1 for n in range(1, 41) if not n % 3]


def test_the_topic_of_dead_letters_is_none_of_the_others(broker: Broker, database: str) -> None:
    for topic in (database, f"{database}.position"):
        with pytest.raises((UsageError, ValueError), match="dead letters"):
            Publisher(Target(broker.bootstrap, database, dead_letters=topic), database)


def test_the_stop_names_ways_on_that_work_from_where_it_stands(
    mariadb: MariaServer, broker: Broker, database: str, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "cdc",
        f"mysql://root@127.0.0.1:{mariadb.port}/{database}",
        "--to",
        f"kafka://{broker.bootstrap}/{database}",
    ]
    command += ["--order", "global", "--once", "--from", table]
    assert cli.main(command) == 2
    gtid = capsys.readouterr().err.partition("--skip ")[2].partition(";")[0]
    assert cli.main([*command, "--skip", gtid]) == 0
    assert ids(broker, database) == [1, 2, 3, 7]
    skipped = mariadb.changes(table, f"{database}.*", skip=frozenset({gtid}))
    assert committed(broker, database)[0] == messages(skipped)
    assert as_found(skipped)[-1] == ("insert", {"id": 7, "c": "g"})
