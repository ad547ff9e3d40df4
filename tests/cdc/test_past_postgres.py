"""PostgreSQL: what cannot be read stops nobody for good, and what only looks so is read."""

from __future__ import annotations

import json

import pytest

from tests.cdc.mariadb import as_found
from tests.cdc.postgres import BIG, changes, items, run
from tests.kafka.reader import committed
from tests.postgres_server import PostgresServer
from waterclock.cdc.capture import Capture
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.postgres.slot import OWN, SlotReader, current
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.source import DeadLetter, SourceMark, TableFilter, put_aside
from waterclock.clock import SystemClock
from waterclock.errors import Unreadable
from waterclock.testing import Broker

pytestmark = pytest.mark.postgres
EXTERNAL = ("create table t (id int primary key, big text)", "alter table t alter big set storage external")


def test_a_row_that_gets_another_key_has_its_large_value_read_by_the_new_one(slot: ReplicationSlot) -> None:
    run(slot.conninfo, *EXTERNAL)
    start = begun(slot, [])
    run(slot.conninfo, f"insert into t values (1, '{BIG}')", "update t set id = 2")
    assert as_found(changes(slot, start)) == [
        ("insert", {"id": 1, "big": BIG}),
        ("delete", {"id": 1}),
        ("insert", {"id": 2, "big": BIG}),
    ]


def test_a_table_that_nobody_asked_for_may_have_had_another_key(slot: ReplicationSlot) -> None:
    """The relation was refused before it was asked whether it is wanted."""
    run(slot.conninfo, "create table t (id int primary key)", "alter table t replica identity full")
    run(slot.conninfo, "create table mine (id int primary key)")
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values (1)", "alter table t rename id to ident", "insert into mine values (7)")
    assert as_found(changes(slot, start, "public.mine")) == [("insert", {"id": 7})]


