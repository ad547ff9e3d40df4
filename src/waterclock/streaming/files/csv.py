"""A block of CSV lines into rows, in two ways: what Spark's reader makes of them by the same options, or a dead letter.

Rule 1: the slow way is the law; the fast way, Arrow's reader, takes blocks without quotes, and no value that the slow one
        refuses or reads otherwise.
Rule 2: columns go by their place. A line has a field for each, no more and no fewer.
Rule 3: a field that begins with a quote ends with one, and in it \\" and \\\\ stand for a quote and a backslash. What Spark
        makes of other quotes depends on where the next separator stands: here it is a dead letter.
Rule 4: an empty field, in quotes or not, is null. Nothing is guessed: a blank beside an integer makes it none.
Rule 5: lines end at \\n (a \\r before it is dropped); a line of blanks is none. A \\r elsewhere is a dead letter.
Rule 6: a time without a pattern is what spark/dataframe/lines.py has Spark take, in UTC; of zones only Z, UTC and offsets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from waterclock.durations import datetime_us
from waterclock.errors import UsageError
from waterclock.streaming.files.jsonl import decoded, letter, moments_of
from waterclock.streaming.frames import TIMESTAMP
from waterclock.streaming.layout import (
    Block,
    Csv,
    Layout,
    Letter,
    all_good,
    check_row,
    dead_file,
    dead_letters,
    in_calendar,
    with_row_id,
)

_ZONE = r"(?P<zone>[Zz]|UTC|[+-][0-9]{2}:?[0-9]{2})"
_FRACTION = r"(?P<fraction>[0-9]{1,6}|[0-9]{6}0{1,3})"
_CLOCK = rf"(?P<hour>[0-9]{{1,2}}):(?P<minute>[0-9]{{1,2}})(?::(?P<second>[0-9]{{1,2}})(?:\.{_FRACTION})?)?"
_DAY = rf"(?P<day>[0-9]{{1,2}})T? ?(?:{_CLOCK})? ?(?:{_ZONE})?"
_ANY_TIME = rf" {{0,3}}(?P<year>[0-9]{{4}})(?:-(?P<month>[0-9]{{1,2}})(?:-{_DAY})?)? {{0,3}}"
_PARTS = {  # of a pattern of Java's
    "yyyy": "(?P<year>[0-9]{4})",
    "MM": "(?P<month>[0-9]{2})",
    "dd": "(?P<day>[0-9]{2})",
    "HH": "(?P<hour>[0-9]{2})",
    "mm": "(?P<minute>[0-9]{2})",
    "ss": "(?P<second>[0-9]{2})",
    "XXX": "(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})",
    **{"S" * n: f"(?P<fraction>[0-9]{{1,{n}}})" for n in range(1, 7)},
    **{"S" * n: f"(?P<fraction>[0-9]{{1,6}}|[0-9]{{6}}0{{1,{n - 6}}})" for n in range(7, 10)},
}
_LETTERS = re.compile(r"'[^']*'|(?P<letter>[a-zA-Z])(?P=letter)*|[^a-zA-Z']")
_INTEGER, _PLAIN_INTEGER = re.compile(r"[+-]?\d{1,4300}"), "^-?[0-9]+$"
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?|NaN")
_PLAIN_DOUBLE = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_ESCAPED = re.compile(r'\\(["\\])')
_BLANK_LINE = re.compile(rb"(?m)^[ \t]+$")
_BEYOND = timedelta(hours=18)
_FAR = "^[+-](1[89]|[2-9])"
_BOM = b"\xef\xbb\xbf"


def blocks_of(blocks: Iterable[bytes], path: str, layout: Layout) -> Iterator[Block]:
    """The rows of a file's blocks of whole lines; a first line that names other columns makes it one dead letter."""
    waits, first = layout.csv.has_header, 1
    for number, given in enumerate(blocks):
        block = given.removeprefix(_BOM) if number == 0 else given
        while waits and block:
            line, _, block = block.partition(b"\n")
            first += 1
            if line.strip():
                waits = False
                if wrong := _unlike(line, layout):
                    yield dead_file(path, layout, wrong)
                    return
        rows = fast(block, layout)
        yield Block(rows, dead_letters([])) if rows is not None else slow(block, layout, path, first)
        first += block.count(b"\n")


