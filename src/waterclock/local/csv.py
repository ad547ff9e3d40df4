"""format = "csv" without Spark: what its readers' [source.columns] and [source.options] mean, as far as it is known here.

Rule 1: a key that is known means what it means to Spark; any other is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping

from waterclock.errors import UsageError
from waterclock.rules.model import Rules
from waterclock.streaming.files.csv import time_of
from waterclock.streaming.layout import Csv
from waterclock.streaming.toml.config import Files, check_fits, check_names_of
from waterclock.streaming.toml.readers import Reader

_KINDS = {
    **dict.fromkeys(("string", "double", "boolean", "timestamp")),
    **dict.fromkeys(("bigint", "long"), "long"),
    **dict.fromkeys(("int", "integer"), "integer"),
}
_OTHERWISE = 'write engine = "spark" in [pipeline], or leave it out'
_ALIKE = {"delimiter": "sep", "charset": "encoding"}
_ONLY = {"timezone": ("UTC",), "encoding": ("UTF-8", "UTF8"), "mode": ("PERMISSIVE",)}
_TRUTHS = ("header", "enforceschema")


def csv_of(reader: Reader, rules: Rules) -> tuple[Files, Csv]:
    """The files, and how they are written; UsageError for what only Spark knows, or what does not fit the rules."""
    if reader.columns is None or reader.path is None:
        raise UsageError(
            f"[source]: columns that are inferred need Spark: declare them under [source.columns], or {_OTHERWISE}"
        )
    check_names_of(reader.columns)
    for name, kind in reader.columns.items():
        if kind.strip().lower() not in _KINDS:
            raise UsageError(f"[source.columns]: {name!r} = {kind!r} needs Spark: declare a string, or {_OTHERWISE}")
    kinds = {name: kind.strip().lower() for name, kind in reader.columns.items()}
    columns = {name: _KINDS[kind] or kind for name, kind in kinds.items()}
    check_fits({name: "int" if kind == "integer" else kind for name, kind in columns.items()}, rules)
    return Files("csv", reader.path, reader.files_per_batch, columns), _written(reader.options)


def _written(options: Mapping[str, str]) -> Csv:
    given = {_ALIKE.get(name.lower(), name.lower()): (name, value) for name, value in options.items()}
    for known, (name, value) in given.items():
        if known in _TRUTHS:
            is_known = value.lower() in ("true", "false")
        else:
            is_known = known in ("sep", "timestampformat") or value.upper() in _ONLY.get(known, ())
        if not is_known:
            raise UsageError(f"[source.options]: {name} = {value!r} needs Spark: leave it out, or {_OTHERWISE}")
    told = {known: value for known, (_, value) in given.items()}
    separator = "\t" if told.get("sep") == "\\t" else told.get("sep", ",")
    if len(separator) != 1 or not separator.isascii() or separator in '"\\\r\n\0':
        raise UsageError(f"[source.options]: sep = {separator!r} needs Spark: name one character, or {_OTHERWISE}")
    header, by_place = (told.get(name, "false").lower() == "true" for name in _TRUTHS)
    csv = Csv(separator, header, by_place, told.get("timestampformat"))
    time_of(csv)
    return csv
