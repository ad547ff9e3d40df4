"""Buckets that are stored after each step, by turns on the plain engine and on the compiled one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from tests.rules.oracle import Row
from tests.rules.test_properties import Stream, batches
from tests.streaming.state.blobs import Disk
from waterclock import Rules
from waterclock.rules.engine import CLOSED, NO_WATERMARK
from waterclock.streaming.frames import TIMESTAMP, clock, counters_of
from waterclock.streaming.state.bucket import Bucket, StoredBucket
from waterclock.streaming.state.plain import PlainEngine

# AWAKE, LARGE, MANY: nothing rests on pages and shelves, all does, and pages are cut into segments
NO_PAGES, PAGES, SEGMENTS = (1024, 8192, 1 << 17), (0, 16, 1 << 17), (0, 16, -1)


def schema(key: pa.DataType) -> pa.Schema:
    columns = [("key", key), ("time", TIMESTAMP), ("id", pa.string()), ("number", pa.int64()), ("type", pa.string())]
    return pa.schema([*columns, ("deliver", TIMESTAMP), ("promised", TIMESTAMP), ("amount", pa.int64())])


def table(rows: Sequence[Row], keys: dict[str | None, Any]) -> pa.Table:
    kind = pa.int64() if isinstance(keys["a"], int) else pa.string()
    named = [row._replace(key=keys.get(row.key)) for row in rows]
    columns = list(zip(*named, strict=True)) if named else [()] * len(Row._fields)
    arrays = [
        pa.array(column, pa.int64()).cast(f.type) if f.type == TIMESTAMP else pa.array(column, f.type)
        for column, f in zip(columns, schema(kind), strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema(kind))


@contextmanager
def sizes(awake: int, large: int, many: int) -> Iterator[None]:
    with (
        patch("waterclock.streaming.state.bucket.AWAKE", awake),
        patch("waterclock.streaming.state.states.LARGE", large),
        patch("waterclock.streaming.state.pages.MANY", many),
        patch("waterclock.streaming.state.pages.CUT_FROM", 1 if many < 0 else 1 << 12),
        patch("waterclock.streaming.state.pages.SEGMENT", 1),
    ):
        yield


class PlainBucket(Bucket):
    engine_for = staticmethod(PlainEngine)


class Life:
    """A bucket from step to step, its state in bytes between them."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self.stored, self.blobs = rules, None, Disk()
        self.sizes: list[int] = []

    def step(self, is_plain: bool, tables: list[pa.Table], watermark: int, by_clock: bool = False) -> tuple[Any, ...]:
        """(results, counters, next deadline or None) of one step. `by_clock`: as of a topic, whose clock frames move the
        watermark behind the events."""
        bucket = (PlainBucket if is_plain else Bucket)(self.rules, self.stored, self.blobs)
        moved = (NO_WATERMARK, [clock({"t/0": watermark})]) if by_clock else (watermark,)
        found = bucket.step(tables, *moved)
        due = bucket.next_due_us()
        self.stored: StoredBucket | None = bucket.store()
        bucket.close()
        self.sizes.append(bucket.grown)
        assert sum(self.sizes) == len(self.stored) + self.blobs.size()
        return found.to_pylist(), counters_of(found), due


def lived(
    rules: Rules,
    stream: Stream,
    cuts: set[int],
    keys: dict[str | None, Any],
    turn: Callable[[int], bool],
    by_clock: bool,
) -> list[Any]:
    """What each step gave, on the plain engine where `turn` of its number says so; the last one closes."""
    life = Life(rules)
    steps = [*batches(stream, cuts), (CLOSED, [])]
    return [
        life.step(turn(n), [table(rows, keys)] if rows else [], watermark, by_clock)
        for n, (watermark, rows) in enumerate(steps)
    ]
