"""NAME.schema: how a table was, in the Kafka transaction of the first change that is so."""

from __future__ import annotations

from functools import partial

import pytest

from tests.cdc.mariadb import MariaSource
from tests.cdc.postgres import items, run
from waterclock.broker import Broker
from waterclock.cdc.capture import Capture
from waterclock.cdc.position import Position
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.postgres.slot import OWN, SlotReader, current
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.schemas import SchemaKeeper
from waterclock.cdc.source import TableFilter
from waterclock.changes.table_schema import SchemaHistory, TableSchema
from waterclock.clock import SystemClock
from waterclock.kafka.client import whole


def schemas(broker: Broker, name: str) -> list[TableSchema]:
    messages = whole({"bootstrap.servers": broker.bootstrap}, f"{name}.schema")
    return [TableSchema.parsed(each.value()) for each in messages]


def shown(schema: TableSchema) -> dict[str, tuple[int, str]]:
    return {column.name: (column.number, column.type) for column in schema.columns}


def captured(source: MariaSource, broker: Broker) -> list[TableSchema]:
    """A start of its own, up to now."""
    target = Target(broker.bootstrap, source.name)
    Capture(
        partial(Publisher, target, source.name),
        lambda position: source.server.reader(position, source.every),
        SystemClock(),
        start=Position(source.here),
    ).run(source.server.place())
    return schemas(broker, source.name)


def test_a_table_of_mariadb_has_its_history(source: MariaSource, broker: Broker) -> None:
    source.run(
        "create table t (id int unsigned primary key, price decimal(10,2) not null, c varchar(20) character set utf8mb4)",
        "insert into t values (1, 1.50, 'a')",
    )
    (first,) = captured(source, broker)
    assert shown(first) == {"id": (1, "int unsigned"), "price": (2, "decimal(10,2)"), "c": (3, "varchar(20)")}
    assert first.key == ("id",)
    assert [column.nullable for column in first.columns] == [False, False, True]
    source.run("insert into t values (2, 1.50, 'a')")
    assert captured(source, broker) == [first]
    # the statement is passed in a start of its own, before any row
    source.run("alter table t rename column price to cost, add column n int not null default 7, drop column c")
    _, altered = captured(source, broker)
    assert shown(altered)["cost"] == (2, "decimal(10,2)")
    source.run("insert into t values (3, 1.50, 9)")
    *_, last = captured(source, broker)
    assert shown(last) == {"id": (1, "int unsigned"), "cost": (2, "decimal(10,2)"), "n": (4, "int")}
    assert (last.columns[-1].older, last.columns[-1].older_known) == ("7", True)


def test_a_table_of_postgresql_has_its_history(slot: ReplicationSlot, broker: Broker) -> None:
    url = slot.conninfo
    start = begun(slot, [])
    run(
        url,
        "create table t (id bigint primary key, price numeric(10,2), at timestamptz(3), c varchar(20) not null)",
        "insert into t values (1, 1.50, now(), 'a')",
    )

    def reader(position: Position) -> SlotReader:
        return SlotReader(slot, position, TableFilter((), OWN), SystemClock())

    def captured() -> list[TableSchema]:
        target = Target(broker.bootstrap, slot.name)
        Capture(partial(Publisher, target, slot.name), reader, SystemClock(), start=start).run(current(slot))
        return schemas(broker, slot.name)

    (first,) = captured()
    assert shown(first) == {
        "id": (1, "bigint"),
        "price": (2, "numeric(10,2)"),
        "at": (3, "timestamp(3) with time zone"),
        "c": (4, "character varying(20)"),
    }
    run(url, "insert into t values (2, 1.50, now(), 'a')")
    assert captured() == [first]
    run(
        url,
        "alter table t rename column price to cost",
        "alter table t drop column c, add column n int not null default 7",
        "insert into t values (3, 1.50, now(), 9)",
    )
    *_, last = captured()
    assert {name: number for name, (number, _) in shown(last).items()} == {"id": 1, "cost": 2, "at": 3, "n": 5}
    assert (last.columns[-1].older, last.columns[-1].default) == ("7", "7")
    assert not last.unsure


def test_a_rename_that_postgresql_cannot_tell_any_more_is_unsure(slot: ReplicationSlot) -> None:
    start = begun(slot, [])
    run(
        slot.conninfo,
        "create table t (id bigint primary key, z int, a int, b int)",
        "alter table t drop column z",
        "insert into t values (1, 1, 1)",
        "alter table t drop column a",
        "alter table t rename column b to c",
    )
    (found,) = items(slot, start, kinds=TableSchema)
    assert found.unsure


# what was done since the first row to a table of which a column had been dropped before: what is known for certain
SINCE = {
    "alter table t drop a": {"id": 1, "b": 4},
    "alter table t drop b": {"id": 1, "a": 3},
    "alter table t rename a to c": {"id": 1, "b": 4},
}


@pytest.mark.parametrize("since", SINCE)
def test_a_column_that_is_gone_from_the_catalog_is_never_taken_for_another_one(
    since: str, slot: ReplicationSlot
) -> None:
    """Numbers were counted anew where one column was not found: a target took `a` for `b`, or emptied what stayed."""
    run(slot.conninfo, "create table t (id int primary key, z int, a text, b text)", "alter table t drop z")
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values (1, 'a', 'b')", since, "insert into t values (2)")
    keeper = SchemaKeeper(SchemaHistory())
    kept = filter(None, (keeper.new(said) for said in items(slot, start, kinds=TableSchema)))
    before, after = [{column.name: column.number for column in each.columns} for each in kept]
    assert before.items() >= SINCE[since].items()
    assert not {number for name, number in before.items() if name not in SINCE[since]} & {*after.values()}


def test_a_column_between_others_has_the_only_number_that_is_left(slot: ReplicationSlot) -> None:
    """Of three that there ever were one was dropped, and one has another name now."""
    start = begun(slot, [])
    run(slot.conninfo, "create table t (id bigint primary key, a int, b int)", "insert into t values (1, 1, 1)")
    run(slot.conninfo, "alter table t drop column a", "alter table t rename column b to c")
    (found,) = items(slot, start, kinds=TableSchema)
    assert ([column.number for column in found.columns], found.unsure) == ([1, 2, 3], False)
