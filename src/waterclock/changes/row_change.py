"""`RowChange`: what a message of a change topic does to a table, whoever wrote the message.

Rule 1: one form for all: (table, operation, key, position, values). It is what a sink that mirrors tables applies.
Rule 2: of two changes of one key the one with the larger position is the later one, whatever order they are met in. A
        change whose position is not larger than the row's is applied already.
        Two changes of a key at one position are the same change. An insert and an update are applied alike.
Rule 3: `values` holds the columns that the message brings. A column that is not in it keeps what it has.
Rule 4: a value is Python's own: None is SQL's null, NaN and Infinity are Decimals, a list or a dict is JSON, and so is
        what is wrapped as Json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from waterclock.errors import Unreadable

Operation = Literal["insert", "update", "delete", "truncate"]


class Json(NamedTuple):
    """A value of a JSON column that is no object and no array: JSON's null is not SQL's, nor its true a boolean.

    >>> Json(None), Json(True)
    (Json(value=None), Json(value=True))
    """

    value: Any


class RowChange(NamedTuple):
    """One row as it is to be (`insert`, `update`), one that is to go (`delete`), or all older ones (`truncate`).

    `table` is `database.table` (PostgreSQL: `schema.table`). `key` maps the primary key's columns to their values; it is
    empty for a table that has none. `position` is a tuple of whole numbers, compared from the left; positions of one
    table have one length.

    >>> change = RowChange("shop.item", "insert", {"id": 4}, (1700000000000001, 0), {"id": 4, "price": None})
    >>> change.position < (1700000000000001, 1)
    True
    """

    table: str
    operation: Operation
    key: Mapping[str, Any]
    position: tuple[int, ...]
    values: Mapping[str, Any]


class Message(NamedTuple):
    """A message as a Kafka client gives it: `value` is None for a tombstone."""

    key: bytes | None
    value: bytes | None
    offset: int


def no_number(word: str) -> Any:
    """Refuse NaN and Infinity, which Python reads, and which JSON has not."""
    raise ValueError(f"{word} is no JSON")


# JSON with all digits of its numbers; json.loads makes a decoder a call
decode = json.JSONDecoder(parse_float=Decimal, parse_constant=no_number).decode


def fields_of(raw: bytes, writer: str) -> dict[str, Any]:
    """The fields of a message that `writer` should have written; Unreadable if it is no JSON object."""
    try:
        fields = decode(raw.decode())
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise Unreadable(f"A message is no JSON object, so not {writer}'s: {raw[:60]!r}. Is it another format?")
    return fields
