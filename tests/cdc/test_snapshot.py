"""Tables that are older than the log come whole beside it."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from tests.cdc.mariadb import MariaServer
from tests.cdc.postgres import run
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc import capture, chunks, snapshot
from waterclock.cdc.agreement import NEVER, Terms, agreed
from waterclock.cdc.chunks import BOOTSTRAP, Chunk, whole
from waterclock.cdc.command import CaptureProgress
from waterclock.cdc.door.gather import BatchReader, Bounds
from waterclock.cdc.held import Held, HeldTable, OlderRest
from waterclock.cdc.mysql import binlog
from waterclock.cdc.mysql import chunks as mysql_chunks
from waterclock.cdc.mysql.binlog import BinlogEvent
from waterclock.cdc.mysql.chunks import BinlogChunks
from waterclock.cdc.mysql.file_place import FilePlace
from waterclock.cdc.position import Position
from waterclock.cdc.postgres import chunks as postgres_chunks
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.chunks import SlotChunks
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.postgres.slot import SlotReader
from waterclock.cdc.snapshot import SnapshotSource, WholePlace, left_of
from waterclock.cdc.source import SourceMark, TableFilter
from waterclock.cdc.statistics import CaptureStatistics
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.clock import ManualClock, SystemClock
from waterclock.testing import Broker


def came(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [json.loads(value) for _, value in committed(broker, topic)[0]]


@pytest.mark.postgres
def test_a_first_start_brings_all_that_a_slot_of_postgresql_does_not(
    command: list[str], slot: ReplicationSlot, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    run(slot.conninfo, "create table item (id int primary key, n numeric)", "create table empty (id int primary key)")
    run(slot.conninfo, "insert into item select n, n * 1.10 from generate_series(1, 2999) n")
    assert cli.main([*command, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [figures[name] for name in ("changes", "older_rows", "older_tables_left", "older_rows_left")] == [
        2999,
        2999,
        0,
        0,
    ]
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
    command: list[str],
    slot: ReplicationSlot,
    broker: Broker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(slot.conninfo, "create table item (id int primary key)", "insert into item values (1)")
    run(slot.conninfo, "create table bare (n int)", "create table hollow (n int)", "insert into bare values (1)")
    monkeypatch.setattr(postgres_chunks, "WHOLE_BYTES", 0)
    monkeypatch.setattr(chunks, "WHOLE_BYTES", 0)
    assert cli.main(command) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "public.bare has no primary key, and comes in one piece only up to 0 MB" in told
    assert came(broker, slot.name) == []
    assert cli.main([*command, "--tables", "public.item", "--tables", "public.hollow"]) == 0
    assert [(row["table"], row["data"]["id"]) for row in came(broker, slot.name)] == [("item", 1)]


UNLIKE = [("first", "primary key", "innodb"), ("late", "primary key", "innodb")]
UNLIKE += [("bare", "", "innodb"), ("old", "primary key", "myisam")]


@pytest.mark.mariadb
def test_tables_that_are_asked_for_later_come_whole_and_one_that_cannot_is_refused_if_it_has_rows(
    mariadb: MariaServer,
    broker: Broker,
    database: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
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
    monkeypatch.setattr(mysql_chunks, "WHOLE_BYTES", 16000)
    assert cli.main(command) == 2
    assert f"{database}.other has no primary key" in capsys.readouterr().err


def keyless(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(each["type"], each["data"].get("n")) for each in messages if each["table"] == "bare"]


@pytest.mark.mariadb
def test_a_table_without_a_key_comes_whole_behind_a_truncate_if_the_log_had_some_of_it(
    mariadb: MariaServer, broker: Broker, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that the log brings and the chunk too would be there twice: nothing tells them apart."""
    mariadb.run(f"use {database}", "create table item (id int primary key)", "create table bare (n int)")
    mariadb.run(f"insert into {database}.bare values (1), (1), (2)")
    command = ["cdc", f"mysql://root@127.0.0.1:{mariadb.port}/{database}", "--order", "global", "--once"]
    command += ["--to", f"kafka://{broker.bootstrap}/{database}", "--from", "now"]
    assert cli.main([*command, "--tables", f"{database}.item"]) == 0
    mariadb.run(f"insert into {database}.bare values (3)", f"delete from {database}.bare where n = 2")
    assert cli.main([*command, "--snapshot", "when-needed"]) == 0
    found = keyless(came(broker, database))
    assert found[-4:] == [("truncate", None), *[("bootstrap-insert", n) for n in (1, 1, 3)]]
    mariadb.run(f"insert into {database}.bare values (4)")
    assert cli.main([*command, "--snapshot", "when-needed"]) == 0
    assert keyless(came(broker, database)) == [*found, ("insert", 4)]


