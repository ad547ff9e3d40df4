"""Transactions of a real server: whole, in order, from any position on. What would lose rows is refused by name, and what
the binlog says of no row is left out.
"""

from __future__ import annotations

import json
from contextlib import closing

import pymysql
import pytest

from tests.cdc.mariadb import MariaSource, as_found
from waterclock.cdc.schemas import ColumnsAltered
from waterclock.cdc.source import SourceMark
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.errors import Unreadable, UsageError

pytestmark = pytest.mark.mariadb


def test_only_the_last_change_of_a_transaction_says_commit(source: MariaSource) -> None:
    source.run(
        "create table t (id int primary key, c int)",
        "begin",
        "insert into t values (1, 1), (2, 2)",
        "update t set c = 3 where id = 1",
        "delete from t where id = 2",
        "commit",
        "insert into t values (9, 9)",
    )
    changes = source.changes()
    assert [(change.type, change.xoffset, change.commit) for change in changes] == [
        ("insert", 0, False),
        ("insert", 1, False),
        ("update", 2, False),
        ("delete", 3, True),
        ("insert", 0, True),
    ]
    assert len({change.gtid for change in changes[:4]}) == 1
    assert len({change.sequence for change in changes[:4]}) == 1
    assert changes[4].sequence > changes[3].sequence


def test_an_update_tells_the_former_values_of_what_it_changed(source: MariaSource) -> None:
    source.run(
        "create table t (id int primary key, c int, d varchar(5))",
        "insert into t values (1, 1, null)",
        "update t set d = 'x'",
    )
    change = source.changes()[-1]
    assert (change.old, change.data) == ({"d": "null"}, {"id": "1", "c": "1", "d": '"x"'})


def test_a_changed_key_is_a_delete_and_an_insert(source: MariaSource) -> None:
    source.run(
        "create table t (a int, b varchar(5), c int, primary key (b, a))",
        "insert into t values (1, 'x', 1)",
        "update t set b = 'X'",  # the same to the server's collation, and another key to everybody else
    )
    changes = source.changes()
    assert as_found(changes)[1:] == [("delete", {"a": 1, "b": "x", "c": 1}), ("insert", {"a": 1, "b": "X", "c": 1})]
    assert json.loads(changes[2].as_key()) == {"database": source.name, "table": "t", "pk.b": "X", "pk.a": 1}
    assert [(change.xoffset, change.commit) for change in changes[1:]] == [(0, False), (1, True)]


def test_a_table_without_a_key_is_one_key(source: MariaSource) -> None:
    source.run("create table t (c int)", "insert into t values (1), (2)")
    keys = {change.as_key() for change in source.changes()}
    assert keys == {json.dumps({"database": source.name, "table": "t"}, separators=(",", ":")).encode()}


def test_what_was_rolled_back_is_not_there(source: MariaSource) -> None:
    source.run(
        "create table t (c int)",
        "begin",
        "insert into t values (1)",
        "rollback",
        "begin",
        "insert into t values (2)",
        "savepoint a",
        "insert into t values (3)",
        "rollback to a",
        "insert into t values (4)",
        "commit",
    )
    assert source.found() == [("insert", {"c": 2}), ("insert", {"c": 4})]


def test_tables_without_transactions_are_read_too(source: MariaSource) -> None:
    source.run("create table t (c int) engine=myisam", "insert into t values (1), (2)", "delete from t where c = 1")
    assert [change.commit for change in source.changes()] == [False, True, True]


def test_a_truncate_is_a_change_of_the_table(source: MariaSource) -> None:
    source.run(
        "create table t (c int)", "insert into t values (1)", "/* by hand */ truncate `t`", "insert into t values (2)"
    )
    changes = source.changes()
    assert [change.type for change in changes] == ["insert", "truncate", "insert"]
    assert sorted(change.sequence for change in changes) == [change.sequence for change in changes]


@pytest.mark.parametrize(
    "statement",
    [
        "truncate /* by a tool */ table t",
        "--\ntruncate t -- that is all",
        "/*M!100100 truncate table t */",
        "set statement lock_wait_timeout=9, max_statement_time=0 for truncate t",
        "truncate`t`",
    ],
)
def test_a_truncate_is_found_whatever_is_written_around_it(statement: str, source: MariaSource) -> None:
    source.run("create table t (c int)", statement)
    (change,) = source.changes()
    assert (change.type, change.table) == ("truncate", "t")


def test_a_name_may_be_quoted_as_the_standard_has_it(source: MariaSource) -> None:
    source.run(
        'create table `ta"ble` (c int)',
        "set sql_mode = 'ANSI'",
        'truncate table "ta""ble"',
        f'truncate {source.name} . "ta""ble"',
    )
    changes = source.changes()
    assert [(change.type, change.table) for change in changes] == [("truncate", 'ta"ble')] * 2


def test_a_table_may_change_between_its_rows(source: MariaSource) -> None:
    """All is read after the last change: each row has the columns it had when it was written."""
    source.run(
        "create table t (id int primary key, a int)",
        "insert into t values (1, 10)",
        "alter table t change a b bigint unsigned",
        "insert into t values (2, 18446744073709551615)",
        "alter table t add column c varchar(3) default 'x' first, drop primary key, add primary key (b)",
        "update t set c = 'y' where id = 1",
        "rename table t to u",
        "delete from u where id = 2",
        "drop table u",
    )
    changes = source.changes()
    assert as_found(changes) == [
        ("insert", {"id": 1, "a": 10}),
        ("insert", {"id": 2, "b": 18446744073709551615}),
        ("update", {"c": "y", "id": 1, "b": 10}),
        ("delete", {"c": "x", "id": 2, "b": 18446744073709551615}),
    ]
    assert [change.key for change in changes] == [("id",), ("id",), ("b",), ("b",)]


