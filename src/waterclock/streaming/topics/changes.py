"""Records of change topics into changes of tables, a row each (CHANGES of changes/packed.py).

Rule 1: nothing in a record makes `read_changes` raise: a batch that fails over its input would fail again on every re-run.
Rule 2: no state and no watermark: which change of a key is the later one follows from its position, not from when it comes.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from waterclock.changes import reader_of
from waterclock.changes.packed import CHANGES, PackedChange, as_table, packed
from waterclock.changes.row_change import Message
from waterclock.errors import Unreadable
from waterclock.streaming.files.jsonl import letter
from waterclock.streaming.layout import Letter, dead_letters
from waterclock.streaming.topics.records import Records


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
        """Whether changes of `table` are asked for."""
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
