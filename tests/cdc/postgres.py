"""PostgreSQL as a source in tests: statements that are committed one by one, and all changes after a position."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg

from waterclock.cdc.position import Position
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.postgres.slot import OWN, SlotReader, current
from waterclock.cdc.source import DeadLetter, SourceMark, TableFilter
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.clock import SystemClock

BIG = "x" * 9000
LARGE = "(select string_agg(md5(n::text), '') from generate_series(1, 5000) n)"


def run(url: str, *statements: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def changes(slot: ReplicationSlot, start: Position, *tables: str, **options: Any) -> list[MaxwellMessage]:
    """All changes after `start`, up to what is committed now."""
    return [item for item in items(slot, start, *tables, **options) if isinstance(item, MaxwellMessage)]


def items(
    slot: ReplicationSlot,
    start: Position,
    *tables: str,
    kinds: Any = MaxwellMessage | DeadLetter | SourceMark,
    **options: Any,
) -> list[Any]:
    """The same with the marks, and with what was put aside; or what is of other kinds."""
    end, found = current(slot), []
    with closing(SlotReader(slot, start, TableFilter(tables, OWN), SystemClock(), **options)) as reader:
        for item in reader.items():
            found += [item] if isinstance(item, kinds) else []
            if reader.reached(end):
                return found
    raise AssertionError