def _unlike(line: bytes, layout: Layout) -> str | None:
    """What is wrong with a first line that should name the columns."""
    names, found = list(layout.columns), line.removesuffix(b"\r").decode(errors="replace")
    with suppress(ValueError):
        there = fields_of(found, layout.csv.separator)
        if layout.csv.by_place or [name.casefold() for name in there] == [name.casefold() for name in names]:
            return None
    return f"the first line names {found!r}, and not the columns that are read: {layout.csv.separator.join(names)!r}"


# The fast way --------------------------------------------------------------------------------------------------


def fast(block: bytes, layout: Layout) -> pa.Table | None:
    """All rows of a block, or None if any line needs a closer look."""
    block = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    if (
        len(layout.columns) == 1
        or any(byte in block for byte in (b'"', b"\r", b"\0", _BOM))
        or _BLANK_LINE.search(block)
    ):
        return None
    texts = dict.fromkeys(layout.columns, pa.string())
    read = pa.csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=list(texts))
    parse = pa.csv.ParseOptions(delimiter=layout.csv.separator, quote_char=False, escape_char=False)
    convert = pa.csv.ConvertOptions(column_types=texts, null_values=[""], strings_can_be_null=True)
    try:
        if not block.strip():
            return with_row_id(layout.schema().empty_table(), layout.rules)
        raw = pa.csv.read_csv(pa.BufferReader(block), read, parse, convert)
        rows = pa.table(
            {f.name: _values(raw.column(f.name), f.type, layout.csv) for f in layout.schema()}, layout.schema()
        )
    except pa.ArrowException:
        return None
    return with_row_id(rows, layout.rules) if all_good(rows, layout.rules) else None


def _values(texts: pa.ChunkedArray, kind: pa.DataType, csv: Csv) -> pa.ChunkedArray:
    """Texts in the declared kind; ArrowInvalid if one needs a closer look."""
    if kind == pa.string():
        return texts
    if kind == TIMESTAMP:
        times = moments_of(_iso(texts, csv), kind)
        _need(in_calendar(times.cast(pa.int64())))
        return times
    if kind == pa.bool_():
        lower = pc.utf8_lower(texts)
        _need(pc.all(pc.is_in(lower, pa.array(["true", "false", None]))).as_py())
        return pc.equal(lower, "true")
    _need(pc.all(pc.match_substring_regex(texts, _PLAIN_DOUBLE if kind == pa.float64() else _PLAIN_INTEGER)).as_py())
    numbers = texts.cast(kind)
    _need(kind != pa.float64() or pc.all(pc.is_finite(numbers)).as_py())
    return numbers


def _need(is_so: bool | None) -> None:
    if is_so is False:
        raise pa.ArrowInvalid


def _iso(texts: pa.ChunkedArray, csv: Csv) -> pa.ChunkedArray:
    """Times in the words that Arrow reads."""
    found = pc.extract_regex(texts, f"^(?:{time_of(csv)})$")
    _need(found.null_count == texts.null_count)
    there = {field.name for field in found.type}

    def part(name: str, otherwise: str) -> Any:
        if name not in there:
            return otherwise
        value = pc.struct_field(found, [name])
        return pc.if_else(pc.equal(value, ""), otherwise, value)

    day = pc.binary_join_element_wise(part("year", ""), part("month", "01"), part("day", "01"), "-")
    clock = pc.binary_join_element_wise(part("hour", "00"), part("minute", "00"), part("second", "00"), ":")
    clock = pc.binary_join_element_wise(clock, part("fraction", "0"), ".")
    _need(
        not pc.any(pc.match_substring_regex(pc.struct_field(found, ["zone"]), _FAR)).as_py()
        if "zone" in there
        else True
    )
    return pc.binary_join_element_wise(day, "T", clock, part("zone", "Z"), "")


# The slow way --------------------------------------------------------------------------------------------------


def slow(block: bytes, layout: Layout, path: str, first: int) -> Block:
    """The rows of a block whose first line has number `first`, and a dead letter for each line that is none."""
    good: list[Any] = []
    dead: list[Letter] = []
    time = re.compile(time_of(layout.csv))
    readers = {
        name: partial(_moment, time) if kind == "timestamp" else _READERS[kind] for name, kind in layout.columns.items()
    }
    for number, line in enumerate(block.split(b"\n"), first):
        if line.strip():
            try:
                row = _row(line.removesuffix(b"\r"), readers, layout.csv.separator)
                check_row(row, layout.rules)
                good.append(row)
            except ValueError as error:
                dead.append(letter(path, number, error, line.removesuffix(b"\r")))
    rows = pa.Table.from_pylist(good, schema=layout.schema())
    return Block(with_row_id(rows, layout.rules), dead_letters(dead))


