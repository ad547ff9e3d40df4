"""Debezium's form written and read again: every type of both databases, with schemas and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.cdc.mariadb import MariaSource
from tests.cdc.postgres import changes, run
from waterclock.cdc.debezium.envelope import DebeziumForm
from waterclock.cdc.debezium.values import Modes, column_form
from waterclock.cdc.door.batch import Change
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.changes import Message, RowChange, reader_of
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.changes.row_change import Json
from waterclock.changes.sql_types import ColumnTypes, sql_type
from waterclock.errors import Unreadable


def read_again(found: list[MaxwellMessage], form: DebeziumForm) -> Iterator[RowChange]:
    read = reader_of("debezium")
    for offset, change in enumerate(found):
        for message in form.messages(change):
            yield from read(Message(message.key, message.value, offset))


# what is declared, a literal, what comes without a schema, and what the schema makes of it (None: the same)
OF_MARIADB: list[tuple[str, str, Any, Any]] = [
    ("tinyint", "-128", -128, None),
    ("smallint unsigned", "65535", 65535, None),
    ("mediumint", "-8388608", -8388608, None),
    ("int unsigned", "4294967295", 4294967295, None),
    ("bigint", "-9223372036854775808", -(2**63), None),
    ("bigint unsigned", "18446744073709551615", 2**64 - 1, Decimal(2**64 - 1)),
    ("float", "0.5", Decimal("0.5"), None),
    ("double", "0.1", Decimal("0.1"), None),
    ("decimal(10,2)", "-12.34", "+y4=", Decimal("-12.34")),
    ("decimal(10,2)", "0", "AA==", Decimal("0.00")),
    ("decimal(10,2)", "1.28", "AIA=", Decimal("1.28")),
    ("decimal(65,30)", "9" * 35 + ".5", ..., Decimal("9" * 35 + ".5" + "0" * 29)),
    ("bit(1)", "1", True, None),
    ("bit(12)", "2730", "qgo=", 2730),
    ("year", "1999", 1999, None),
    ("date", "'9999-12-31'", 2932896, "9999-12-31"),
    ("datetime", "'2024-02-29 12:34:56'", 1709210096000, "2024-02-29 12:34:56.000"),
    ("datetime(6)", "'0001-01-01 00:00:00.000001'", -62135596799999999, "0001-01-01 00:00:00.000001"),
    ("timestamp(3) null", "'2012-01-01 22:32:34.120'", "2012-01-01T22:32:34.120Z", None),
    ("time(6)", "'-838:59:59.999999'", -3020399999999, "-838:59:59.999999"),
    ("char(4)", "'ä\"€'", 'ä"€', None),
    ("blob", "x'ff00fe'", "/wD+", b"\xff\x00\xfe"),
    ("binary(4)", "x'61'", "YQAAAA==", b"a\0\0\0"),
    ("enum('a','b')", "'b'", "b", None),
    ("set('x','y')", "'x,y'", "x,y", ["x", "y"]),
    ("json", "'{\"a\": 1.10}'", '{"a": 1.10}', {"a": Decimal("1.10")}),
    ("json", "'null'", "null", Json(None)),
    ("uuid", "'123e4567-e89b-42d3-a456-426614174000'", "123e4567-e89b-42d3-a456-426614174000", None),
    ("inet6", "'::1'", "::1", None),
    ("geometry", "st_geomfromtext('POINT(1 2)')", "POINT (1 2)", None),
]
OF_POSTGRES: list[tuple[str, str, Any, Any]] = [
    ("smallint", "-32768", -32768, None),
    ("bigint", "9223372036854775807", 2**63 - 1, None),
    ("oid", "4294967295", 4294967295, None),
    ("real", "1.5", Decimal("1.5"), None),
    ("double precision", "'NaN'", "NaN", Decimal("NaN")),
    ("numeric(10,2)", "-12.34", "+y4=", Decimal("-12.34")),
    ("numeric(4,-2)", "1200", "DA==", Decimal("12E2")),
    ("numeric", "1234567890.12345", {"scale": 5, "value": "cEiGDd95"}, Decimal("1234567890.12345")),
    ("boolean", "true", True, None),
    ("text", "'ä\"€'", 'ä"€', None),
    ("char(4)", "'a'", "a   ", None),
    ("bytea", r"'\xff00fe'", "/wD+", b"\xff\x00\xfe"),
    ("bit(1)", "B'1'", True, None),
    ("bit(12)", "B'101010101010'", "qgo=", 2730),
    ("bit varying", "B'11'", "Aw==", 3),
    ("date", "'9999-12-31'", 2932896, "9999-12-31"),
    ("time(3)", "'23:59:59.999'", 86399999, "23:59:59.999"),
    ("time", "'24:00:00'", 86400000000, "24:00:00.000000"),
    ("timetz", "'04:05:06.789+05:30'", "22:35:06.789Z", None),
    ("timestamp(3)", "'2024-02-29 12:34:56.789'", 1709210096789, "2024-02-29 12:34:56.789"),
    ("timestamp", "'2024-02-29 12:34:56'", 1709210096000000, "2024-02-29 12:34:56.000000"),
    ("date", "'0044-03-15 BC'", ..., "0044-03-15 BC"),
    ("date", "'10000-01-02'", 2932898, "10000-01-02"),
    ("timestamp", "'infinity'", 9223372036825200000, "infinity"),
    ("timestamp(3)", "'-infinity'", -9223372036832400, "-infinity"),
    ("timestamp", "'0044-03-15 03:04:05 BC'", ..., "0044-03-15 03:04:05.000000 BC"),
    ("timestamptz", "'2024-01-02 03:04:05.0006+05:30'", "2024-01-01T21:34:05.000600Z", None),
    ("interval", "'1 year 2 mons -3 days 04:05:06.7'", 36572706700000, None),
    ("uuid", "'123e4567-e89b-42d3-a456-426614174000'", "123e4567-e89b-42d3-a456-426614174000", None),
    ("jsonb", "'{\"a\": 1.10}'", '{"a": 1.10}', {"a": Decimal("1.10")}),
    ("json", "'null'", "null", Json(None)),
    ("xml", "'<a/>'", "<a/>", None),
    ("inet", "'10.0.0.1/8'", "10.0.0.1/8", None),
    ("numrange", "'[1,2)'", "[1,2)", None),
    ("int[]", "'{1,NULL,3}'", [1, None, 3], None),
    ("text[]", '\'{a,NULL,"NULL","b \\" c",""}\'', ["a", None, "NULL", 'b " c', ""], None),
    ("text[]", "'[0:2]={a=b,\"x={1}\",==}'", ["a=b", "x={1}", "=="], None),
    ("int[]", "'{{1,2},{3,4}}'", [[1, 2], [3, 4]], None),
    ("point", "'(1.5,2)'", ..., ...),
    ("point", "'(Infinity,NaN)'", ..., ...),
]


def check(found: list[MaxwellMessage], connector: str, cases: list[tuple[str, str, Any, Any]]) -> None:
    for schemas in (False, True):
        inserted, _, _ = again = list(
            read_again(found, DebeziumForm("p", connector, "d", modes=Modes(schemas=schemas)))
        )
        for place, (declared, _, plain, typed) in enumerate(cases):
            wanted = plain if typed is None or not schemas else typed
            value = inserted.values[f"c{place}"]
            assert value is not None, declared
            assert wanted is ... or repr(value) == repr(wanted), declared
            assert again[1].values[f"c{place}"] is None
        assert [change.operation for change in again] == ["insert", "update", "delete"]
        assert [change.key for change in again] == [{"id": 1}] * 3
        positions = [change.position for change in again]
        assert positions == sorted(set(positions))


def statements(cases: list[tuple[str, str, Any, Any]], null: str) -> list[str]:
    columns = ", ".join(f"c{place} {case[0]}{null}" for place, case in enumerate(cases))
    nulls = ", ".join(f"c{place} = null" for place in range(len(cases)))
    return [
        f"create table t (id int primary key, {columns})",
        f"insert into t values (1, {', '.join(case[1] for case in cases)})",
        f"update t set {nulls}",
        "delete from t",
    ]


@pytest.mark.mariadb
def test_every_type_of_mariadb_comes_back_from_debeziums_form(source: MariaSource) -> None:
    source.run("set time_zone = '+00:00'", *statements(OF_MARIADB, " null"))
    check(source.changes(), "mysql", OF_MARIADB)


def test_every_type_of_postgresql_comes_back_from_debeziums_form(slot: ReplicationSlot) -> None:
    made, *changed = statements(OF_POSTGRES, "")
    run(slot.conninfo, made)
    start = begun(slot, [])
    run(slot.conninfo, *changed)
    check(changes(slot, start), "postgresql", OF_POSTGRES)


def test_a_type_of_ones_own_is_not_what_its_name_is_elsewhere(slot: ReplicationSlot) -> None:
    run(
        slot.conninfo,
        "create type datetime as enum ('now')",
        "create domain tinyint as text",
        "create domain year as date",
        "create table t (id int primary key, a datetime, b tinyint, c year, d datetime[])",
    )
    start = begun(slot, [])
    run(slot.conninfo, "insert into t values (1, 'now', 'small', '2024-01-02', '{now}')")
    found = changes(slot, start)
    (again,) = read_again(found, DebeziumForm("p", "postgresql", "d", modes=Modes(schemas=True)))
    assert again.values == {"id": 1, "a": "now", "b": "small", "c": "2024-01-02", "d": ["now"]}
    assert Change(found[0]).data == {"id": 1, "a": "now", "b": "small", "c": "2024-01-02", "d": "{now}"}


def change(kind: str, data: dict[str, str], **more: Any) -> MaxwellMessage:
    place = ("shop", "item", kind, 1700000000, "0-1-7", 1700000000000001, 3, True, ("id",))
    return MaxwellMessage(*place, data, types=ColumnTypes.parsed({"id": "int", "c": "text", "day": "date"}), **more)


def test_the_envelope_is_debeziums() -> None:
    (sent,) = DebeziumForm("p", "mysql").messages(
        change("update", {"id": "4", "c": '"new"', "day": "null"}, old={"c": '"old"'})
    )
    value = json.loads(sent.value or b"")
    assert sent.key == b'{"id":4}'
    assert list(value) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert value["before"] == {"id": 4, "c": "old", "day": None}
    assert value["after"] == {"id": 4, "c": "new", "day": None}
    assert (value["op"], value["ts_ms"], value["source"]["table"]) == ("u", 1700000000000, "item")


def test_a_delete_is_followed_by_a_tombstone_unless_none_is_wanted() -> None:
    deleted = change("delete", {"id": "4"})
    first, second = DebeziumForm("p", "mysql").messages(deleted)
    assert json.loads(first.value or b"")["before"] == {"id": 4, "c": None, "day": None}
    assert (second.key, second.value) == (first.key, None)
    assert len(list(DebeziumForm("p", "mysql", tombstones=False).messages(deleted))) == 1


def test_a_row_that_a_snapshot_read_is_r_and_a_truncate_is_t_without_a_key() -> None:
    (read,) = DebeziumForm("p", "mysql").messages(change("bootstrap-insert", {"id": "4", "c": "null", "day": "null"}))
    (emptied,) = DebeziumForm("p", "mysql").messages(change("truncate", {}))
    assert json.loads(read.value or b"")["op"] == "r"
    assert (emptied.key, json.loads(emptied.value or b"")["op"]) == (None, "t")


def test_a_large_value_that_was_not_touched_keeps_what_it_has() -> None:
    (again,) = read_again([change("update", {"id": "4", "day": "null"})], DebeziumForm("p", "postgresql", "d"))
    assert again.values == {"id": 4, "day": None}


def test_a_day_that_debezium_cannot_say_is_told_and_in_a_key_it_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    form, zero = DebeziumForm("p", "mysql"), '"0000-00-00"'
    (sent, _) = (next(form.messages(change("insert", {"id": str(n), "c": "null", "day": zero}))) for n in range(2))
    assert json.loads(sent.value or b"")["after"]["day"] is None
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [f"shop.item: day is {zero}"]
    with pytest.raises(Unreadable, match="two rows would become one"):
        list(form.messages(change("insert", {"id": "1", "c": "null", "day": zero})._replace(key=("day",))))


def test_the_form_follows_a_table_whose_columns_were_changed() -> None:
    form = DebeziumForm("p", "mysql")
    list(form.messages(change("insert", {"id": "1", "c": "null", "day": "null"})))
    (sent,) = form.messages(
        change("insert", {"id": "1", "more": "5"})._replace(types=ColumnTypes.parsed({"id": "int", "more": "bigint"}))
    )
    assert json.loads(sent.value or b"")["after"] == {"id": 1, "more": 5}


@pytest.mark.parametrize(
    ("printed", "amount"),
    [("$1,234.56", "1234.56"), ("-$0.05", "-0.05"), ("($7.00)", "-7.00"), ("-1.234,56 €", "-1234.56"),
     ("1'000.00", "1000.00"), ("¥1,235", "1235.00"), ("-￥7", "-7.00"), ("₩12", "12.00"), ("Ft 1 234", "1234.00")],
)  # fmt: skip
def test_an_amount_of_a_currency_without_a_fraction_is_a_whole_one(printed: str, amount: str) -> None:
    """lc_monetary = ja_JP prints no fraction: a hundredth of each amount came."""
    form = column_form(sql_type("money"), Modes("string"))
    assert form.convert(json.dumps(printed, ensure_ascii=False)) == f'"{amount}"'
