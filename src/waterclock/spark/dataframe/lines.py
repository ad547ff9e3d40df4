"""What Spark's readers of lines (CSV, JSON, text) would cut, mix up or lose without a word; such a line is a dead letter.

Spark's reader of JSON keeps no line that it could read, and of a name that an object has twice it takes the last value. So
the files are read as text, and `from_json`, the same code with the same options, reads each line.

Rule 1: a time keeps all its digits, or it is not read: of a pattern's fraction, what is finer than a microsecond may be
        zeros alone. Spark's own way without a pattern cuts there; so a pattern that takes what that way takes stands in its
        place. (It wants hours of two digits at most, years of four, and no more than three blanks beside a time.)
Rule 2: infinity is a number that was too large, unless an option of the user's says that the files write it.
Rule 3: a byte that is not of the encoding became a mark, and different keys would become one.
Rule 4: a line of JSON that holds a list is a row for each of its elements, as for Spark's reader of files.
Rule 5: no value wins over another one: if an object has a name twice that is read, at any depth, its line is a dead letter.
Rule 6: so is a line that names none of the columns, as if all its names are written in another case: a row of nulls would
        say nothing of it.
Rule 7: what cannot be read so is left to Spark's reader, with the last value of two: another encoding than UTF-8, and
        folders whose names are columns (day=2026-01-31).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StringType, StructField, StructType

from waterclock.spark.dataframe.rows import CORRUPT, FILE, REASON
from waterclock.spark.packing.packs import by_place
from waterclock.streaming.layout import ROW_ID
from waterclock.streaming.toml.readers import Reader

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql._typing import ColumnOrName

NOT_READ = "the reader cannot read it by the columns"
TWICE = "it gives a name twice"
NAMELESS = "it names none of the columns, whose case counts"
_PARSED, _BAD = f"{ROW_ID}_parsed", f"{ROW_ID}_bad"
_BLANKS = " \t\r\n"
_ENCODINGS = ("encoding", "charset")


def text_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options by which lines are read that those of a reader of JSON mean."""
    given = {name.lower(): value for name, value in options.items()}
    return {**options, "wholetext": given.get("multiline", "false")}


def reads_lines(lines: DataFrame, options: Mapping[str, str]) -> bool:
    """Whether `json_rows` may read `lines`, by rule 7."""
    encodings = {value.upper() for name, value in options.items() if name.lower() in _ENCODINGS}
    return lines.columns == ["value"] and encodings <= {"UTF-8", "UTF8"}


def json_rows(lines: DataFrame, columns: StructType, options: Mapping[str, str]) -> DataFrame:
    """The columns of each object in `lines`; beside them FILE, its line as CORRUPT, and the REASON why it is none."""
    line, file = F.ltrim(F.make_valid_utf8("value"), F.lit("\ufeff")), lines.metadataColumn("_metadata")
    read = lines.select(line.alias(CORRUPT), file.getField("file_path").alias(FILE))
    read = read.where(F.ltrim(CORRUPT, F.lit(_BLANKS)) != "").withColumn(CORRUPT, F.explode(_elements(options)))
    schema = StructType([*columns, StructField(_BAD, StringType())])
    parsed = F.from_json(CORRUPT, schema, {**options, "columnNameOfCorruptRecord": _BAD})
    wrong = F.col(_PARSED).isNull() | F.col(_PARSED).getField(_BAD).isNotNull() | _is_list()
    reason = F.when(wrong, NOT_READ).otherwise(
        _once(_fields(CORRUPT, options), lambda own: _reason(own, columns, options))
    )
    rows = read.withColumn(_PARSED, parsed).select(FILE, CORRUPT, reason.alias(REASON), f"{_PARSED}.*")
    return rows.drop(_BAD)


def _is_list() -> Column:
    return F.startswith(F.ltrim(CORRUPT, F.lit(_BLANKS)), F.lit("["))


