"""What a column is, as a word that does not depend on the database: `decimal:10:2`, `datetime:6`."""

from __future__ import annotations

import re

from waterclock.cdc.mysql import columns as types
from waterclock.cdc.mysql.catalog import KINDS
from waterclock.cdc.mysql.columns import BINARY, BinlogColumn

# signed, unsigned
_INTEGERS = {
    types.TINY: ("int16", "int16"),
    types.SHORT: ("int16", "int32"),
    types.INT24: ("int32", "int32"),
    types.LONG: ("int32", "int64"),
    types.LONGLONG: ("int64", "uint64"),
}
_PLAIN = {
    types.FLOAT: "float",
    types.DOUBLE: "double",
    types.YEAR: "year",
    types.DATE: "date",
    types.NEWDATE: "date",
    types.TIME: "span",
    types.TIME2: "span",
    types.DATETIME: "datetime:0",
    types.TIMESTAMP: "instant:0",
    types.ENUM: "enum",
    types.SET: "set",
    types.JSON: "json",
    types.GEOMETRY: "text",
}


def word_of(column: BinlogColumn) -> str:
    """
    >>> word_of(BinlogColumn("price", types.NEWDECIMAL, 10 << 8 | 2)), word_of(BinlogColumn("raw", types.BLOB, 2))
    ('decimal:10:2', 'bytes')
    """
    if column.declared in ("json", "uuid", "inet6", "inet4"):
        return column.declared if column.declared == "json" else "text"
    if column.type in _INTEGERS:
        return _INTEGERS[column.type][column.unsigned]
    if column.type == types.NEWDECIMAL:
        return f"decimal:{column.size >> 8}:{column.size & 255}"
    if column.type == types.BIT:
        return f"bits:{column.size}"
    if column.type in (types.DATETIME2, types.TIMESTAMP2):
        return f"{'datetime' if column.type == types.DATETIME2 else 'instant'}:{column.size}"
    return _PLAIN.get(column.type, "bytes" if column.charset == BINARY else "text")


def declared_word(column: tuple[str, str, str, str | None, str], declared: str) -> str:
    """The same of a column as the catalog has it; `declared` is what no table map says of it.

    >>> declared_word(("price", "decimal", "decimal(10,2) unsigned", None, ""), "")
    'decimal:10:2'
    """
    name, kind, full, charset, _ = column
    brackets = re.match(r"\w+\((\d+)(?:,(\d+))?\)", full)
    size = int(brackets[1]) if brackets else 0
    if kind == "decimal" and brackets:
        size = size << 8 | int(brackets[2] or 0)
    number = max(KINDS.get(kind, {types.BLOB}))
    return word_of(BinlogColumn(name, number, size, "unsigned" in full, charset or BINARY, declared=declared))