def test_what_comes_after_a_position_is_the_same_from_each_position_on(source: MariaSource) -> None:
    source.run("create table t (id int primary key)")
    source.run(*[f"insert into t values ({n}), ({n + 100})" for n in range(1, 9)])
    reader, end, positions, seen = source.reader(), source.server.place(), [], []
    for item in reader.items():
        if isinstance(item, MaxwellMessage):
            seen.append(item)
        elif isinstance(item, SourceMark):
            positions.append((reader.position(), len(seen)))
            if reader.reached(end):
                break
    reader.close()
    assert len(seen) == 16
    for position, count in positions:
        assert source.server.changes(position, source.every) == seen[count:]


def test_inside_a_large_transaction_only_the_rest_comes_again(source: MariaSource) -> None:
    source.run("create table t (id int primary key)", "insert into t select seq from seq_1_to_5000")
    whole = source.changes()
    before = source.reader()
    next(item for item in before.items() if item is SourceMark.COMMITTED)  # the table's creation
    position = before.position()._replace(rows=4321, inside=whole[0].gtid)
    before.close()
    assert source.server.changes(position, source.every) == whole[4321:]


def test_computed_columns_are_read_where_they_are_kept(source: MariaSource) -> None:
    source.run(
        "create table t (id int primary key, v int as (id + 1) virtual, s int as (id + 2) stored, i int invisible)",
        "insert into t (id, i) values (1, 7)",
        "update t set i = 8",
    )
    rows = [change.values() for change in source.changes()]
    assert [{name: row[name] for name in ("id", "s", "i")} for row in rows] == [
        {"id": 1, "s": 3, "i": 7},
        {"id": 1, "s": 3, "i": 8},
    ]


def test_packed_binlogs_are_read(source: MariaSource) -> None:
    source.run("set global log_bin_compress = on, global log_bin_compress_min_len = 10")
    try:
        source.run(
            "create table t (id int primary key, c text)",
            "insert into t values (1, repeat('a', 1000)), (2, null)",
            "update t set c = repeat('b', 500) where id = 1",
            "delete from t",
        )
    finally:
        source.run("set global log_bin_compress = off, global log_bin_compress_min_len = 256")
    changes = source.changes()
    assert [change.type for change in changes] == ["insert", "insert", "update", "delete", "delete"]
    assert changes[2].values() == {"id": 1, "c": "b" * 500}


def test_a_statement_instead_of_its_rows_is_refused_and_can_be_left_out(source: MariaSource) -> None:
    source.run("create table t (id int primary key)")
    source.run("set binlog_format = statement", "insert into t values (1)")
    bad = source.server.place()
    source.run("insert into t values (2)")
    with pytest.raises(Unreadable, match=f"the statement 'insert into .*--skip {bad}"):
        source.changes()
    assert source.found(skip=frozenset({bad})) == [("insert", {"id": 2})]


@pytest.mark.parametrize(
    "altered",
    [
        "alter table t drop partition a",
        'alter table "t" drop partition a',
        "alter table t truncate /* all */ partition a",
        "alter table t convert partition a to table u",
        "alter table t exchange partition a with table v",
        "alter table t discard tablespace",
    ],
)
@pytest.mark.parametrize("asked", ["*", "[uv]"])
def test_rows_that_went_with_their_partition_are_refused(altered: str, asked: str, source: MariaSource) -> None:
    source.run(
        "create table v (id int)",
        "create table t (id int)" + " partition by range (id) (partition a values less than (10), "
        "partition b values less than (20))" * ("partition" in altered),
        "insert into t values (1)",
        "set sql_mode = 'ANSI'",
        altered,
    )
    if asked == "*" or " table u" in altered or " table v" in altered:
        with pytest.raises(Unreadable, match="partitions"):
            source.server.changes(source.here, f"{source.name}.{asked}")
    else:
        assert source.server.changes(source.here, f"{source.name}.{asked}") == []


def test_the_servers_own_tables_and_those_nobody_asked_for_are_left_out(source: MariaSource) -> None:
    source.run(
        "create table a (id int)",
        "create table b (id int)",
        "insert into a values (1)",
        "insert into b values (2)",
        "create user if not exists somebody",
    )
    assert as_found(source.server.changes(source.here, f"{source.name}.b")) == [("insert", {"id": 2})]
    assert [change.database for change in source.server.changes(source.here)] == [source.name, source.name]


def test_a_gtid_that_the_server_does_not_have_is_said(source: MariaSource) -> None:
    source.run("create table item (id int)")  # a server that is new has written nothing
    with pytest.raises(UsageError, match="stands at 0-1-99999999, and the server at ") as told:
        source.server.reader("0-1-99999999")
    assert f":{source.server.port} has written no further than 0-1-" in str(told.value)
    assert "Name the server that the capture began with; or" in str(told.value)


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


def test_an_alter_table_that_only_begins_or_fails_has_changed_nothing(source: MariaSource) -> None:
    """Where the server writes its beginning down too (binlog_alter_two_phase), a target got columns that never were."""
    source.run("create table t (id int primary key, price int)", "insert into t values (1, 1), (2, 1)")
    alter = "alter table t rename column price to {}, add unique key k ({}), algorithm=copy"
    with pytest.raises(pymysql.IntegrityError):
        source.run("set binlog_alter_two_phase = 1", alter.format("failed", "failed"))
    source.run("set binlog_alter_two_phase = 1", alter.format("cost", "id"), "insert into t values (3, 3)")
    with closing(source.reader()) as reader:
        end, altered = source.server.place(), []
        for item in reader.items():
            altered += [dict(item.renamed)] if isinstance(item, ColumnsAltered) else []
            if reader.reached(end):
                break
    assert [each for each in altered if each] == [{"price": "cost"}]
