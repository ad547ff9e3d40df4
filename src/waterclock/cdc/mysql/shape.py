"""A table's columns in the words of SQL, from what its table map says: `decimal(10,2)`, `int unsigned`, `varchar(20)`.

Rule 1: the map says how the table was when its rows were written; the catalog is not asked.
Rule 2: a text's length is counted in characters, of the most bytes that one of its character set can have.
"""

from __future__ import annotations

from waterclock.cdc.mysql import columns as types
from waterclock.cdc.mysql.columns import BINARY, BinlogColumn
from waterclock.cdc.mysql.tables import TablePlan
from waterclock.changes.table_schema import ColumnSchema, TableSchema

_WORDS = {
    types.TINY: "tinyint", types.SHORT: "smallint", types.INT24: "mediumint", types.LONG: "int",
    types.LONGLONG: "bigint", types.FLOAT: "float", types.DOUBLE: "double", types.YEAR: "year", types.DATE: "date",
    types.NEWDATE: "date", types.TIME: "time", types.DATETIME: "datetime", types.TIMESTAMP: "timestamp",
    types.JSON: "json", types.GEOMETRY: "geometry",
}  # fmt: skip
_MOMENTS = {types.TIME2: "time", types.DATETIME2: "datetime", types.TIMESTAMP2: "timestamp"}
_BLOBS = {1: "tiny", 2: "", 3: "medium", 4: "long"}
_BYTES = {"utf8mb4": 4, "utf8mb3": 3, "utf8": 3, "ucs2": 2, "utf16": 4, "utf16le": 4, "utf32": 4, "gbk": 2, "gb2312": 2,
          "gb18030": 4, "big5": 2, "ujis": 3, "eucjpms": 3, "sjis": 2, "cp932": 2, "euckr": 2}  # fmt: skip
_TEXTS = {types.STRING: ("char", "binary")}


def shape(plan: TablePlan, since: tuple[int, int]) -> TableSchema:
    """The schema that holds from `since` on; its columns are not numbered."""
    nulls = int.from_bytes(plan.map.nulls, "little")
    found = [
        ColumnSchema(
            column.name,
            word_of(column),
            bool(nulls >> place & 1),
            charset="" if column.charset == BINARY else column.charset,
        )
        for place, column in enumerate(plan.columns)
        if column.name not in plan.hidden
    ]
    return TableSchema("mysql", plan.database, plan.table, since, tuple(found), plan.key)


def word_of(column: BinlogColumn) -> str:
    """
    >>> word_of(BinlogColumn("price", types.NEWDECIMAL, 10 << 8 | 2)), word_of(BinlogColumn("raw", types.BLOB, 2))
    ('decimal(10,2)', 'blob')
    >>> word_of(BinlogColumn("n", types.LONG, 0, True)), word_of(BinlogColumn("c", types.VARCHAR, 80, charset="utf8mb4"))
    ('int unsigned', 'varchar(20)')
    """
    if column.declared:
        return column.declared
    kind, size, binary = column.type, column.size, column.charset == BINARY
    if kind == types.NEWDECIMAL:
        word = f"decimal({size >> 8},{size & 255})"
    elif kind in _MOMENTS:
        word = _MOMENTS[kind] + (f"({size})" if size else "")
    elif kind == types.BIT:
        word = f"bit({size})"
    elif kind in (types.ENUM, types.SET):
        labels = ",".join("'" + label.replace("'", "''") + "'" for label in column.labels)
        word = f"{'enum' if kind == types.ENUM else 'set'}({labels})"
    elif kind in (types.BLOB, types.BLOB_COMPRESSED):
        word = _BLOBS.get(size, "long") + ("blob" if binary else "text")
    elif kind in _WORDS:
        word = _WORDS[kind]
    else:
        text, raw = _TEXTS.get(kind, ("varchar", "varbinary"))
        word = f"{raw if binary else text}({size if binary else size // _BYTES.get(column.charset, 1)})"
    return f"{word} unsigned" if column.unsigned else word
