"""A block of JSON lines into rows, in two ways. No Spark in this file.

A block of whole lines goes through Arrow's reader at once; if anything needs a closer look, the same block is
read line by line, and each line is judged alone.

Rule 1: the slow way is the law; the fast way may only accept what the slow one accepts, with the same values.
        What Arrow takes more lightly than the law is looked for before (in the bytes) and after (in the columns).
Rule 2: nothing is guessed: a text where a number is declared is a dead letter, with file, line and reason.
Rule 3: no value wins over another one: a declared name that an object has twice is a dead letter.
Rule 4: lines end at \\n and nowhere else (a \\r before it is dropped), so that numbers do not depend on blocks.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from waterclock.durations import TooFine, text_us
from waterclock.streaming.frames import TIMESTAMP
from waterclock.streaming.layout import (
    EARLIEST_US,
    LATEST_US,
    Block,
    Layout,
    Letter,
    all_good,
    check_row,
    dead_letters,
    in_calendar,
    with_row_id,
)

_LARGEST = 1 << 30  # bytes of a block; Arrow counts them in 32 bits
_DEEPEST = 500  # brackets in a line; Python's reader goes about 900 deep, Arrow's does not mind
_LONGEST_INTEGER = 4_300  # digits; Python reads no more
_LETTER_BYTES = 8_000  # of a line in a dead letter: 2,000 characters of UTF-8 at least
_MINUS_ZERO = -(1 << 63)  # the bits of -0.0 as an integer


# The fast way --------------------------------------------------------------------------------------------------


def fast(block: bytes, layout: Layout) -> pa.Table | None:
    """All rows of a block, or None if any line needs a closer look."""
    rows = plain_rows(block, layout.schema())
    return with_row_id(rows, layout.rules) if rows is not None and all_good(rows, layout.rules) else None


def plain_rows(block: bytes, schema: pa.Schema) -> pa.Table | None:
    """The rows of a block, a row a line, not judged yet; None if any line needs a closer look."""
    block = (block.replace(b"\r\n", b"\n") if b"\r" in block else block).strip(b"\n")
    lines = count_of(b"\n", block) + 1
    if not _looks_plain(block, lines):
        return None
    try:
        explicit = pa.schema([(f.name, pa.string() if f.type == TIMESTAMP else f.type) for f in schema])
        parse = pa.json.ParseOptions(explicit_schema=explicit, unexpected_field_behavior="ignore")
        read = pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        raw = pa.json.read_json(pa.BufferReader(block), read, parse).select(schema.names)
        raw.validate(full=True)  # texts: half of a surrogate pair is no UTF-8
        rows = pa.table({f.name: moments_of(raw.column(f.name), f.type) for f in schema}, schema)
    except pa.ArrowException:
        return None
    # Every line is at least one object; as many rows as lines means that none is two.
    return rows if rows.num_rows == lines and all(map(_same_values, rows.columns)) else None


def count_of(byte: bytes, block: bytes) -> int:
    """How often a byte stands in a block: a fifth of the time of `bytes.count`, which looks for the next one each time."""
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord(byte)))


def _looks_plain(block: bytes, lines: int) -> bool:
    """True when each line runs from { to }, in UTF-8, without what Arrow's reader would stumble or stop at.

    A line such as `null` in front of others ends the process in Arrow, and NUL ends the text without a word.
    """
    if not (block.startswith(b"{") and block.endswith(b"}")):
        return False
    at = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(at == ord("\n"))
    if not ((at[ends - 1] == ord("}")).all() and (at[ends + 1] == ord("{")).all()):
        return False
    if len(block) > _LARGEST or b"\r" in block or b"\0" in block:
        return False
    try:
        block.isascii() or block.decode()
    except UnicodeDecodeError:
        return False
    # no line nests deeper than the slow way can read; brackets in texts count too, which does no harm
    brackets = count_of(b"{", block) + (count_of(b"[", block) if b"[" in block else 0)
    return brackets - lines < _DEEPEST or all(
        line.count(b"{") + line.count(b"[") < _DEEPEST for line in block.split(b"\n")
    )


def moments_of(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Texts as times. A text has a zone or it has none, so the first one says which cast can take them all; the other one
    would fail value by value, at 30 times what the right one costs."""
    if kind != TIMESTAMP or column.type == TIMESTAMP:
        return column
    first, without = pc.first(column), pa.timestamp("us")
    try:
        first.cast(without)
    except pa.ArrowInvalid:
        return column.cast(TIMESTAMP)
    return column.cast(without).cast(TIMESTAMP)


