"""A column's SQL type, from what its table map says or the catalog: `decimal(10,2)`, `int unsigned`, `varchar(20)`.

Rule 1: the map says how the table was when its rows were written; the catalog is not asked.
Rule 2: a text's length is counted in characters, of the most bytes that one of its character set can have.
Rule 3: both say the same of a column: an integer has no width, and every shape is a `geometry`.
"""

from __future__ import annotations

from waterclock.cdc.mysql import columns as types
from waterclock.cdc.mysql.catalog import SHAPES
from waterclock.cdc.mysql.columns import BINARY, BinlogColumn
from waterclock.changes.sql_types import SqlType, sql_type

_NAMES = {
    types.TINY: "tinyint", types.SHORT: "smallint", types.INT24: "mediumint", types.LONG: "int",
    types.LONGLONG: "bigint", types.FLOAT: "float", types.DOUBLE: "double", types.YEAR: "year", types.DATE: "date",
    types.NEWDATE: "date", types.TIME: "time", types.DATETIME: "datetime", types.TIMESTAMP: "timestamp",
    types.JSON: "json", types.GEOMETRY: "geometry",
}  # fmt: skip
_MOMENTS = {types.TIME2: "time", types.DATETIME2: "datetime", types.TIMESTAMP2: "timestamp"}
_BLOBS = {1: "tiny", 2: "", 3: "medium", 4: "long"}
_BYTES = {"utf8mb4": 4, "utf8mb3": 3, "utf8": 3, "ucs2": 2, "utf16": 4, "utf16le": 4, "utf32": 4, "gbk": 2, "gb2312": 2,
          "gb18030": 4, "big5": 2, "ujis": 3, "eucjpms": 3, "sjis": 2, "cp932": 2, "euckr": 2}  # fmt: skip
_ESCAPED = str.maketrans({"'": "''", "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\0": "\\0"})  # as the catalog does
_TEXTS = {types.STRING: ("char", "binary")}
_NO_SIZES = set(_NAMES.values()) - set(_MOMENTS.values())


def mapped_type(column: BinlogColumn) -> SqlType:
    """The type of a table map's column.

    >>> [mapped_type(BinlogColumn("c", *of)).text for of in ((types.NEWDECIMAL, 10 << 8 | 2), (types.BLOB, 2))]
    ['decimal(10,2)', 'blob']
    >>> mapped_type(BinlogColumn("n", types.LONG, 0, True)).text
    'int unsigned'
    >>> mapped_type(BinlogColumn("c", types.VARCHAR, 80, charset="utf8mb4")).text
    'varchar(20)'
    """
    kind, size, binary = column.type, column.size, column.charset == BINARY
    if column.declared:
        return sql_type(column.declared)
    if kind == types.NEWDECIMAL:
        text = f"decimal({size >> 8},{size & 255})"
    elif kind in _MOMENTS:
        text = _MOMENTS[kind] + (f"({size})" if size else "")
    elif kind == types.BIT:
        text = f"bit({size})"
    elif kind in (types.ENUM, types.SET):
        labels = ",".join(f"'{label.translate(_ESCAPED)}'" for label in column.labels)
        text = f"{'enum' if kind == types.ENUM else 'set'}({labels})"
    elif kind in (types.BLOB, types.BLOB_COMPRESSED):
        text = _BLOBS.get(size, "long") + ("blob" if binary else "text")
    elif kind in _NAMES:
        text = _NAMES[kind]
    else:
        of_text, raw = _TEXTS.get(kind, ("varchar", "varbinary"))
        text = f"{raw if binary else of_text}({size if binary else size // _BYTES.get(column.charset, 1)})"
    return sql_type(f"{text} unsigned" if column.unsigned else text)


def declared_type(name: str, full: str, declared: str) -> SqlType:
    """The same of what the catalog says: `decimal` and `decimal(10,2) unsigned zerofill`; `declared` as a column has it.

    >>> [declared_type(*of, "").text for of in (("int", "int(11) unsigned zerofill"), ("point", "point"))]
    ['int unsigned', 'geometry']
    """
    if declared or name in SHAPES:
        return sql_type(declared or "geometry")
    brackets, rest = full[full.find("(") : full.rfind(")") + 1], full[full.rfind(")") + 1 :]
    text = name if name in _NO_SIZES else f"{name}{brackets}"
    is_unsigned = " unsigned" in rest or name == "year"  # so the map has it
    return sql_type(f"{text} unsigned" if is_unsigned else text)
