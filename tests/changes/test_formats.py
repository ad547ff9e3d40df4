"""Change topics of Maxwell, of Debezium and of our own, read as changes of one form, with the values that JSON alone does
not say: JSON's null is not SQL's, its true no boolean, and NaN is a number.
"""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waterclock.changes import Json, MaxwellMessage, Message, RowChange, reader_of
from waterclock.changes.sql_types import ColumnTypes
from waterclock.errors import Unreadable

NAMES = [
    "database", "table", "data", "old", "commit", "position", "sequence", "xoffset", "primary_key_columns",
    "payload", "schema", "fields", "field", "source", "lsn", "file", "pos", "row", "before", "after", "name",
    "type", "parameters", "scale", "pk.id", "db", "change_lsn", "commit_lsn", "ts_ms", "status"
]  # fmt: skip
WORDS = ["insert", "update", "delete", "truncate", "c", "r", "u", "d", "t", "m", "bootstrap-insert"]


def maxwell(offset: int = 7, key: Any = None, **fields: Any) -> list[RowChange]:
    row = {"database": "shop", "table": "item", "type": "insert", "ts": 1, **fields}
    raw = None if key is None else json.dumps(key).encode()
    return list(reader_of("maxwell")(Message(raw, json.dumps(row).encode(), offset)))


def test_our_own_messages_come_back_as_they_were() -> None:
    data, old = {"id": "4", "price": "12.50", "big": "18446744073709551615"}, {"price": "9.00"}
    change = MaxwellMessage("shop", "item", "update", 1, "0-1-7", 1700000000000001, 3, True, ("id",), data, old)
    (found,) = reader_of("maxwell")(Message(change.as_key(), change.as_json(), 7))
    assert found == ("shop.item", "update", {"id": 4}, (1700000000000001, 3), change.values())
    assert str(found.values["price"]) == "12.50"


def test_maxwells_key_comes_from_the_message_or_from_its_key() -> None:
    assert maxwell(data={"id": 4}, primary_key_columns=["id"])[0].key == {"id": 4}
    assert maxwell(key={"database": "shop", "table": "item", "pk.id": 4}, data={"id": 4})[0].key == {"id": 4}
    assert maxwell(key={"database": "shop", "table": "item", "_uuid": "x"}, data={"id": 4})[0].key == {}


def test_an_update_of_the_key_by_maxwell_is_a_delete_and_an_insert() -> None:
    found = maxwell(type="update", data={"id": 5, "c": 1}, old={"id": 4}, primary_key_columns=["id"])
    assert [(change.operation, change.key) for change in found] == [("delete", {"id": 4}), ("insert", {"id": 5})]


def test_maxwells_positions_rise_within_a_transaction_and_between_files() -> None:
    told = [
        ("mysql-bin.000009:500", {"xoffset": 0}),
        ("mysql-bin.000009:500", {"commit": True}),
        ("mysql-bin.000010:4", {"xoffset": 0}),
    ]
    found = [maxwell(position=position, data={}, **more)[0].position for position, more in told]
    assert found == sorted(set(found))
    assert found[0][:2] == (9, 500)
    assert maxwell(41, data={})[0].position == (41,)


