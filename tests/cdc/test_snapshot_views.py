"""Chunks of several tables in one view of the database: each has its own rows, whatever is written while they wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import Mock

import psycopg
import pymysql
import pytest

from tests.cdc.mariadb import MariaServer
from tests.cdc.postgres import run
from tests.cdc.test_asked_again import KINDS
from tests.cdc.test_renamed import folded
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc import snapshot
from waterclock.cdc.chunks import Chunk
from waterclock.cdc.held import Held, HeldTable, OlderRest
from waterclock.cdc.mysql import chunks as of_mysql
from waterclock.cdc.mysql.catalog import TableDefinition
from waterclock.cdc.mysql.fetched import SelectedRows
from waterclock.cdc.mysql.selected import selected
from waterclock.cdc.mysql.server import MySqlLogin
from waterclock.cdc.mysql.transactions import Transactions
from waterclock.cdc.part import OlderPart
from waterclock.cdc.position import MariaGtidList, Position
from waterclock.cdc.postgres import chunks as of_postgres
from waterclock.cdc.postgres.pgoutput import Decoder, lsn_number
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.snapshot import SnapshotSource
from waterclock.cdc.source import Item, SourceMark, TableFilter
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.changes.table_schema import ColumnSchema, TableSchema
from waterclock.clock import ManualClock
from waterclock.errors import UsageError
from waterclock.testing import Broker

TABLES = ["t0", "t1", "t2", "t3", "t4"]
# beside the chunks: a row of each kind of change, in tables of the same view
BESIDE = [
    *[f"update {table} set v = 7 where id = 3" for table in TABLES],
    "delete from t1 where id = 4",
    "insert into t2 values (99, 9)",
    "truncate table t3",
    "insert into t3 values (1, 5)",
    "delete from t4 where id = 1",
    "insert into t4 values (1, 6)",
]


@pytest.fixture
def written(kind: str, request: pytest.FixtureRequest) -> tuple[Callable[..., Any], list[str]]:
    """What runs a statement, and the command of a capture; in each table are 20 rows."""
    if kind == "mariadb":
        server: MariaServer = request.getfixturevalue("mariadb")
        broker: Broker = request.getfixturevalue("broker")
        name = str(request.getfixturevalue("database"))
        runs, rows = partial(server.run, database=name), "seq_1_to_20"
        to = ["--to", f"kafka://{broker.bootstrap}/{name}", "--from", "now", "--snapshot", "initial"]
        command = ["cdc", f"mysql://root@127.0.0.1:{server.port}/{name}", *to, "--order", "global", "--once"]
    else:
        runs, rows = partial(run, request.getfixturevalue("slot").conninfo), "generate_series(1, 20) seq"
        command = request.getfixturevalue("command")
    for table in TABLES:
        runs(f"create table {table} (id int primary key, v int)", f"insert into {table} select seq, 0 from {rows}")
    runs(f"analyze {'table ' if kind == 'mariadb' else ''}{', '.join(TABLES)}")
    return runs, command


@pytest.mark.parametrize("most", [1 << 24, 1], ids=["one view", "as many as bytes allow"])
@pytest.mark.parametrize("kind", KINDS)
def test_tables_that_fit_into_a_chunk_share_its_view(
    kind: str,
    most: int,
    written: tuple[Callable[..., Any], list[str]],
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs, command = written
    module = of_mysql if kind == "mariadb" else of_postgres
    monkeypatch.setattr(module, "BYTES", most)
    of = of_mysql.BinlogChunks if kind == "mariadb" else of_postgres.SlotChunks
    read, views = of.read, list[list[str]]()

    def meanwhile(self: Any, rests: Mapping[str, OlderRest], rows: int) -> list[Chunk]:
        found: list[Chunk] = read(self, rests, rows)
        if found:
            views.append([chunk.table.rpartition(".")[2] for chunk in found])
            runs(*(BESIDE if len(views) == 1 else ["update t0 set v = 8 where id = 5"]))
        if kind == "postgres":  # a chunk may wait longer than it must: then the log gives all of that out before it
            ((end,),) = runs("select pg_current_wal_insert_lsn()::text")
            found = [replace(chunk, high=(lsn_number(end),)) for chunk in found]
        return found

    monkeypatch.setattr(of, "read", meanwhile)
    assert cli.main(command) == 0
    assert views == ([TABLES] if most > 1 else [[table] for table in TABLES])
    assert cli.main(command) == 0  # what was written beside the last chunk
    found = folded(broker, command[3].rpartition("/")[2], may_empty=True)
    for table in TABLES:
        assert found[table] == {key: {"id": key, "v": v} for key, v in runs(f"select id, v from {table}")}, table


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_without_a_key_and_one_that_is_gone_do_not_keep_the_others(
    kind: str, written: tuple[Callable[..., Any], list[str]], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, command = written
    runs("create table t2b (n int)", "insert into t2b values (1), (1)")
    absent = dict[str, str]()
    of = of_mysql.BinlogChunks if kind == "mariadb" else of_postgres.SlotChunks
    read, views = of.read, list[list[str]]()

    def without(self: Any, rests: Mapping[str, OlderRest], rows: int) -> list[Chunk]:
        runs("drop table if exists t1")
        found: list[Chunk] = read(self, rests, rows)
        views.append([chunk.table.rpartition(".")[2] for chunk in found])
        absent.update({chunk.table.rpartition(".")[2]: chunk.absent for chunk in found if chunk.absent})
        return found

    monkeypatch.setattr(of, "read", without)
    assert cli.main(command) == 0
    assert absent == {"t1": "is gone"}
    assert [view.index("t2b") for view in views if "t2b" in view] == [0]
    sent = [json.loads(value) for _, value in committed(broker, command[3].rpartition("/")[2])[0]]
    rows = {table: [each["data"] for each in sent if each["table"] == table] for table in (*TABLES, "t2b")}
    assert {table: len(of_table) for table, of_table in rows.items()} == {
        **dict.fromkeys(TABLES, 20),
        "t1": 0,
        "t2b": 3,
    }
    assert rows["t2b"] == [{}, {"n": 1}, {"n": 1}]  # behind a truncate


@pytest.mark.mariadb
@pytest.mark.parametrize(("more", "times"), [([], 2), (["--from", "now", "--snapshot", "initial"], 1)])
def test_rows_that_the_oldest_binlog_still_has_come_once_by_a_word(
    more: list[str], times: int, mariadb: MariaServer, database: str, broker: Broker
) -> None:
    """The snapshot's row is the later one: it has what no log says, here a cascade."""
    parent = "create table p (id int primary key)"
    child = "create table c (id int primary key, p int, foreign key (p) references p (id) on delete set null)"
    mariadb.run("create table first (id int)", "flush binary logs", database=database)
    mariadb.run(f"purge binary logs to '{mariadb.run('show binary logs')[-1][0]}'")
    mariadb.run(
        parent, child, "insert into p values (1)", "insert into c values (5, 1)", "delete from p", database=database
    )
    where = [f"mysql://root@127.0.0.1:{mariadb.port}/{database}", "--to", f"kafka://{broker.bootstrap}/{database}"]
    assert cli.main(["cdc", *where, "--order", "global", "--once", *more]) == 0
    sent = [json.loads(value) for _, value in committed(broker, database)[0]]
    rows = [each["data"] for each in sent if each["table"] == "c"]
    assert (len(rows), rows[-1]) == (times, {"id": 5, "p": None})


