"""What the target keeps of itself, beside what stands in the topic: the place of each row's last change, and its counts.

Rows may be equal though this is wrong. A place that is too small lets an old change in the next time that it comes, one
that is too large keeps the next new one out. And a change that is put aside is not missed where a later one brings the
whole row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .checker import Last, Row
from .shop import DATABASE
from .tables import ShopTable
from .target import Target, Told

Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Ledger:
    """`positions` are those of all rows that ever were, `wrong` those that differ from the topic. What was read, and what
    was applied of it, has to be each change once."""

    positions: int
    wrong: int
    read: int
    applied: int
    dead_letters: int

    def errors(self, changes: int) -> int:
        """What is not as it is after `changes`, each taken once."""
        return self.wrong + abs(self.read - changes) + abs(self.applied - changes) + self.dead_letters


def look_up(target: Target, rows: Mapping[Row, Last], tables: Iterable[ShopTable]) -> Ledger:
    """`rows`: what the checker saw of each row last."""
    reported = target.positions()
    counts = target.counted("events"), target.counted("applied"), target.letters()
    return Ledger(len(reported), wrong_positions(rows, reported, tables), *counts)


def wrong_positions(rows: Mapping[Row, Last], reported: Iterable[Told], tables: Iterable[ShopTable]) -> int:
    """How many are missing, of no row, there twice, or not those of the row's last change."""
    names = {table.name: [column.name for column in table.key] for table in tables}
    wanted = {_key(table, zip(names[table], key, strict=True)): _place(last) for (table, key), last in rows.items()}
    wrong = 0
    for table, key, position, deleted in reported:
        row = _key(table.removeprefix(f"{DATABASE}."), ((name, text[1:]) for name, text in json.loads(key).items()))
        wrong += wanted.pop(row, None) != (position, deleted)  # one that is there again finds nothing
    return wrong + len(wanted)


def _key(table: str, values: Iterable[tuple[str, object]]) -> Key:
    return table, tuple(sorted((name, str(value)) for name, value in values))


def _place(last: Last) -> tuple[str, bool]:
    return "".join(f"{part:016x}" for part in last.position), last.gone