def test_a_truncate_empties_a_table_and_other_words_about_it_say_nothing() -> None:
    assert maxwell(type="truncate", sequence=5, xoffset=0)[0] == ("shop.item", "truncate", {}, (5, 0), {})
    assert maxwell(type="table-alter", old={}, **{"def": {}}) == []
    assert maxwell(type="bootstrap-start", data={}) == []
    assert maxwell(type="bootstrap-insert", data={"id": 1}, primary_key_columns=["id"])[0].operation == "insert"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[1]",
        b"\xff",
        b'{"type":"insert"}',
        b'{"type":"upsert","data":{}}',
        b"7",
        b'{"type":"truncate"}',
        b'{"type":"insert","data":{"id":1},"database":null}',
    ],
)
@pytest.mark.parametrize("word", ["maxwell", "debezium"])
def test_what_is_no_change_is_refused_in_a_sentence(word: str, value: bytes) -> None:
    with pytest.raises(Unreadable):
        list(reader_of(word)(Message(None, value, 7)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=15,
)


@given(st.sampled_from(["maxwell", "debezium"]), JSON, JSON, st.sampled_from(WORDS))
def test_whatever_a_message_says_it_is_changes_or_a_refusal(word: str, key: Any, value: Any, kind: str) -> None:
    given = {**value, "type": kind, "op": kind} if isinstance(value, dict) else value
    try:
        found = list(reader_of(word)(Message(json.dumps(key).encode(), json.dumps(given).encode(), 7)))
    except Unreadable:
        return
    assert all(isinstance(change, RowChange) for change in found)


@pytest.mark.parametrize("word", ["maxwell", "debezium"])
def test_a_tombstone_says_nothing_new(word: str) -> None:
    assert list(reader_of(word)(Message(b'{"id":1}', None, 7))) == []


def test_a_word_that_is_no_format_is_refused() -> None:
    with pytest.raises(ValueError, match="one of maxwell, debezium, got 'canal'"):
        reader_of("canal")


@pytest.mark.parametrize("word", ["decimal:2", "Decimal:two", "Date:3", "io.debezium.time.Date", ""])
def test_a_word_that_is_no_type_is_refused(word: str) -> None:
    # the column kept what Debezium wrote: base64 in the place of a decimal
    with pytest.raises(ValueError, match=rf"type of 'price' must be Decimal:2 .*, got '{word}'"):
        reader_of("debezium", {"price": word})


def test_json_that_is_none_is_refused_and_not_handed_on() -> None:
    payload = {"op": "c", "before": None, "after": {"doc": '{"a": NaN}'}, "source": POSTGRES}
    with pytest.raises(Unreadable, match="NaN is no JSON"):
        debezium(payload, {"id": 1}, doc="Json")


POSTGRES = {"db": "shop", "schema": "public", "table": "item", "lsn": 24023128, "txId": 571}
MYSQL = {"db": "shop", "table": "item", "file": "mysql-bin.000003", "pos": 154, "row": 2, "gtid": None}


def debezium(
    payload: Any, key: Any = None, schema: Any = None, key_schema: Any = None, **types: str
) -> list[RowChange]:
    value = {"schema": schema, "payload": payload} if schema else payload
    named = {"schema": key_schema, "payload": key} if key_schema else key
    raw = None if named is None else json.dumps(named).encode()
    return list(reader_of("debezium", types)(Message(raw, json.dumps(value).encode(), 7)))


@pytest.mark.parametrize(("op", "operation"), [("c", "insert"), ("r", "insert"), ("u", "update")])
def test_debeziums_rows_are_inserts_and_updates(op: str, operation: str) -> None:
    payload = {"op": op, "before": None, "after": {"id": 1, "c": "x"}, "source": POSTGRES}
    assert debezium(payload, {"id": 1}) == [("public.item", operation, {"id": 1}, (24023128,), {"id": 1, "c": "x"})]


def test_debeziums_deletes_and_truncates() -> None:
    gone = {"op": "d", "before": {"id": 1, "c": None}, "after": None, "source": MYSQL}
    assert debezium(gone, {"id": 1}) == [("shop.item", "delete", {"id": 1}, (3, 154, 2), {})]
    emptied = {"op": "t", "before": None, "after": None, "source": POSTGRES}
    assert debezium(emptied) == [("public.item", "truncate", {}, (24023128,), {})]


def test_heartbeats_transactions_and_an_applications_words_say_nothing() -> None:
    assert debezium({"ts_ms": 1}) == []
    assert debezium({"status": "BEGIN", "id": "571:1", "ts_ms": 1}) == []
    assert debezium({"op": "m", "source": POSTGRES, "message": {}}) == []


DECIMAL = "org.apache.kafka.connect.data.Decimal"
FIELDS = {
    "id": ({"type": "int32"}, 7, 7),
    "price": ({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}, "BOI=", Decimal("12.50")),
    "below": ({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "3"}}, "/w==", Decimal("-0.001")),
    "free": ({"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
             {"scale": 1, "value": "DA=="}, Decimal("1.2")),
    "day": ({"type": "int32", "name": "io.debezium.time.Date"}, -1, "1969-12-31"),
    "at": ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, 1, "1970-01-01 00:00:00.000001"),
    "ms": ({"type": "int64", "name": "io.debezium.time.Timestamp"}, -1, "1969-12-31 23:59:59.999"),
    "clock": ({"type": "int64", "name": "io.debezium.time.MicroTime"}, -45296000078, "-12:34:56.000078"),
    "zoned": ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
              "2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
    "raw": ({"type": "bytes"}, "AP8=", b"\x00\xff"),
    "bits": ({"type": "bytes", "name": "io.debezium.data.Bits"}, "AQI=", 513),
    "doc": ({"type": "string", "name": "io.debezium.data.Json"}, '{"a": 1.10}', {"a": Decimal("1.10")}),
    "some": ({"type": "string", "name": "io.debezium.data.EnumSet"}, "a,b", ["a", "b"]),
    "one": ({"type": "string", "name": "io.debezium.data.Enum"}, "a", "a"),
    "none": ({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}, None, None),
}  # fmt: skip