def test_what_a_target_keeps_of_a_table_that_should_come_again_is_told_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of a table of PostgreSQL it was said that it might not be InnoDB's."""
    log, reader = Mock(), Mock()
    log.position.return_value = Position("0/1", held=Held(tables={"s.a": HeldTable(older=OlderRest(since=1))}))
    log.items.return_value = iter([SourceMark.QUIET])
    reader.is_between.return_value, reader.standing.return_value = True, (1,)
    reader.read = lambda rests, rows: [Chunk("s.a", {}, None, (1,), absent="is gone")]
    assert list(SnapshotSource(log, reader, ManualClock()).items()) == [SourceMark.QUIET, SourceMark.COMMITTED]
    assert "s.a is gone: what a target has of it stays." in caplog.text


def test_who_has_many_rows_shares_no_view_and_tables_are_not_taken_without_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot, "TABLES", 3)
    sizes = {"s.a": 600, "s.b": 600, "s.c": 9, **{f"s.e{n}": 0 for n in range(5)}}
    held, clock, log, reader = (
        Held(tables={t: HeldTable(older=OlderRest()) for t in sizes}),
        ManualClock(),
        Mock(),
        Mock(),
    )
    log.position.return_value = Position("0/1", held=held)
    log.items.return_value = iter([SourceMark.QUIET] * 2)
    reader.is_between.return_value, reader.standing.return_value, asked = True, (1,), list[list[str]]()

    def read(rests: dict[str, OlderRest], rows: int) -> list[Chunk]:
        asked.append(list(rests))
        return [Chunk(table, {}, None, (1,)) for table in rests]

    reader.read = read
    marks = list(SnapshotSource(log, reader, clock, 0, sizes).items())
    assert asked == [["s.a", "s.b"], ["s.c", "s.e0", "s.e1"], ["s.e2", "s.e3", "s.e4"]]
    assert marks.count(SourceMark.COMMITTED) == len(sizes)


