"""The values in the topic's messages: each version goes on from the one before, and each value is of its column's kind.

What the shop wrote is not kept. But a change says more than it needs: an update the former values of what it changed, a
delete the whole row. So each version of a row is looked at beside the one before it, the last ones are in the target, and
that is compared with the source.

Rule 1: a number is its digits: 1.50 is not 1.5, and 1 is neither true nor a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from .shop import Key, Version
from .tables import Column, ShopTable

Object = dict[str, Any]
OLDER = "bootstrap-insert"  # a row that is older than the log


class Number(NamedTuple):
    """A number as it is written."""

    text: str


_decode = json.JSONDecoder(parse_int=Number, parse_float=Number).decode


def read(text: bytes | None) -> Object:
    """The object in a message; ValueError where there is none."""
    found = _decode((text or b"").decode())
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def whole(value: Any) -> int:
    """A whole number; ValueError for all else.

    >>> whole(Number("7"))
    7
    """
    if not _is_whole(value):
        raise ValueError(f"{value!r} is no whole number")
    return int(value.text)


class Values:
    """Looks at every version of every row, in the order of the topic."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, Key], tuple[int, int]] = {}  # of a row that is there: rev, and what is in it

    def are_wrong(self, table: ShopTable, version: Version, event: Object) -> bool:
        """Whether the message of `version` has other values than it can have."""
        data, old, is_update = event["data"], event.get("old"), version.operation == "update"
        rev, held = self._before.pop((version.table, version.key), (0, 0))
        if version.operation != "delete":
            self._before[version.table, version.key] = version.rev, _print(data)
        if version.operation == OLDER:  # it is what stands before it, and else what the row was at first
            as_it_is = (rev, held) == (version.rev, _print(data)) if rev else version.rev == 1
            return old is not None or not as_it_is or not _are_of(table, data)
        if (old is not None) != is_update or not _are_of(table, data):
            return True
        former = {**data, **(old or {})}
        begins = version.operation == "insert" or rev != version.rev - is_update  # or what was before is missing
        return former.keys() != data.keys() or not (begins or held == _print(former))


def _print(data: Object) -> int:
    """Of all values of a row; the rows themselves would be too many."""
    return hash(repr(data))


def _are_of(table: ShopTable, data: Object) -> bool:
    columns = {column.name: column for column in (*table.key, *table.columns)}
    return data.keys() == {"rev", *columns} and all(_is_of(column, data[name]) for name, column in columns.items())


def _is_of(column: Column, value: Any) -> bool:
    return value is None or _KINDS[column.how](value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, Number)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Number) and value.text.lstrip("-").isdigit()


_KINDS: dict[str, Callable[[Any], bool]] = {
    "text": _is_text,
    "decimal": _is_number,
    "number": _is_whole,
    "float": _is_number,
    "bits": _is_whole,
    "set": lambda value: isinstance(value, list),
    "json": lambda value: True,
    "bytes": _is_text,
}
