"""The stream of a streaming DataFrame, and of one of Spark's own readers: CSV, JSON, ORC, text, Parquet, Delta, a table.

Rule 1: its columns are fixed while the checkpoint lives; what it reads is Spark's to remember and to check.
Rule 2: what in its plan would hold the watermark back, or differ when a batch is run again, is refused before it starts.
Rule 3: waterclock cannot know whether something came after the close before Spark has read it: the batch is refused then.
Rule 4: columns of a reader that nobody declared are inferred once, from what is there at the first start that was not
        refused, and kept in the checkpoint: a later file does not change the type of a column.
Rule 5: a step of the user's (`query`, `transform`) never sees a line that could not be read. So with one, lines are read
        twice: for the step, and for the dead letters.
Rule 6: a line that the reader cannot read by the columns is a dead letter with its file, and so is one with a byte that its
        encoding does not know: Spark puts a mark in the byte's place, and different keys would become one. So is one with
        a time or a number that Spark would cut (lines.py). A file that it cannot read at all ends the run with a sentence:
        Spark gives no place in it from which to go on.
Rule 7: names in the first line of CSV files are those of the columns, in their order, or the run ends: Spark takes values
        by their place, so a file whose columns stand in another order would be read wrongly, without a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import reduce
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from waterclock.errors import EnvironmentMissing, UsageError, meant
from waterclock.rules.model import Rules
from waterclock.spark.batch.steps import SOURCE, applied, refuse_stateful
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.dataframe.lines import LINES, json_rows, reads_lines, text_options, uncut, with_letters
from waterclock.spark.dataframe.rows import ASIDE, CORRUPT, FILE, REASON, pack_letters, row_packer
from waterclock.spark.files import reader
from waterclock.spark.packing.packs import TIMED, in_workers
from waterclock.spark.packing.transform import check_columns, delay_text, with_id
from waterclock.spark.source import FOREVER, Stream, literal, names_of
from waterclock.streaming.checkpoint import NOTES, stored, write
from waterclock.streaming.files.folder import check_readable
from waterclock.streaming.layout import refuse_own
from waterclock.streaming.places.place import is_remote, make_folder
from waterclock.streaming.toml.config import check_durations, check_names_of
from waterclock.streaming.toml.readers import Reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check_dataframe(rows: DataFrame, rules: Rules | None, what: str = "Pipeline(source=)") -> None:
    """Raise UsageError if `rows`, which is called `what`, cannot be the source of a pipeline with these rules."""
    if rules is None:
        raise UsageError("Pipeline(rules=) is None, and only topics bring changes of tables: give the rules")
    if not rows.isStreaming:
        raise UsageError(
            f"{what} is a batch DataFrame: read it with spark.readStream, or apply the rules to it with "
            "rules.on_spark()"
        )
    if not hasattr(rows, "_jdf"):
        raise UsageError(f"{what} is a DataFrame of Spark Connect: use a session that is in this process")
    check_columns(rules, rows.schema)
    check_durations(rules)
    check_names_of(rows.columns, what)
    refuse_stateful(rows, what)


def event_schema(rows: DataFrame) -> pa.Schema:
    """The columns of events that `rows` become. Each may be null: if a result has no event, all of them are."""
    return pa.schema(list(map(_nullable, to_arrow_schema(rows.schema, timezone="UTC"))))


def _nullable(field: pa.Field) -> pa.Field:
    inner = pa.struct(list(map(_nullable, field.type))) if pa.types.is_struct(field.type) else field.type
    return pa.field(field.name, inner, metadata=field.metadata)


class DataFrameStream(Stream):
    """A `Stream` of the rows of a streaming DataFrame that `check_dataframe` found good."""

    def __init__(
        self, rows: DataFrame, rules: Rules, delay_us: int, checkpoint: Checkpoint, letters: DataFrame | None = None
    ) -> None:
        """`letters` are lines that could not be read, where they do not stand among `rows`."""
        self._rows = rows
        self._rules = rules
        self._delay_us = delay_us
        self._checkpoint = checkpoint
        self._letters = letters

    def schema(self) -> pa.Schema:
        return event_schema(self._rows.drop(*ASIDE))

    def settings(self) -> dict[str, Any]:
        return {
            "columns": {field.name: field.dataType.simpleString() for field in self._rows.drop(*ASIDE).schema.fields}
        }

    def packed(self, session: SparkSession, live: bool, count: int) -> DataFrame:
        named = with_id(self._rows, self._rules, self._rows.drop(*ASIDE).columns)
        rows = in_workers(named, row_packer(self._rules, self._delay_us, count), TIMED)
        beats = in_workers(names_of(session, self._checkpoint.heartbeats, 1, beat=True), reader(None), TIMED)
        if self._letters is not None:
            rows = rows.unionByName(in_workers(self._letters, pack_letters, TIMED))
        return rows.unionByName(beats).withWatermark("ts", delay_text(self._delay_us)).drop("ts")


_BY_PLACE = "enforceschema"  # of CSV: whatever the first line says; names of options mean the same in any case
_HEADER = re.compile(r"\n (Header(?: length)?: .*?)\n(?:Expected: [^\n]*\n)?CSV file: ([^\n]+)", re.DOTALL)
_PROBES = {  # a query of Spark's over a value of these options, which fails if it can be none
    **dict.fromkeys(("timestampformat", "timestampntzformat", "dateformat"), "SELECT try_to_timestamp('x', :value)"),
    **dict.fromkeys(("encoding", "charset"), "SELECT decode(X'20', :value)"),
}


class ReaderStream(Stream):
    """A `Stream` of what a reader of Spark's reads; its columns are known once `begin` has looked."""

    def __init__(self, reader: Reader, rules: Rules, delay_us: int, checkpoint: Checkpoint) -> None:
        self._reader = reader
        self._rules = rules
        self._delay_us = delay_us
        self._checkpoint = checkpoint
        self._rows: DataFrameStream | None = None

    def begin(self, session: SparkSession) -> None:
        rows, step = self._read(session), self._reader.step
        letters = rows.where(F.col(REASON).isNotNull()) if step and REASON in rows.columns else None
        if step is not None:
            good = rows if letters is None else rows.where(F.col(REASON).isNull())
            rows = applied(step, good.drop(CORRUPT, REASON, FILE), SOURCE)
        check_dataframe(rows.drop(CORRUPT, REASON, FILE), self._rules, "the source")
        self._rows = DataFrameStream(rows, self._rules, self._delay_us, self._checkpoint, letters)

    def schema(self) -> pa.Schema | None:
        return None if self._rows is None else self._rows.schema()

    def settings(self) -> dict[str, Any]:
        place = {"path": str(self._reader.path)} if self._reader.path else {"table": self._reader.table}
        columns = {} if self._rows is None else self._rows.settings()
        read = {"format": self._reader.format, "options": _digest(self._reader.options)}
        return {**columns, **place, **read, **({} if self._reader.step is None else self._reader.step.settings())}

    def check(self) -> None:
        if self._reader.path is not None and not (is_remote(self._reader.path) and self._reader.format == "delta"):
            check_readable(self._reader.path)

    def packed(self, session: SparkSession, live: bool, count: int) -> DataFrame:
        assert self._rows is not None  # as `begin` made it
        return self._rows.packed(session, live, count)

    def explain(self, story: str) -> str | None:
        """Spark's words for a file that it cannot read, with the way out."""
        if (other := _HEADER.search(story)) is not None:
            return (
                f"the first line of {other[2]} does not name the columns that are read, in their order "
                f"({' '.join(other[1].split())}): declare them all as the files name them, and rename them in a query; or "
                "put a file that has them in its place, under the same name; or set enforceSchema = true in "
                "[source.options], by which they are taken by their place, whatever that line says"
            )
        named = re.search(r"Encountered error while reading file (\S+?)\.? ", story)
        if "FAILED_READ_FILE" not in story or named is None:
            return None
        return (
            f"Spark cannot read the file {named[1]}, and nothing of its batch was written. Put a file that can be read in "
            "its place, under the same name (an empty one will do); the same command goes on from there"
        )

    # Reading ---------------------------------------------------------------------------------------------------

    def _read(self, session: SparkSession) -> DataFrame:
        reader, columns = self._reader, self._columns(session)
        _check_options(session, reader)
        refuse_own(columns.names if columns is not None else (), "the source")
        try:
            rows = self._loaded(session, columns)
        except (PySparkException, Py4JError) as error:
            raise self._refused(error) from error
        if reader.format == "text":  # as its bytes are: Python could not read others, and the sink would be given them
            rows = rows.withColumn("value", F.make_valid_utf8("value"))
        if reader.format not in (*LINES, "text"):
            return rows
        file = rows[FILE] if FILE in rows.columns else rows.metadataColumn("_metadata").getField("file_path")
        return with_letters(rows.withColumn(FILE, file), reader)

    def _loaded(self, session: SparkSession, columns: StructType | None) -> DataFrame:
        reader, options = self._reader, {**self._options(), **_FIXED}
        if reader.format == "json" and columns is not None:
            lines = session.readStream.format("text").options(**text_options(options)).load(self._place())
            if reads_lines(lines, options):
                return json_rows(lines, columns, options)
        stream = session.readStream.format(reader.format).options(**options)
        if columns is not None:
            corrupt = [StructField(CORRUPT, StringType())] if reader.format in LINES else []
            stream = stream.schema(StructType([*columns, *corrupt]))
        return stream.table(reader.table) if reader.table else stream.load(self._place())

    def _options(self) -> dict[str, str]:
        given = uncut(self._reader)
        own = {"maxFilesPerTrigger": str(self._reader.files_per_batch), "maxFileAge": FOREVER}
        corrupt = {"columnNameOfCorruptRecord": CORRUPT} if self._reader.format in LINES else {}
        named = {} if _BY_PLACE in map(str.lower, given) else {_BY_PLACE: "false"}
        return {**given, **own, **corrupt, **named}

    def _place(self) -> str:
        assert self._reader.path is not None
        return str(self._reader.path) if self._reader.format == "delta" else literal(self._reader.path)

    def _columns(self, session: SparkSession) -> StructType | None:
        """The declared columns, or those that were inferred; None if the reader has its own."""
        reader, kept = self._reader, self._checkpoint.path / "inferred.json"
        began = (self._checkpoint.path / NOTES).exists()  # what a start inferred that was refused is not kept
        if reader.columns is not None:
            ddl = ", ".join(f"c{place} {kind}" for place, kind in enumerate(reader.columns.values()))
            try:
                kinds = StructType.fromDDL(ddl)
            except ParseException as error:
                raise UsageError(
                    f"[source.columns]: Spark does not know these types: {str(error).strip().splitlines()[0]}"
                ) from error
            if len(kinds) != len(reader.columns):
                raise UsageError(f"[source.columns]: each column must have one type in Spark's words, got {ddl!r}")
            return StructType(
                [StructField(name, kind.dataType) for name, kind in zip(reader.columns, kinds, strict=True)]
            )
        if reader.format in ("delta", "table"):
            return None
        if not (began and kept.exists()):
            make_folder(self._checkpoint.path)
            write(kept, json.dumps({"columns": self._inferred(session).jsonValue()}) + "\n")
        return StructType.fromJson(stored(kept)["columns"])

    def _inferred(self, session: SparkSession) -> StructType:
        options = {"inferSchema": "true", **self._options(), **_FIXED}
        try:
            found = session.read.format(self._reader.format).options(**options).load(self._place()).schema
        except (PySparkException, Py4JError) as error:
            if "UNABLE_TO_INFER_SCHEMA" not in str(error) and "CANNOT_INFER" not in str(error):
                raise self._refused(error) from error
            found = StructType()
        if not [field for field in found.fields if field.name != CORRUPT]:
            raise UsageError(
                f"the source folder {self._reader.path} holds nothing from which columns could be inferred: declare them "
                "under [source.columns], or start when a file is there"
            )
        return StructType([field for field in found.fields if field.name != CORRUPT])

    def _refused(self, error: Exception) -> Exception:
        """What Spark says on its first line, or behind the name of what Java threw."""
        lines = str(error).splitlines()
        why = next((line[line.index("[") :] for line in lines if "[" in line), lines[0])
        if "DATA_SOURCE_NOT_FOUND" in why:
            return EnvironmentMissing(
                f"Spark has no reader for format = {self._reader.format!r}: give its jars under [spark.conf], as "
                f'"spark.jars" or "spark.jars.packages" ({why})'
            )
        return UsageError(f"[source]: Spark cannot read it: {why}")


