"""Files of JSON by Spark's own code, each row with its line beside it.

Spark's reader of JSON keeps no line that it could read, and of a name that an object has twice it takes the last value. So
the files are read as text, and `from_json`, the same code with the same options, reads each line.

Rule 1: a line that holds a list is a row for each of its elements, as for Spark's reader of files.
Rule 2: no value wins over another one: where an object has a name twice that is read, at any depth, its line is a dead
        letter.
Rule 3: so is a line that names none of the columns, as where all its names are written in another case: a row of nulls
        would say nothing of it.
Rule 4: what cannot be read so is left to Spark's reader, with the last value of two: another encoding than UTF-8, and
        folders whose names are columns (day=2026-01-31).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from waterclock.spark.dataframe.rows import CORRUPT, FILE, REASON
from waterclock.streaming.layout import ROW_ID

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
    """Whether `json_rows` may read `lines`, by rule 4."""
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
    """Whether an object in `text` has a name twice that is read by `kind`; None where that reads no object."""
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
