"""PostgreSQL: what is asked for, what a publication brings of it, and what is held are compared at every start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import psycopg
import pytest

from tests.cdc.postgres import run
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc.postgres import beginning
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.publication import DatabaseTable, Publication
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.postgres.slot import OWN, SlotReader
from waterclock.cdc.source import TableFilter
from waterclock.clock import SystemClock
from waterclock.errors import UsageError
from waterclock.testing import Broker

pytestmark = pytest.mark.postgres
SLOTS = "select slot_name from pg_replication_slots where slot_name = '{}'"


@pytest.fixture
def two(slot: ReplicationSlot) -> None:
    run(slot.conninfo, *[f"create table {name} (id int primary key, c int)" for name in "tu"])


def rows(broker: Broker, slot: ReplicationSlot, table: str = "t") -> list[tuple[str, int | None]]:
    """Type and id of each change of a table."""
    found = [json.loads(value) for _, value in committed(broker, slot.name).get(0, [])]
    return [(each["type"], each["data"].get("id")) for each in found if each["table"] == table]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


# For which tables the position holds ---------------------------------------------------------------------------


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("asked", [["public.t", "public.u"], ["public.*"], []])
def test_a_table_that_comes_into_the_publication_later_is_counted_and_not_begun_in_silence(
    asked: list[str], command: list[str], slot: ReplicationSlot, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """11 of 999 rows of u came, the exit code was 0, and not a word was said."""
    assert cli.main([*command, "--tables", "public.t"]) == 0
    run(slot.conninfo, "insert into u select generate_series(1, 988)", f"alter publication {slot.name} add table u")
    run(slot.conninfo, "insert into u select generate_series(989, 999)", "insert into t values (1)")
    more = [word for table in asked for word in ("--tables", table)]
    assert cli.main([*command, *more]) == 2
    told = said(capsys)
    assert "does not hold for tables that are asked for: public.u 999 rows (counted). What is older" in told
    assert "ask for what is held: public.t (--tables)" in told
    assert (rows(broker, slot), rows(broker, slot, "u")) == ([], [])
    assert cli.main([*command, *more, "--new-tables", "from-now"]) == 0
    assert rows(broker, slot) == [("insert", 1)]
    assert rows(broker, slot, "u") == [("insert", n) for n in range(989, 1000)]
    assert cli.main([*command, *more]) == 0


@pytest.mark.usefixtures("two")
def test_a_table_that_was_out_of_the_publication_for_a_while_is_new(
    command: list[str], slot: ReplicationSlot, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    both = [*command, "--tables", "public.t", "--tables", "public.u"]
    assert cli.main(both) == 0
    run(slot.conninfo, "insert into u values (1)")
    assert cli.main(both) == 0
    run(slot.conninfo, f"alter publication {slot.name} drop table u", "delete from u")
    assert cli.main(both) == 2
    assert f"it does not bring public.u (ALTER PUBLICATION {slot.name} ADD TABLE public.u)" in said(capsys)
    run(slot.conninfo, f"alter publication {slot.name} add table u")
    assert cli.main(both) == 2
    assert "public.u 0 rows (counted), made anew or not brought for a while." in said(capsys)
    assert cli.main([*both, "--new-tables", "from-now"]) == 0
    assert cli.main(both) == 0


@pytest.mark.usefixtures("two")
def test_a_table_that_is_held_and_asked_for_no_longer_is_said(
    command: list[str], slot: ReplicationSlot, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command) == 0
    run(slot.conninfo, "insert into u values (1)")
    assert cli.main([*command, "--tables", "public.t"]) == 0
    assert "No longer asked for, or not brought any more: public.u." in caplog.text
    assert cli.main(command) == 2
    assert "public.u 1 row (counted)" in said(capsys)


@pytest.mark.parametrize("published", ["for all tables", "for tables in schema own", ""])
def test_a_table_that_is_made_later_is_held_where_the_publication_brings_it_by_itself(
    published: str, command: list[str], slot: ReplicationSlot, broker: Broker
) -> None:
    run(slot.conninfo, "create schema own")
    if published:
        run(slot.conninfo, f"create publication {slot.name} {published}")
    assert cli.main(command) == 0  # of a database without a table
    run(slot.conninfo, "create table own.t (id int primary key)", "insert into own.t values (1)")
    assert cli.main(command) == 0
    assert rows(broker, slot) == [("insert", 1)]


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("word", [[], ["--new-tables", "from-now"], ["--snapshot", "when-needed"]])
def test_a_table_that_comes_into_the_publication_while_it_is_read_is_not_begun_in_silence(
    word: list[str], command: list[str], slot: ReplicationSlot, broker: Broker
) -> None:
    run(slot.conninfo, f"create publication {slot.name} for table t")
    there = f"import sys, psycopg.conninfo as c; c.make_conninfo = lambda **_: {slot.conninfo!r}"
    program = f"{there}; from waterclock import cli; sys.exit(cli.main(sys.argv[1:]))"
    running = [sys.executable, "-c", program, *command[:-1], "--snapshot", "never", *word]
    started = subprocess.Popen(running, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        while not run(slot.conninfo, SLOTS.format(slot.name)):
            assert started.poll() is None
        run(slot.conninfo, "insert into t values (1)", "insert into u values (1)")
        while not rows_or_none(broker, slot):
            assert started.poll() is None
        run(slot.conninfo, f"alter publication {slot.name} add table u")
        run(slot.conninfo, "insert into t values (2)", "insert into u values (2)")
        if word:
            comes = ("insert", 2) if "--new-tables" in word else ("bootstrap-insert", 1)
            while comes not in rows(broker, slot, "u"):
                assert started.poll() is None
            started.send_signal(signal.SIGINT)
        _, err = started.communicate(timeout=60)
    finally:
        started.kill()
    assert started.returncode == (0 if word else 2), err
    told = " ".join(err.split())
    if "--new-tables" in word:
        assert "public.u 2 rows (counted). What is older than the position does not come" in told
    elif not word:
        assert "public.u: it came into the publication" in told
        assert rows(broker, slot) == [("insert", 1), ("insert", 2)]  # what was committed before it


def rows_or_none(broker: Broker, slot: ReplicationSlot) -> object:
    try:
        return rows(broker, slot)
    except KeyError:
        return None


# What a publication leaves out ---------------------------------------------------------------------------------

LEFT_OUT = {
    "kinds": ("for table t with (publish = 'insert')", "it publishes no update, no delete, no truncate"),
    "rows": ("for table t where (id > 5)", "of public.t only the rows with (id > 5)"),
    "columns": ("for table t (id)", "public.t without c"),
    "all": ("", "it has no table"),
    "a table": ("for table u", "it does not bring public.t (ALTER PUBLICATION"),
}


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("kind", LEFT_OUT)
def test_what_a_publication_leaves_out_is_refused_or_taken_with_a_word(
    kind: str, command: list[str], slot: ReplicationSlot, caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Updates, deletes and truncates were missing, and the exit code was 0."""
    published, words = LEFT_OUT[kind]
    more = [*command, "--tables", "public.t*"] if kind == "a table" else command
    run(slot.conninfo, f"create publication {slot.name} {published}")
    assert cli.main(more) == 2
    assert words in said(capsys)
    assert run(slot.conninfo, SLOTS.format(slot.name)) == []
    assert cli.main([*more, "--as-published"]) == 0
    assert words in caplog.text
    assert cli.main(more) == 2