def test_who_lags_far_behind_waits_seldom_and_no_view_is_open_for_long() -> None:
    """Each view waits for the log once: by doubling, and by no more than half a second's rows, there were three times as
    many."""
    clock, held = ManualClock(), Held(tables={"shop.item": HeldTable(older=OlderRest())})
    log, chunks, asked, stands = Mock(), Mock(), list[int](), [0]
    log.position.return_value = Position("", held=held)
    chunks.standing.side_effect = lambda: (stands[0],)

    def lagging() -> Iterator[SourceMark]:
        while sum(asked) < 300_000:
            clock.advance_s(10)
            stands[0] += 1
            yield SourceMark.QUIET

    def read(rests: dict[str, OlderRest], rows: int) -> list[Chunk]:
        asked.append(rows)
        clock.advance_s(rows * 25e-6)
        own: dict[bytes, Mapping[str, str]] = {str(n).encode(): {"id": str(n)} for n in range(rows)}
        return [Chunk(table, own, rest, (stands[0] + 1,)) for table, rest in rests.items()]

    log.items.side_effect, chunks.read = lagging, read
    list(SnapshotSource(log, chunks, clock).items())
    assert len(asked) <= 6
    assert max(asked) * 25e-6 <= 2 * snapshot.LONGEST_S


def test_rows_of_a_snapshot_have_their_schema_before_them() -> None:
    """None stood in NAME.schema of a table of which the log had brought nothing: what an ALTER made of it afterwards never
    reached the target, whose rows had been made of texts."""
    former = TableSchema("mysql", "s", "a", (0, 0), (ColumnSchema("id", "int"), ColumnSchema("c", "date")), ("id",))
    now = former._replace(columns=(former.columns[0], ColumnSchema("d", "date")))
    log, reader, stands, views = Mock(), Mock(), [(1,)], [former, now]
    log.position.return_value = Position("0/1", held=Held(tables={"s.a": HeldTable(older=OlderRest())}))

    def going() -> Iterator[Item]:
        yield SourceMark.COMMITTED
        yield former._replace(since=(7, 0))  # the same as the waiting chunk has
        yield SourceMark.COMMITTED
        yield now._replace(since=(8, 0))  # another one: the chunk would bring the former one behind it
        stands[0] = (2,)
        yield SourceMark.COMMITTED

    def read(rests: Mapping[str, OlderRest], rows: int) -> list[Chunk]:
        schema = views.pop(0)
        of = MaxwellMessage("s", "a", "bootstrap-insert", 0, "", 0, 0, False, ("id",), {})
        return [Chunk("s.a", {b"k": {"id": "1", schema.columns[1].name: "null"}}, None, (2,), of=of, schema=schema)]

    log.items.side_effect, reader.read = going, read
    reader.standing, reader.numbered.return_value = lambda: stands[0], 9
    *_, schema, part, mark = SnapshotSource(log, reader, ManualClock()).items()
    assert (schema, mark) == (now._replace(since=(9, 0)), SourceMark.COMMITTED)
    assert isinstance(part, OlderPart)
    assert ([*part.rows[b"k"]], part.of.sequence) == (["id", "d"], 9)