def _row(line: bytes, readers: Mapping[str, Callable[[str], Any]], separator: str) -> dict[str, Any]:
    text = f"\ufeff{decoded(line)}" if line.startswith(_BOM) else decoded(line)  # within a file it is a letter
    if "\r" in text:
        raise ValueError("a carriage return stands inside of the line")
    fields = fields_of(text, separator)
    if len(fields) != len(readers):
        raise ValueError(f"needs {len(readers)} fields, one for each column, got {len(fields)}")
    row: dict[str, Any] = {}
    for (name, read), field in zip(readers.items(), fields, strict=True):
        try:
            row[name] = read(field) if field else None
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from error
    return row


def fields_of(line: str, separator: str) -> list[str]:
    """The fields of a line; ValueError for a quote that begins a field and does not end it.

    >>> fields_of('a, b ,"c,d","e\\\\"f"', ",")
    ['a', ' b ', 'c,d', 'e"f']
    """
    quoted = re.compile(r'"((?:[^"\\]|\\.)*)"[' + " \t".replace(separator, "") + "]*")
    found, at = list[str](), 0
    while True:
        if line.startswith('"', at):
            match = quoted.match(line, at)
            if match is None or not (match.end() == len(line) or line.startswith(separator, match.end())):
                raise ValueError(f"field {len(found) + 1} begins with a quote, and does not end with one")
            found.append(_ESCAPED.sub(r"\1", match[1]))
            at = match.end()
        else:
            end = line.find(separator, at)
            end = len(line) if end < 0 else end
            found.append(line[at:end])
            at = end
        if at == len(line):
            return found
        at += len(separator)


def _integer(bits: int, text: str) -> int:
    if not _INTEGER.fullmatch(text) or not -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1):
        raise ValueError(f"needs an integer of {bits} bits, got {text!r}")
    return int(text)


def _double(text: str) -> float:
    number = float(text.strip().rstrip("dDfF")) if _DOUBLE.fullmatch(text.strip()) else math.inf
    if math.isinf(number):
        raise ValueError(f"needs a number that a double can hold, got {text!r}")
    return number


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"needs true or false, got {text!r}")
    return text.lower() == "true"


def _moment(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(f"needs a time as the pattern says it, no finer than a microsecond, got {text!r}")
    parts = {name: value for name, value in found.groupdict().items() if value is not None}
    day = (int(parts["year"]), int(parts.get("month", 1)), int(parts.get("day", 1)))
    clock = (int(parts.get("hour", 0)), int(parts.get("minute", 0)), int(parts.get("second", 0)))
    try:
        at = datetime(*day, *clock, int(parts.get("fraction", "0")[:6].ljust(6, "0"))) - _offset(parts.get("zone", "Z"))
    except (ValueError, OverflowError):
        raise ValueError(f"needs a time in the years 1 to 9999 (in UTC), got {text!r}") from None
    return datetime_us(at)


def _offset(zone: str) -> timedelta:
    if zone[0] not in "+-":
        return timedelta()
    digits = zone[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    if offset > _BEYOND or int(digits[2:]) > 59:
        raise ValueError
    return offset if zone[0] == "+" else -offset


_READERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "long": partial(_integer, 64),
    "integer": partial(_integer, 32),
    "double": _double,
    "boolean": _boolean,
}


# Patterns ------------------------------------------------------------------------------------------------------


def time_of(csv: Csv) -> str:
    """What a time must match; UsageError for a pattern that only Spark knows."""
    if csv.pattern is None:
        return _ANY_TIME
    parts = [found[0] for found in _LETTERS.finditer(csv.pattern)]
    words = [part for part in parts if part.isalpha()]
    is_whole = "".join(parts) == csv.pattern and {"yyyy", "MM", "dd"} <= set(words) <= set(_PARTS)
    if not is_whole or len({word[0] for word in words}) < len(words):
        raise UsageError(
            f"[source.options]: timestampFormat = {csv.pattern!r} needs Spark: without it a pattern is made of yyyy, MM, "
            'dd, HH, mm, ss, S and XXX, each once, and of what stands between them. Or write engine = "spark" in [pipeline]'
        )
    return "".join(_PARTS[part] if part.isalpha() else re.escape(part.strip("'") or "'") for part in parts)
