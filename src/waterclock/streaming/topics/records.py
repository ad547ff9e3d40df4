"""Records of a topic into rows, or into changes of tables, with a place for every record that is none.

No Kafka client and no Spark in this file.

Values are read as the lines of a JSON lines file are, by the same code: joined and at once, or one by one if anything
needs a closer look. Columns that come from the record itself stand behind those of its value. Of a topic of changes, each
change is a row of CHANGES (changes/packed.py).

Rule 1: nothing in a record makes `read_records` or `read_changes` raise: a batch that fails over its input would fail again
        on every re-run.
Rule 2: a record with the header HEARTBEAT, a time, is a heartbeat, and so is one whose value carries nothing but a time
        and whose key is null; a record without a value (a tombstone) says that something is gone: counted, no row.
Rule 3: if a row has no id of its own, the hash is of what was said (value, key, headers, time), not of where it lies
        (topic, partition, offset): a record that was sent twice is a duplicate.
Rule 4: a partition of which nothing is known yet holds the watermark back (None); for one that is gone, nobody waits.
Rule 5: changes have no state and no watermark: which change of a key is the later one follows from its position, not from
        when it comes.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.changes import reader_of
from waterclock.changes.packed import CHANGES, PackedChange, as_table, packed
from waterclock.changes.row_change import Message
from waterclock.errors import Unreadable
from waterclock.kafka import Partition
from waterclock.rules.model import Rules
from waterclock.streaming.files.jsonl import letter, moment, plain_rows, read_object, readers_of
from waterclock.streaming.frames import TIMESTAMP
from waterclock.streaming.layout import (
    EARLIEST_US,
    END_US,
    LATEST_US,
    ROW_ID,
    TYPES,
    Letter,
    all_good,
    check_row,
    dead_letters,
    end_of,
    with_row_id,
)
from waterclock.streaming.toml.topics import RECORD_PARTS


def watermarks_of(known: Iterable[Partition], gone: Iterable[Partition]) -> dict[str, int | None]:
    """What a clock frame says of partitions of which it knows no time: none, or that nobody waits for them any more."""
    found: dict[str, int | None] = {f"{topic}/{partition}": None for topic, partition in known}
    return {**found, **{f"{topic}/{partition}": END_US for topic, partition in gone}}


def own_watermark(latest_us: int | None, delay_us: int) -> int | None:
    """The watermark that a partition allows whose largest time is `latest_us`; None if no time of it is known."""
    return None if latest_us is None else end_of(latest_us) - delay_us


HEARTBEAT = "waterclock-heartbeat"
Headers = Sequence[tuple[str, bytes | None]]
# of a record that has a header whose name is not UTF-8: fetcher.py sets it, and it is compared by identity
UNREADABLE: Headers = (("", None),)
FEW = 16  # records, and less: each for itself is quicker than what a call of Arrow's reader costs
WHERE_IT_LIES = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class Records:
    """Some records of one partition, in order, as columns of one length. Times are milliseconds since 1970."""

    topic: str
    partition: int
    offsets: list[int]
    times_ms: list[int | None]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers | None]

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}"

    def take(self, places: list[int]) -> Records:
        """The records at these places of the lists."""
        if len(places) == len(self.offsets):
            return self
        columns: tuple[list[Any], ...] = (self.offsets, self.times_ms, self.keys, self.values, self.headers)
        return Records(self.topic, self.partition, *([column[n] for n in places] for column in columns))


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """What records hold: the columns of their values, and the parts of the record that become columns."""

    columns: Mapping[str, str]
    record: Mapping[str, str]

    def value_schema(self) -> pa.Schema:
        return pa.schema([(name, TYPES[kind]) for name, kind in self.columns.items()])

    def schema(self) -> pa.Schema:
        """The columns of a row: those of the value, then those of the record."""
        more = [pa.field(column, TYPES[RECORD_PARTS[part]]) for part, column in self.record.items()]
        return pa.schema([*self.value_schema(), *more])

    def takes(self, rows: pa.Table) -> bool:
        """Whether each of these rows is one: without rules, each that can be read."""
        return True

    def check(self, row: Mapping[str, Any]) -> None:
        """Raise ValueError for a row that `takes` would refuse."""


@dataclass(frozen=True, slots=True)
class TopicLayout(RecordLayout):
    """The same, and what the rules need of the rows. `told`: parts of the record that its value tells, as in a list of
    events, where there is no record."""

    rules: Rules
    told: Mapping[str, str] = field(default_factory=dict)

    def takes(self, rows: pa.Table) -> bool:
        return all_good(rows.select(self.judged()), self.rules)

    def check(self, row: Mapping[str, Any]) -> None:
        check_row({name: row[name] for name in self.judged()}, self.rules)

    def judged(self) -> list[str]:
        """The columns by which an event, a heartbeat and a wrong row differ: what its producer meant to say."""
        parts = {*self.record.values(), *self.told.values()} - {self.rules.key, self.rules.time, self.rules.sequence}
        return [name for name in self.schema().names if name not in parts]

    def id_columns(self) -> list[str]:
        """The columns that make the id of a row that has none (rule 3), and those that the rules name."""
        lies = {of.get(part) for of in (self.record, self.told) for part in WHERE_IT_LIES} - set(self.rules.columns())
        return [name for name in self.schema().names if name not in lies]


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """What records became. `latest_us` is the largest time of an event or a heartbeat, None if there was none;
    `offsets` are those of the records that are no dead letter, heartbeat by header or tombstone."""

    rows: pa.Table
    dead: pa.Table
    latest_us: int | None
    counters: dict[str, int]
    offsets: list[int]


def read_records(records: Records, layout: TopicLayout) -> ReadRecords:
    """Rows with a key, dead letters, and how far the time of the partition has come."""
    read = plain_records(records, layout)
    named = with_row_id(read.rows.select(layout.id_columns()), layout.rules)
    rows = read.rows.append_column(ROW_ID, named.column(ROW_ID)) if ROW_ID in named.column_names else read.rows
    latest = pc.max(rows.column(layout.rules.time).cast(pa.int64())).as_py()
    keyed = rows.filter(pc.is_valid(rows.column(layout.rules.key)))
    # a row that the layout takes without a key is a heartbeat by its value (rule 2)
    beats = read.counters["heartbeats"] + rows.num_rows - keyed.num_rows
    known = [us for us in (latest, read.latest_us) if us is not None]
    return ReadRecords(keyed, read.dead, max(known, default=None), {**read.counters, "heartbeats": beats}, read.offsets)


def plain_records(records: Records, layout: RecordLayout) -> ReadRecords:
    """All rows that `layout` takes, those of heartbeats too, without ids; the time is that of heartbeats by header."""
    letters: list[Letter] = []
    beats, others = _heartbeats(records, letters)
    tombstones = [n for n in others if records.values[n] is None]
    bodies = records.take([n for n in others if records.values[n] is not None])
    rows, offsets = _fast(bodies, layout) if len(bodies.values) > FEW else None, bodies.offsets
    if rows is None:
        rows, offsets = _slow(bodies, layout, letters)
    counters = {
        "records": len(records.offsets),
        "tombstones": len(tombstones),
        "heartbeats": len(beats),
        "dead_letters": len(letters),
    }
    dead = dead_letters(sorted(letters, key=lambda each: each[1] or 0))
    return ReadRecords(rows, dead, max(beats, default=None), counters, offsets)


def _heartbeats(records: Records, letters: list[Letter]) -> tuple[list[int], list[int]]:
    """The times of the heartbeats by header, and the places of all other records."""
    beats: list[int] = []
    others: list[int] = []
    for place, headers in enumerate(records.headers):
        beats_of = [value for name, value in headers if name == HEARTBEAT] if headers else []
        if not beats_of:
            others.append(place)
            continue
        try:
            beats.append(moment((beats_of[-1] or b"").decode()))
        except ValueError as error:
            wrong = ValueError(f"header {HEARTBEAT!r}: {error}")
            letters.append(letter(records.place, records.offsets[place], wrong, records.values[place] or b""))
    return beats, others


# The fast way --------------------------------------------------------------------------------------------------


def _fast(bodies: Records, layout: RecordLayout) -> pa.Table | None:
    """The rows of all records, or None if any of them needs a closer look."""
    values: list[Any] = bodies.values
    if not values:
        return layout.schema().empty_table()
    block = b"\n".join(values)
    if block.count(b"\n") != len(values) - 1:
        return None  # a value of several lines
    rows = plain_rows(block, layout.value_schema())
    if rows is None or rows.num_rows != len(values):
        return None
    try:
        parts = [_column(bodies, part) for part in layout.record]
    except ValueError:
        return None
    whole = pa.Table.from_arrays([*rows.columns, *parts], schema=layout.schema())
    return whole if layout.takes(whole) else None


def _column(bodies: Records, part: str) -> pa.Array:
    kind, read = TYPES[RECORD_PARTS[part]], _PARTS[part]
    plain = pa.int64() if kind == TIMESTAMP else kind
    return pa.array((read(bodies, n) for n in range(len(bodies.offsets))), plain).cast(kind)


# The slow way --------------------------------------------------------------------------------------------------


def _slow(bodies: Records, layout: RecordLayout, letters: list[Letter]) -> tuple[pa.Table, list[int]]:
    """The rows of the records that can be read, each judged alone, and their offsets; the others become letters."""
    good: list[Any] = []
    offsets: list[int] = []
    readers = readers_of(layout.columns)
    for place, value in enumerate(bodies.values):
        assert value is not None
        try:
            row = read_object(value, readers)
            row.update({column: _PARTS[part](bodies, place) for part, column in layout.record.items()})
            layout.check(row)
            good.append(row)
            offsets.append(bodies.offsets[place])
        except (ValueError, RecursionError) as error:
            letters.append(letter(bodies.place, bodies.offsets[place], error, value))
    return pa.Table.from_pylist(good, schema=layout.schema()), offsets


def _key(bodies: Records, place: int) -> str | None:
    key = bodies.keys[place]
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        raise ValueError("the record's key is not UTF-8") from None


def _time(bodies: Records, place: int) -> int | None:
    ms = bodies.times_ms[place]
    if ms is not None and not EARLIEST_US <= ms * 1000 <= LATEST_US:
        raise ValueError(f"the record's timestamp needs to lie in the years 1 to 9999, got {ms} ms")
    return None if ms is None else ms * 1000


def _headers(bodies: Records, place: int) -> str | None:
    headers = bodies.headers[place]
    if headers is UNREADABLE:
        raise ValueError("the record's headers cannot be read: a name in them is not UTF-8")
    if not headers:
        return None
    pairs = [(name, None if value is None else value.decode(errors="replace")) for name, value in headers]
    return json.dumps(pairs, ensure_ascii=False)


_PARTS: Mapping[str, Any] = {
    "key": _key,
    "headers": _headers,
    "timestamp": _time,
    "topic": lambda bodies, place: bodies.topic,
    "partition": lambda bodies, place: bodies.partition,
    "offset": lambda bodies, place: bodies.offsets[place],
}


@dataclass(frozen=True, slots=True)
class ChangeLayout:
    """What records hold: changes in the form `value` ("maxwell", "debezium") of the tables that fit a pattern of `tables`,
    as in a shell; of all tables if there is none. `types` says what Debezium's messages do not."""

    value: str
    tables: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)

    def schema(self) -> pa.Schema:
        return CHANGES

    def wants(self, table: str) -> bool:
        """Whether changes of `table` are wanted."""
        return not self.tables or any(fnmatch.fnmatchcase(table, pattern) for pattern in self.tables)


def read_changes(records: Records, layout: ChangeLayout) -> tuple[pa.Table, pa.Table, dict[str, int]]:
    """The changes of records, dead letters for what is none, and counters."""
    rows: list[PackedChange] = []
    letters: list[Letter] = []
    read, events, tombstones = reader_of(layout.value, layout.types), 0, 0
    for place, (offset, key, value) in enumerate(zip(records.offsets, records.keys, records.values, strict=True)):
        tombstones += value is None
        try:
            for change in read(Message(key, value, offset)):
                events += 1
                if layout.wants(change.table):
                    rows.append(packed(change))
        except (Unreadable, UnicodeError, RecursionError) as error:
            letters.append(letter(records.place, offset, ValueError(str(error)), records.values[place] or b""))
    counters = {"records": len(records.offsets), "events": events, "applied": len(rows), "tombstones": tombstones}
    return as_table(rows), dead_letters(letters), {**counters, "dead_letters": len(letters)}
