"""PostgreSQL on a real server: its slot's messages are the rows, types as PostgreSQL prints them, and nothing is
skipped."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from decimal import Decimal

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.cdc.mariadb import as_found
from tests.cdc.postgres import LARGE, changes, run
from tests.kafka.reader import committed
from tests.postgres_server import PostgresServer
from waterclock.cdc.capture import Capture
from waterclock.cdc.position import Position
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.postgres.slot import OWN, SlotReader, current
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.source import TableFilter
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.clock import SystemClock
from waterclock.errors import Unreadable, UsageError
from waterclock.testing import Broker

VALUES = {
    "smallint": ("-32768", "-32768"),
    "bigint": ("9223372036854775807", "9223372036854775807"),
    "numeric": ("123456789012345678901234567890.1234567890", "123456789012345678901234567890.1234567890"),
    "numeric(10,4)": ("12.5", "12.5000"),
    "double precision": ("0.1", "0.1"),
    "real": ("1e-40", "1e-40"),
    "boolean": ("true", "true"),
    "text": ("'ä€😀\\\"'", '"ä€😀\\\\\\""'),
    "char(4)": ("'a'", '"a   "'),
    "bytea": ("'\\x00ff'", '"\\\\x00ff"'),
    "date": ("'0044-03-15 BC'", '"0044-03-15 BC"'),
    "timestamp": ("'2024-01-02 03:04:05.000006'", '"2024-01-02 03:04:05.000006"'),
    "timestamptz": ("'2024-01-02 03:04:05.000006+05:30'", '"2024-01-01 21:34:05.000006+00"'),
    "time": ("'23:59:59.999999'", '"23:59:59.999999"'),
    "interval": ("'1 year -3 days 04:05:06.7'", '"1 year -3 days +04:05:06.7"'),
    "uuid": ("'123e4567-e89b-42d3-a456-426614174000'", '"123e4567-e89b-42d3-a456-426614174000"'),
    "json": ("'{\"a\": 1.10}'", '{"a": 1.10}'),
    "jsonb": ("'[1, null]'", "[1, null]"),
    "int[]": ("'{1,NULL,3}'", '"{1,NULL,3}"'),
    "inet": ("'10.0.0.1/8'", '"10.0.0.1/8"'),
    "numrange": ("'[1,2)'", '"[1,2)"'),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_is_the_text_that_postgresql_prints(kind: str, slot: ReplicationSlot) -> None:
    literal, expected = VALUES[kind]
    run(slot.conninfo, f"create table t (id int primary key, c {kind})")
    start = begun(slot, [])
    run(slot.conninfo, f"insert into t values (1, {literal}), (2, null)")
    assert [change.data["c"] for change in changes(slot, start)] == [expected, "null"]


def test_what_is_no_number_in_json_is_a_string(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table t (a double precision, b numeric)")
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values ('NaN', 'NaN'), ('-Infinity', 'Infinity')")
    assert [list(change.values().values()) for change in changes(slot, start)] == [
        ["NaN", "NaN"],
        ["-Infinity", "Infinity"],
    ]


def test_transactions_come_in_the_order_of_their_commits(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table t (id int primary key, c numeric(5,2))")
    start = begun(slot, [])
    with psycopg.connect(slot.conninfo) as early, psycopg.connect(slot.conninfo) as late:
        early.execute("insert into t values (1, 1.5)")
        late.execute("insert into t values (2, 2.5)")
        late.commit()
        early.execute("update t set c = 3 where id = 1")
        early.commit()
    run(slot.conninfo, "delete from t where id = 2")
    found = changes(slot, start)
    assert as_found(found) == [
        ("insert", {"id": 2, "c": Decimal("2.50")}),
        ("insert", {"id": 1, "c": Decimal("1.50")}),
        ("update", {"id": 1, "c": Decimal("3.00")}),
        ("delete", {"id": 2}),
    ]
    assert [change.commit for change in found] == [True, False, True, True]
    assert found == sorted(found, key=lambda change: (change.sequence, change.xoffset))
    assert json.loads(found[0].as_key()) == {"database": "public", "table": "t", "pk.id": 2}


def test_a_changed_key_is_a_delete_and_an_insert(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table t (id int primary key, c text)")
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values (1, 'a')", "update t set id = 2")
    assert as_found(changes(slot, start))[1:] == [("delete", {"id": 1}), ("insert", {"id": 2, "c": "a"})]


def test_a_full_identity_tells_former_values_and_the_key_is_still_the_primary_one(slot: ReplicationSlot) -> None:
    run(
        slot.conninfo,
        "create table t (a int, b int, c text, primary key (b, a))",
        "alter table t replica identity full",
    )
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values (1, 2, 'x')", "update t set c = 'y'", "delete from t")
    found = changes(slot, start)
    assert [change.key for change in found] == [("a", "b")] * 3
    assert (found[1].old, found[2].values()) == ({"c": '"x"'}, {"a": 1, "b": 2, "c": "y"})


def test_the_columns_of_a_key_have_one_order_whatever_the_replica_identity(slot: ReplicationSlot) -> None:
    """FULL named them in the primary key's order: the row's partition changed, and a compacted topic kept both."""
    run(slot.conninfo, "create table t (a int, b int, c int, primary key (b, a))")
    start = begun(slot, [])
    for identity in ("default", "full", "default", "nothing"):
        run(slot.conninfo, f"alter table t replica identity {identity}", "insert into t values (1, 2, 3)")
        run(slot.conninfo, "delete from t" if identity != "nothing" else "select 1")
    found = changes(slot, start)
    assert len(found) == 7
    assert {change.as_key() for change in found} == {b'{"database":"public","table":"t","pk.a":1,"pk.b":2}'}


def test_a_large_value_that_was_not_touched_is_left_out(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table t (id int primary key, c int, large text)")
    start = begun(slot, [])
    run(slot.conninfo, f"insert into t values (1, 1, {LARGE})", "update t set c = 2")
    assert changes(slot, start)[1].data == {"id": "1", "c": "2"}


def test_a_large_key_that_was_not_touched_is_the_same_key(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table t (id text primary key, c int)", "alter table t alter id set storage external")
    start = begun(slot, [])
    key = "".join(f"{n:032x}" for n in range(80))
    run(slot.conninfo, f"insert into t values ('{key}', 1)", "update t set c = 2", "delete from t")
    found = changes(slot, start)
    assert [(change.type, change.values()["id"]) for change in found] == [
        (kind, key) for kind in ("insert", "update", "delete")
    ]


def test_a_truncate_is_a_change_of_each_table(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table a (id int primary key)", "create table b (id int references a)")
    start = begun(slot, [])
    run(slot.conninfo, "truncate a, b")
    found = changes(slot, start)
    assert sorted((change.table, change.type) for change in found) == [("a", "truncate"), ("b", "truncate")]


def test_a_table_may_change_between_its_rows(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table t (id int primary key, a int)")
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values (1, 1)", "alter table t rename a to b", "alter table t add c text default 'x'",
        "insert into t values (2, 2)", "drop table t")  # fmt: skip
    assert [change.values() for change in changes(slot, start)] == [{"id": 1, "a": 1}, {"id": 2, "b": 2, "c": "x"}]


def test_what_comes_after_a_position_is_the_same_from_each_position_on(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table t (id int primary key)")
    start = begun(slot, [])
    run(slot.conninfo, *[f"insert into t values ({n}), ({n + 100})" for n in range(6)])
    end, positions, seen = current(slot), [], []
    with closing(SlotReader(slot, start, TableFilter([], OWN), SystemClock())) as reader:
        for item in reader.items():
            if isinstance(item, MaxwellMessage):
                seen.append(item)
            else:
                positions.append((reader.position(), len(seen)))
                if reader.reached(end):
                    break
    assert len(seen) == 12
    for position, count in positions:
        assert changes(slot, position) == seen[count:]


def test_nothing_is_passed_over_behind_more_changes_than_one_look_brings(slot: ReplicationSlot) -> None:
    """The slot stays where it is until Kafka has what was read: each look begins with the same changes again."""
    run(slot.conninfo, "create table noise (id int primary key)", "create table t (id int primary key)")
    start = begun(slot, [])
    run(slot.conninfo, "insert into noise select generate_series(1, 25000)", "insert into t values (1)")
    run(slot.conninfo, "insert into noise select generate_series(25001, 70000)", "insert into t values (2)")
    assert as_found(changes(slot, start, "public.t")) == [("insert", {"id": 1}), ("insert", {"id": 2})]


def test_columns_that_a_primary_key_only_includes_are_not_of_the_key(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table t (b int, a int, c int, primary key (a, b) include (c))")
    run(slot.conninfo, "alter table t replica identity full")
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values (1, 2, 3)", "update t set c = 4")
    assert [(change.type, change.key) for change in changes(slot, start)] == [
        ("insert", ("b", "a")),
        ("update", ("b", "a")),
    ]


def test_a_table_that_the_publication_does_not_bring_is_told(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table a (id int primary key)", "create table b (id int primary key)")
    start = begun(slot, ["public.a"])
    run(slot.conninfo, "insert into b values (1)", "insert into a values (1)")
    with pytest.raises(UsageError, match=f"ALTER PUBLICATION {slot.publication} ADD TABLE public.b"):
        changes(slot, start, "public.a", "public.b")
    assert as_found(changes(slot, start, "public.a", "public.gone")) == [("insert", {"id": 1})]


def test_a_role_that_owns_its_tables_and_is_no_superuser_is_told_to_name_them(slot: ReplicationSlot) -> None:
    name = slot.name
    role = (
        f"drop role if exists {name}",
        f"create role {name} login replication",
        f"grant create on database {name} to {name}",
    )
    run(slot.conninfo, *role, f"create schema own authorization {name}")
    owner = replace(slot, conninfo=make_conninfo(slot.conninfo, user=name))
    run(owner.conninfo, "create table own.t (id int primary key)")
    with pytest.raises(UsageError, match=r"^Only a superuser may publish all tables.* --tables SCHEMA\.TABLE for each"):
        begun(owner, [])
    start = begun(owner, ["own.t"])
    run(owner.conninfo, "insert into own.t values (1)")
    assert as_found(changes(owner, start, "own.t")) == [("insert", {"id": 1})]


def test_a_slot_that_is_ahead_of_kafka_is_refused(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table t (id int primary key)")
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values (1)")
    run(slot.conninfo, f"select pg_replication_slot_advance('{slot.name}', pg_current_wal_insert_lsn())")
    with pytest.raises(UsageError, match="what lies between is lost"):
        changes(slot, start)


def test_a_server_that_has_written_less_than_kafka_has_is_refused_and_its_slot_left_alone(
    slot: ReplicationSlot,
) -> None:
    run(slot.conninfo, "create table t (id int primary key)")
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values (1)")
    with pytest.raises(UsageError, match="holds for another server, or for this one before"):
        changes(slot, Position("FFFF/0"))
    with pytest.raises(UsageError, match="The position 0-1-7 is none of PostgreSQL"):  # it was a ValueError
        changes(slot, Position("0-1-7"))
    assert as_found(changes(slot, start)) == [("insert", {"id": 1})]


def test_a_slot_that_somebody_else_read_from_meanwhile_is_refused(slot: ReplicationSlot) -> None:
    """Two names that make one slot: each passed over what the other one had read, and neither heard of it. While one of
    them reads the other cannot (test_stream.py); so this is for the time between."""
    run(slot.conninfo, "create table t (id int primary key)")
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values (1)")
    with closing(SlotReader(slot, start, TableFilter([], OWN), SystemClock())) as other:
        other.stored(Position(current(slot)))
    with pytest.raises(UsageError, match="what lies between is lost"):
        SlotReader(slot, start, TableFilter([], OWN), SystemClock())


def test_a_slot_that_is_gone_is_refused(slot: ReplicationSlot) -> None:
    start = begun(slot, [])
    run(slot.conninfo, f"select pg_drop_replication_slot('{slot.name}')")
    with pytest.raises(UsageError, match="is gone, and Kafka has the changes"):
        changes(slot, start)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_text_comes_as_utf8_whatever_the_database_keeps(
    encoding: str, logical: PostgresServer, slot: ReplicationSlot
) -> None:
    """A database in LATIN1 ended the capture with a traceback."""
    name, other = slot.name + "e", f"encoding '{encoding}' template template0 locale 'C'"
    run(logical.url(), f"create database {name} {other}")
    odd = ReplicationSlot(logical.url(database=name), name, name)
    start = begun(odd, [])
    run(
        odd.conninfo,
        "create table t (c text)",
        "insert into t values (E'\\xe9')" if encoding == "SQL_ASCII" else "select 1",
    )
    if encoding == "LATIN1":
        run(odd.conninfo, "insert into t values (U&'\\00e9')")
        assert as_found(changes(odd, start)) == [("insert", {"c": "é"})]
    else:
        with pytest.raises(Unreadable, match=r"holds bytes that are no UTF-8 .* --dead-letters TOPIC"):
            changes(odd, start)
    run(logical.url(), f"select pg_drop_replication_slot('{name}')", f"drop database {name} with (force)")


def test_without_a_replica_identity_rows_still_have_their_key(slot: ReplicationSlot) -> None:
    run(slot.conninfo, "create table t (id int primary key)", "alter table t replica identity nothing")
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values (1)")
    assert [change.key for change in changes(slot, start)] == [("id",)]


def test_who_is_not_let_in_is_not_asked_whether_the_server_runs(slot: ReplicationSlot) -> None:
    for wrong in ("user=nobody", "dbname=nothing"):
        with pytest.raises(UsageError, match=r"does not let this role in: .* does not exist"):
            begun(replace(slot, conninfo=make_conninfo(slot.conninfo, **dict([wrong.split("=")]))), [])


def test_a_slot_without_its_wal_is_said_at_once(slot: ReplicationSlot) -> None:
    """It was taken for a broken connection, and tried again for minutes. A slot of another kind is refused likewise."""
    start = begun(slot, [])
    run(slot.conninfo, "alter system set max_slot_wal_keep_size = '1MB'", "select pg_reload_conf()")
    try:
        run(
            slot.conninfo,
            "create table t (c text)",
            *["select pg_switch_wal()", "insert into t values (1)"] * 6,
            "checkpoint",
        )
        with pytest.raises(UsageError, match="If its WAL is gone"):
            changes(slot, start)
    finally:
        run(slot.conninfo, "alter system reset max_slot_wal_keep_size", "select pg_reload_conf()")


def test_each_change_is_in_kafka_once_whatever_breaks_and_the_slot_follows(
    slot: ReplicationSlot, broker: Broker
) -> None:
    run(slot.conninfo, "create table t (id int primary key, c text)")
    start = begun(slot, [])
    target, name = Target(broker.bootstrap, slot.name, "global"), slot.name

    class Dying(Publisher):
        def store(self, position: Position) -> None:
            if deaths and deaths.pop():
                raise KeyboardInterrupt
            super().store(position)

        def commit(self, position: Position) -> None:
            super().commit(position)
            if deaths and deaths.pop():
                raise KeyboardInterrupt  # after the commit, before the slot is advanced

    deaths: list[bool] = []
    expected: list[MaxwellMessage] = []
    for death in ([], [True], [True, False], []):
        run(slot.conninfo, *[f"insert into t values ({len(expected) + n}, 'x')" for n in range(20)])
        with closing(psycopg.connect(slot.conninfo)):
            deaths = list(death)
        capture = Capture(
            lambda: Dying(target, name),
            lambda position: SlotReader(slot, position, TableFilter([], OWN), SystemClock()),
            SystemClock(),
            start=lambda: start,
        )
        end = current(slot)
        if death:
            with pytest.raises(KeyboardInterrupt):
                capture.run(end)
        capture.run(end)
        expected = [*expected, *[None] * 20]  # type: ignore[list-item]
    ids = [json.loads(value)["data"]["id"] for _, value in committed(broker, name)[0]]
    assert ids == list(range(80))
    (confirmed,) = run(
        slot.conninfo, f"select confirmed_flush_lsn::text from pg_replication_slots where slot_name = '{name}'"
    )
    assert confirmed[0] == capture.statistics().place
