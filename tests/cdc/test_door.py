"""The Python door on real servers: what a program is handed, what its commits keep, and what a first start asks of it."""

from __future__ import annotations

import re
import sqlite3
import threading
import time as time_
import uuid
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cdc.mariadb import MariaServer, MariaSource
from tests.cdc.postgres import run
from waterclock.cdc import ChangeStream, FilePosition, SqlPosition, changes
from waterclock.cdc.door.words import PARAMETERS
from waterclock.cdc.position import VERSION, Position
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.postgres.stream import HELD_S
from waterclock.disk import write_sealed
from waterclock.errors import EnvironmentMissing, UsageError

CDC = Path(__file__).parents[2] / "src" / "waterclock" / "cdc"


def of_maria(source: MariaSource, position: Any, **options: Any) -> ChangeStream:
    url = f"mysql://root:@127.0.0.1:{source.server.port}/{source.name}"
    return changes(url, position=position, **{"once": True, "from_here": True, "tables": [source.every], **options})


def of_postgres(slot: ReplicationSlot, position: Any, **options: Any) -> ChangeStream:
    named = {"slot": slot.name, "publication": slot.publication, "once": True, "snapshot": "never"}
    return changes(slot.conninfo, position=position, **{**named, **options})


def all_of(stream: ChangeStream) -> list[tuple[str, str, dict[str, Any]]]:
    found = []
    with stream:
        for batch in stream:
            found += [(change.table.partition(".")[2], change.type, change.data) for change in batch]
            batch.commit()
    return found


def test_changes_come_and_the_next_start_goes_on_behind_the_last_commit(source: MariaSource, tmp_path: Path) -> None:
    position = tmp_path / "shop.position"
    source.run("create table t (id int primary key, c text)", "insert into t values (1, 'a'), (2, 'b')")
    assert all_of(of_maria(source, position)) == [
        ("t", "insert", {"id": 1, "c": "a"}),
        ("t", "insert", {"id": 2, "c": "b"}),
    ]
    source.run("update t set c = 'x' where id = 2", "delete from t where id = 1")
    with of_maria(source, position) as stream:
        (batch,) = [batch for batch in stream if not batch.commit()]
    assert [(change.type, change.data, change.old) for change in batch] == [
        ("update", {"id": 2, "c": "x"}, {"c": "b"}),
        ("delete", {"id": 1, "c": "a"}, {}),
    ]
    assert batch[0].key == {"id": 2}
    assert all_of(of_maria(source, position)) == []


def test_changes_of_postgresql_come_the_same_way(slot: ReplicationSlot, tmp_path: Path) -> None:
    run(slot.conninfo, "create table t (id int primary key, c text)")
    assert all_of(of_postgres(slot, tmp_path / "p")) == []
    run(slot.conninfo, "insert into t values (1, 'a')", "update t set c = 'b'", "delete from t", "truncate t")
    assert all_of(of_postgres(slot, tmp_path / "p")) == [
        ("t", "insert", {"id": 1, "c": "a"}),
        ("t", "update", {"id": 1, "c": "b"}),
        ("t", "delete", {"id": 1}),
        ("t", "truncate", {}),
    ]


def test_a_batch_that_was_not_committed_comes_again(source: MariaSource, tmp_path: Path) -> None:
    source.run("create table t (id int primary key)", "insert into t values (1)")
    with of_maria(source, tmp_path / "p") as stream:
        first = next(stream)
    assert [change.key for change in first] == [{"id": 1}]
    assert all_of(of_maria(source, tmp_path / "p")) == [("t", "insert", {"id": 1})]


def test_who_forgets_to_commit_is_told_at_the_next_batch_and_who_commits_twice_too(
    source: MariaSource, tmp_path: Path
) -> None:
    source.run("create table t (id int primary key)", "insert into t values (1)", "insert into t values (2)")
    with of_maria(source, tmp_path / "p", most=1) as stream:
        batch = next(stream)
        with pytest.raises(UsageError, match="not committed"):
            next(stream)
        batch.commit()
        with pytest.raises(UsageError, match="committed already"):
            batch.commit()
        assert [change.key for change in next(stream)] == [{"id": 2}]


@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_a_transaction_larger_than_the_bound_comes_in_parts_and_each_change_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = request.getfixturevalue("source" if kind == "mariadb" else "slot")
    sql = place.run if kind == "mariadb" else lambda *statements: run(place.conninfo, *statements)
    opened = of_maria if kind == "mariadb" else of_postgres
    sql("create table t (id int primary key)")
    assert all_of(opened(place, tmp_path / "p")) == []
    rows = ",".join(f"({n})" for n in range(25))
    sql(f"insert into t values {rows}", "insert into t values (25)")
    found, parts = [], []
    while len(found) < 26:  # each start gets one batch
        with opened(place, tmp_path / "p", most=1, largest=10) as stream:
            batch = next(stream)
            found += [change.data["id"] for change in batch]
            parts.append((len(batch), batch.is_part))
            batch.commit()
    assert found == list(range(26))
    assert parts == [(10, True), (10, True), (5, False), (1, False)]