def _check_options(session: SparkSession, reader: Reader) -> None:
    """Raise UsageError for an option that Spark's reader does not know, which it would pass over without a word; and for a
    pattern of times or an encoding that it does not know: it would say so of the first row."""
    known = _options_of(session, reader.format) if reader.options else set()
    for name in filter(lambda each: known and "." not in each, reader.options):  # with a dot they are Hadoop's
        if name.lower() not in {each.lower() for each in known}:
            raise UsageError(
                f"[source.options]: {name!r} is not known to Spark's reader of {reader.format}; {meant(name, known)}"
            )
    for name, value in reader.options.items():
        probe = _PROBES.get(name.lower())
        if probe is None or reader.format not in LINES:
            continue
        try:
            session.sql(probe, {"value": value}).collect()
        except (PySparkException, Py4JError) as error:
            raise UsageError(
                f"[source.options]: Spark does not know {name} = {value!r}: write a pattern such as dd.MM.yyyy "
                "HH:mm:ss, or an encoding such as ISO-8859-1"
            ) from error


_SPARKS = {  # where Spark keeps the names of options
    "csv": ("catalyst.csv.CSVOptions$",),
    "json": ("catalyst.json.JSONOptions$", "execution.datasources.text.TextOptions$"),
    "text": ("execution.datasources.text.TextOptions$",),
    "orc": ("execution.datasources.orc.OrcOptions$",),
    "parquet": ("execution.datasources.parquet.ParquetOptions$",),
}
_OF_FOLDERS = "execution.datasources.FileIndexOptions$"
_OF_STREAMS = ("maxBytesPerTrigger", "maxCachedFiles", "discardCachedInputRatio")  # it keeps these nowhere


def _options_of(session: SparkSession, format_: str) -> set[str]:
    """The names of all options of a reader; none if it is not Spark's own, or if this Spark keeps them elsewhere."""
    places = [f"org.apache.spark.sql.{place}.MODULE$" for place in (*_SPARKS.get(format_, ()), _OF_FOLDERS)]
    with suppress(TypeError, Py4JError):
        kept = [reduce(getattr, place.split("."), session._jvm).getAllOptions().mkString(" ") for place in places]
        return {*" ".join(kept).split(), *_OF_STREAMS} if len(kept) > 1 else set()
    return set()


def _digest(options: Mapping[str, str]) -> str:
    """Enough to see that options changed; what they say may be a password. How a first line is checked changes no row."""
    options = {name: value for name, value in options.items() if name.lower() != _BY_PLACE}
    return blake2b(json.dumps(sorted(options.items())).encode(), digest_size=16).hexdigest()


_FIXED = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}  # whatever the session says
