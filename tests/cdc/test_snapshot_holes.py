"""The holes that a snapshot beside a log falls into, and three ways to do it wrong, each of which shows in what comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.cdc.mariadb import MariaSource
from tests.cdc.postgres import run
from waterclock.cdc.agreement import INITIAL, Terms
from waterclock.cdc.chunks import Chunk
from waterclock.cdc.mysql.chunks import VIEW, BinlogChunks
from waterclock.cdc.mysql.mysql_chunks import MySqlChunks
from waterclock.cdc.mysql.reader import BinlogReader
from waterclock.cdc.part import OlderPart
from waterclock.cdc.position import Position
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.chunks import SlotChunks
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.postgres.slot import OWN, SlotReader
from waterclock.cdc.snapshot import SnapshotSource, WholePlace
from waterclock.cdc.source import Item, SourceMark, TableFilter
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.clock import SystemClock

Change = tuple[str, Any]  # what it is, and v of the row 1
TERMS, CLOCK = Terms(snapshot=INITIAL), SystemClock()
KINDS = [
    pytest.param("maria", marks=pytest.mark.mariadb),
    pytest.param("mysql_table", marks=pytest.mark.mysql),
    pytest.param("postgres", marks=pytest.mark.postgres),
]
CHUNKS = {"maria": BinlogChunks, "mysql_table": MySqlChunks, "postgres": SlotChunks}
Make = Callable[[], SnapshotSource]


def told(items: Iterator[Item], enough: Callable[[list[Change]], bool]) -> list[Change]:
    """What is said of the row 1, until that is enough. A source is gone through once."""
    found: list[Change] = []
    end = time.monotonic() + 20
    for item in items:
        messages = item.messages() if isinstance(item, OlderPart) else iter([item])
        changes = [each for each in messages if isinstance(each, MaxwellMessage)]
        found += [(each.type, int(each.data["v"])) for each in changes if each.data["id"] == "1"]
        if enough(found):
            return found
        assert time.monotonic() < end, found
    raise AssertionError


def whole(source: SnapshotSource, count: int) -> list[Change]:
    """What is said of it until all that is older has come, and so many changes of it."""
    return told(source.items(), lambda found: len(found) >= count and source.reached(WholePlace()))


def filled(source: MariaSource, of_kind: type[BinlogChunks], table: str = "id int primary key, v int") -> Make:
    """A table whose rows are older than the place from which it is read."""
    source.run(f"create table t ({table})", "insert into t (id, v) values (1, 1), (2, 1)")
    here, login = source.server.place(), replace(source.server.login(), partial=True)

    def made() -> SnapshotSource:
        reader = BinlogReader(login, Position(here), TableFilter([source.every]), terms=TERMS)
        return SnapshotSource(reader, of_kind(reader, login, CLOCK), CLOCK)

    return made


@pytest.fixture
def maria(source: MariaSource) -> Make:
    return filled(source, BinlogChunks)


@pytest.fixture
def mysql_table(of_mysql: MariaSource) -> Make:
    return filled(of_mysql, MySqlChunks)


@pytest.fixture
def postgres(slot: ReplicationSlot) -> Make:
    run(slot.conninfo, "create table t (id int primary key, v int)", "insert into t values (1, 1), (2, 1)")
    start = begun(slot, [])

    def made() -> SnapshotSource:
        reader = SlotReader(slot, start, TableFilter([], OWN), CLOCK, terms=TERMS)
        return SnapshotSource(reader, SlotChunks(reader, slot, CLOCK), CLOCK)

    return made


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("wrong", [False, True], ids=["right", "keys stay in the chunk"])
def test_a_row_that_is_written_behind_the_view_comes_by_the_log_alone(
    wrong: bool, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The views of PostgreSQL and of MySQL lie at no place of the log: what waits with a chunk may be behind it already."""
    chunks, name = CHUNKS[kind], "_rows" if kind == "postgres" else "_run"
    asks = getattr(chunks, name)

    def late(self: Any, asked: Any, *more: Any) -> Any:
        found = asks(self, asked, *more)
        if asked == VIEW or kind == "postgres":
            written(request, kind, "update t set v = 2 where id = 1")
        return found

    monkeypatch.setattr(chunks, name, late)
    if wrong:
        monkeypatch.setattr(chunks, "saw", lambda *arguments: None)
    with closing(request.getfixturevalue(kind)()) as source:
        found = whole(source, 1 + wrong)
    assert found == ([("update", 2), ("bootstrap-insert", 1)] if wrong else [("update", 2)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [False, True], ids=["right", "the chunk does not wait"])
def test_no_row_is_from_the_future(
    wrong: bool, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that is sent at once has what the log still has to say; the log then says it of a row that has it."""
    source: SnapshotSource = request.getfixturevalue(kind)()
    written(request, kind, "update t set v = 2 where id = 1")
    chunks = CHUNKS[kind]
    read = chunks.read  # type: ignore[attr-defined]

    def first(self: Any, *arguments: Any) -> Any:
        found = read(self, *arguments)
        for chunk in found if wrong else ():
            chunk.high, chunk.is_exact = (0,), False
        return found

    monkeypatch.setattr(chunks, "read", first)
    begins_with_silence(source, monkeypatch)
    with closing(source):
        found = whole(source, 2)
    right = [("update", 2), ("bootstrap-insert", 2)]
    assert found == (right[::-1] if wrong else right)


def begins_with_silence(source: SnapshotSource, patches: pytest.MonkeyPatch) -> None:
    """A chunk is read before the log has said anything."""
    reader = source._source
    said = reader.items

    def items() -> Iterator[Any]:
        with pytest.MonkeyPatch.context() as first:
            first.setattr(reader, "is_between", lambda: True)
            yield SourceMark.QUIET
        yield from said()

    patches.setattr(reader, "items", items)


def hold(request: pytest.FixtureRequest, kind: str, on: bool) -> None:
    """Every commit stays where the log has it and no query sees it: until a replica says that it has it, which never comes
    (synchronous replication; semi-sync AFTER_SYNC)."""
    if kind != "postgres":
        master, slave = ("master", "slave") if kind == "maria" else ("source", "replica")
        names = (f"wait_no_{slave} = 1", "timeout = 60000", "wait_point = AFTER_SYNC", f"enabled = {int(on)}")
        run_at(request, kind)(*[f"set global rpl_semi_sync_{master}_{name}" for name in names])
        return
    url, setting = request.getfixturevalue("logical").url(), "synchronous_standby_names"
    what = f"set {setting} = 'nobody'" if on else f"reset {setting}"
    run(url, "set synchronous_commit = local", f"alter system {what}", "select pg_reload_conf()")
    end = time.monotonic() + 10
    while (run(url, f"show {setting}")[0][0] == "nobody") is not on:
        assert time.monotonic() < end


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [False, True], ids=["right", "every view is accepted"])
def test_a_commit_that_the_log_has_and_no_query_sees_is_waited_for(
    wrong: bool, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot by marks of the log ends with the old row after the new one, for good."""
    chunks, go = CHUNKS[kind], threading.Event()
    read = chunks.read  # type: ignore[attr-defined]
    monkeypatch.setattr(chunks, "read", lambda self, *given: read(self, *given) if go.is_set() else [])
    if wrong and kind == "mysql_table":
        monkeypatch.setattr(chunks, "_accepted", of_nothing_given_out(MySqlChunks._accepted))
    elif wrong and kind == "maria":
        monkeypatch.setattr(chunks, "_accepted", careless(BinlogChunks._accepted))
        monkeypatch.setattr(Chunk, "is_exact", property(lambda self: False, lambda self, value: None))
    elif wrong:
        none = property(lambda self: set(), lambda self, value: None)
        monkeypatch.setattr(chunks, "_unseen", none, raising=False)
    source: SnapshotSource = request.getfixturevalue(kind)()
    writer = threading.Thread(target=written, args=(request, kind, "update t set v = 2 where id = 1"), daemon=True)
    hold(request, kind, True)
    items = source.items()
    with closing(source), closing(items):  # type: ignore[type-var]  # it is a generator, and is within a transaction
        try:
            writer.start()
            found = told(items, bool)
            go.set()
            seconds = time.monotonic() + 3
            found += told(items, lambda found: time.monotonic() > seconds or source.reached(WholePlace()))
        finally:
            hold(request, kind, False)
        writer.join()
        assert found == ([("update", 2), ("bootstrap-insert", 1)] if wrong else [("update", 2)])
        if not wrong:
            found += told(items, lambda found: source.reached(WholePlace()))
            assert found == [("update", 2), ("bootstrap-insert", 2)]


def written(request: pytest.FixtureRequest, kind: str, statement: str) -> None:
    run_at(request, kind)(statement)


def run_at(request: pytest.FixtureRequest, kind: str) -> Callable[..., Any]:
    if kind == "postgres":
        return partial(run, request.getfixturevalue("slot").conninfo)
    source: MariaSource = request.getfixturevalue("source" if kind == "maria" else "of_mysql")
    return source.run


def of_nothing_given_out(accepted: Callable[[MySqlChunks], Any]) -> Callable[[MySqlChunks], Any]:
    """The same for MySQL."""

    def accept(self: MySqlChunks) -> Any:
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(self._reader, "position", lambda: Position(""))
            return accepted(self)

    return accept


def careless(accepted: Callable[[BinlogChunks], Any]) -> Callable[[BinlogChunks], Any]:
    """Accepts a view from before the reader."""

    def accept(self: BinlogChunks) -> Any:
        at, self._reader.file_place.at, self._is_sure = self._reader.file_place.at, (0, 0), True
        high = accepted(self)
        self._reader.file_place.at = at
        return high

    return accept


KEYED = "id int primary key, v int"
IN_DOUBT = {
    "a row": (KEYED, ["update t set v = 2 where id = 1"]),
    "a truncated table": (KEYED, ["truncate table t"]),
    "a row without a key": ("id int, v int", ["insert into t values (4, 1)"]),
    "a row in part": (
        f"{KEYED}, w int default 7",
        ["set binlog_row_image = minimal", "update t set v = 2 where id = 1"],
    ),
}


@pytest.mark.mysql
@pytest.mark.parametrize("when", ["before the view", "behind the view", "while the chunk waits"])
@pytest.mark.parametrize("what", IN_DOUBT)
def test_what_a_view_of_mysql_may_show_or_not_ends_as_the_source_has_it(
    what: str, when: str, of_mysql: MariaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is committed behind the question for gtid_executed, before or behind the one for the binlog's end."""
    table, statements = IN_DOUBT[what]
    made, runs, read, stands = (
        filled(of_mysql, MySqlChunks, table),
        MySqlChunks._run,
        MySqlChunks.read,
        MySqlChunks.standing,
    )
    rows, types, meanwhile = list[dict[str, Any]](), list[str](), [statements]
    of_mysql.run("insert into t (id, v) values (3, 3)")  # what the view shows for certain

    def beside(now: str) -> None:
        if now == when and meanwhile:
            of_mysql.run(*meanwhile.pop())

    def run_beside(self: MySqlChunks, asked: str) -> list[Any]:
        beside("before the view" if asked == VIEW else "")
        found = runs(self, asked)
        beside("behind the view" if asked == VIEW else "")
        return found

    def read_beside(self: MySqlChunks, *given: Any) -> list[Chunk]:
        found = read(self, *given)
        beside("while the chunk waits")
        return found

    monkeypatch.setattr(MySqlChunks, "_run", run_beside)
    monkeypatch.setattr(MySqlChunks, "read", read_beside)
    if when == "while the chunk waits":  # longer than it must
        monkeypatch.setattr(MySqlChunks, "standing", lambda self: stands(self) if len(types) > 1 else (0, 0))
    with closing(made()) as source:
        begins_with_silence(source, monkeypatch)
        for item in source.items():
            for change in item.messages() if isinstance(item, OlderPart) else [item]:
                if isinstance(change, MaxwellMessage):
                    fold(rows, change)
                    types.append(change.type)
            if source.reached(WholePlace()) and source.reached(of_mysql.server.place()):
                break
    assert not meanwhile
    assert statements[-1].startswith(types[1])  # the log's word before the chunk's: nothing is from the future
    assert sorted(tuple(row.values()) for row in rows) == sorted(of_mysql.run("select * from t"))


def fold(rows: list[dict[str, Any]], change: MaxwellMessage) -> None:
    """One more change of a table; without a key a row is told by all that it has."""
    row = change.values()
    if change.type == "truncate":
        rows.clear()
    elif change.key:
        former = next((each for each in rows if each["id"] == row["id"]), None)
        if former is None:
            rows.append(row)
        else:
            former.update(row)
    else:
        if change.old is not None:
            rows.remove({**row, **change._replace(data=change.old).values()})
        rows.append(row)
