"""Records of change topics into packed changes, which a sink puts into the tables that they name.

    changes frame   CHANGES of sinks/replica.py, counters in the schema's metadata
    dead frame      records that are no change, or one that no table can hold

Rule 1: nothing in a record makes `read_changes` raise: a batch that fails over its input would fail again on every re-run.
Rule 2: no state and no watermark: which change of a key is the later one is told by its position, not by when it comes.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from waterclock.changes.change import Change, Met
from waterclock.changes.formats import reader_of
from waterclock.errors import Unreadable
from waterclock.sinks.replica import CHANGES, NULL
from waterclock.spark import frames
from waterclock.spark.files.jsonl import letter
from waterclock.spark.files.layout import Letter, dead_letters
from waterclock.spark.kafka.offsets import Place
from waterclock.spark.kafka.records import Records
from waterclock.spark.source import FIRST, NO_TIME, timed
from waterclock.spark.transform import Packs

_POSITION_BITS = 64
_LARGEST, _SMALLEST = 131_072, -16_383  # digits of PostgreSQL's numeric before the point, and behind it
_WHOLE = range(-(2**63), 2**63)  # numbers that an integer column of any database holds
_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # json.dumps makes an encoder a call
Row = tuple[str, str, str, str, list[str], str, list[str | None]]


@dataclass(frozen=True, slots=True)
class ChangeLayout:
    """What records hold: changes in the form `value` ("maxwell", "debezium") of the tables that fit a pattern of `tables`,
    as in a shell; of all tables where there is none. `types` tells what Debezium's messages do not."""

    value: str
    tables: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)

    def schema(self) -> pa.Schema:
        return CHANGES

    def wants(self, table: str) -> bool:
        """Whether changes of `table` are asked for."""
        return not self.tables or any(fnmatch.fnmatchcase(table, pattern) for pattern in self.tables)


@dataclass(frozen=True, slots=True)
class ChangePacking:
    """What every task needs to pack changes."""

    layout: ChangeLayout
    delay_us: int = 0

    def pack(self, records: Records, known: Iterable[Place], gone: Iterable[Place] = ()) -> pa.RecordBatch:
        """Packed changes of `records`; which partitions there are does not matter."""
        packs = Packs(f"{records.topic} {records.partition:010d} {records.offsets[0]:020d}")
        changes, dead, counters = read_changes(records, self.layout)
        packs.add(FIRST, frames.to_bytes(frames.with_counters(dead, counters, b"dead")))
        packs.add(FIRST, frames.to_bytes(changes))
        return timed(packs, NO_TIME)


def read_changes(records: Records, layout: ChangeLayout) -> tuple[pa.Table, pa.Table, dict[str, int]]:
    """The changes of records, dead letters for what is none, and counters."""
    rows: list[Row] = []
    letters: list[Letter] = []
    read, events, tombstones = reader_of(layout.value, layout.types), 0, 0
    for place, (offset, key, value) in enumerate(zip(records.offsets, records.keys, records.values, strict=True)):
        tombstones += value is None
        try:
            for change in read(Met(key, value, offset)):
                events += 1
                if layout.wants(change.table):
                    rows.append(_row(change))
        except (Unreadable, UnicodeError, RecursionError) as error:
            letters.append(letter(records.place, offset, ValueError(str(error)), records.values[place] or b""))
    counters = {"records": len(records.offsets), "events": events, "applied": len(rows), "tombstones": tombstones}
    columns: Any = zip(*rows, strict=True) if rows else [()] * len(CHANGES)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, CHANGES, strict=True)]
    changes = pa.Table.from_arrays(arrays, schema=CHANGES)
    return changes, dead_letters(letters), {**counters, "dead_letters": len(letters)}


# A change ------------------------------------------------------------------------------------------------------


def _row(change: Change) -> Row:
    """A change in the sink's words; Unreadable where no table can hold it."""
    position = _sortable(change)
    _check_table(change.table)
    if change.operation == "truncate":
        return change.table, change.operation, "", position, [], "", []
    if not change.key:
        raise Unreadable(f"{change.table} has no primary key: its rows cannot be told apart, so they are not mirrored")
    if any(value is None for value in change.key.values()):
        raise Unreadable(f"a part of the primary key of {change.table} is null")
    values = {name: _brought(value) for name, value in {**change.key, **change.values}.items()}
    if "" in values:
        raise Unreadable(f"a column of {change.table} has no name")
    key = _write({name: "".join(values[name]) for name in sorted(change.key)})  # type: ignore[arg-type]
    texts = [text for _, text in values.values()]
    whole = "".join([key, *values, *filter(None, texts)])
    _check_text(whole, f"a value of {change.table}")
    return (
        change.table,
        change.operation,
        key,
        position,
        list(values),
        "".join(kind for kind, _ in values.values()),
        texts,
    )


@lru_cache(maxsize=1024)
def _check_table(name: str) -> None:
    database, _, table = name.partition(".")
    if not database or not table:
        raise Unreadable(f"the table {name!r} is none of a database: it has no name")
    _check_text(name, f"the table's name {name!r}")


def _check_text(text: str, what: str) -> None:
    if "\0" in text:
        raise Unreadable(f"{what} holds the character NUL, which a text in a database cannot")
    text.encode()  # half a character is told here


def _sortable(change: Change) -> str:
    if any(not 0 <= part < 1 << _POSITION_BITS for part in change.position):
        raise Unreadable(f"the position {change.position} of a change of {change.table} is no whole numbers from 0 on")
    return "".join([f"{part:016x}" for part in change.position])


def _brought(value: Any) -> tuple[str, str | None]:
    """A value's kind and text.

    >>> [_brought(value) for value in (None, True, 7, 2**64, Decimal("1.50"), "a", b"\\x00")]
    [(' ', None), ('b', 'true'), ('i', '7'), ('n', '18446744073709551616'), ('n', '1.50'), ('t', 'a'), ('x', '\\\\x00')]
    """
    if value is None:
        return NULL, None
    if isinstance(value, str):
        return "t", value
    if isinstance(value, bool):
        return "b", "true" if value else "false"
    if isinstance(value, int):
        return ("i" if value in _WHOLE else "n"), str(value)
    if isinstance(value, (Decimal, float)):
        exact = value if isinstance(value, Decimal) else Decimal(0)
        if int(exact.as_tuple().exponent) < _SMALLEST or exact.adjusted() >= _LARGEST:
            raise Unreadable(f"the number {value} has more digits than a number of a database")
        return "n", str(value)
    if isinstance(value, bytes):
        return "x", f"\\x{value.hex()}"
    return "j", _as_json(value)


def _as_json(value: Any) -> str:
    try:
        return _write(value)
    except TypeError:  # a Decimal in it
        return "".join(_parts(value))


def _parts(value: Any) -> Iterator[str]:
    """JSON with all digits of its numbers, which Python's own writer does not keep."""
    if isinstance(value, dict):
        yield "{"
        for count, (name, inner) in enumerate(value.items()):
            yield f"{',' if count else ''}{_write(name)}:"
            yield from _parts(inner)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for count, inner in enumerate(value):
            yield "," if count else ""
            yield from _parts(inner)
        yield "]"
    elif isinstance(value, Decimal):
        yield str(value)
    else:
        yield _write(value)
