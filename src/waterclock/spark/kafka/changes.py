"""Records of change topics into packed changes, which a sink puts into the tables that they name.

    changes frame   CHANGES of changes/packed.py, counters in the schema's metadata
    dead frame      records that are no change, or one that no table can hold

Rule 1: nothing in a record makes `read_changes` raise: a batch that fails over its input would fail again on every re-run.
Rule 2: no state and no watermark: which change of a key is the later one follows from its position, not from when it comes.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from waterclock.changes.formats import reader_of
from waterclock.changes.packed import CHANGES, PackedChange, as_table, packed
from waterclock.changes.row_change import Message
from waterclock.errors import Unreadable
from waterclock.kafka.partitions import Partition
from waterclock.spark import frames
from waterclock.spark.files.jsonl import letter
from waterclock.spark.kafka.records import Records
from waterclock.spark.layout import Letter, dead_letters
from waterclock.spark.packs import FIRST, NO_TIME, TIMED, Packs, timed


@dataclass(frozen=True, slots=True)
class ChangeLayout:
    """What records hold: changes in the form `value` ("maxwell", "debezium") of the tables that fit a pattern of `tables`,
    as in a shell; of all tables where there is none. `types` says what Debezium's messages do not."""

    value: str
    tables: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)

    def schema(self) -> pa.Schema:
        return CHANGES

    def wants(self, table: str) -> bool:
        """Whether changes of `table` are asked for."""
        return not self.tables or any(fnmatch.fnmatchcase(table, pattern) for pattern in self.tables)


@dataclass(frozen=True, slots=True)
class ChangePacker:
    """What every task needs to pack changes."""

    layout: ChangeLayout
    delay_us: int = 0

    @property
    def columns(self) -> str:
        return TIMED

    def pack(self, records: Records, known: Iterable[Partition], gone: Iterable[Partition] = ()) -> pa.RecordBatch:
        """Packed changes of `records`; which partitions there are does not matter."""
        packs = Packs(f"{records.topic} {records.partition:010d} {records.offsets[0]:020d}")
        changes, dead, counters = read_changes(records, self.layout)
        packs.add(FIRST, frames.to_bytes(frames.with_counters(dead, counters, b"dead")))
        packs.add(FIRST, frames.to_bytes(changes))
        return timed(packs, NO_TIME)

    def pack_gone(self, known: Iterable[Partition], gone: Iterable[Partition]) -> None:
        """Changes have no watermark that anybody could hold back."""


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