def _elements(options: Mapping[str, str]) -> Column:
    """The texts of a list's elements; any other text alone."""
    found = F.transform(
        F.from_json(CORRUPT, "array<string>", dict(options)), lambda one: F.coalesce(one, F.lit("null"))
    )
    alone = F.array(CORRUPT)
    return F.when(_is_list(), F.coalesce(found, alone)).otherwise(alone)


def _fields(text: ColumnOrName, options: Mapping[str, str]) -> Column:
    """The fields of an object as texts; two of one name stand there twice."""
    return F.from_json(text, "map<string,string>", dict(options))


def _once(value: Column, use: Callable[[Column], Column]) -> Column:
    """What `use` makes of `value`, which is read once, however often it is used."""
    return F.transform(F.array(value), use)[0]


def _reason(fields: Column, columns: StructType, options: Mapping[str, str]) -> Column:
    named = F.filter(F.map_keys(fields), lambda name: name.isin(columns.names))
    return F.when(_twice_in(fields, columns, options), TWICE).when(F.size(named) == 0, NAMELESS)


def _twice(text: Column, kind: DataType, options: Mapping[str, str]) -> Column | None:
    """Whether an object in `text` has a name twice that is read by `kind`; None if that reads no object."""
    if isinstance(kind, ArrayType):
        if _twice(text, kind.elementType, options) is None:
            return None
        elements = F.from_json(text, "array<string>", dict(options))
        return F.exists(elements, lambda one: _twice(one, kind.elementType, options))
    if not isinstance(kind, StructType | MapType):
        return None
    return _once(_fields(text, options), lambda fields: _twice_in(fields, kind, options))


def _twice_in(fields: Column, kind: StructType | MapType, options: Mapping[str, str]) -> Column:
    names = F.map_keys(fields)
    if isinstance(kind, MapType):
        inner = _twice(F.lit(""), kind.valueType, options) is not None
        found = [F.exists(F.map_values(fields), lambda one: _twice(one, kind.valueType, options))] if inner else []
    else:
        names = F.filter(names, lambda name: name.isin(kind.names))
        parts = [_twice(F.try_element_at(fields, F.lit(field.name)), field.dataType, options) for field in kind.fields]
        found = [part for part in parts if part is not None]
    return reduce(or_, found, F.size(names) > F.size(F.array_distinct(names)))


LINES = ("csv", "json")  # formats with lines that may be corrupt
MARK = "\ufffd"  # what stands in the place of a byte that could not be read
NOT_DECODED = "it holds a byte that is not of the encoding"
ENDLESS = "it holds a number beyond those of its type, or infinity"
_PATTERNS = ("timestampformat", "timestampntzformat")  # names of options mean the same in any case
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
    """`rows` with a reason for each that is a dead letter, and its line: if that is not known, the row as JSON."""
    placed, columns = by_place(rows)
    own = [(columns[field.name], field) for field in rows.drop(CORRUPT, FILE, REASON).schema.fields]
    line = F.make_valid_utf8(columns[CORRUPT]) if CORRUPT in columns else F.lit(None).cast("string")  # bytes, in JSON
    marked = [F.contains(text, F.lit(MARK)) for each in own if (text := _text(*each)) is not None]
    writes = {name.lower() for name in reader.options} & _WRITES_INFINITY.get(reader.format, set())
    endless = [] if writes else [found for of, f in own if (found := _endless(of, f.dataType)) is not None]
    reason = F.when(F.contains(line, F.lit(MARK)), NOT_DECODED)
    given = columns.get(REASON)  # the line always stands there then
    reason = reason.when(line.isNotNull(), NOT_READ) if given is None else reason.when(given.isNotNull(), given)
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
    """What a column has of text; None if it has none."""
    if isinstance(field.dataType, StructType | ArrayType | MapType):
        return F.to_json(F.struct(column.alias(field.name)))
    return column if isinstance(field.dataType, StringType) else None


def _endless(value: Column, kind: DataType) -> Column | None:
    """Whether a number in it is infinite; None if it can hold none."""
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
