"""From a source's row to a target's: values that JSON alone does not tell are in the table what they are in the source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from tests.cdc.mariadb import MariaServer
from tests.cdc.postgres import changes, run
from tests.sinks.stores import MirroringStore, PostgresStore, SQLiteStore
from tests.sinks.test_replica import give, opened
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.changes import Message, RowChange, reader_of
from waterclock.changes.maxwell import MaxwellMessage

JSONS = ["null", "true", "false", "1", "1.10", '"a"', '"null"', "[null, true]", '{"a": null}', "1e400", '""']
ORDERS = {"as they stand": 1, "the other way round": -1}


@pytest.fixture
def store(target: MirroringStore) -> MirroringStore:
    """The target; here `database` is the source's."""
    return target


def row_changes(messages: Sequence[MaxwellMessage]) -> list[RowChange]:
    """What a pipeline reads, as changes of one table."""
    read = reader_of("maxwell")
    found = [change for one in messages for change in read(Message(one.as_key(), one.as_json(), one.xoffset))]
    return [change._replace(table="shop.t") for change in found]


def put(store: MirroringStore, messages: Sequence[MaxwellMessage]) -> None:
    """Each change in a batch of its own: a column's type grows with what comes."""
    with opened(store) as sink:
        for number, change in enumerate(row_changes(messages)):
            give(sink, number, change)


def found(store: MirroringStore, column: str) -> list[Any]:
    shown = column if isinstance(store, SQLiteStore) else f"{column}::text"
    return [value for _, value in store.look(f"id, {shown}", store.mirrored("shop.t"))]


def type_of(store: MirroringStore, column: str) -> str:
    if isinstance(store, SQLiteStore):
        return ""
    asked = "pg_typeof" if isinstance(store, PostgresStore) else "typeof"
    return str(store.look(f"{asked}({column})::text, 1", "shop.t")[0][0]).lower()


def exact(text: str | None) -> Any:
    """Values as they are told apart here: None is SQL's null."""
    return None if text is None else ("JSON", repr(json.loads(text, parse_float=Decimal)))


@pytest.mark.mariadb
@pytest.mark.parametrize("order", ORDERS)
def test_json_of_mariadb_is_the_same_json(
    order: str, store: MirroringStore, mariadb: MariaServer, database: str, here: str
) -> None:
    mariadb.run(f"create table {database}.t (id int primary key, c json)")
    values = [*(f"'{text}'" for text in JSONS), "null"][:: ORDERS[order]]
    mariadb.run(*[f"insert into {database}.t values ({n}, {value})" for n, value in enumerate(values)])
    mariadb.run(f"insert into {database}.t values (90, 'null')", f"update {database}.t set c = null where id = 90")
    mariadb.run(f"insert into {database}.t values (91, null)", f"update {database}.t set c = 'null' where id = 91")
    put(store, mariadb.changes(here, f"{database}.*"))
    shown = [exact(value) for (value,) in mariadb.run(f"select cast(c as char) from {database}.t order by id")]
    assert [exact(value) for value in found(store, "c")] == shown
    assert shown[-2:] == [None, ("JSON", "None")]
    assert type_of(store, "c") in ("json", "")


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["json", "jsonb"])
@pytest.mark.parametrize("order", ORDERS)
def test_json_of_postgresql_is_the_same_json(
    order: str, kind: str, store: MirroringStore, slot: ReplicationSlot
) -> None:
    run(
        slot.conninfo,
        f"create table t (id int primary key, c {kind}, b boolean)",
        "alter table t replica identity full",
    )
    start = begun(slot, [])
    values = [*(f"'{text}'" for text in JSONS), "null"][:: ORDERS[order]]
    run(slot.conninfo, *[f"insert into t values ({n}, {value}, true)" for n, value in enumerate(values)])
    run(slot.conninfo, "insert into t values (90, 'null')", "update t set c = null where id = 90")
    run(slot.conninfo, "insert into t values (91, null)", "update t set c = 'null' where id = 91")
    put(store, changes(slot, start))
    shown = [exact(value) for (value,) in run(slot.conninfo, "select c::text from t order by id")]
    assert [exact(value) for value in found(store, "c")] == shown
    assert type_of(store, "c") in ("json", "")
    assert set(found(store, "b")) == ({1, None} if isinstance(store, SQLiteStore) else {"true", None})
    assert type_of(store, "b") in ("boolean", "")


NUMBERS = ["1", "NaN", "2.5", "Infinity", "-Infinity", "0", None]


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["numeric", "double precision", "real"])
@pytest.mark.parametrize("order", ORDERS)
def test_what_is_no_number_in_json_is_one_in_the_table(
    order: str, kind: str, store: MirroringStore, slot: ReplicationSlot
) -> None:
    """NaN came as a text: the target's column of numbers became one of JSON."""
    run(slot.conninfo, f"create table t (id int primary key, c {kind}, d text)", "alter table t replica identity full")
    start = begun(slot, [])
    values = NUMBERS[:: ORDERS[order]]
    for number, value in enumerate(values):
        run(slot.conninfo, f"insert into t values ({number}, {'null' if value is None else repr(value)}, 'NaN')")
    run(slot.conninfo, "update t set c = 'NaN' where c = 0")
    put(store, changes(slot, start))
    shown = [value for (value,) in run(slot.conninfo, "select c::text from t order by id")]
    assert [None if value is None else str(value) for value in found(store, "c")] == shown
    assert set(found(store, "d")) == {"NaN"}
    assert (type_of(store, "c"), type_of(store, "d")) in (("numeric", "text"), ("varchar", "varchar"), ("", ""))


@pytest.mark.postgres
def test_a_column_of_numbers_that_became_one_of_json_takes_nan_as_a_text(store: MirroringStore) -> None:
    read = reader_of("maxwell")

    def message(n: int, value: str, types: str = "") -> Message:
        head = f'"database":"shop","table":"t","type":"insert","sequence":{n},"xoffset":0,"primary_key_columns":["id"]'
        return Message(None, f'{{{head},"data":{{"id":{n},"c":{value}}}{types}}}'.encode(), n)

    number = ',"types":{"c":"number"}'
    messages = [message(1, '"NaN"', number), message(2, "[1]"), message(3, '"Infinity"', number), message(4, "2")]
    with opened(store) as sink:
        for batch, one in enumerate(messages):
            give(sink, batch, *read(one))
    shown = ["NaN", "[1]", "Infinity", 2] if isinstance(store, SQLiteStore) else ['"NaN"', "[1]", '"Infinity"', "2"]
    assert found(store, "c") == shown
