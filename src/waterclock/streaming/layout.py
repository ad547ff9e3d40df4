"""What a read row must be, whatever file it came from; and what becomes of one that is not.

Rule 1: a row without a key is a heartbeat when it carries nothing but a time; otherwise its key is missing.
Rule 2: times lie in the years 1 to 9999, in UTC: what comes later (Python, SQLite) knows no others.
Rule 3: a row is known by its id; if that is null, or the rules name none, by a hash of the whole row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.durations import datetime_us
from waterclock.errors import UsageError
from waterclock.rules.model import Rules
from waterclock.streaming.frames import DEAD_SCHEMA, TIMESTAMP

ROW_ID = "_row_id"  # the id of a row whose own id column is not named or null; null if that one serves
TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int64(),
    "integer": pa.int32(),  # Spark's
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": TIMESTAMP,
}
EARLIEST_US, LATEST_US = datetime_us(datetime.min), datetime_us(datetime.max)
CLOSING = "9999-12-31T00:00:00Z"  # the time of the heartbeat that closes a pipeline
CLOSING_US = datetime_us(datetime.fromisoformat(CLOSING))
END_US = 2**60  # behind every deadline, which may lie 10,000 years behind the year 9999, whatever the watermark's delay
BEGIN_ANEW = "Start over with --fresh; and for input that goes on, set close = false under [time]."
Letter = tuple[str | None, int | None, str, str | None]  # file, line, reason, text
_LONGEST_REASON = 300
_LONGEST_TEXT = 2_000
_NO_LETTERS = DEAD_SCHEMA.empty_table()


@dataclass(frozen=True, slots=True)
class Csv:
    """How CSV is written: whether the first line names the columns, which it may do as it likes if these go `by_place`, and
    the pattern of times, in Java's words."""

    separator: str = ","
    has_header: bool = False
    by_place: bool = False
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """What a file holds: its format, the declared columns, and what the rules need of them."""

    format: str
    columns: Mapping[str, str]
    rules: Rules
    csv: Csv = Csv()

    def schema(self) -> pa.Schema:
        return pa.schema([(name, TYPES[kind]) for name, kind in self.columns.items()])


@dataclass(frozen=True, slots=True)
class Block:
    """Some lines of a file: the rows that could be read, and the dead letters."""

    rows: pa.Table
    dead: pa.Table


# Judging -------------------------------------------------------------------------------------------------------


def check_row(row: Mapping[str, Any], rules: Rules) -> None:
    """Raise ValueError for a row that the rules cannot take."""
    if row[rules.time] is None:
        raise ValueError(f"column {rules.time!r} (the time) is missing")
    if row[rules.key] is None:
        if any(value is not None for name, value in row.items() if name != rules.time):
            raise ValueError(f"column {rules.key!r} (the key) is missing")
    elif rules.sequence and (row[rules.sequence] is None or row[rules.sequence] < 1):
        raise ValueError(f"column {rules.sequence!r} (the sequence) needs a number from 1, got {row[rules.sequence]}")


def all_good(rows: pa.Table, rules: Rules) -> bool:
    """True when `check_row` would take every row: the same rules, a column at a time."""
    if rows.column(rules.time).null_count:
        return False
    key = rows.column(rules.key)
    if key.null_count:
        beats, rows = rows.filter(pc.is_null(key)), rows.filter(pc.is_valid(key))
        if any(beats.column(name).null_count < beats.num_rows for name in beats.column_names if name != rules.time):
            return False
    if not rules.sequence or rows.num_rows == 0:
        return True
    numbers = rows.column(rules.sequence)
    return not numbers.null_count and pc.min(numbers).as_py() >= 1


def in_calendar(us: pa.ChunkedArray) -> bool:
    """True when all times, in microseconds since 1970, are ones of the years 1 to 9999."""
    found = pc.min_max(us).as_py()
    return found["min"] is None or (found["min"] >= EARLIEST_US and found["max"] <= LATEST_US)


def end_of(us: int) -> int:
    """`us`, the largest time of a part of the source; END_US if that is a close, for deadlines of later days pass too.

    >>> end_of(7), end_of(CLOSING_US) == END_US
    (7, True)
    """
    return us if us < CLOSING_US else END_US


