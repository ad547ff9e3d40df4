"""Where a pipeline reads with one of Spark's own readers: the table [source] of its file. The reference is made of this.

    [source]
    path             the folder, or the table's folder for "delta"
    table            for format = "table", in the place of path: the table's name in Spark's catalog, catalog.schema.name
    files_per_batch  how many new files a batch takes at most
    columns          [source.columns]: each column's name = its type in Spark's words, such as "struct<id: string>"; left
                     out, Spark infers them once, and the checkpoint keeps them
    options          [source.options]: the reader's own options by their names, such as header, sep, timestampFormat

format is "csv", "json", "orc", "text", "delta", "table", or "parquet" if no columns are declared. What is done with the
rows before the rules see them: steps.py.

Rule 1: what would pass over something in silence, or break the promise of exactly once, cannot be set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from waterclock.errors import UsageError
from waterclock.streaming.places.place import Place
from waterclock.streaming.toml.steps import NAMES as STEPS
from waterclock.streaming.toml.steps import Step, step_from
from waterclock.streaming.toml.table import FileTable

READERS = ("csv", "json", "orc", "text", "delta", "table")
_NAMES = ("format", "path", "table", "files_per_batch", "columns", "options", "query", "transform")
_OWN_COLUMNS = ("text", "delta", "table")  # these have columns of their own
_SAYS = "in [source] says it"
_OWN = {
    "path": f"path {_SAYS}",
    "maxfilespertrigger": f"files_per_batch {_SAYS}",
    "maxfileage": "files of any age are read",
    "latestfirst": "the oldest files come first: what came before would be late",
    "ignorecorruptfiles": "it would pass over files, or the rest of one, in silence",
    "ignoremissingfiles": "it would pass over files in silence",
    "columnnameofcorruptrecord": "a line that cannot be read becomes a dead letter",
    "enabledatetimeparsingfallback": "it would cut what is finer than a microsecond, in silence",
    "schema": f"columns {_SAYS}",
    "cleansource": "a file that is read stays until you take it away",
    "filenameonly": "of files of one name in two folders it would pass over one in silence",
}


@dataclass(frozen=True, slots=True)
class Reader:
    """What one of Spark's readers reads. Without `columns` they are inferred; `table` is set if there is no `path`."""

    format: str
    path: Place | None
    table: str | None
    files_per_batch: int
    columns: Mapping[str, str] | None
    options: Mapping[str, str]
    step: Step | None = None

    def all_columns(self) -> None:
        """Known to Spark alone."""


def reads_by_spark(source: Mapping[str, Any]) -> bool:
    """Whether a table [source] means one of Spark's readers: JSON lines and Parquet as they are have faster ones."""
    format_, stepped = source.get("format", "jsonl"), bool(set(STEPS) & set(source))
    return (
        format_ in READERS
        or (format_ in ("jsonl", "parquet") and stepped)
        or (format_ == "parquet" and "columns" not in source)
    )


def reader_from(source: FileTable) -> Reader:
    """The reader of a table [source] that `reads_by_spark`; UsageError says what is wrong and where."""
    source.check(_NAMES)
    format_ = source.get("format", "jsonl")
    wrong = "path" if format_ == "table" else "table"
    if wrong in source:
        other = "table" if format_ == "table" else "path"
        raise UsageError(f"[source]: {wrong!r} has no place beside format = {format_!r}: name the {other} in {other!r}")
    return Reader(
        format="json" if format_ == "jsonl" else format_,
        path=None if format_ == "table" else source.any_place("path", source.text("path")),
        table=source.text("table") if format_ == "table" else None,
        files_per_batch=source.count("files_per_batch", 16),
        columns=_columns(source, format_),
        options=_options(source.flat("options")),
        step=step_from(source),
    )


def _columns(source: FileTable, format_: str) -> Mapping[str, str] | None:
    if "columns" not in source:
        return None
    if format_ in _OWN_COLUMNS:
        raise UsageError(f"[source.columns]: format = {format_!r} has columns of its own: leave them out")
    columns: Mapping[str, Any] = source.take("columns", dict)
    for name, kind in columns.items():
        if not isinstance(kind, str) or not kind.strip():
            raise UsageError(
                f'[source.columns]: {name!r} must be a type in Spark\'s words, such as "string", got {kind!r}'
            )
    return dict(columns)


def _options(options: dict[str, str]) -> dict[str, str]:
    for name, value in options.items():
        why = _OWN.get(name.lower())
        if name.lower() == "mode" and value.upper() == "DROPMALFORMED":
            why = "it would drop lines in silence; without it they become dead letters"
        if why:
            raise UsageError(f"[source.options]: {name!r} cannot be set: {why}")
    return options
