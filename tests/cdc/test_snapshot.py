"""Tables that are older than the log come whole beside it."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest

from tests.cdc.mariadb import MariaServer
from tests.cdc.postgres import run
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc.agreement import NEVER, Terms, agreed
from waterclock.cdc.chunks import Chunk
from waterclock.cdc.held import Held, HeldTable, OlderRest
from waterclock.cdc.position import Position
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.snapshot import SnapshotSource
from waterclock.cdc.source import SourceMark
from waterclock.clock import ManualClock
from waterclock.testing import Broker


def came(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [json.loads(value) for _, value in committed(broker, topic)[0]]


@pytest.mark.postgres
def test_a_first_start_brings_all_that_a_slot_of_postgresql_does_not(
    command: list[str], slot: ReplicationSlot, broker: Broker
) -> None:
    run(slot.conninfo, "create table item (id int primary key, n numeric)", "create table empty (id int primary key)")
    run(slot.conninfo, "insert into item select n, n * 1.10 from generate_series(1, 2999) n")
    assert cli.main(command) == 0
    found = came(broker, slot.name)
    assert [row["data"]["id"] for row in found] == [*range(1, 3000)]
    assert {row["type"] for row in found} == {"bootstrap-insert"}
    positions = [(row["sequence"], row["xoffset"]) for row in found]
    assert positions == sorted(set(positions))
    run(slot.conninfo, "update item set n = 0 where id = 7")
    assert cli.main(command) == 0
    (last,) = came(broker, slot.name)[2999:]
    assert (last["type"], last["sequence"] > found[-1]["sequence"]) == ("update", True)
    assert cli.main([*command, "--snapshot-only"]) == 0  # nothing is to come


@pytest.mark.mariadb
def test_a_first_start_brings_all_that_the_binlogs_of_mariadb_no_longer_have(
    mariadb: MariaServer, broker: Broker, database: str
) -> None:
    mariadb.run(f"create table {database}.item (id int primary key, n decimal(9,2))")
    mariadb.run(f"use {database}", "insert into item select seq, seq * 1.10 from seq_1_to_2999")
    command = ["cdc", f"mysql://root@127.0.0.1:{mariadb.port}/{database}", "--order", "global", "--once"]
    command += ["--to", f"kafka://{broker.bootstrap}/{database}", "--from", "now", "--snapshot", "initial"]
    assert cli.main(command) == 0
    found = came(broker, database)
    assert [row["data"]["id"] for row in found] == [*range(1, 3000)]
    assert {row["type"] for row in found} == {"bootstrap-insert"}
    positions = [(row["sequence"], row["xoffset"]) for row in found]
    assert positions == sorted(set(positions))
    mariadb.run(f"update {database}.item set n = 0 where id = 7")
    assert cli.main(command) == 0
    (last,) = came(broker, database)[2999:]
    assert (last["type"], last["sequence"] > found[-1]["sequence"]) == ("update", True)


@pytest.mark.postgres
def test_a_table_that_cannot_come_is_refused_before_anything_and_the_advice_goes_on(
    command: list[str], slot: ReplicationSlot, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    run(slot.conninfo, "create table item (id int primary key)", "insert into item values (1)")
    run(slot.conninfo, "create table bare (n int)", "create table hollow (n int)", "insert into bare values (1)")
    assert cli.main(command) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "public.bare has no primary key" in told
    assert came(broker, slot.name) == []
    assert cli.main([*command, "--tables", "public.item", "--tables", "public.hollow"]) == 0
    assert [(row["table"], row["data"]["id"]) for row in came(broker, slot.name)] == [("item", 1)]


UNLIKE = [("first", "primary key", "innodb"), ("late", "primary key", "innodb")]
UNLIKE += [("bare", "", "innodb"), ("old", "primary key", "myisam")]


@pytest.mark.mariadb
def test_tables_that_are_asked_for_later_come_whole_and_one_that_cannot_is_refused_if_it_has_rows(
    mariadb: MariaServer, broker: Broker, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [f"create table {name} (id int {key}) engine={engine}" for name, key, engine in UNLIKE]
    mariadb.run(f"use {database}", *tables, "insert into late values (7), (8)", "insert into first values (1)")
    command = ["cdc", f"mysql://root@127.0.0.1:{mariadb.port}/{database}", "--order", "global", "--once"]
    command += ["--to", f"kafka://{broker.bootstrap}/{database}", "--from", "now"]
    assert cli.main([*command, "--tables", f"{database}.first"]) == 0
    command += ["--snapshot", "when-needed"]
    assert cli.main(command) == 0
    assert [(row["table"], row["data"]["id"]) for row in came(broker, database)] == [("late", 7), ("late", 8)]
    mariadb.run(f"create table {database}.other (id int)", f"insert into {database}.other values (1)")
    assert cli.main(command) == 0  # it is newer than the capture, and comes by the log
    assert came(broker, database)[-1]["table"] == "other"
    assert cli.main([*command, "--tables", f"{database}.first"]) == 0
    capsys.readouterr()
    assert cli.main(command) == 2
    assert f"{database}.other has no primary key" in capsys.readouterr().err


def test_what_is_still_to_come_is_given_up_by_a_word_and_told(caplog: pytest.LogCaptureFixture) -> None:
    held = Held(("shop.*",), tables={"shop.item": HeldTable(older=OlderRest(("7",), ("9",), 1234))})
    position = Position("0-1-7", 17, held=held)
    asked, there = Held(("shop.*",)), ["shop.item"]
    assert agreed(position, asked, there, lambda names: [], Terms(snapshot=NEVER)).older() == held.older()
    assert agreed(position, asked, there, lambda names: [], Terms(snapshot=NEVER, gives_up=True)).older() == {}
    assert "do not come any more (--snapshot never): shop.item (1,234 rows came)" in caplog.text


def test_the_log_is_looked_at_however_long_a_snapshot_takes() -> None:
    """All chunks of a quiet database went out one behind the other: after a minute its server ended the stream."""
    clock, held = ManualClock(), Held(tables={"shop.item": HeldTable(older=OlderRest())})
    log, chunks = Mock(), Mock()
    log.position.return_value = Position("0/1", held=held)
    log.items.return_value = iter([SourceMark.QUIET] * 3)
    chunks.is_between.return_value, chunks.standing.return_value = True, (1,)

    def read(table: str, rest: OlderRest, rows: int) -> Chunk:
        clock.advance_s(2)
        return Chunk(table, {}, rest, (1,))

    chunks.read.side_effect = read
    marks = list(SnapshotSource(log, chunks, clock).items())
    assert marks == [SourceMark.QUIET, *[SourceMark.COMMITTED] * 3] * 3