# What comes behind the close --------------------------------------------------------------------------------------


def came_after_the_close(count: str, where: str) -> UsageError:
    """The error of input that only a pipeline which begins anew can take, be it files or records."""
    return UsageError(
        f"the pipeline was closed, and {count} came after that ({where}): nothing in them would be in time. {BEGIN_ANEW}"
    )


def was_closed(checkpoint: object) -> UsageError:
    """The error of a state that is not carried over, since nothing would go on."""
    return UsageError(
        f"the pipeline of the checkpoint {checkpoint} was closed: all of its results are out, and nothing would go on. "
        f"{BEGIN_ANEW}"
    )


# Names ---------------------------------------------------------------------------------------------------------


def refuse_own(columns: Iterable[str], where: str) -> None:
    """Raise UsageError for a name that travels beside the columns of `where`."""
    for name in columns:
        if name.casefold().startswith(ROW_ID):
            raise UsageError(f"{where}: {name!r} cannot be used: names that start with _row_id are waterclock's own")


def check_each_once(columns: Iterable[str], where: str, case_counts: bool = False) -> None:
    """Raise UsageError if two columns have one name; in SQL names mean the same in any case, unless the session says so."""
    seen = dict[str, str]()
    for name in columns:
        same = seen.get(known := name if case_counts else name.casefold())
        if same == name:
            raise UsageError(f"{where}: two columns are called {name!r}: rename one, or leave it out")
        if same is not None:
            raise UsageError(f"{where}: {same!r} and {name!r} differ by case only, which SQL does not tell apart")
        seen[known] = name


# Ids -----------------------------------------------------------------------------------------------------------


def with_row_id(rows: pa.Table, rules: Rules) -> pa.Table:
    """Rows with a made id in the column ROW_ID if their own is null; without that column if none is."""
    if rules.id is None:
        return rows.append_column(ROW_ID, _hashes(rows))
    own = rows.column(rules.id)
    nameless = pc.and_(pc.is_null(own), pc.is_valid(rows.column(rules.key)))  # a heartbeat needs no id
    if not own.null_count or not pc.any(nameless).as_py():
        return rows
    none, mask = pa.nulls(rows.num_rows, pa.string()), pa.concat_arrays(nameless.chunks)
    return rows.append_column(ROW_ID, pc.replace_with_mask(none, mask, _hashes(rows.filter(nameless))))


def _hashes(rows: pa.Table) -> pa.Array:
    joined = pc.binary_join_element_wise(*map(_unmistakable, rows.columns), "\x1f").to_pylist()
    return pa.array((blake2b(text.encode(), digest_size=16).hexdigest() for text in joined), pa.string())


def _unmistakable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as texts that stay apart when they are joined: a text behind its length, nothing at all for null."""
    text = (column.cast(pa.int64()) if column.type == TIMESTAMP else column).cast(pa.string())
    if column.type == pa.string():
        text = pc.binary_join_element_wise(pc.binary_length(text).cast(pa.string()), text, ":")
    return text.fill_null("")


# Dead letters --------------------------------------------------------------------------------------------------


def dead_letters(letters: list[Letter]) -> pa.Table:
    """A table of `letters`; what is long is cut, what is no text is replaced: a dead letter must always get through."""
    if not letters:
        return _NO_LETTERS
    rows = [(_plain(f), line, _plain(why, _LONGEST_REASON), _plain(text)) for f, line, why, text in letters]
    columns: tuple[Any, ...] = tuple(zip(*rows, strict=True))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, DEAD_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=DEAD_SCHEMA)


def _plain(text: str | None, longest: int = _LONGEST_TEXT) -> str | None:
    if text is None:
        return None
    cut = text if len(text) <= longest else f"{text[: longest - 3]}..."
    return cut.encode(errors="replace").decode()


def dead_file(path: str, layout: Layout, reason: str) -> Block:
    """The block of a file that cannot be read at all, or no further: one dead letter."""
    return Block(with_row_id(layout.schema().empty_table(), layout.rules), dead_letters([(path, None, reason, None)]))
