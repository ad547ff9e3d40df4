"""PostgreSQL: a large value that an update did not touch is not in its message. It is read where it may never have come."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from tests.cdc.mariadb import as_found
from tests.cdc.postgres import BIG, changes, items, run
from tests.postgres_server import PostgresServer
from waterclock.cdc.agreement import Terms
from waterclock.cdc.postgres import catalog as large
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.catalog import AT_ONCE, TableCatalog
from waterclock.cdc.postgres.rows import Relation
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.source import SourceMark, put_aside

pytestmark = pytest.mark.postgres
EXTERNAL = ("create table t (id int primary key, n int, big text)", "alter table t alter big set storage external")


def older(slot: ReplicationSlot, *rows: int) -> None:
    """Rows that were there before the slot was made."""
    run(slot.conninfo, *EXTERNAL, *[f"insert into t values ({row}, 0, '{row}{BIG}')" for row in rows])


def test_a_large_value_of_a_row_that_is_older_than_the_slot_comes_with_its_first_update(slot: ReplicationSlot) -> None:
    """A mirror that never had the row held NULL in its place, and nobody was told."""
    older(slot, 1)
    start = begun(slot, [])
    run(slot.conninfo, "update t set n = 1", "update t set n = 2")
    assert as_found(changes(slot, start)) == [
        ("update", {"id": 1, "n": 1, "big": f"1{BIG}"}),
        ("update", {"id": 1, "n": 2}),
    ]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of how many rows each look asked."""
    counts: list[int] = []
    look = TableCatalog.rows_of

    def counted(self: TableCatalog, relation: Relation, keys: Sequence[Any], names: Sequence[str]) -> list[Any]:
        counts.append(len(keys))
        return look(self, relation, keys, names)

    monkeypatch.setattr(TableCatalog, "rows_of", counted)
    return counts


def test_rows_that_the_capture_sent_itself_are_not_looked_up(slot: ReplicationSlot, asked: list[int]) -> None:
    run(slot.conninfo, *EXTERNAL)
    start = begun(slot, [])
    run(slot.conninfo, f"insert into t values (1, 0, '{BIG}')", "update t set n = 1", "update t set n = 2")
    assert [change.values().get("big") for change in changes(slot, start)] == [BIG, None, None]
    assert asked == []


def test_the_rows_of_a_transaction_are_looked_up_together_and_no_more_than_so_many(
    slot: ReplicationSlot, asked: list[int]
) -> None:
    older(slot, *range(3))
    run(slot.conninfo, f"insert into t select n, 0, n || '{BIG}' from generate_series(3, 1199) n")
    start = begun(slot, [])
    run(slot.conninfo, "update t set n = 1", "update t set n = 2 where id < 5")
    found = changes(slot, start)
    assert all(change.values()["big"] == f"{change.values()['id']}{BIG}" for change in found[:1200])
    assert [change.xoffset for change in found] == [*range(1200), *range(5)]
    assert [place for place, change in enumerate(found) if change.commit] == [1199, 1204]
    assert max(asked) <= AT_ONCE
    assert len(asked) == 3
    assert sum(asked) == 1200


def test_each_table_of_a_transaction_has_a_look_of_its_own(slot: ReplicationSlot, asked: list[int]) -> None:
    older(slot, 1, 2)
    run(slot.conninfo, "create table u (a int, b text, big text, n int, primary key (b, a))")
    run(slot.conninfo, "alter table u alter big set storage external")
    run(slot.conninfo, f"insert into u values (1, 'x', '1{BIG}', 0), (2, 'x', '2{BIG}', 0), (1, 'y', null, 0)")
    start = begun(slot, [])
    run(slot.conninfo, "begin; update t set n = 1; update u set n = 1; update t set n = 2; commit")
    found = changes(slot, start)
    assert [(change.table, change.values().get("big")) for change in found] == [
        ("t", f"1{BIG}"), ("t", f"2{BIG}"), ("u", f"1{BIG}"), ("u", f"2{BIG}"), ("u", None), ("t", None), ("t", None),
    ]  # fmt: skip
    assert asked == [2, 2]


