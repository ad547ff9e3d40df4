"""What one of Spark's readers of lines (CSV, JSON, text) would cut or mix up without a word; such a line is a dead letter.

Rule 1: a time keeps all its digits, or it is not read: of a pattern's fraction, what is finer than a microsecond may be
        zeros alone. Spark's own way without a pattern cuts there; so a pattern that takes what that way takes stands in its
        place. (It wants hours of two digits at most, years of four, and no more than three blanks beside a time.)
Rule 2: infinity is a number that was too large, unless an option of the user's says that the files write it.
Rule 3: a byte that is not of the encoding became a mark, and different keys would become one.
"""

from __future__ import annotations

import re
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StringType, StructField, StructType

from waterclock.spark.dataframe.json_lines import NOT_READ
from waterclock.spark.dataframe.rows import CORRUPT, FILE, REASON
from waterclock.spark.packing.by_place import by_place
from waterclock.streaming.toml.readers import Reader

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LINES = ("csv", "json")  # formats with lines that may be corrupt
MARK = "\ufffd"  # what stands where a byte could not be read
NOT_DECODED = "it holds a byte that is not of the encoding"
ENDLESS = "it holds a number beyond those of its type, or infinity"
_PATTERNS = ("timestampformat", "timestampntzformat")  # names of options do not tell case apart
_WRITES_INFINITY = {"csv": {"positiveinf", "negativeinf"}, "json": {"allownonnumericnumbers"}}
_FINER = re.compile("(?<=(?<!S)SSSSSS)S{1,3}(?!S)")
_BLANK, _ZEROS = "[' ']", "['0']['0']['0']"
_TIME = f"[H:m[:s[.SSSSSS{_ZEROS}]]]{_BLANK}[VV][z][XX]"
ANY_TIME = (
    f"{_BLANK * 3}yyyy[-M[-d['T']{_BLANK}{_TIME}]]{_BLANK * 3}"  # Java's DateTimeFormatter; brackets: may be left out
)


def uncut(reader: Reader) -> dict[str, str]:
    """The reader's options, by which a time that is finer than a microsecond cannot be read."""
    if reader.format not in LINES:
        return dict(reader.options)
    given = {name.lower(): name for name in reader.options}
    names = [given.get(name, name) for name in _PATTERNS]
    patterns = {name: _of_micros(reader.options.get(name, ANY_TIME)) for name in names}
    return {**reader.options, "enableDateTimeParsingFallback": "false", **patterns}


def _of_micros(pattern: str) -> str:
    """The pattern, of whose fraction of up to nine digits all behind the sixth have to be zeros."""
    parts = re.split("('[^']*')", pattern)  # what is quoted stands for itself
    parts[::2] = [_FINER.sub(lambda finer: "['0']" * len(finer[0]), part) for part in parts[::2]]
    return "".join(parts)


def with_letters(rows: DataFrame, reader: Reader) -> DataFrame:
    """`rows` with a reason for each that is a dead letter, and its line: where that is not known, the row as JSON."""
    placed, columns = by_place(rows)
    own = [(columns[field.name], field) for field in rows.drop(CORRUPT, FILE, REASON).schema.fields]
    line = F.make_valid_utf8(columns[CORRUPT]) if CORRUPT in columns else F.lit(None).cast("string")  # bytes, in JSON
    marked = [F.contains(text, F.lit(MARK)) for each in own if (text := _text(*each)) is not None]
    writes = {name.lower() for name in reader.options} & _WRITES_INFINITY.get(reader.format, set())
    endless = [] if writes else [found for of, f in own if (found := _endless(of, f.dataType)) is not None]
    reason = F.when(F.contains(line, F.lit(MARK)), NOT_DECODED)
    told = columns.get(REASON)  # where the line always stands there
    reason = reason.when(line.isNotNull(), NOT_READ) if told is None else reason.when(told.isNotNull(), told)
    for wrong, why in [(one, NOT_DECODED) for one in marked] + [(one, ENDLESS) for one in endless]:
        reason = reason.when(wrong, why)
    whole = F.to_json(F.struct(*(column.alias(field.name) for column, field in own)))
    text = F.make_valid_utf8(F.coalesce(line, F.when(reason.isNotNull(), whole)))
    return placed.select(
        *(column.alias(field.name) for column, field in own),
        columns[FILE].alias(FILE),
        text.alias(CORRUPT),
        reason.alias(REASON),
    )


def _text(column: Column, field: StructField) -> Column | None:
    """What a column has of text; None where it has none."""
    if isinstance(field.dataType, StructType | ArrayType | MapType):
        return F.to_json(F.struct(column.alias(field.name)))
    return column if isinstance(field.dataType, StringType) else None


def _endless(value: Column, kind: DataType) -> Column | None:
    """Whether a number in it is infinite; None where it can hold none."""
    if isinstance(kind, DoubleType | FloatType):
        return F.abs(value) == float("inf")
    if isinstance(kind, MapType):
        return _endless(F.map_values(value), ArrayType(kind.valueType))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return None if _endless(value, element) is None else F.exists(value, lambda one: _endless(one, element))
    inner = (
        [(value.getField(field.name), field.dataType) for field in kind.fields] if isinstance(kind, StructType) else []
    )
    found = [one for part in inner if (one := _endless(*part)) is not None]
    return reduce(or_, found) if found else None