def test_with_its_schema_every_logical_type_is_what_it_means() -> None:
    after = {"field": "after", "fields": [{"field": name, **kind} for name, (kind, _, _) in FIELDS.items()]}
    payload = {
        "op": "c",
        "before": None,
        "after": {name: raw for name, (_, raw, _) in FIELDS.items()},
        "source": POSTGRES,
    }
    (found,) = debezium(payload, {"id": 7}, {"fields": [after]}, {"fields": [{"field": "id", "type": "int32"}]})
    assert found.values == {name: meant for name, (_, _, meant) in FIELDS.items()}
    assert found.key == {"id": 7}


def test_without_a_schema_the_user_says_what_a_column_is() -> None:
    raw = b64encode((1250).to_bytes(2, "big")).decode()
    payload = {"op": "c", "before": None, "after": {"id": 1, "price": raw, "day": 0, "raw": "AA=="}, "source": POSTGRES}
    (found,) = debezium(payload, {"id": 1}, price="Decimal:2", day="Date", raw="bytes")
    assert found.values == {"id": 1, "price": Decimal("12.50"), "day": "1970-01-01", "raw": b"\0"}


UNTOUCHED = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    "value",
    [
        UNTOUCHED,
        b64encode(UNTOUCHED.encode()).decode(),  # bytes
        UNTOUCHED.encode().hex(),  # bytes, with binary.handling.mode=hex
        [UNTOUCHED],
        [*UNTOUCHED.encode()],  # whole numbers
        ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        {UNTOUCHED: UNTOUCHED},
        json.dumps({UNTOUCHED: UNTOUCHED}, separators=(",", ":")),  # hstore
    ],
)
@pytest.mark.parametrize("types", [{}, {"c": "bytes"}])
def test_a_large_value_that_debezium_did_not_send_is_left_out(value: Any, types: dict[str, str]) -> None:
    payload = {"op": "u", "before": None, "after": {"id": 1, "c": value}, "source": POSTGRES}
    assert debezium(payload, {"id": 1}, **types)[0].values == {"id": 1}


DAY = {"fields": [{"field": "day", "type": "int32", "name": "io.debezium.time.Date"}]}
ROW = {"fields": [{"field": "after", **DAY}]}


@pytest.mark.parametrize(("schema", "key_schema"), [(ROW, DAY), (ROW, None), (None, DAY)])
def test_a_keys_column_is_the_same_in_a_row_and_in_a_delete_whichever_has_a_schema(
    schema: Any, key_schema: Any
) -> None:
    # the two converters have settings of their own: a delete did not find the row that was inserted
    made = {"op": "c", "before": None, "after": {"day": 19000}, "source": POSTGRES}
    gone = {"op": "d", "before": {"day": 19000}, "after": None, "source": POSTGRES}
    (inserted,), (deleted,) = (debezium(each, {"day": 19000}, schema, key_schema) for each in (made, gone))
    assert (inserted.key, inserted.values, deleted.key) == ({"day": "2022-01-08"},) * 3


def test_a_key_that_is_null_in_its_schema_is_none() -> None:
    made = {"op": "c", "before": None, "after": {"c": 1}, "source": POSTGRES}
    value = json.dumps(made).encode()
    (change,) = reader_of("debezium")(Message(b'{"schema":null,"payload":null}', value, 7))
    assert change.key == {}


def test_rows_of_a_snapshot_of_sql_server_stand_before_the_changes_of_that_commit() -> None:
    # they have no change_lsn: told by their offsets, they could not be compared with any change after them
    commit, change = "00000027:00000758:0005", "00000027:00000758:0003"
    lsns = [
        {"commit_lsn": commit, "change_lsn": None},
        {"commit_lsn": commit, "change_lsn": change, "event_serial_no": 2},
    ]
    row = {"op": "r", "before": None, "after": {"id": 1}}
    told = [
        debezium({**row, "source": {"db": "shop", "table": "item", **each}}, {"id": 1})[0].position for each in lsns
    ]
    assert told == [(0x27, 0x758, 5, 0, 0, 0, 0), (0x27, 0x758, 5, 0x27, 0x758, 3, 2)]