def test_a_database_may_have_a_point_in_its_name_and_two_tables_with_one_name_are_refused() -> None:
    """The table `c` of `a.b` was looked for as `b.c` of `a`: it was gone, and none of its older rows came."""
    reader, column = Mock(), ("id", "int", "int(11)", None, "")
    there = [("a.b", ""), ("a.b", "c"), ("shop", "item")]
    reader.questions.fetchall = lambda: [] if "table_type = " in reader.questions.execute.call_args[0][0] else there
    nothing, found = TableDefinition([], (), 1 << 62, frozenset()), TableDefinition([column], ("id",), 7, frozenset())
    reader.catalog.declared = lambda *names: found if names in there else nothing
    chunks = of_mysql.BinlogChunks(reader, MySqlLogin("h", 1, "u", ""), ManualClock())
    plan = chunks._planned("a.b.c")
    assert (plan.named(), [each.name for each in plan.columns]) == ("`a.b`.`c`", ["id"])
    assert chunks._message(plan)[:2] == ("a.b", "c")
    assert chunks._planned("shop.item").names == ("shop", "item")
    there.append(("a", "b.c"))
    with pytest.raises(UsageError, match=r"Two tables are called a\.b\.c: b\.c of a and c of a\.b"):
        chunks.look(["a.b.c"])


class Locked:
    """A session in which somebody else locks each table, for ever; `error` is what the database says after a while."""

    def __init__(self, error: Exception, word: str, **settings: Any) -> None:
        self._error, self._word, self.ran = error, word, list[str]()

    def execute(self, statement: Any, *given: Any) -> Any:
        self.ran.append(str(statement))
        if self._word in self.ran[-1]:
            raise self._error if any("lock" in each and "timeout" in each for each in self.ran) else TimeoutError
        return []

    def cursor(self, *kinds: Any) -> Any:
        return nullcontext(Mock(execute=self.execute, fetchall=list))

    def transaction(self) -> Any:
        return nullcontext()

    def close(self) -> None:
        """Nothing."""


def test_a_lock_on_a_table_is_never_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """ALTER TABLE, VACUUM FULL, LOCK TABLES: the log of all other tables stood still until its end, without a word."""
    rests, slot = {"shop.item": OlderRest()}, ReplicationSlot("", "s", "p")
    made = partial(Locked, pymysql.OperationalError(1205, "Lock wait timeout exceeded"), of_mysql.VIEW)
    monkeypatch.setattr(of_mysql, "Connection", made)
    reader, column = Mock(), ("id", "int", "int(11)", None, "")
    reader.catalog.declared.return_value = TableDefinition([column], ("id",), 7, frozenset())
    reader.questions.fetchall = list
    chunks = of_mysql.BinlogChunks(reader, MySqlLogin("h", 1, "u", ""), ManualClock())
    assert chunks.read(rests, 10) == []
    session = Locked(psycopg.errors.LockNotAvailable("canceling statement due to lock timeout"), "lock table")
    monkeypatch.setattr(of_postgres, "connected", lambda slot: session)
    assert of_postgres.SlotChunks(Mock(), slot, ManualClock()).read(rests, 10) == []