@pytest.mark.postgres
def test_what_a_table_without_a_key_gets_while_its_chunk_waits_follows_it_once_more(
    command: list[str], slot: ReplicationSlot, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(slot.conninfo, "create table bare (n int)", "alter table bare replica identity full")
    run(slot.conninfo, "insert into bare values (1), (1), (2)")
    read = SlotChunks.read

    def meanwhile(self: SlotChunks, rests: dict[str, OlderRest], rows: int) -> list[Chunk]:
        (chunk,) = read(self, rests, rows)
        run(slot.conninfo, "insert into bare values (3)", "delete from bare where n = 2")
        return [replace(chunk, high=(chunk.high[0] + 1,))]  # the log's reader is not there yet

    monkeypatch.setattr(SlotChunks, "read", meanwhile)
    assert cli.main(command) == 0
    assert cli.main(command) == 0
    whole = [("truncate", None), *[("bootstrap-insert", n) for n in (1, 1, 2)]]
    assert keyless(came(broker, slot.name)) == [("insert", 3), *whole, ("insert", 3), ("delete", 2)]


@pytest.mark.parametrize("has_key", [True, False])
@pytest.mark.parametrize("largest", [5, 100])
def test_a_chunk_is_never_given_out_in_parts(largest: int, has_key: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start behind its first part passed over as many rows of the next transaction of the log."""
    monkeypatch.setattr(capture, "LARGEST", largest)
    clock, held = ManualClock(), Held(tables={"shop.item": HeldTable(older=OlderRest())})
    log, reader, publisher = Mock(), Mock(), Mock(uncommitted=0)
    log.position.return_value = Position("0/1", held=held)
    log.items.side_effect = lambda: iter([SourceMark.QUIET] * 3)
    log.reached.return_value = False
    reader.is_between.return_value, reader.standing.return_value, reader.numbered.return_value = True, (1,), 17
    of = MaxwellMessage("shop", "item", BOOTSTRAP, 0, "", 0, 0, False, ("id",) if has_key else (), {})
    rows = {str(n).encode(): {"id": str(n)} for n in range(12 if has_key else 0)}
    messages = None if has_key else whole(of, [{"id": str(n)} for n in range(11)])
    reader.read.side_effect = lambda *_: [Chunk("shop.item", rows, None, (1,), False, of, messages)]
    batches = BatchReader(SnapshotSource(log, reader, clock), clock, Bounds(5, largest), 0, WholePlace(), lambda: False)
    assert [(len(batch.records), batch.position.rows) for batch in batches.batches()] == [(12, 0)]
    running = capture._Pass(publisher, SnapshotSource(log, reader, clock), clock, lambda more: None)
    running.until(WholePlace(), Mock(__bool__=lambda self: False))
    sent = [call.args[0] for call in publisher.send.call_args_list]
    sent += [message for call in publisher.send_part.call_args_list for message in call.args[0].messages()]
    assert [(each.sequence, each.xoffset, each.commit) for each in sent] == [(17, n, n == 11) for n in range(12)]
    assert [call.args[0].rows for call in publisher.commit.call_args_list] == [0]


def test_what_is_still_to_come_is_given_up_by_a_word_and_told(caplog: pytest.LogCaptureFixture) -> None:
    held = Held(("shop.*",), tables={"shop.item": HeldTable(older=OlderRest(("7",), ("9",), 1234))})
    position = Position("0-1-7", 17, held=held)
    asked, there = Held(("shop.*",)), ["shop.item"]
    assert agreed(position, asked, there, lambda names: [], Terms(snapshot=NEVER)).older() == held.older()
    assert agreed(position, asked, there, lambda names: [], Terms(snapshot=NEVER, gives_up=True)).older() == {}
    assert "do not come any more (--snapshot never): shop.item (1,234 rows came)" in caplog.text


@pytest.mark.mariadb
@pytest.mark.postgres
def test_about_how_many_rows_are_to_come_is_known_before_the_first_one(
    mariadb: MariaServer, database: str, slot: ReplicationSlot
) -> None:
    run(slot.conninfo, "create table item (id int primary key)", "create table hollow (n int)")
    start = begun(slot, [])
    run(slot.conninfo, "insert into item select generate_series(1, 2999)")
    mariadb.run(f"create table {database}.item (id int primary key)")
    mariadb.run(
        f"use {database}",
        f"insert into {database}.item select seq from seq_1_to_2999",
        f"analyze table {database}.item",
    )
    clock, sizes = SystemClock(), {}
    with (
        closing(SlotReader(slot, start, TableFilter([]), clock)) as reader,
        closing(SlotChunks(reader, slot, clock)) as chunks,
    ):
        sizes |= chunks.look(["public.item", "public.hollow"])
    with (
        closing(mariadb.reader(mariadb.place(), f"{database}.*")) as log,
        closing(BinlogChunks(log, mariadb.login(), clock)) as found,
    ):
        sizes |= found.look([f"{database}.item"])
    assert "public.hollow" not in sizes
    assert 1500 < sizes["public.item"] < 6000
    assert 1500 < sizes[f"{database}.item"] < 6000


def test_what_came_and_what_is_to_come_is_shown_with_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr", sys.stdout)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    clock = ManualClock()
    progress = CaptureProgress(clock, False)
    clock.advance_s(10)
    progress.report(CaptureStatistics(1500, 3, 1, 0, "0-1-7", 0, 1000, 2, 9000))
    shown = "1,500 changes of 3 transactions in Kafka (150/s), up to 0-1-7; 1,000 rows older than the log"
    assert (
        f"{shown}, 2 tables with about 9,000 rows still to come, about 1m30s left   Ctrl-C" in capsys.readouterr().out
    )
    clock.advance_s(10)
    progress.report(CaptureStatistics(0, 0, 1, 0, "", 0, 0, 1, 0))
    assert "in Kafka (0/s); 1 table still to come   Ctrl-C" in capsys.readouterr().out
    progress.end(CaptureStatistics(1500, 3, 1, 0, "0-1-7", 0, 1000))
    assert "; 1,000 rows older than the log\n" in capsys.readouterr().out


def test_what_is_to_come_is_counted_by_tables_and_by_the_rows_that_came_already() -> None:
    rests = {"shop.item": OlderRest(("7",), ("9",), 400), "shop.sale": OlderRest(), "shop.odd": OlderRest()}
    log = Mock()
    log.position.return_value = Position(
        "0/1", held=Held(tables={name: HeldTable(older=of) for name, of in rests.items()})
    )
    source = SnapshotSource(log, Mock(), ManualClock(), 0, {"shop.item": 1000, "shop.sale": 50})
    assert left_of(source) == (3, 650)
    assert left_of(log) == (0, 0)


def test_the_log_is_looked_at_however_long_a_snapshot_takes() -> None:
    """All chunks of a quiet database went out one behind the other: after a minute its server ended the stream."""
    clock, held = ManualClock(), Held(tables={"shop.item": HeldTable(older=OlderRest())})
    log, chunks = Mock(), Mock()
    log.position.return_value = Position("0/1", held=held)
    log.items.return_value = iter([SourceMark.QUIET] * 3)
    chunks.is_between.return_value, chunks.standing.return_value = True, (1,)

    def read(rests: dict[str, OlderRest], rows: int) -> list[Chunk]:
        clock.advance_s(2)
        return [Chunk(table, {}, rest, (1,)) for table, rest in rests.items()]

    chunks.read.side_effect = read
    marks = list(SnapshotSource(log, chunks, clock).items())
    assert marks == [SourceMark.QUIET, *[SourceMark.COMMITTED] * 3] * 3


def test_a_chunk_of_a_slow_machine_is_never_smaller_than_the_first_one() -> None:
    """What a chunk costs beside its rows would be nearly all of it: 313 rows a second came."""
    clock, held = ManualClock(), Held(tables={"shop.item": HeldTable(older=OlderRest())})
    log, chunks = Mock(), Mock()
    log.position.return_value = Position("", held=held)
    log.items.return_value = iter([SourceMark.QUIET] * 12)
    chunks.standing.return_value = (1,)
    asked = []

    def read(rests: dict[str, OlderRest], rows: int) -> list[Chunk]:
        asked.append(rows)
        clock.advance_s(2)
        own = {str(n).encode(): {"id": str(n)} for n in range(rows)}
        return [Chunk(table, own, rest, (1,)) for table, rest in rests.items()]

    chunks.read = read
    list(SnapshotSource(log, chunks, clock).items())
    assert (len(asked) > 10, {*asked}) == (True, {1000})


def test_the_place_of_a_log_is_known_though_no_heartbeat_ever_comes() -> None:
    """A server that was never idle for a second sent none, and no chunk of its snapshot was ever sent."""

    def event(kind: int, end: int, body: bytes = b"", flags: int = 0) -> BinlogEvent:
        return BinlogEvent(1700000000, kind, 1, end, flags, body)

    def rotated(name: bytes, offset: int) -> BinlogEvent:
        return event(binlog.ROTATE, 0, offset.to_bytes(8, "little") + name, 0x20)

    place = FilePlace()
    for each in (rotated(b"binlog.000007\1\2\3\4", 4), event(binlog.QUERY, 900), event(binlog.QUERY, 0, b"", 0x20)):
        place.passed(each)
    place.learn("binlog.000009")
    assert place.at == (7, 900)
    for each in (rotated(b"binlog.000008", 4), event(binlog.QUERY, 300)):
        place.passed(each)
    place.learn("binlog.000009")
    assert place.at == (8, 300)
    early = FilePlace()
    for each in (rotated(b"binlog.000007", 4), event(binlog.QUERY, 900), rotated(b"binlog.000008", 4)):
        early.passed(each)
    early.learn("binlog.000009")
    assert early.at == (8, 4)


@pytest.mark.mariadb
def test_binlogs_that_are_purged_under_a_snapshot_take_nothing_from_it_and_those_that_it_needs_are_named(
    mariadb: MariaServer,
    broker: Broker,
    database: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mariadb.run("create table item (id int primary key, n int)", database=database)
    mariadb.run("insert into item select seq, 0 from seq_1_to_900", database=database)
    command = ["cdc", f"mysql://root@127.0.0.1:{mariadb.port}/{database}", "--order", "global", "--once"]
    command += ["--to", f"kafka://{broker.bootstrap}/{database}", "--from", "now", "--snapshot", "initial"]
    monkeypatch.setattr(snapshot, "FIRST_ROWS", 200)
    monkeypatch.setattr(snapshot, "MOST_ROWS", 200)
    monkeypatch.setattr(snapshot, "LEAST_ROWS", 200)
    read, numbers = BinlogChunks.read, iter(range(1, 99))

    def purged(self: BinlogChunks, rests: dict[str, OlderRest], rows: int) -> list[Chunk]:
        chunks = read(self, rests, rows)
        changed = f"update {database}.item set n = {next(numbers)} where id % 100 = 7"
        mariadb.run(changed, "flush binary logs")
        mariadb.run(f"purge binary logs to '{mariadb.run('show binary logs')[-1][0]}'")
        return chunks

    monkeypatch.setattr(BinlogChunks, "read", purged)
    assert cli.main(command) == 0
    assert next(numbers) > 5
    monkeypatch.setattr(BinlogChunks, "read", read)
    assert cli.main(command) == 0
    held = {row["data"]["id"]: row["data"]["n"] for row in came(broker, database)}
    assert held == dict(mariadb.run(f"select id, n from {database}.item"))
    mariadb.run(f"update {database}.item set n = 0", "flush binary logs", f"update {database}.item set n = 1")
    mariadb.run("flush binary logs")
    for (reader,) in mariadb.run("select id from information_schema.processlist where command like 'Binlog Dump%'"):
        mariadb.run(f"kill {reader}")  # the server keeps a log that it still sends
    while len(logs := mariadb.run("show binary logs")) > 1:
        mariadb.run(f"purge binary logs to '{logs[-1][0]}'", "do sleep(0.05)")
    capsys.readouterr()
    assert cli.main(command) == 2
    assert "If its binlogs are gone" in capsys.readouterr().err


def test_a_place_that_the_server_told_is_not_passed_by_the_head_of_its_file() -> None:
    """A file of more than 4 GB was thought of: the reader stood behind every view for good, and no chunk came."""
    place = FilePlace()
    place.learn("binlog.000007")
    place.at = (7, 900)
    for end in (256, 299, 1200):
        place.passed(BinlogEvent(0, binlog.FORMAT_DESCRIPTION, 1, end, 0, b""))
    assert place.at == (7, 1200)
    place.at = (7, (1 << 32) - 100)
    place.passed(BinlogEvent(0, binlog.XID, 1, 500, 0, b""))
    assert place.at == (7, (1 << 32) + 500)
