"""Row changes as an Arrow table (CHANGES), which a sink that mirrors tables applies.

    operation   "insert", "update", "delete", or "truncate", which has no key
    key         the primary key as JSON, each value's text behind its kind: the same text for the same row
    position    texts of one length in which the later change is the larger one
    names       the columns that the change brings; texts, kinds: their values, and of what kind each is (KINDS)

Rule 1: what no table of a database can hold is refused here, with the reason: Unreadable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from waterclock.changes.row_change import Json, RowChange
from waterclock.errors import Unreadable

CHANGES = pa.schema(
    [
        ("table", pa.string()),
        ("operation", pa.string()),
        ("key", pa.string()),
        ("position", pa.string()),
        ("names", pa.list_(pa.string())),
        ("kinds", pa.string()),
        ("texts", pa.list_(pa.string())),
    ]
)
# a letter for what a value is; null has none of its own
KINDS = {"b": "boolean", "i": "whole number of 64 bits", "n": "number", "t": "text", "x": "bytes", "j": "JSON"}
NULL = " "
_POSITION_BITS = 64
_LARGEST, _SMALLEST = 131_072, -16_383  # digits of PostgreSQL's numeric before the point, and behind it
_WHOLE = range(-(2**63), 2**63)  # numbers that an integer column of any database holds
_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # json.dumps makes an encoder a call


class PackedChange(NamedTuple):
    """A row of CHANGES."""

    table: str
    operation: str
    key: str
    position: str
    names: list[str]
    kinds: str
    texts: list[str | None]


def as_table(rows: Iterable[PackedChange]) -> pa.Table:
    """Packed changes as one table."""
    columns: Any = list(zip(*rows, strict=True)) or [()] * len(CHANGES)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, CHANGES, strict=True)]
    return pa.Table.from_arrays(arrays, schema=CHANGES)


def packed(change: RowChange) -> PackedChange:
    """A change as a row of CHANGES; Unreadable if no table can hold it."""
    if any(not 0 <= part < 1 << _POSITION_BITS for part in change.position):
        raise Unreadable(f"the position {change.position} of a change of {change.table} is no whole numbers from 0 on")
    position = "".join([f"{part:016x}" for part in change.position])
    _check_table(change.table)
    if change.operation == "truncate":
        return PackedChange(change.table, change.operation, "", position, [], "", [])
    if not change.key:
        raise Unreadable(f"{change.table} has no primary key: its rows cannot be told apart, so they are not mirrored")
    if any(value is None for value in change.key.values()):
        raise Unreadable(f"a part of the primary key of {change.table} is null")
    values = {name: _brought(value) for name, value in {**change.key, **change.values}.items()}
    if "" in values:
        raise Unreadable(f"a column of {change.table} has no name")
    key = _write({name: "".join(values[name]) for name in sorted(change.key)})  # type: ignore[arg-type]
    texts = [text for _, text in values.values()]
    whole = "".join([key, *values, *filter(None, texts)])
    _check_text(whole, f"a value of {change.table}")
    return PackedChange(
        change.table,
        change.operation,
        key,
        position,
        list(values),
        "".join(kind for kind, _ in values.values()),
        texts,
    )


@lru_cache(maxsize=1024)
def _check_table(name: str) -> None:
    database, _, table = name.partition(".")
    if not database or not table:
        raise Unreadable(f"the table {name!r} is none of a database: it has no name")
    _check_text(name, f"the table's name {name!r}")


def _check_text(text: str, what: str) -> None:
    if "\0" in text:
        raise Unreadable(f"{what} holds the character NUL, which a text in a database cannot")
    text.encode()  # half a character is reported here


def _brought(value: Any) -> tuple[str, str | None]:
    """A value's kind and text.

    >>> [_brought(value) for value in (None, True, 7, 2**64, Decimal("1.50"), "a", b"\\x00")]
    [(' ', None), ('b', 'true'), ('i', '7'), ('n', '18446744073709551616'), ('n', '1.50'), ('t', 'a'), ('x', '\\\\x00')]
    >>> [_brought(value) for value in (Json(None), Json(True), Json("a"), Decimal("-Infinity"))]
    [('j', 'null'), ('j', 'true'), ('j', '"a"'), ('n', '-Infinity')]
    """
    if value is None:
        return NULL, None
    if isinstance(value, str):
        return "t", value
    if isinstance(value, bool):
        return "b", "true" if value else "false"
    if isinstance(value, int):
        return ("i" if value in _WHOLE else "n"), str(value)
    if isinstance(value, Decimal) and not value.is_finite():
        return "n", "NaN" if value.is_nan() else str(value)
    if isinstance(value, (Decimal, float)):
        exact = value if isinstance(value, Decimal) else Decimal(0)
        if int(exact.as_tuple().exponent) < _SMALLEST or exact.adjusted() >= _LARGEST:
            raise Unreadable(f"the number {value} has more digits than a number of a database")
        return "n", str(value)
    if isinstance(value, bytes):
        return "x", f"\\x{value.hex()}"
    return "j", _as_json(value.value if isinstance(value, Json) else value)


def _as_json(value: Any) -> str:
    try:
        return _write(value)
    except TypeError:  # a Decimal in it
        return "".join(_parts(value))


def _parts(value: Any) -> Iterator[str]:
    """JSON with all digits of its numbers, which Python's own writer does not keep."""
    if isinstance(value, dict):
        yield "{"
        for count, (name, inner) in enumerate(value.items()):
            yield f"{',' if count else ''}{_write(name)}:"
            yield from _parts(inner)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for count, inner in enumerate(value):
            yield "," if count else ""
            yield from _parts(inner)
        yield "]"
    elif isinstance(value, Decimal):
        yield str(value)
    else:
        yield _write(value)
