"""Tables and rows as the messages of `pgoutput` describe them: bytes in, columns as JSON text out.

Rule 1: a value is the text that PostgreSQL prints, and stays it: whole numbers, NUMERIC, floats, booleans and JSON stand
        bare, everything else is a string. NaN and Infinity, which JSON has not, are strings too.
Rule 2: tuples are read by compiled code where there is such; whatever that does not read, the code here does.
Rule 3: a large value that was not sent (TOAST) is UNTOUCHED, which is the text of no value.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from waterclock.cdc import typed
from waterclock.changes.maxwell import JSON, NUMBER, json_of, quoted
from waterclock.changes.written import Form, Written

if TYPE_CHECKING:
    from waterclock.cdc.postgres._tuples import TuplePlan

_NUMBERS = {20, 21, 23, 26, 700, 701, 1700}  # int8, int2, int4, oid, float4, float8, numeric
_JSON, _BOOLEAN = {114, 3802}, 16
_KINDS = {**dict.fromkeys(_JSON, JSON), **dict.fromkeys((700, 701, 1700), NUMBER)}  # whose values do not say it all
_SORTS = {
    700: typed.FLOAT, 701: typed.FLOAT, 1700: typed.DECIMAL, 1082: typed.DATE, 1083: typed.TIME, 1114: typed.TIMESTAMP,
    1184: typed.MOMENT, 17: typed.HEX, 2950: typed.UUID, 114: typed.JSON, 3802: typed.JSON,
}  # fmt: skip
UNTOUCHED = ""  # no JSON text is empty

Row = Mapping[str, str]

try:
    from waterclock.cdc.postgres import _tuples
except ImportError:
    _tuples = None  # type: ignore[assignment]


class Relation(NamedTuple):
    """A table as the message before its first row describes it. `key` are the columns of its primary key; `unsure` says
    why they are not known."""

    number: int
    schema: str
    table: str
    names: tuple[str, ...]
    types: tuple[int, ...]
    key: tuple[str, ...]
    full: bool
    kinds: Mapping[str, str]
    unsure: str = ""
    sorts: Mapping[str, str] = MappingProxyType({})
    plan: TuplePlan | None = None  # compiled, where there is such

    def planned(self) -> Relation:
        """With the plan that reads its tuples, once its key is known."""
        return self._replace(
            plan=plan_of(self.schema, self.table, dict(zip(self.names, self.types, strict=True)), self.key)
        )

    def key_of(self, row: Row) -> tuple[str, ...]:
        """The key's values as PostgreSQL prints them."""
        types = dict(zip(self.names, self.types, strict=True))
        return tuple(
            str(json.loads(text)) if text.startswith('"') and types[name] not in _JSON else text
            for name in self.key
            for text in (row[name],)
        )

    def as_json(self, name: str, printed: str | None) -> str:
        """The JSON text of a column's value that PostgreSQL printed."""
        return "null" if printed is None else json_text(self.types[self.names.index(name)], printed)


def described(message: bytes) -> tuple[Relation, tuple[str, ...]]:
    """A relation, its key not looked up yet, and the key that the message itself names."""
    (number,) = struct.unpack_from(">I", message, 1)
    schema, at = _text(message, 5)
    table, at = _text(message, at)
    full = message[at : at + 1] == b"f"
    (count,) = struct.unpack_from(">H", message, at + 1)
    at += 3
    names, types, key = [], [], []
    for _ in range(count):
        is_key = message[at]
        name, at = _text(message, at + 1)
        names.append(name)
        types.append(struct.unpack_from(">I", message, at)[0])
        key += [name] if is_key else []
        at += 8
    of = dict(zip(names, types, strict=True))
    relation = Relation(
        number, schema or "pg_catalog", table, tuple(names), tuple(types), (), full, kinds_of(of), "", sorts_of(of)
    )
    return relation, tuple(key)


def kinds_of(types: Mapping[str, int]) -> dict[str, str]:
    """The columns whose values do not say it all: of JSON, and of numbers that may be none."""
    return {name: _KINDS[kind] for name, kind in types.items() if kind in _KINDS}


def sorts_of(types: Mapping[str, int]) -> dict[str, str]:
    """What the columns are in Python, words of typed.py, where their JSON does not say it."""
    return {name: _SORTS[kind] for name, kind in types.items() if kind in _SORTS}


def plan_of(schema: str, table: str, types: Mapping[str, int], key: tuple[str, ...]) -> TuplePlan | None:
    """What reads the tuples of these columns; None where nothing is compiled."""
    plan = None
    if _tuples is not None:
        form = Form(schema, table, tuple(types), key, kinds_of(types))
        plan = _tuples.TuplePlan(form, bytes(map(_kind, types.values())))
    return plan


def row_at(relation: Relation, message: bytes, at: int) -> tuple[Row, int]:
    """The columns of a tuple as JSON text, and what follows it."""
    if relation.plan is not None and (found := relation.plan.row(message, at)) is not None:
        return found
    (count,) = struct.unpack_from(">H", message, at)
    at += 2
    row: dict[str, str] = {}
    for name, kind in zip(relation.names[:count], relation.types, strict=False):
        how, at = message[at], at + 1
        row[name] = "null" if how == ord("n") else UNTOUCHED
        if how == ord("t"):
            (length,) = struct.unpack_from(">I", message, at)
            at += 4 + length
            row[name] = json_text(kind, message[at - length : at].decode())
    return row, at


def touched(row: Row) -> Row:
    """What was sent of a row."""
    if is_whole(row):
        return row
    return {name: text for name, text in row.items() if text != UNTOUCHED}


def is_whole(row: Row) -> bool:
    """Whether every value of it was sent; what compiled code has read always is."""
    return isinstance(row, Written) or UNTOUCHED not in row.values()


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1


def json_text(kind: int, text: str) -> str:
    """The JSON text of what PostgreSQL prints of a value of this type."""
    if kind in _NUMBERS:
        return text if text[-1].isdigit() else quoted(text)  # NaN, Infinity
    if kind == _BOOLEAN:
        return "true" if text == "t" else "false"
    return json_of(text) if kind in _JSON else quoted(text)


def _kind(kind: int) -> int:
    """A type as the compiled reader has it."""
    if kind in _NUMBERS:
        return _tuples.NUMBER
    if kind == _BOOLEAN:
        return _tuples.BOOLEAN
    return _tuples.JSON if kind in _JSON else _tuples.TEXT