def _same_values(column: pa.ChunkedArray) -> bool:
    """False if a value may not be what the slow way reads: a year 0; -0, which it reads as 0; a number too large."""
    if column.type == TIMESTAMP:
        return in_calendar(column.cast(pa.int64()))
    if column.type == pa.float64():
        zeros = [pc.any(pc.equal(chunk.view(pa.int64()), _MINUS_ZERO)).as_py() for chunk in column.chunks]
        return not any(zeros) and pc.all(pc.is_finite(column)).as_py() is not False
    return True


# The slow way --------------------------------------------------------------------------------------------------


def slow(block: bytes, layout: Layout, path: str, first: int) -> Block:
    """The rows of a block whose first line has number `first`, and a dead letter for each line that is none."""
    good: list[Any] = []
    dead: list[Letter] = []
    readers = readers_of(layout.columns)
    for number, line in enumerate(block.split(b"\n"), first):
        if line.strip():
            try:
                row = read_object(line, readers)
                check_row(row, layout.rules)
                good.append(row)
            except (ValueError, RecursionError) as error:
                dead.append(letter(path, number, error, line.removesuffix(b"\r")))
    rows = pa.Table.from_pylist(good, schema=layout.schema())
    return Block(with_row_id(rows, layout.rules), dead_letters(dead))


def letter(place: str, number: int, error: ValueError | RecursionError, text: bytes) -> Letter:
    """The dead letter of what stands at `number` in `place`, and could not be read because of `error`."""
    reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return place, number, reason, text[:_LETTER_BYTES].decode(errors="replace")


def readers_of(columns: Mapping[str, str]) -> dict[str, Callable[[Any], Any]]:
    """What reads the value of each column."""
    return {name: _READERS[kind] for name, kind in columns.items()}


def read_object(text: bytes, readers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """The declared columns of one JSON object; ValueError or RecursionError if it cannot be read."""
    parsed = json.loads(decoded(text), object_pairs_hook=_Object, parse_int=_digits, parse_float=_decimals)
    if not isinstance(parsed, _Object):
        raise ValueError(f"not a JSON object but {type(parsed).__name__}")
    if doubled := [name for name in readers if name in parsed.twice]:
        raise ValueError(f"the name {doubled[0]!r} is given twice")
    return {name: _value(name, read, parsed.get(name)) for name, read in readers.items()}


def decoded(line: bytes) -> str:
    """A line as text; ValueError if it is not UTF-8."""
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: byte 0x{line[error.start]:02x} at place {error.start + 1} of the line") from None


class _Object(dict[str, Any]):
    """A JSON object that knows which of its names were given twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = {} if len(self) == len(pairs) else Counter(name for name, _ in pairs)
        self.twice = {name for name, count in counts.items() if count > 1}


class _Endless:
    """Digits that make no number in Python, or one beyond all doubles; harmless if nobody wants the value."""

    def __init__(self, digits: str) -> None:
        self._digits = digits

    def __repr__(self) -> str:
        return self._digits


def _digits(text: str) -> int | _Endless:
    return int(text) if len(text) <= _LONGEST_INTEGER else _Endless(text)


def _decimals(text: str) -> float | _Endless:
    number = float(text)
    return number if math.isfinite(number) else _Endless(text)


def _value(name: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return None if value is None else read(value)
    except ValueError as error:
        raise ValueError(f"column {name!r}: {error}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"needs a text, got {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"needs a text, got half of a surrogate pair in {value!r}") from None
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ValueError(f"needs an integer of 64 bits, got {value!r}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, _Endless):
        raise ValueError(f"needs a number that a double can hold, got {value!r}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"needs a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"needs a number that a double can hold, got {value!r}") from None


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"needs true or false, got {value!r}")
    return value


def moment(value: Any) -> int:
    """Microseconds since 1970 of an ISO 8601 text; ValueError if it is none, or lies outside of the calendar."""
    try:
        us = text_us(_text(value))
    except TooFine:
        raise
    except ValueError:
        raise ValueError(f'needs an ISO 8601 time such as "2007-03-09T12:00:00Z", got {value!r}') from None
    if not EARLIEST_US <= us <= LATEST_US:
        raise ValueError(f"needs a time in the years 1 to 9999 (in UTC), got {value!r}")
    return us


_READERS: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "long": _integer,
    "int": _integer,
    "double": _number,
    "boolean": _boolean,
    "timestamp": moment,
}
