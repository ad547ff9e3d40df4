"""What cannot be read: put aside once whatever is killed, or a stop that leaves nothing undelivered behind it. Of MariaDB a
statement that is nobody's business stops nobody.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.cdc.mariadb import MariaServer, MariaSource, as_found
from tests.cdc.topics import capture_of, messages
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc import capture as capturing
from waterclock.cdc.position import Position
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.source import DeadLetter, SourceMark, put_aside
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.errors import Unreadable, UsageError
from waterclock.letters import HIDDEN, shortened
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
        assert (told["dead_letters"], told["changes"], len(told["letters"])) == (count, 7 * count, count)
    assert ids(broker, database) == [1, 2, 3, 4, 8, 6, 7]
    ((key, value),) = committed(broker, f"{database}.aside")[0]
    letter = json.loads(value)
    assert json.loads(key) == {"database": database, "table": "t"}
    assert (letter["xoffset"], letter["data"]) == (2, {"id": 5, "c": "j6Kh"})
    assert "does not know" in letter["reason"]
    assert b"\x8f\xa2\xa1" in b64decode(letter["record"])


def test_the_last_ones_are_in_the_statistics_with_their_values_or_without(
    mariadb: MariaServer, broker: Broker, database: str, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"mysql://root@127.0.0.1:{mariadb.port}/{database}"
    told = []
    for topic, more in ((database, ()), (f"{database}.h", ("--hide-values",))):
        to = ("--to", f"kafka://{broker.bootstrap}/{topic}", "--dead-letters", f"{topic}.aside", "--from", table)
        assert cli.main(["cdc", source, *to, "--once", "--json", *more]) == 0
        told += json.loads(capsys.readouterr().out)["letters"]
    shown, hidden = told
    (aside,) = [json.loads(value) for _, value in committed(broker, f"{database}.aside")[0]]
    assert shown["place"] == f"{database}.t {aside['gtid']} 2"
    assert (shown["at_ms"], shown["reason"]) == (1000 * aside["ts"], aside["reason"])
    assert shown["value"] == shortened(b64decode(aside["record"]))
    assert hidden == {**shown, "reason": hidden["reason"], "value": HIDDEN}
    assert "does not know" in hidden["reason"]


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


@pytest.fixture
def theirs(mariadb: MariaServer, database: str) -> Iterator[str]:
    """A database beside the captured one."""
    name = f"{database}theirs"
    mariadb.run(f"create database {name}", f"create table {name}.t (id int primary key, c int)")
    mariadb.run(f"create table {database}.t (id int primary key)")
    yield name
    mariadb.run(f"drop database {name}")


def records(source: MariaSource, start: Position | None = None) -> list[Any]:
    """All that is given out up to what is committed now, the marks among it."""
    found: list[Any] = []
    with closing(source.server.reader(start or source.here, source.every, refusal=put_aside)) as reader:
        end = source.server.place()
        for item in reader.items():
            if isinstance(item, MaxwellMessage | DeadLetter) or item is SourceMark.COMMITTED:
                found.append(item)
            if reader.reached(end):
                return found
    raise AssertionError


STATEMENTS = [
    "insert into {t} values (1, 1)",
    "insert ignore {t} (id) select 5",
    "replace into {t} set id = 1",
    "update {t} as x set x.c = 2 where id in (select id from {mine}.t)",
    "delete from {t} where id = 1",
    "delete from {t}",
    "create table {theirs}.u select 1 as x",
    "set statement max_statement_time=9 for insert into {t} values (1, 1)",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_that_writes_to_tables_nobody_asked_for_is_passed_over(
    statement: str, theirs: str, caplog: pytest.LogCaptureFixture, source: MariaSource
) -> None:
    written = statement.format(t=f"{theirs}.t", theirs=theirs, mine=source.name)
    source.run(f"insert into {theirs}.t values (9, 9)", "set binlog_format = statement", written)
    source.run("set binlog_format = statement", "begin", f"insert into {theirs}.t values (8, 8)", "commit")
    source.run("insert into t values (7)")
    assert source.found() == [("insert", {"id": 7})]
    assert f"{theirs}.t" in caplog.text or f"{theirs}.u" in caplog.text


REACHING = {
    "a trigger": "create trigger {theirs}.g after insert on {theirs}.t for each row "
    "insert into {mine}.t values (new.id)",
    "a function": "create function {theirs}.f() returns int modifies sql data deterministic "
    "begin insert into {mine}.t values (3); return 3; end",
    "a view": "create view {theirs}.v as select id from {mine}.t",
}


@pytest.mark.parametrize("what", REACHING)
def test_a_statement_that_may_reach_further_is_refused(what: str, theirs: str, source: MariaSource) -> None:
    source.run(REACHING[what].format(theirs=theirs, mine=source.name))
    table, value = ("v (id)", "(1)") if what == "a view" else ("t", "(1, 1)")
    value = f"({theirs}.f(), 1)" if what == "a function" else value
    source.run(f"use {theirs}", "set binlog_format = statement", f"insert into {theirs}.{table} values {value}")
    with pytest.raises(Unreadable, match="and not the rows it wrote"):
        source.changes()


@pytest.mark.parametrize(
    "statement",
    ["update {theirs}.t as x, {mine}.t as y set y.id = 5", "delete x from {theirs}.t as x, {mine}.t as y",
     "insert into {mine}.t values (5)", "delete {theirs}.t from {theirs}.t join {mine}.t using (id)"],
)  # fmt: skip
def test_a_statement_of_several_tables_or_of_a_wanted_one_is_refused(
    statement: str, theirs: str, source: MariaSource
) -> None:
    source.run(f"insert into {theirs}.t values (1, 1)", "insert into t values (1)")
    source.run(f"use {theirs}", "set binlog_format = statement", statement.format(theirs=theirs, mine=source.name))
    with pytest.raises(Unreadable, match=r"and not the rows it wrote.*; or with this record alone put aside: --dead"):
        source.changes()


def test_a_file_that_was_loaded_into_a_table_nobody_asked_for_is_passed_over(theirs: str, source: MariaSource) -> None:
    (source.server.folder / "rows").write_text("1\t1\n2\t2\n")
    load = f"load data infile '{source.server.folder}/rows' into table {{}}.t"
    source.run("set binlog_format = statement", load.format(theirs), f"insert into {theirs}.t values (3, 3)")
    source.run("insert into t values (7)")
    assert source.found() == [("insert", {"id": 7})]
    source.run("set binlog_format = statement", load.format(source.name) + " (id, @ignored)")
    with pytest.raises(Unreadable, match='the statement "LOAD DATA'):
        source.changes()


def test_a_statement_that_is_put_aside_leaves_the_rest_of_its_transaction(source: MariaSource) -> None:
    source.run("create table t (id int primary key)")
    source.run("set binlog_format = mixed", "begin", "insert into t select length(uuid()) - 35",
        "insert into t values (2)", "insert into t select length(uuid()) - 33", "commit",
    )  # fmt: skip
    found = records(source)
    letter, one, three = [item for item in found if item is not SourceMark.COMMITTED]
    assert [(one.values()["id"], one.xoffset, one.commit), (three.values()["id"], three.xoffset, three.commit)] == [
        (1, 0, False), (3, 2, True),
    ]  # fmt: skip
    assert isinstance(letter, DeadLetter)
    assert (letter.xoffset, letter.gtid, letter.kind) == (1, one.gtid, "event 2")
    assert b"insert into t values (2)" in letter.record
    assert "the statement 'insert into t values (2)' and not the rows it wrote" in letter.reason


def test_a_row_of_bytes_that_are_no_text_is_put_aside_alone(source: MariaSource) -> None:
    source.run(
        "create table t (id int primary key, c varchar(9) character set ujis, d varchar(9), f int)",
        "insert into t values (1, 'a', 'x', 1), (2, x'8fa2a1', 'y', 2), (3, 'c', 'z', 3)",
    )
    found = records(source)
    assert [item.values()["id"] for item in found if hasattr(item, "values")] == [1, 3]
    (letter,) = [item for item in found if isinstance(item, DeadLetter)]
    assert letter.data == {"id": "2", "c": '"j6Kh"', "d": '"y"', "f": "2"}
    assert (letter.table, letter.xoffset) == ("t", 1)
    with pytest.raises(Unreadable, match=r"Column c holds bytes that its character set ujis does not know"):
        source.changes()


def test_rows_of_a_table_that_cannot_be_read_are_put_aside_and_those_of_another_are_not(source: MariaSource) -> None:
    source.run("create table t (id int primary key, c varchar(9) character set cp932)",
        "create table u (id int primary key, c varchar(9) character set eucjpms)",
        "begin", "insert into t values (1, 'a')", "insert into u values (2, 'b'), (3, 'c')",
        "delete from u where id = 2", "insert into t values (4, 'd')", "commit",
    )  # fmt: skip
    found = records(source)
    assert [(item.values()["id"], item.commit) for item in found if hasattr(item, "values")] == [(1, False), (4, True)]
    letters = [item for item in found if isinstance(item, DeadLetter)]
    assert [(letter.table, letter.xoffset) for letter in letters] == [("u", 1), ("u", 2)]
    assert "eucjpms has no codec here" in letters[0].reason


def test_rows_of_a_prepared_transaction_are_put_aside(source: MariaSource) -> None:
    source.run("create table t (id int primary key)")
    source.run("xa start 'a'", "insert into t values (1)", "xa end 'a'", "xa prepare 'a'", "xa commit 'a'")
    source.run("insert into t values (2)")
    found = records(source)
    assert [item.values()["id"] for item in found if hasattr(item, "values")] == [2]
    (letter,) = [item for item in found if isinstance(item, DeadLetter)]
    assert "an XA transaction that is prepared" in letter.reason
    with pytest.raises(Unreadable, match="XA transaction"):
        source.changes()


def test_what_was_given_out_before_a_start_is_not_given_out_again(source: MariaSource) -> None:
    """A large transaction is in Kafka in part: its dead letters count as its changes do."""
    source.run(
        "create table t (id int primary key, c varchar(9) character set ujis)",
        "insert into t values (1, 'a'), (2, x'8fa2a1'), (3, x'8fa2a1'), (4, 'd'), (5, x'8fa2a1')",
    )
    whole = [item for item in records(source) if not isinstance(item, SourceMark)]
    before = source.reader(refusal=put_aside)
    next(item for item in before.items() if item is SourceMark.COMMITTED)  # the table's creation
    position = before.position()
    before.close()
    assert len(whole) == 5
    for count in range(6):
        half = position._replace(rows=count, inside=whole[0].gtid)
        rest = [item for item in records(source, half) if not isinstance(item, SourceMark)]
        assert rest == whole[count:]