def test_a_table_that_the_catalog_does_not_show_is_gone_only_if_the_server_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where somebody locks it, or its SELECT was taken away, the catalog shows no columns: the rest of its rows never came,
    without a word."""
    reader, rests = Mock(), {"shop.item": OlderRest(("1",), ("9",), 1)}
    reader.catalog.declared.return_value = TableDefinition([], (), 1 << 62, frozenset())
    chunks = of_mysql.BinlogChunks(reader, MySqlLogin("h", 1, "u", ""), ManualClock())
    monkeypatch.setattr(chunks, "_accepted", lambda: (1, 4))

    def answers(*error: Any) -> None:
        monkeypatch.setattr(chunks, "_run", Mock(side_effect=pymysql.OperationalError(*error) if error else None))

    for error in ((1205, "Lock wait timeout exceeded"), ()):
        answers(*error)
        assert chunks.read(rests, 10) == []
    answers(1142, "SELECT command denied to user 'u'@'h' for table `shop`.`item`")
    for ask in (partial(chunks.read, rests, 10), partial(chunks.look, rests)):
        with pytest.raises(UsageError, match=r"of shop\.item may not be read: SELECT command denied.*GRANT SELECT"):
            ask()
    answers(1146, "Table 'shop.item' doesn't exist")
    assert [chunk.absent for chunk in chunks.read(rests, 10)] == ["is gone"]


def test_a_table_with_system_versioning_is_refused_for_its_history_would_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, column, ran = Mock(), ("id", "int", "int(11)", None, ""), list[str]()
    reader.catalog.declared.return_value = TableDefinition([column], ("id", "row_end"), 7, frozenset())
    reader.questions.fetchall = lambda: [(1,)]  # the server's word that it is SYSTEM VERSIONED
    chunks = of_mysql.BinlogChunks(reader, MySqlLogin("h", 1, "u", ""), ManualClock())
    monkeypatch.setattr(chunks, "_run", lambda statement: ran.append(statement) or [(1,)])
    with pytest.raises(UsageError, match=r"shop\.item has system versioning.*Leave it out \(--tables\)"):
        chunks.look(["shop.item"])
    assert ran == ["select 1 from `shop`.`item` for system_time all limit 1"]


@pytest.mark.parametrize("order", ["id int(11)", "id varchar(9) utf8mb4_bin"])
def test_a_table_whose_key_was_changed_in_the_middle_begins_anew(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that had not come in the former order, and stood before the last one in the new, were passed over."""
    came, is_same = OlderRest(("500",), ("900",), 500, 3, "id int(11)"), order == "id int(11)"
    column, asked = ("id", "int", "int(11)", None, ""), list[Any]()
    definition = TableDefinition([column], ("id",), 7, frozenset(), order=order)
    chunks = of_mysql.BinlogChunks(Mock(), MySqlLogin("h", 1, "u", ""), ManualClock())
    chunks._plans["shop.item"] = selected(("shop", "item"), definition, {})
    monkeypatch.setattr(chunks, "_largest", lambda plan: ("950",))
    monkeypatch.setattr(chunks, "_rows", lambda plan, where, *more: asked.append(where) or SelectedRows())
    rest, _ = chunks._read("shop.item", came, 10, 10)
    assert (rest.upto, rest.key, len(asked[0])) == ((("900",), order, 2) if is_same else (("950",), order, 1))
    of = of_postgres.SlotChunks.__new__(of_postgres.SlotChunks)
    for name, answer in (("_largest", ("950",)), ("_schema", None), ("standing", (1,)), ("_message", Mock())):
        monkeypatch.setattr(of, name, lambda *given, answer=answer: answer)
    monkeypatch.setattr(of, "_rows", lambda message, plan, rest, *more: asked.append(rest) or (None, False, 0))
    of._chunk("shop.item", Mock(is_whole=False, key={"id": "int"}, order=order), came, 10, 10)
    assert (asked[1].after, asked[1].upto, asked[1].since) == (
        (("500",), ("900",), 3) if is_same else (None, ("950",), 3)
    )


def test_a_new_captures_older_rows_are_later_than_all_that_a_former_one_wrote() -> None:
    """Where its log had no transaction yet they counted from 1: a target that knew the rows took none of them."""
    now, position = 1_700_000_000, Position("0/1")
    decoder = Decoder(position, TableFilter([]), Mock())
    taking = Transactions(MariaGtidList(""), position, Mock(), TableFilter([]))
    assert [each.numbered(now) for each in (decoder, taking)] == [now * 1_000_000] * 2
    assert [each.numbered(now - 60) for each in (decoder, taking)] == [now * 1_000_000 + 1] * 2
    log, reader, clock = Mock(), Mock(), ManualClock()
    log.position.return_value = Position("0/1", held=Held(tables={"s.a": HeldTable(older=OlderRest())}))
    log.items.return_value = iter([SourceMark.QUIET])
    reader.standing.return_value, reader.read = (1,), lambda rests, rows: [Chunk("s.a", {}, None, (1,))]
    assert list(SnapshotSource(log, reader, clock).items())
    reader.numbered.assert_called_once_with(clock.wall_ms() // 1000)