def read_debezium(
    fields: dict[str, dict[str, str]], types: dict[str, str] | None = None, **values: Any
) -> dict[str, Any]:
    """The values of a row, which come with the schema `fields`, or without one."""
    payload = {
        "op": "c",
        "before": None,
        "after": {"id": 1, **values},
        "source": {"schema": "s", "table": "t", "lsn": 9},
    }
    after = {"field": "after", "fields": [{"field": name, **field} for name, field in fields.items()]}
    message = {"schema": {"fields": [after]}, "payload": payload} if fields else payload
    (found,) = reader_of("debezium", types)(Message(b'{"id": 1}', json.dumps(message).encode(), 7))
    return dict(found.values)


def read_maxwell(data: dict[str, Any], **fields: Any) -> dict[str, Any]:
    row = {"database": "shop", "table": "t", "type": "insert", "primary_key_columns": ["id"], "data": data, **fields}
    (found,) = reader_of("maxwell")(Message(None, json.dumps(row).encode(), 7))
    return dict(found.values)


@pytest.mark.parametrize(("text", "value"), [("null", None), ("true", True), ('"a"', "a"), ("1.10", Decimal("1.10"))])
def test_json_of_debeziums_that_is_no_object_and_no_array_is_told_from_a_value(text: str, value: object) -> None:
    """Its "null" became SQL's null, and its "true" a boolean."""
    field = {"type": "string", "name": "io.debezium.data.Json"}
    assert read_debezium({"doc": field, "gone": field}, doc=text, gone=None) == {
        "id": 1,
        "doc": Json(value),
        "gone": None,
    }
    assert read_debezium({}, {"doc": "Json"}, doc=text)["doc"] == Json(value)
    assert read_debezium({"doc": field}, doc="[null]")["doc"] == [None]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_of_a_column_of_numbers_debeziums_texts_are_numbers(text: str) -> None:
    found = read_debezium({"f": {"type": "double"}, "t": {"type": "string"}}, f=text, t=text)
    assert (str(found["f"]), type(found["f"]), found["t"]) == (text, Decimal, text)
    assert type(read_debezium({}, {"f": "double"}, f=text)["f"]) is Decimal


def test_in_maxwells_own_messages_true_is_json_for_mysql_has_no_booleans() -> None:
    data = {"id": 1, "j": True, "n": 1, "x": None}
    assert read_maxwell(data) == {"id": 1, "j": Json(True), "n": 1, "x": None}
    assert read_maxwell(data, sequence=1, xoffset=0) == data  # ours may be PostgreSQL's


def test_our_messages_say_what_their_values_do_not() -> None:
    types = ColumnTypes.parsed({"a": "json", "b": "jsonb", "c": "json", "d": "numeric", "e": "real"})
    data = {"id": "1", "a": " null", "b": "null", "c": "[true]", "d": '"NaN"', "e": "1"}
    where = ("d", "t", "update", 1, "0-1-1", 1, 0, True, ("id",))
    change = MaxwellMessage(*where, data, {"a": "true", "b": " null"}, None, types)
    written = json.loads(change.as_json())
    assert written["types"] == {"a": "json", "c": "json", "d": "number"}
    assert written["old_types"] == {"a": "json", "b": "json"}
    (found,) = reader_of("maxwell")(Message(None, change.as_json(), 0))
    assert (found.values["a"], found.values["b"], found.values["c"], found.values["e"]) == (Json(None), None, [True], 1)
    assert found.values["d"].is_nan()


def test_a_message_without_such_values_says_nothing_of_types() -> None:
    where = ("d", "t", "insert", 1, "0-1-1", 1, 0, True, ("id",))
    change = MaxwellMessage(
        *where, {"id": "1", "a": "null", "d": "1"}, types=ColumnTypes.parsed({"a": "json", "d": "numeric"})
    )
    assert b"types" not in change.as_json()


@pytest.mark.parametrize("day", [-2147472692, 2**40])
def test_a_day_that_no_database_has_is_refused(day: int) -> None:
    """Debezium writes one for a date of infinity, whatever its sign."""
    with pytest.raises(Unreadable):
        debezium({"op": "c", "before": None, "after": {"day": day}, "source": POSTGRES}, {"id": 1}, day="Date")
