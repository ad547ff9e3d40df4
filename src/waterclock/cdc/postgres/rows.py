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
from typing import TYPE_CHECKING, NamedTuple

from waterclock.changes.maxwell import json_of, quoted
from waterclock.changes.sql_types import ColumnTypes
from waterclock.changes.written import Form, Written

if TYPE_CHECKING:
    from waterclock.cdc.postgres._tuples import TuplePlan

_NUMBERS = {20, 21, 23, 26, 700, 701, 1700}  # int8, int2, int4, oid, float4, float8, numeric
_JSON, _BOOLEAN = {114, 3802}, 16
UNTOUCHED = ""  # no JSON text is empty

Row = Mapping[str, str]

try:
    from waterclock.cdc.postgres import _tuples
except ImportError:
    _tuples = None  # type: ignore[assignment]


class Relation(NamedTuple):
    """A table as the message before its first row describes it. `oids` are the numbers of its types, `brackets` what stands
    in brackets behind them, as the server packs it; `types` is what the catalog says of both. `key` are the columns of its
    primary key; `unsure` says why they are not known."""

    number: int
    schema: str
    table: str
    names: tuple[str, ...]
    oids: tuple[int, ...]
    brackets: tuple[int, ...]
    key: tuple[str, ...]
    full: bool
    types: ColumnTypes
    unsure: str = ""
    plan: TuplePlan | None = None  # compiled, where there is such

    @property
    def title(self) -> str:
        return f"{self.schema}.{self.table}"

    def planned(self) -> Relation:
        """With the plan that reads its tuples, once its key is known."""
        oids = dict(zip(self.names, self.oids, strict=True))
        return self._replace(plan=plan_of(self.schema, self.table, oids, self.key, self.types))

    def key_of(self, row: Row) -> tuple[str, ...]:
        """The key's values as PostgreSQL prints them."""
        oids = dict(zip(self.names, self.oids, strict=True))
        return tuple(
            str(json.loads(text)) if text.startswith('"') and oids[name] not in _JSON else text
            for name in self.key
            for text in (row[name],)
        )

    def as_json(self, name: str, printed: str | None) -> str:
        """The JSON text of a column's value that PostgreSQL printed."""
        return "null" if printed is None else json_text(self.oids[self.names.index(name)], printed)


def described(message: bytes) -> tuple[Relation, tuple[str, ...]]:
    """A relation, its key and its types not looked up yet, and the key that the message itself names."""
    (number,) = struct.unpack_from(">I", message, 1)
    schema, at = _text(message, 5)
    table, at = _text(message, at)
    full = message[at : at + 1] == b"f"
    (count,) = struct.unpack_from(">H", message, at + 1)
    at += 3
    names, oids, brackets, key = [], [], [], []
    for _ in range(count):
        is_key = message[at]
        name, at = _text(message, at + 1)
        names.append(name)
        oid, packed = struct.unpack_from(">Ii", message, at)
        oids.append(oid)
        brackets.append(packed)
        key += [name] if is_key else []
        at += 8
    where = number, schema or "pg_catalog", table
    return Relation(*where, tuple(names), tuple(oids), tuple(brackets), (), full, ColumnTypes()), tuple(key)


def plan_of(
    schema: str, table: str, oids: Mapping[str, int], key: tuple[str, ...], types: ColumnTypes
) -> TuplePlan | None:
    """What reads the tuples of these columns; None where nothing is compiled."""
    plan = None
    if _tuples is not None:
        form = Form(schema, table, tuple(oids), key, types.kinds)
        plan = _tuples.TuplePlan(form, bytes(map(_kind, oids.values())))
    return plan


def row_at(relation: Relation, message: bytes, at: int) -> tuple[Row, int]:
    """The columns of a tuple as JSON text, and what follows it."""
    if relation.plan is not None and (found := relation.plan.row(message, at)) is not None:
        return found
    (count,) = struct.unpack_from(">H", message, at)
    at += 2
    row: dict[str, str] = {}
    for name, kind in zip(relation.names[:count], relation.oids, strict=False):
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
