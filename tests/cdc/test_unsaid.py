"""What a binlog does not say of the rows, or says of what is no row: refused, or left out, never passed on as it looks."""

from __future__ import annotations

import pytest

from tests.cdc.mariadb import MariaSource, as_found
from waterclock.errors import Unreadable

pytestmark = pytest.mark.mariadb


@pytest.mark.parametrize(
    "statement",
    [
        "create table b select * from a",
        "create or replace table b (`y` int) as select id as y from a",
        "create table if not exists b as values (1), (2)",
        "create table b with q as (select 1 as x) select * from q",
        "set statement max_statement_time=9 for insert into a values (2)",
        "analyze update a set id = 3",
    ],
)
def test_a_statement_that_hides_that_it_writes_is_refused(statement: str, source: MariaSource) -> None:
    """A client may set binlog_format=STATEMENT: its CREATE TABLE ... SELECT was taken for one that makes an empty table."""
    source.run(
        "create table a (id int)", "insert into a values (7)", "set session binlog_format = 'STATEMENT'", statement
    )
    with pytest.raises(Unreadable, match="and not the rows it wrote"):
        source.changes()


def test_a_table_that_only_speaks_of_select_is_made_as_ever(source: MariaSource) -> None:
    source.run(
        "set session binlog_format = 'STATEMENT'",
        "create table t (`select` int primary key comment 'select values (1)') comment = 'as select'"
        " partition by range (`select`) (partition p values less than (10))",
        "create view v as select * from t",
        "create temporary table u select 1",
        "set session binlog_format = 'ROW'",
        "insert into t values (1)",
    )
    assert source.found() == [("insert", {"select": 1})]


THROWN_AWAY = [  # the target kept the row that was there twice
    "create table t (id int primary key, u int) engine=myisam",
    "insert into t values (1, 5), (2, 5)",
    "alter ignore table t add unique (u)",
]
HISTORY = [  # former rows of a versioned table are rows of their own in the target, and stayed there
    "create table t (id int primary key) with system versioning",
    "insert into t values (1)",
    "delete from t",
    "alter table t drop system versioning",
]


@pytest.mark.parametrize("statements", [THROWN_AWAY, HISTORY], ids=["alter ignore", "drop system versioning"])
def test_rows_that_go_as_a_whole_are_not_passed_over(statements: list[str], source: MariaSource) -> None:
    source.run(*statements)
    with pytest.raises(Unreadable, match="rows went or came as a whole"):
        source.changes()


def test_a_truncate_in_another_character_set_is_not_one_of_another_table(source: MariaSource) -> None:
    """The binlog has a statement in its client's bytes: the table came out as t with a question mark, and kept its rows."""
    source.run("create table té (c int)", "insert into té values (1)")
    source.run("truncate `té`", charset="latin1")
    with pytest.raises(Unreadable, match="whose table is not certain"):
        source.changes()


def test_a_column_that_the_server_made_for_itself_is_no_column(source: MariaSource) -> None:
    """UNIQUE over a BLOB keeps a hash beside it, which no SELECT shows, and which came as DB_ROW_HASH_1."""
    source.run(
        "create table t (id int primary key, c text, DB_ROW_HASH_9 bigint unsigned, unique (c))",
        "insert into t values (1, 'a', 5)",
        "update t set c = 'b'",
        "delete from t",
    )
    changes = source.changes()
    last = {"id": 1, "c": "b", "DB_ROW_HASH_9": 5}
    assert as_found(changes) == [("insert", {**last, "c": "a"}), ("update", last), ("delete", last)]
    assert changes[1].old == {"c": '"a"'}


def test_a_sequence_is_no_table(source: MariaSource) -> None:
    """Whenever it moves on, the binlog has an insert of what the server keeps of it: rows that no SELECT shows."""
    source.run(
        "create sequence s",
        "create table t (id int default nextval(s) primary key)",
        "insert into t values (), ()",
        "do setval(s, 5000)",
    )
    assert {change.table for change in source.changes()} == {"t"}
