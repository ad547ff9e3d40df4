"""Values that JSON alone does not tell: JSON's null is not SQL's, its true no boolean, and NaN is a number."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from waterclock.changes import Json, MaxwellMessage, Message, reader_of


def debezium(fields: dict[str, dict[str, str]], types: dict[str, str] | None = None, **values: Any) -> dict[str, Any]:
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


def maxwell(data: dict[str, Any], **fields: Any) -> dict[str, Any]:
    row = {"database": "shop", "table": "t", "type": "insert", "primary_key_columns": ["id"], "data": data, **fields}
    (found,) = reader_of("maxwell")(Message(None, json.dumps(row).encode(), 7))
    return dict(found.values)


@pytest.mark.parametrize(("text", "value"), [("null", None), ("true", True), ('"a"', "a"), ("1.10", Decimal("1.10"))])
def test_json_of_debeziums_that_is_no_object_and_no_array_is_told_from_a_value(text: str, value: object) -> None:
    """Its "null" became SQL's null, and its "true" a boolean."""
    field = {"type": "string", "name": "io.debezium.data.Json"}
    assert debezium({"doc": field, "gone": field}, doc=text, gone=None) == {"id": 1, "doc": Json(value), "gone": None}
    assert debezium({}, {"doc": "Json"}, doc=text)["doc"] == Json(value)
    assert debezium({"doc": field}, doc="[null]")["doc"] == [None]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_of_a_column_of_numbers_debeziums_texts_are_numbers(text: str) -> None:
    found = debezium({"f": {"type": "double"}, "t": {"type": "string"}}, f=text, t=text)
    assert (str(found["f"]), type(found["f"]), found["t"]) == (text, Decimal, text)
    assert type(debezium({}, {"f": "double"}, f=text)["f"]) is Decimal


def test_in_maxwells_own_messages_true_is_json_for_mysql_has_no_booleans() -> None:
    data = {"id": 1, "j": True, "n": 1, "x": None}
    assert maxwell(data) == {"id": 1, "j": Json(True), "n": 1, "x": None}
    assert maxwell(data, sequence=1, xoffset=0) == data  # ours may be PostgreSQL's


def test_our_messages_say_what_their_values_do_not() -> None:
    kinds = {"a": "json", "b": "json", "c": "json", "d": "number", "e": "number"}
    data = {"id": "1", "a": " null", "b": "null", "c": "[true]", "d": '"NaN"', "e": "1"}
    where = ("d", "t", "update", 1, "0-1-1", 1, 0, True, ("id",))
    change = MaxwellMessage(*where, data, {"a": "true", "b": " null"}, None, kinds)
    written = json.loads(change.as_json())
    assert written["types"] == {"a": "json", "c": "json", "d": "number"}
    assert written["old_types"] == {"a": "json", "b": "json"}
    (found,) = reader_of("maxwell")(Message(None, change.as_json(), 0))
    assert (found.values["a"], found.values["b"], found.values["c"], found.values["e"]) == (Json(None), None, [True], 1)
    assert found.values["d"].is_nan()


def test_a_message_without_such_values_says_nothing_of_types() -> None:
    where = ("d", "t", "insert", 1, "0-1-1", 1, 0, True, ("id",))
    change = MaxwellMessage(*where, {"id": "1", "a": "null", "d": "1"}, kinds={"a": "json", "d": "number"})
    assert b"types" not in change.as_json()
