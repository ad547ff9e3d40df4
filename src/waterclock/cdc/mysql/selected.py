"""How a table is selected so that each value becomes what the binlog's reader makes of it, byte for byte; and how its key
is asked for, ordered and compared, all three in one order.

Rule 1: texts come as the bytes that the table holds (character_set_results=NULL) and are decoded as those of the log.
Rule 2: what SELECT shows otherwise than it is stored is asked for by its number: FLOAT (six digits), BIT, SET, an ENUM in a
        key (it is ordered by number, and compared with a text as a text).
Rule 3: (a, b) > (x, y) is written out: MariaDB goes through no index for it.
Rule 4: MySQL's JSON is shown with blanks that the binlog's reader does not write.
Rule 5: compiled code writes rows where there is such; the writers here say what is right, and write what it leaves.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from waterclock.cdc.mysql import columns as types
from waterclock.cdc.mysql.catalog import KINDS, SHAPES, TableDefinition, declared_as, labels_of
from waterclock.cdc.mysql.columns import BINARY, BinlogColumn, base64_text, decoder, float_text_at, text_writer
from waterclock.cdc.mysql.sql_types import declared_type
from waterclock.cdc.mysql.values import as_text
from waterclock.changes.maxwell import JSON_NULL, json_of, quoted
from waterclock.changes.sql_types import JSON, ColumnTypes
from waterclock.changes.table_schema import ColumnSchema, TableSchema
from waterclock.changes.written import Form
from waterclock.errors import Unreadable

try:
    from waterclock.cdc.mysql._images import SelectedPlan
except ImportError:
    SelectedPlan = None  # type: ignore[assignment,misc]

_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "year"}
_NUMBERS = _INTEGERS | {"decimal", "float", "double", "bit", "enum", "set"}
_BLANKS = re.compile(r'("(?:[^"\\]|\\.)*")| ')
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}

Write = Callable[[bytes], str]


class SelectedColumn(NamedTuple):
    """`asked` is an expression of SELECT, `write` makes JSON text of the bytes that come for it. `how`: a word for
    how compiled code makes it, "" if that asks `write`."""

    name: str
    asked: str
    write: Write
    how: str
    charset: str


class KeyColumn(NamedTuple):
    """`asked`: what the key's value is kept as; `order` and `compared`: expressions; `charset`: of a text, else ""."""

    name: str
    asked: str
    order: str
    compared: str
    is_number: bool
    charset: str

    def kept(self, value: bytes) -> str:
        """What a position holds of it: numbers and dates as they are, bytes of all else as hex."""
        return value.hex() if self.charset else value.decode("ascii")

    def literal(self, kept: str) -> str:
        if self.charset:
            return f"x'{kept}'" if self.charset == BINARY else f"_{self.charset} x'{kept}'"
        return kept if self.is_number else f"'{kept}'"


class SelectedTable(NamedTuple):
    """What a chunk of a table, `names` with its database, is asked for by; `compiled` reads its rows, if there is such."""

    names: tuple[str, str]
    definition: TableDefinition
    columns: tuple[SelectedColumn, ...]
    key: tuple[KeyColumn, ...]
    types: ColumnTypes
    compiled: SelectedPlan | None = None

    def schema(self) -> TableSchema:
        """As the log has it of the same table."""
        columns = tuple(
            ColumnSchema(name, self.types[name].text, name in self.definition.nullable, charset=charset or "")
            for name, _, _, charset, _ in self.definition.columns
        )
        return TableSchema("mysql", *self.names, (0, 0), columns, self.definition.key)

    def named(self) -> str:
        """As SQL."""
        return ".".join(map(escaped, self.names))

    def planned(self) -> SelectedTable:
        """With the plan that reads its rows."""
        if SelectedPlan is None:
            return self
        key = tuple(column.name for column in self.key)
        form = Form(*self.names, tuple(column.name for column in self.columns), key, self.types.kinds)
        columns = [(column.how, column.charset, column.write) for column in self.columns]
        return self._replace(compiled=SelectedPlan(form, columns))


def selected(names: tuple[str, str], definition: TableDefinition, overrides: dict[str, str]) -> SelectedTable:
    """Of a table as the catalog has it; Unreadable for a column that cannot be written as the log would."""
    columns, types_ = [], ColumnTypes()
    for column in definition.columns:
        said = overrides.get(".".join([*names, column[0]])) if column[0] in definition.unsure else None
        declared = said or declared_as(column[0], column[1], definition.json)
        columns.append(_selected(column, declared))
        types_[column[0]] = declared_type(column[1], column[2], declared)
    kinds = {column[0]: (column[1], column[3] or "") for column in definition.columns}
    key = tuple(_key(each, *kinds[each]) for each in definition.key)
    return SelectedTable(names, definition, tuple(columns), key, types_).planned()