@pytest.mark.usefixtures("two")
def test_a_publication_that_left_something_out_for_a_while_is_told(
    command: list[str], slot: ReplicationSlot, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command) == 0
    run(slot.conninfo, f"alter publication {slot.name} set (publish = 'insert')", "insert into t values (1)")
    run(
        slot.conninfo,
        "delete from t",
        f"alter publication {slot.name} set (publish = 'insert, update, delete, truncate')",
    )
    assert cli.main(command) == 2
    assert "it was altered or made anew since this capture began to read" in said(capsys)
    assert cli.main([*command, "--as-published"]) == 0
    assert rows(broker, slot) == [("insert", 1)]
    assert cli.main(command) == 0


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("tables", "altered", "told"),
    [(["public.t"], "alter publication {} set (publish = 'insert')", "it publishes no update, no delete, no truncate"),
     (["public.t"], "alter publication {} set table t (id)", "public.t without c"),
     (["public.t"], "alter publication {} set table t where (id > 5)", "of public.t only the rows with (id > 5)"),
     (["public.t"], "alter publication {} drop table t", "it does not bring public.t"),
     ([], "alter table t set unlogged", "Unlogged, so nothing of them comes: public.t.")],
)  # fmt: skip
def test_a_publication_that_is_altered_while_it_is_read_is_told_and_not_at_the_next_start_alone(
    tables: list[str],
    altered: str,
    told: str,
    slot: ReplicationSlot,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was not published any more, or not logged, was missing until somebody started the capture anew."""
    monkeypatch.setattr("waterclock.cdc.postgres.slot.LOOK_S", 0.1)
    start, wanted = begun(slot, tables), TableFilter(["public.t"], OWN)
    with closing(SlotReader(slot, start, wanted, SystemClock())) as reader:
        items, end = reader.items(), time.monotonic() + 30
        next(items)
        assert not caplog.records
        run(slot.conninfo, altered.format(slot.name))
        while told not in caplog.text:
            next(items)
            assert time.monotonic() < end
        next(items)
    assert len(caplog.records) == 1


def test_what_no_publication_brings_is_told(
    command: list[str], slot: ReplicationSlot, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows of a partition that was emptied stayed, without a word."""
    run(
        slot.conninfo, "create table r (id int primary key) partition by range (id)", "create unlogged table n (id int)"
    )
    run(slot.conninfo, "create table r1 partition of r for values from (0) to (9)")
    run(slot.conninfo, f"create publication {slot.name} for all tables with (publish_via_partition_root)")
    assert cli.main(command) == 0
    run(slot.conninfo, "insert into r values (1)", "truncate r1")
    assert cli.main(command) == 0
    assert rows(broker, slot, "r") == [("insert", 1)]
    assert "Unlogged, so nothing of them comes: public.n." in caplog.text
    assert "(publish_via_partition_root): public.r. Rows that go or come with a partition as a whole" in caplog.text


def test_partitions_are_not_asked_for_where_their_root_brings_them(
    command: list[str], slot: ReplicationSlot, capsys: pytest.CaptureFixture[str]
) -> None:
    run(slot.conninfo, "create table r (id int primary key) partition by range (id)")
    run(slot.conninfo, "create table r1 partition of r for values from (0) to (9)")
    run(slot.conninfo, f"create publication {slot.name} for table r with (publish_via_partition_root)")
    assert cli.main([*command, "--tables", "public.r1*"]) == 2  # the rows bear the root's name
    assert "it does not bring public.r1" in said(capsys)
    assert cli.main([*command, "--tables", "public.r*"]) == 0


# A publication that was dropped --------------------------------------------------------------------------------


@pytest.mark.usefixtures("two")
def test_what_was_written_while_there_was_no_publication_is_left_out_with_a_word(
    command: list[str], slot: ReplicationSlot, broker: Broker, caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """It stopped for good, and what was to be done about it did not help."""
    assert cli.main(command) == 0
    run(slot.conninfo, *[f"insert into t values ({n})" for n in range(3)], f"drop publication {slot.name}")
    assert cli.main(command) == 2
    assert f"There is no publication {slot.name} any more" in said(capsys)
    run(slot.conninfo, "insert into t values (10)", f"create publication {slot.name} for all tables")
    assert cli.main([*command, "--as-published"]) == 2
    told = said(capsys)
    assert "cannot be decoded: publication" in told
    assert rows(broker, slot) == [("insert", n) for n in range(3)]  # what was committed before it
    run(slot.conninfo, "insert into t values (11)")
    words = told.partition("by hand: ")[2].split()
    assert (words[0], words[2]) == ("--skip-to", "--as-published")
    assert cli.main([*command, "--skip-to", "FFFF/0", "--as-published"]) == 2
    assert "the server has written no further than" in said(capsys)
    assert cli.main([*command, *words]) == 0
    assert "Left out: all that was committed between" in caplog.text
    assert cli.main(command) == 0
    assert rows(broker, slot) == [("insert", 0), ("insert", 1), ("insert", 2), ("insert", 11)]


# A slot that waits for somebody --------------------------------------------------------------------------------


@pytest.mark.usefixtures("two")
def test_who_is_waited_for_is_said_and_ctrl_c_leaves_no_slot(
    command: list[str], slot: ReplicationSlot, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C was not heard. After a kill the slot stayed, and the next start took it for somebody's own."""
    monkeypatch.setattr(beginning, "SAID_AFTER_S", 0.05)
    with psycopg.connect(slot.conninfo, application_name="till") as open_one:
        open_one.execute("insert into t values (1)")
        pid = open_one.info.backend_pid

        def interrupt() -> None:
            while "open since" not in caplog.text:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        assert cli.main(command) == 1  # --once was not done
        interrupting.join()
    assert (
        f"waits until every transaction has ended that is open: of postgres (pid {pid}, till), open since"
        in caplog.text
    )
    while run(slot.conninfo, SLOTS.format(slot.name)):
        pass
    assert cli.main([*command, "--from-here"]) == 0


@pytest.mark.usefixtures("two")
def test_of_a_slot_that_a_killed_start_left_the_rows_are_asked_for_again(
    command: list[str], slot: ReplicationSlot, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    run(slot.conninfo, "insert into t select generate_series(1, 999)")
    begun(slot, [])  # and here it was killed
    run(slot.conninfo, "insert into t values (1000)")
    assert cli.main([*command, "--snapshot", "never"]) == 2
    assert "is there already, at " in said(capsys)
    assert cli.main([*command, "--from-here"]) == 0
    assert rows(broker, slot) == [("insert", 1000)]


@pytest.mark.usefixtures("two")
def test_after_a_first_start_that_was_killed_before_it_had_a_position_all_rows_come(
    command: list[str], slot: ReplicationSlot, broker: Broker
) -> None:
    run(slot.conninfo, "insert into t select generate_series(1, 999)")
    begun(slot, [])  # and here it was killed
    run(slot.conninfo, "insert into t values (1000)")
    assert cli.main(command) == 0
    assert {number for _, number in rows(broker, slot)} == {*range(1, 1001)}


def test_the_remedy_for_a_table_that_is_not_brought_takes_any_name() -> None:
    """ADD TABLE public.Order names public.order, which is not there."""
    there = [DatabaseTable("public", name, "r", "p", 7, "") for name in ("Order", "item")]
    of = {f"pub{kind}": True for kind in ("insert", "update", "delete", "truncate")}
    found = Publication("shop-1", "", {**of, "puballtables": False}, [], {}, there)
    with pytest.raises(UsageError, match=r'ALTER PUBLICATION "shop-1" ADD TABLE public\."Order", public\.item'):
        found.refuse(TableFilter(["public.*"]), None, accepted=False)