def test_a_key_whose_column_got_another_name_is_known_by_its_place(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table t (a int, id int, primary key (id, a))", "alter table t replica identity full")
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values (5, 1)", "alter table t rename id to ident", "update t set ident = 2")
    assert [change.key for change in changes(slot, start)] == [("a", "id"), ("a", "ident"), ("a", "ident")]


def test_two_columns_that_took_each_others_names_are_not_taken_for_each_other(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table t (a int primary key, b int)", "alter table t replica identity full")
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values (1, 2)")
    run(slot.conninfo, *[f"alter table t rename {old} to {new}" for old, new in ("ax", "ba", "xb")])
    assert [change.key for change in changes(slot, start)] == [("a",)]


SINCE = {
    "update t set big = 'young' where id = 2": {"id": 2, "big": "young"},
    "delete from t": {"id": 2},
    "update t set id = 3": {"id": 2},
    "alter table t rename to u": {"id": 2, "big": BIG},
    "alter table t rename big to large": {"id": 2},
    "alter table t drop big": {"id": 2},
    "drop table t": {"id": 2},
    "truncate t": {"id": 2},
}


@pytest.mark.parametrize("since", SINCE)
def test_a_large_value_that_is_looked_up_late_is_the_younger_one_or_is_left_out(
    since: str, slot: ReplicationSlot
) -> None:
    """Whatever made it so is a change of its own, which comes later and settles it."""
    run(slot.conninfo, *EXTERNAL)
    start = begun(slot, [])
    run(slot.conninfo, f"insert into t values (1, '{BIG}')", "update t set id = 2", since)
    assert as_found(changes(slot, start))[2] == ("insert", SINCE[since])


@pytest.mark.parametrize(
    ("kind", "value", "other"),
    [("jsonb", "'[1, null]'", "'{}'"), ("text", "'a''b'", "'ä€'"), ("timestamptz", "now()", "'1999-01-01'"),
     ("double precision", "0.1", "'NaN'"), ("boolean", "true", "false"), ("char(9)", "'a'", "'b'")],
)  # fmt: skip
def test_a_row_is_looked_up_by_a_key_of_any_kind(kind: str, value: str, other: str, slot: ReplicationSlot) -> None:
    run(
        slot.conninfo,
        f"create table t (id {kind} primary key, big text)",
        "alter table t alter big set storage external",
    )
    start = begun(slot, [])
    run(slot.conninfo, f"insert into t values ({value}, '{BIG}')", f"update t set id = {other}")
    assert [change.values().get("big") for change in changes(slot, start)] == [BIG, None, BIG]


def test_who_may_not_look_a_value_up_is_told_the_grant(slot: ReplicationSlot, logical: PostgresServer) -> None:
    run(slot.conninfo, *EXTERNAL, "drop role if exists reader", "create role reader login replication")
    start = begun(slot, [])
    run(slot.conninfo, f"insert into t values (1, '{BIG}')", "update t set id = 2")
    with pytest.raises(Unreadable, match="GRANT SELECT on the table, and start again"):
        changes(
            ReplicationSlot(
                logical.url(database=slot.name).replace("postgres@", "reader@"), slot.name, slot.publication
            ),
            start,
        )


def unknown_key(slot: ReplicationSlot) -> None:
    """A table whose former key nobody can tell any more, between rows of another one."""
    run(slot.conninfo, "create table good (id int primary key)")
    run(slot.conninfo, "create table t (x int, id int primary key, c int)", "alter table t replica identity full")


def spoil(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "insert into good values (1)")
    run(
        slot.conninfo,
        "begin; insert into good values (2); insert into t values (1, 2, 3); insert into good values (3); commit",
    )
    run(slot.conninfo, "insert into good values (4)", "alter table t drop x", "alter table t rename id to ident")


def test_a_key_that_nobody_can_tell_any_more_is_refused_with_what_works_from_there(slot: ReplicationSlot) -> None:
    unknown_key(slot)
    start = begun(slot, [])
    spoil(slot)
    with pytest.raises(
        Unreadable, match=r"public.t: the primary key is \(ident\) now.* --skip [0-9A-F]+/[0-9A-F]+; or "
    ):
        changes(slot, start)
    run(slot.conninfo, "alter table t rename ident to id")
    assert [change.key for change in changes(slot, start)] == [("id",)] * 5


def test_a_transaction_is_left_out_by_its_lsn(slot: ReplicationSlot) -> None:
    unknown_key(slot)
    start = begun(slot, [])
    spoil(slot)
    with pytest.raises(Unreadable) as refused:
        changes(slot, start)
    lsn = str(refused.value).partition("--skip ")[2].partition(";")[0]
    found = changes(slot, start, skip=frozenset({lsn}))
    assert as_found(found) == [("insert", {"id": 1}), ("insert", {"id": 4})]
    assert [change.commit for change in found] == [True, True]


def test_a_record_that_is_put_aside_leaves_the_rest_of_its_transaction(slot: ReplicationSlot) -> None:
    unknown_key(slot)
    start = begun(slot, [])
    spoil(slot)
    found = items(slot, start, refusal=put_aside)
    letters = [item for item in found if isinstance(item, DeadLetter)]
    rows = [item for item in found if not isinstance(item, DeadLetter | SourceMark)]
    assert [(row.values()["id"], row.xoffset, row.commit) for row in rows] == [
        (1, 0, True), (2, 0, False), (3, 2, True), (4, 0, True),
    ]  # fmt: skip
    assert [(letter.table, letter.kind, letter.xoffset, letter.gtid) for letter in letters] == [
        ("t", "message I", 1, rows[1].gtid)
    ]
    assert letters[0].record[:1] == b"I"


def test_what_was_committed_before_it_is_delivered_before_the_stop(slot: ReplicationSlot, broker: Broker) -> None:
    unknown_key(slot)
    start = begun(slot, [])
    spoil(slot)
    capture = Capture(
        lambda: Publisher(Target(broker.bootstrap, slot.name, "global"), slot.name),
        lambda position: SlotReader(slot, position, TableFilter([], OWN), SystemClock()),
        SystemClock(),
        start=start,
    )
    for _ in range(2):
        with pytest.raises(Unreadable, match="the primary key is"):
            capture.run(current(slot))
        assert [json.loads(value)["data"] for _, value in committed(broker, slot.name)[0]] == [{"id": 1}]