def beyond(key: Sequence[KeyColumn], after: Sequence[str]) -> str:
    """Rows whose key is behind `after`.

    >>> a, b = (KeyColumn(name, name, name, name, True, "") for name in "ab")
    >>> beyond((a, b), ("1", "2"))
    '((a>1) or (a=1 and b>2))'
    """
    literals = [column.literal(kept) for column, kept in zip(key, after, strict=True)]
    parts = []
    for place, column in enumerate(key):
        same = [f"{former.compared}={literals[at]}" for at, former in enumerate(key[:place])]
        parts.append(f"({' and '.join([*same, f'{column.compared}>{literals[place]}'])})")
    return f"({' or '.join(parts)})"


def escaped(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _key(name: str, kind: str, charset: str) -> KeyColumn:
    column, is_number = f"t.{escaped(name)}", kind in _NUMBERS
    asked = order = compared = column
    if kind in ("enum", "set"):
        asked = order = compared = f"cast({column} as unsigned)"  # no index goes by that: right, and slow
    elif kind == "float":
        asked = compared = f"cast({column} as double)"
    elif kind == "bit":
        asked = f"cast({column} as unsigned)"
    held = BINARY if kind in _BYTES else "" if is_number else charset
    return KeyColumn(name, asked, order, compared, is_number, held)


def _selected(column: tuple[str, str, str, str | None, str], declared: str) -> SelectedColumn:
    name, kind, full, charset, _ = column
    if kind not in KINDS:
        raise Unreadable(
            f"Column {name} is of the type {kind}, which has no reader here. Leave its table out (--tables), or change the "
            "column's type."
        )
    if kind == "enum":
        charset = charset or "utf8mb4"  # labels of a binary one are text all the same
    asked, write, held = f"t.{escaped(name)}", _WRITES.get(kind, _plain), charset or BINARY
    how = _HOW.get(write, "")
    if full.startswith("year(2)"):
        write, how = _two_digits, ""
    elif kind in ("bit", "set"):  # a label of a set may be empty, and its text does not show that
        asked, write, how = f"cast({asked} as unsigned)", _set_of(full) if kind == "set" else _ascii, ""
    elif kind == "float":
        asked = f"cast({asked} as double)"
    elif declared == JSON and kind != JSON:  # a text of MariaDB's
        write, how = _json_of(held), "json"
    elif charset:
        write, how = text_writer(BinlogColumn(name, types.BLOB, 4, charset=charset)), "text"
    return SelectedColumn(name, asked, write, how, held)


def _ascii(value: bytes) -> str:
    return value.decode("ascii")


def _plain(value: bytes) -> str:
    """A date, a time, a UUID, an address."""
    return f'"{value.decode("ascii")}"'


def _integer(value: bytes) -> str:
    return str(int(value))


def _two_digits(value: bytes) -> str:
    return str((2000 if int(value) < 70 else 1900) + int(value))


def _decimal(value: bytes) -> str:
    """ZEROFILL fills with zeros what is shown, and not what is stored."""
    if value[:1] != b"0":
        return value.decode("ascii")
    text = value.decode("ascii").lstrip("0")
    return text if text[:1].isdigit() else f"0{text}"


def _float(value: bytes) -> str:
    return float_text_at(struct.pack("<f", float(value)), 0)[0]


def _double(value: bytes) -> str:
    return repr(float(value))


def _own_json(value: bytes) -> str:
    """MySQL's type."""
    text = _BLANKS.sub(r"\1", value.decode())
    return JSON_NULL if text == "null" else text


def _shape(value: bytes) -> str:
    return quoted(as_text(value))


def _json_of(charset: str) -> Write:
    decode = decoder(charset)

    def write(value: bytes) -> str:
        try:
            return json_of(decode(value))
        except UnicodeError as error:
            raise Unreadable(f"A JSON column holds bytes that {charset} does not know ({error}).") from None

    return write


def _set_of(column_type: str) -> Write:
    """set('x','it''s'): the labels whose bits are set."""
    labels = [(1 << place, quoted(text)) for place, text in enumerate(labels_of(column_type))]

    def write(value: bytes) -> str:
        chosen = int(value)
        return "[" + ",".join([text for bit, text in labels if chosen & bit]) + "]"

    return write


_WRITES: dict[str, Write] = {
    **dict.fromkeys(_INTEGERS, _integer),
    **dict.fromkeys(_BYTES, base64_text),
    **dict.fromkeys(SHAPES, _shape),
    "decimal": _decimal,
    "float": _float,
    "double": _double,
    JSON: _own_json,
}
_HOW: dict[Write, str] = {
    _integer: "whole", _decimal: "point", _float: "short", _double: "real", _plain: "plain", base64_text: "bytes",
}  # fmt: skip
