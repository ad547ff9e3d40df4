"""A server whose binlog does not name columns: its catalog is asked, and believed only where it cannot be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.cdc.mariadb import MariaSource
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.errors import Unreadable

pytestmark = pytest.mark.mariadb

KINDS = (
    "id int unsigned primary key, a bigint unsigned, b decimal(10,3), c varchar(5) character set latin1, d "
    "enum('x','it''s'), e set('p','q'), f binary(3), g datetime(3), h json, i text, j blob, k year, l double, m "
    "bit(4), n time(6), o char(4), p date"
)
ROW = (
    "4294967295, 18446744073709551615, -1.5, 'é', 'it''s', 'q', 'z', '2024-01-02 03:04:05.006', '{\"a\":1}', 'ü', "
    "x'00', 1999, 0.5, b'101', '-00:00:00.000001', 'ab', '0000-00-00'"
)


@pytest.fixture(params=["NO_LOG", "MINIMAL"])
def unnamed(request: pytest.FixtureRequest, source: MariaSource) -> Iterator[MariaSource]:
    source.run(f"set global binlog_row_metadata = '{request.param}'")
    yield source
    source.run("set global binlog_row_metadata = 'FULL'")


def test_without_names_in_the_binlog_the_rows_are_the_same(unnamed: MariaSource) -> None:
    unnamed.run("set sql_mode = ''", f"create table t ({KINDS})", f"insert into t values ({ROW})")
    unnamed.run("set global binlog_row_metadata = 'FULL'")
    unnamed.run("set sql_mode = ''", "update t set id = 1")
    first, gone, _ = unnamed.changes()
    assert (first.type, gone.type) == ("insert", "delete")
    assert (first.data, first.key) == (gone.data, gone.key)


CHANGED = {
    "another column": "alter table t add column b int",
    "made anew": "create or replace table t (a int primary key, id int)",
    "another name": "alter table t rename column a to b",
}


@pytest.mark.parametrize("changed", CHANGED)
def test_rows_of_a_table_that_was_changed_since_are_refused(changed: str, unnamed: MariaSource) -> None:
    unnamed.run(
        "create table t (id int primary key, a int)", "set timestamp = unix_timestamp() - 10",
        "insert into t values (1, 1)", "set timestamp = default", CHANGED[changed],
    )  # fmt: skip
    with pytest.raises(Unreadable, match=rf"{unnamed.name}.t.*changed or dropped.*binlog_row_metadata=FULL"):
        unnamed.changes()


def test_after_a_column_got_another_name_rows_have_it(unnamed: MariaSource) -> None:
    """The table map stays as it was, byte for byte: a plan kept from before would give the rows the old name."""
    unnamed.run("create table t (id int primary key, a int)", "insert into t values (1, 1)")
    reader = unnamed.reader()
    changes = (item for item in reader.items() if isinstance(item, MaxwellMessage))
    assert next(changes).values() == {"id": 1, "a": 1}
    unnamed.run("alter table t rename column a to b", "insert into t values (2, 2)")
    assert next(changes).values() == {"id": 2, "b": 2}
    reader.close()


def test_uuids_of_a_table_that_is_gone_are_refused_until_somebody_says_what_they_are(source: MariaSource) -> None:
    value = "123e4567-e89b-42d3-a456-426614174000"
    source.run("create table t (u uuid)", f"insert into t values ('{value}')", "drop table t")
    with pytest.raises(Unreadable, match=rf"{source.name}\.t.*whether u is BINARY, UUID.*--type"):
        source.changes()
    told = {f"{source.name}.t.u": "uuid"}
    assert source.found(overrides=told) == [("insert", {"u": value})]


@pytest.mark.parametrize("change", ["add column c int", "modify u binary(16)"])
def test_uuids_of_a_table_that_was_changed_since_are_refused(change: str, source: MariaSource) -> None:
    source.run(
        "create table t (id int, u uuid)",
        "set timestamp = unix_timestamp() - 10",
        "insert into t values (1, '123e4567-e89b-42d3-a456-426614174000')",
        "set timestamp = default",
        f"alter table t {change}",
    )
    with pytest.raises(Unreadable, match="whether u is BINARY, UUID"):
        source.changes()


def test_rows_that_waited_for_a_change_of_their_table_are_read(source: MariaSource) -> None:
    """They bear the time at which they began to wait, which lies before the change they came after."""
    source.run(
        "create table t (u uuid)",
        "alter table t add column c int",
        "set timestamp = unix_timestamp() - 10",
        "insert into t values ('123e4567-e89b-42d3-a456-426614174000', 1)",
    )
    assert len(source.changes()) == 1


@pytest.mark.parametrize("engine", ["myisam", "aria", "memory"])
def test_tables_of_engines_that_do_not_tell_when_they_were_changed_are_refused(
    engine: str, unnamed: MariaSource
) -> None:
    """Their CREATE_TIME does not move: rows would come with names that their columns got later."""
    unnamed.run(
        f"create table t (a int) engine={engine}",
        "insert into t values (1)",
        "do sleep(1.1)",
        "alter table t change a b int",
    )
    with pytest.raises(Unreadable, match="of InnoDB alone that is known"):
        unnamed.changes()


@pytest.mark.parametrize("altered", ["alter table t modify u uuid", "create or replace table t (u uuid)"])
def test_a_binary_that_is_made_a_uuid_while_it_is_read_is_one_from_then_on(altered: str, source: MariaSource) -> None:
    """Its table map has the same bytes as before."""
    value = "123e4567-e89b-42d3-a456-426614174000"
    source.run("create table t (u binary(16))", "insert into t values (x'00')")
    found, after = [], [altered, "do sleep(1.1)", f"insert into t values ('{value}')"]
    with closing(source.reader()) as reader:
        for item in reader.items():
            if isinstance(item, MaxwellMessage):
                found.append(item.data["u"])
                source.run(*after)
                after = ["do 0"]
            if len(found) == 2:
                break
    assert found == [f'"{"A" * 22}=="', f'"{value}"']


def test_a_server_that_ended_an_idle_connection_is_asked_over_another_one(source: MariaSource) -> None:
    source.run("create table t (u uuid)", "insert into t values (uuid())")
    source.run("set global wait_timeout = 1")
    try:
        with closing(source.reader()) as reader:
            ours = "user = 'root' and command = 'Sleep' and id <> connection_id()"
            while source.run(f"select count(*) from information_schema.processlist where {ours}") != [(0,)]:
                pass
            assert next(item for item in reader.items() if isinstance(item, MaxwellMessage)).commit
    finally:
        source.run("set global wait_timeout = default")


def test_ordinary_tables_may_change_as_they_like(source: MariaSource) -> None:
    """The catalog is asked only where the binlog leaves a doubt: a table without doubtful columns may even be gone."""
    source.run(
        "create table t (id int, b binary(15), t longtext)", "insert into t values (1, x'00', 'x')", "drop table t"
    )
    assert len(source.changes()) == 1