SINCE = {
    "update t set big = 'young'": [{"id": 1, "n": 1, "big": "young"}, {"id": 1, "n": 1, "big": "young"}],
    "delete from t": [{"id": 1, "n": 1}, {"id": 1}],
    "update t set id = 2": [{"id": 1, "n": 1}, {"id": 1}, {"id": 2, "n": 1, "big": f"1{BIG}"}],
    "begin; delete from t; insert into t values (1, 5, 'new'); commit": [
        {"id": 1, "n": 1, "big": "new"}, {"id": 1}, {"id": 1, "n": 5, "big": "new"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("since", SINCE)
def test_what_a_row_is_by_then_is_settled_by_the_change_that_made_it_so(since: str, slot: ReplicationSlot) -> None:
    older(slot, 1)
    start = begun(slot, [])
    run(slot.conninfo, "update t set n = 1", since)
    assert [change.values() for change in changes(slot, start)] == SINCE[since]


@pytest.mark.parametrize("since", ["drop table t", "alter table t rename id to ident", "alter table t rename big to b"])
def test_a_table_that_was_changed_meanwhile_is_told(
    since: str, slot: ReplicationSlot, caplog: pytest.LogCaptureFixture
) -> None:
    """No later change tells it."""
    older(slot, 1)
    start = begun(slot, [])
    run(slot.conninfo, "update t set n = 1", since)
    assert as_found(changes(slot, start)) == [("update", {"id": 1, "n": 1})]
    assert "public.t was dropped, or its columns" in caplog.text


def test_a_column_that_got_another_name_brings_its_large_values_under_that_one(slot: ReplicationSlot) -> None:
    run(slot.conninfo, *EXTERNAL)
    start = begun(slot, [])
    run(slot.conninfo, f"insert into t values (1, 0, '{BIG}')", "alter table t rename big to b", "update t set n = 1")
    assert as_found(changes(slot, start))[1] == ("update", {"id": 1, "n": 1, "b": BIG})


def test_of_other_columns_that_are_gone_the_rest_is_looked_up(slot: ReplicationSlot) -> None:
    older(slot, 1)
    run(slot.conninfo, "alter table t add more text", "alter table t alter more set storage external")
    run(slot.conninfo, f"update t set more = '{BIG}'")
    start = begun(slot, [])
    run(slot.conninfo, "update t set n = 1", "alter table t drop more")
    assert as_found(changes(slot, start)) == [("update", {"id": 1, "n": 1, "big": f"1{BIG}"})]


def test_where_this_role_may_not_look_the_values_are_left_out_and_that_is_said_once(
    slot: ReplicationSlot, logical: PostgresServer, asked: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """It is not certain that a reader lacks them: a capture that has run for long must not end here."""
    older(slot, 1, 2)
    run(slot.conninfo, "drop role if exists blind", "create role blind login replication")
    start = begun(slot, [])
    run(slot.conninfo, "update t set n = 1", "update t set n = 2")
    blind = ReplicationSlot(logical.url(database=slot.name).replace("postgres@", "blind@"), slot.name, slot.publication)
    assert [change.values() for change in changes(blind, start)] == [
        {"id": row, "n": n} for n in (1, 2) for row in (1, 2)
    ]
    assert asked == [2, 2]
    assert caplog.text.count("GRANT SELECT on the table") == 1
    assert "public.t: 2 updated rows, and those to come, are sent without the large values" in caplog.text


def test_a_row_that_comes_into_a_publications_filter_brings_its_large_values(slot: ReplicationSlot) -> None:
    """PostgreSQL sends it as an insert, and leaves out what the update did not touch: the message was no JSON."""
    older(slot, 1)
    run(slot.conninfo, f"create publication {slot.publication} for table t where (id > 5)")
    start = begun(slot, [])
    run(slot.conninfo, "update t set id = 6")
    found = changes(slot, start, terms=Terms(as_published=True))
    assert as_found(found) == [("insert", {"id": 6, "n": 0, "big": f"1{BIG}"})]


def test_a_row_of_an_heir_with_the_same_key_is_another_row(slot: ReplicationSlot) -> None:
    older(slot, 1)
    run(slot.conninfo, "create table heir () inherits (t)", "insert into heir values (1, 0, 'of the heir')")
    start = begun(slot, [])
    run(slot.conninfo, "update only t set n = 1")
    assert as_found(changes(slot, start, "public.t")) == [("update", {"id": 1, "n": 1, "big": f"1{BIG}"})]


def test_a_partitions_rows_are_found_by_its_root_too(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table t (id int primary key, n int, big text) partition by range (id)")
    run(slot.conninfo, "create table t1 partition of t for values from (0) to (9)")
    run(slot.conninfo, "alter table t1 alter big set storage external", f"insert into t values (1, 0, '{BIG}')")
    run(slot.conninfo, f"create publication {slot.publication} for table t with (publish_via_partition_root = true)")
    start = begun(slot, [])
    run(slot.conninfo, "update t set n = 1")
    assert as_found(changes(slot, start)) == [("update", {"id": 1, "n": 1, "big": BIG})]


def test_a_start_inside_a_transaction_counts_the_same_records_whoever_waits_for_values(slot: ReplicationSlot) -> None:
    """A dead letter stood before changes that waited, or behind them if they did not: one would come twice, one never."""
    older(slot, 1, 2)
    run(slot.conninfo, "create table odd (x int, id int primary key, c int)", "alter table odd replica identity full")
    start = begun(slot, [])
    one, two = ("update t set n = 1 where id = 1", "update t set n = 1 where id = 2")
    first, odd, last = [
        f"insert into {row}" for row in ("t values (7, 0, 'a')", "odd values (1, 2, 3)", "t values (8, 0, 'a')")
    ]
    run(slot.conninfo, f"begin; {first}; {one}; {odd}; {two}; {last}; commit")
    run(slot.conninfo, "alter table odd drop x", "alter table odd rename id to ident")
    whole = [item for item in items(slot, start, refusal=put_aside) if not isinstance(item, SourceMark)]
    assert [item.xoffset for item in whole] == [0, 2, 1, 3, 4]
    for done in range(1, 5):
        inside = start._replace(rows=done, inside=whole[0].gtid)
        rest = [item for item in items(slot, inside, refusal=put_aside) if not isinstance(item, SourceMark)]
        assert [item.xoffset for item in rest] == [item.xoffset for item in whole[done:]]


def test_what_is_remembered_of_rows_is_bounded(
    slot: ReplicationSlot, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "LATEST", 2)
    older(slot, 1, 2, 3)
    start = begun(slot, [])
    run(slot.conninfo, *[f"update t set n = n + 1 where id = {row}" for row in (1, 2, 3, 3, 2, 1)])
    run(
        slot.conninfo,
        f"update t set big = '3{BIG}' where id = 3",
        "update t set n = 9 where id = 2",
        "update t set n = 9 where id = 3",
    )
    assert [change.values().get("big") for change in changes(slot, start)] == [
        f"1{BIG}", f"2{BIG}", f"3{BIG}", None, None, f"1{BIG}", f"3{BIG}", f"2{BIG}", None,
    ]  # fmt: skip
    assert asked == [1, 1, 1, 1, 1]


def test_what_a_former_start_sent_of_a_transaction_is_not_taken_for_whole(slot: ReplicationSlot) -> None:
    """It may have been refused the look."""
    older(slot, 1, 2)
    start = begun(slot, [])
    run(slot.conninfo, "update t set n = 1", "update t set n = 2")
    first, *_ = changes(slot, start)
    rest = changes(slot, start._replace(rows=1, inside=first.gtid))
    assert [change.values()["big"] for change in rest] == [f"2{BIG}", f"1{BIG}", f"2{BIG}"]


def test_after_something_was_left_out_nothing_is_taken_for_sent(slot: ReplicationSlot) -> None:
    run(slot.conninfo, *EXTERNAL)
    start = begun(slot, [])
    run(slot.conninfo, f"insert into t values (1, 0, 'a{BIG}')", f"update t set big = 'b{BIG}'", "update t set n = 1")
    gtid = changes(slot, start)[1].gtid
    found = changes(slot, start, skip=frozenset({gtid}))
    assert [change.values()["big"] for change in found] == [f"a{BIG}", f"b{BIG}"]


def test_a_table_that_somebody_locks_is_waited_for_and_that_is_said(
    slot: ReplicationSlot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The capture stood still for as long, with all other tables, and not a word was said."""
    monkeypatch.setattr(large, "LOCKED_S", 0.1)
    older(slot, 1)
    start = begun(slot, [])
    run(slot.conninfo, "update t set n = 1")
    with psycopg.connect(slot.conninfo) as other:
        other.execute("lock table t in access exclusive mode")
        threading.Timer(1, other.rollback).start()
        assert as_found(changes(slot, start)) == [("update", {"id": 1, "n": 1, "big": f"1{BIG}"})]
    assert [record.getMessage()[:30] for record in caplog.records] == ["public.t is locked by somebody"]