OF_MARIA = {
    "decimal(6,2)": ("12.50", Decimal("12.50")),
    "bigint unsigned": ("18446744073709551615", 2**64 - 1),
    "double": ("0.1", 0.1),
    "date": ("'2024-02-29'", date(2024, 2, 29)),
    "datetime(6)": ("'2024-01-02 03:04:05.000006'", datetime(2024, 1, 2, 3, 4, 5, 6)),
    "timestamp": ("'2024-01-02 03:04:05'", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    "time(1)": ("'-30:00:00.5'", -timedelta(hours=30, milliseconds=500)),
    "varbinary(9)": ("x'00ff'", b"\x00\xff"),
    "uuid": ("'123e4567-e89b-42d3-a456-426614174000'", uuid.UUID("123e4567-e89b-42d3-a456-426614174000")),
    "json": ("'{\"a\": [1.5, null]}'", {"a": [1.5, None]}),
    "set('x','y')": ("'x,y'", ["x", "y"]),
    "text": ("'ä'", "ä"),
}
OF_POSTGRES = {
    "numeric": ("12.50", Decimal("12.50")),
    "real": ("'NaN'", None),
    "date": ("'2024-02-29'", date(2024, 2, 29)),
    "timestamp": ("'2024-01-02 03:04:05.5'", datetime(2024, 1, 2, 3, 4, 5, 500000)),
    "timestamptz": ("'2024-01-02 03:04:05+05:30'", datetime(2024, 1, 1, 21, 34, 5, tzinfo=UTC)),
    "time": ("'23:59:59'", time(23, 59, 59)),
    "bytea": ("'\\x00ff'", b"\x00\xff"),
    "uuid": ("'123e4567-e89b-42d3-a456-426614174000'", uuid.UUID("123e4567-e89b-42d3-a456-426614174000")),
    "jsonb": ("'{\"a\": [1.5, null]}'", {"a": [1.5, None]}),
    "boolean": ("true", True),
    "text": ("'7'", "7"),
    "int[]": ("'{1,NULL}'", "{1,NULL}"),
}


@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_values_are_pythons_and_their_text_is_there(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place = request.getfixturevalue("source" if kind == "mariadb" else "slot")
    cases = OF_MARIA if kind == "mariadb" else OF_POSTGRES
    sql = place.run if kind == "mariadb" else lambda *statements: run(place.conninfo, *statements)
    opened = of_maria if kind == "mariadb" else of_postgres
    columns = ", ".join(f"c{n} {declared} null" for n, declared in enumerate(cases))
    sql(
        "set time_zone = '+00:00'" if kind == "mariadb" else "select 1",
        f"create table t (id int primary key, {columns})",
    )
    assert all_of(opened(place, tmp_path / "p")) == []
    literals = ", ".join(literal for literal, _ in cases.values())
    zone = ["set time_zone = '+00:00'"] if kind == "mariadb" else []
    sql(*zone, f"insert into t values (1, {literals})", f"insert into t values (2{', null' * len(cases)})")
    with opened(place, tmp_path / "p") as stream:
        (batch,) = list(_committed(stream))
    full, empty = batch
    for n, (declared, (_, expected)) in enumerate(cases.items()):
        value = full.data[f"c{n}"]
        assert (value, type(value)) == (expected, type(expected)) if expected is not None else value != value, declared
        assert empty.data[f"c{n}"] is None
    assert full.text["c0"] == "12.50"


def _committed(stream: ChangeStream) -> Any:
    for batch in stream:
        batch.commit()
        yield batch


def test_a_first_start_asks_in_the_words_of_python(slot: ReplicationSlot, source: MariaSource, tmp_path: Path) -> None:
    run(slot.conninfo, "create table t (id int primary key)", "insert into t values (1)")
    with pytest.raises(UsageError, match=r"public\.t 1 row \(counted\).*from_here=True$"):
        of_postgres(slot, tmp_path / "p").open()
    assert all_of(of_postgres(slot, tmp_path / "p", from_here=True)) == []
    with pytest.raises(UsageError, match=r"tables=\['item'\]: write DATABASE\.TABLE"):
        of_maria(source, tmp_path / "q", tables=["item"])
    with pytest.raises(EnvironmentMissing, match=r"there is no table .*tables=\["):
        of_maria(source, tmp_path / "q", tables=[f"{source.name}.absent"]).open()


def test_a_table_that_is_asked_for_later_is_counted_and_asked_for(source: MariaSource, tmp_path: Path) -> None:
    source.run("create table a (id int)", "create table b (id int)", "insert into b values (1)")
    named = [f"{source.name}.a"]
    assert all_of(of_maria(source, tmp_path / "p", tables=named)) == []
    with pytest.raises(UsageError, match=r'new_tables="from-now".*\(tables=\[\.\.\.\]\)'):
        of_maria(source, tmp_path / "p").open()
    assert all_of(of_maria(source, tmp_path / "p", new_tables="from-now")) == []


def test_every_option_that_a_message_names_has_its_word_in_python() -> None:
    """Else a program is told to give what it cannot give."""
    own = {
        "--order",
        "--to",
        "--log-bin",
        "--binlog-format",
        "--binlog-row-metadata",
    }  # of Kafka's side, and of servers
    files = [file for file in CDC.rglob("*.py") if file.name not in ("ask.py", "command.py", "words.py", "stream.py")]
    files = [file for file in files if not {"debezium", "move"} & set(file.parts)]  # of Kafka's side too
    named = {option for file in files for option in re.findall(r"--[a-z][a-z-]+", file.read_text())}
    assert named - own - {word.split()[0] for word in PARAMETERS} == set()


def test_a_second_process_is_refused_at_a_file(source: MariaSource, tmp_path: Path) -> None:
    source.run("create table t (id int primary key)")
    with of_maria(source, tmp_path / "p"), pytest.raises(UsageError, match="Another process reads changes with"):
        of_maria(source, tmp_path / "p").open()
    assert all_of(of_maria(source, tmp_path / "p")) == []


def test_a_damaged_file_is_told_and_kept_under_another_name(source: MariaSource, tmp_path: Path) -> None:
    source.run("create table t (id int primary key)", "insert into t values (1)")
    assert len(all_of(of_maria(source, tmp_path / "p"))) == 1
    whole = (tmp_path / "p").read_bytes()
    (tmp_path / "p").write_bytes(whole[:40] + b"?" + whole[41:])
    with pytest.raises(UsageError, match=r"damaged.*p\.damaged now"):
        of_maria(source, tmp_path / "p").open()
    assert (tmp_path / "p.damaged").read_bytes() == whole[:40] + b"?" + whole[41:]
    (tmp_path / "p").write_bytes(whole)  # a copy is put back
    assert all_of(of_maria(source, tmp_path / "p")) == []


def test_a_position_that_is_refused_is_let_go_of(tmp_path: Path) -> None:
    """Its lock stayed: the next start in the same program was told of another process."""
    write_sealed(tmp_path / "p", {"version": VERSION + 1})
    for _ in range(2):
        with pytest.raises(UsageError, match="by a newer waterclock"):
            FilePosition(tmp_path / "p").claim()


class FullDisk(FilePosition):
    """Keeps nothing while it `is_full`."""

    is_full = True

    def commit(self, position: Position) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().commit(position)


def test_a_start_whose_position_cannot_be_kept_lets_go_of_the_database(slot: ReplicationSlot, tmp_path: Path) -> None:
    """The slot stayed active: whoever tried again was told of another process."""
    run(slot.conninfo, "create table t (id int primary key)")
    store = FullDisk(tmp_path / "p")
    stream = of_postgres(slot, store)
    with pytest.raises(OSError, match="No space left"):
        stream.open()
    active = f"select count(*) from pg_replication_slots where active and slot_name = '{slot.name}'"
    with psycopg.connect(slot.conninfo, autocommit=True) as db:
        assert db.execute(active).fetchall() == [(0,)]
    store.is_full = False
    assert all_of(stream) == []
    run(slot.conninfo, "insert into t values (1)")
    assert all_of(of_postgres(slot, tmp_path / "p")) == [("t", "insert", {"id": 1})]


def test_the_later_of_two_has_a_position_in_sql_and_the_earlier_is_told(source: MariaSource, tmp_path: Path) -> None:
    source.run("create table t (id int primary key)", "insert into t values (1)")
    rows = sqlite3.connect(tmp_path / "target")
    rows.execute("create table copy (id int)")
    with of_maria(source, SqlPosition(rows), server_id=7) as earlier:
        batch = next(earlier)
        other = sqlite3.connect(tmp_path / "target")
        assert len(all_of(of_maria(source, SqlPosition(other), server_id=8))) == 1
        rows.executemany("insert into copy values (?)", [(change.data["id"],) for change in batch])
        with pytest.raises(UsageError, match="Another process has taken over the position 'changes'"):
            batch.commit()
    assert rows.execute("select * from copy").fetchall() == []


def test_the_later_of_two_waits_for_the_slot_until_the_earlier_is_told(slot: ReplicationSlot, tmp_path: Path) -> None:
    """The later one ended, for the slot was read, and had the position: so both ended."""
    run(slot.conninfo, "create table t (id int primary key)")
    found: list[tuple[str, str, dict[str, Any]]] = []

    def later() -> None:
        found.extend(all_of(of_postgres(slot, SqlPosition(sqlite3.connect(tmp_path / "target")))))

    with of_postgres(slot, SqlPosition(sqlite3.connect(tmp_path / "target")), once=False) as earlier:
        run(slot.conninfo, "insert into t values (1)")
        batch, second = next(earlier), threading.Thread(target=later)
        second.start()
        time_.sleep(HELD_S + 1)
        with pytest.raises(UsageError, match="Another process has taken over"):
            batch.commit()
    second.join(60)
    assert found == [("t", "insert", {"id": 1})]


def test_what_was_written_of_a_batch_goes_when_the_block_is_left_before_its_commit(
    source: MariaSource, tmp_path: Path
) -> None:
    source.run("create table t (id int primary key)", "insert into t values (1)")
    rows = sqlite3.connect(tmp_path / "target")
    rows.execute("create table copy (id int)")
    with suppress(ZeroDivisionError), of_maria(source, SqlPosition(rows)) as stream:
        rows.execute("insert into copy values (?)", [next(stream)[0].data["id"]])
        raise ZeroDivisionError
    rows.commit()
    assert rows.execute("select * from copy").fetchall() == []


def test_what_was_written_before_the_stream_began_stays(tmp_path: Path, slot: ReplicationSlot) -> None:
    """The table of positions was missed by a statement that failed, and a rollback took the caller's rows with it."""
    with psycopg.connect(slot.conninfo) as opened:
        for connection in (sqlite3.connect(tmp_path / "target"), opened):
            connection.execute("create table mine (id int)")
            connection.execute("insert into mine values (1)")
            for _ in range(2):  # without the table, and with it
                assert SqlPosition(connection).claim() is None
                assert connection.execute("select id from mine").fetchall() == [(1,)]


def test_a_connection_that_commits_each_statement_is_refused(mariadb: MariaServer, slot: ReplicationSlot) -> None:
    with pytest.raises(UsageError, match="commits each statement by itself"):
        SqlPosition(sqlite3.connect(":memory:", isolation_level=None))
    with psycopg.connect(slot.conninfo, autocommit=True) as opened, pytest.raises(UsageError, match="by itself"):
        SqlPosition(opened)
    with mariadb.connection() as other, pytest.raises(UsageError, match="by itself"):
        SqlPosition(other)


def test_the_position_may_lie_in_the_database_that_is_read(source: MariaSource, slot: ReplicationSlot) -> None:
    """A change of its table would be a batch, whose commit changes it: so it would never end."""
    with source.server.connection(autocommit=False, database=source.name) as connection:
        source.run("create table t (id int primary key)", "insert into t values (1)")
        assert all_of(of_maria(source, SqlPosition(connection))) == [("t", "insert", {"id": 1})]
        assert all_of(of_maria(source, SqlPosition(connection))) == []
    with psycopg.connect(slot.conninfo) as opened:
        run(slot.conninfo, "create table t (id int primary key)")
        assert all_of(of_postgres(slot, SqlPosition(opened))) == []
        run(slot.conninfo, "insert into t values (1)")
        assert all_of(of_postgres(slot, SqlPosition(opened))) == [("t", "insert", {"id": 1})]
        assert all_of(of_postgres(slot, SqlPosition(opened))) == []


@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_a_close_from_another_thread_ends_the_wait_and_the_connections(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = request.getfixturevalue("source" if kind == "mariadb" else "slot")
    sql = place.run if kind == "mariadb" else lambda *statements: run(place.conninfo, *statements)
    sql("create table t (id int primary key)")
    stream = (of_maria if kind == "mariadb" else of_postgres)(place, FilePosition(tmp_path / "p"), once=False)
    stream.open()
    seen, waits = [], threading.Event()

    def read() -> None:
        for batch in stream:
            seen.append([change.data["id"] for change in batch])
            batch.commit()
            waits.set()

    reading = threading.Thread(target=read)
    reading.start()
    sql("insert into t values (1)")
    assert waits.wait(20)
    stream.close()
    reading.join(20)
    assert not reading.is_alive()
    assert seen == [[1]]
    if kind == "postgres":
        left = (
            f"select count(*) from pg_stat_activity where datname = '{place.name}' and application_name = 'waterclock'"
        )
        for _ in range(200):
            if run(place.conninfo, left) == [(0,)]:
                break
        else:
            raise AssertionError("a connection stayed")


def test_a_server_that_went_away_is_waited_for(mariadb: MariaServer, source: MariaSource, tmp_path: Path) -> None:
    source.run("create table t (id int primary key)", "insert into t values (1)")
    with of_maria(source, tmp_path / "p", once=False) as stream:
        next(stream).commit()
        mariadb.kill()
        mariadb.start()
        source.run("insert into t values (2)")
        assert [change.data for change in next(stream)] == [{"id": 2}]
