"""Rows of a DataFrame into packed rows and dead letters. Runs in Spark's Python workers; no session in this file.

Rule 1: a row that the rules cannot take is a dead letter with its reason, and stops nothing: as for files and topics.
Rule 2: rows are packed in the order in which Spark gives them, partition after partition. A batch that is run again has
        them in the same order if Spark reads them so again: behind a shuffle it does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.rules.model import Rules
from waterclock.spark.packing.packs import FIRST, NO_TIME, Packs, as_time, timed
from waterclock.streaming import frames
from waterclock.streaming.buckets import BUCKETS
from waterclock.streaming.layout import EARLIEST_US, LATEST_US, ROW_ID, dead_letters, end_of

# beside the rows of a reader: their file, a line that is a dead letter, and why it is one
FILE, CORRUPT, REASON = f"{ROW_ID}_file", f"{ROW_ID}_corrupt", f"{ROW_ID}_reason"
PLACE = f"{ROW_ID}_place"  # beside the rows of a topic: topic, partition and offset of their record
ASIDE = (FILE, CORRUPT, REASON, PLACE)


def row_packer(
    rules: Rules, delay_us: int, count: int = BUCKETS
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows in, packed rows of `count` buckets with the largest time beside them out (`packs.TIMED`); the watermark stays
    `delay_us` behind."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        packs = Packs(count=count)
        for batch in batches:
            if batch.num_rows:
                latest_us = add_judged(packs, batch, rules)
                if latest_us is not None:
                    packs.add_early(latest_us - delay_us)
                yield timed(packs, NO_TIME if latest_us is None else as_time(end_of(latest_us)))

    return pack


def pack_letters(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Lines that a reader could not read in, packed dead letters out."""
    packs = Packs()
    for batch in batches:
        if batch.num_rows:
            letters = _letters(batch, batch.column(REASON))
            counted = frames.with_counters(letters, {"dead_letters": letters.num_rows}, "dead")
            packs.add(FIRST, frames.to_bytes(counted))
            yield timed(packs, NO_TIME)


def add_judged(packs: Packs, batch: pa.RecordBatch, rules: Rules) -> int | None:
    """Add the rows that the rules can take, and dead letters of the others; the value is the largest time of those."""
    reasons = reasons_of(batch, rules)
    bad = pc.is_valid(reasons)
    letters = _letters(batch.filter(bad), reasons.filter(bad))
    good = _without(batch.filter(pc.invert(bad)), *ASIDE)
    keyed = good.filter(pc.is_valid(good.column(rules.key)))
    packs.add_rows(keyed, rules.key)
    counters = {"dead_letters": letters.num_rows, "heartbeats": good.num_rows - keyed.num_rows}
    if any(counters.values()):
        packs.add(FIRST, frames.to_bytes(frames.with_counters(letters, counters, "dead")))
    latest_us: int | None = pc.max(_us(good.column(rules.time))).as_py()
    return latest_us


def reasons_of(rows: pa.RecordBatch, rules: Rules) -> pa.Array:
    """For each row why the rules, or a sink, cannot take it; null if they can. The first reason that holds counts."""
    at, key = rows.column(rules.time), rows.column(rules.key)
    others = [rows.column(name) for name in rows.schema.names if name not in (rules.key, rules.time, ROW_ID, *ASIDE)]
    carries = reduce(pc.or_, [pc.is_valid(column) for column in others], pa.repeat(False, rows.num_rows))
    found: list[tuple[pa.Array, str | pa.Array]] = []
    if REASON in rows.schema.names:
        found.append((pc.is_valid(rows.column(REASON)), rows.column(REASON)))
    found.append((pc.is_null(at), f"column {rules.time!r} (the time) is missing"))
    found += [
        (_outside(rows.column(f.name)), f"column {f.name!r}: needs a time in the years 1 to 9999")
        for f in rows.schema
        if pa.types.is_timestamp(f.type)
    ]
    found.append((pc.and_(pc.is_null(key), carries), f"column {rules.key!r} (the key) is missing"))
    if rules.sequence:
        wrong = pc.fill_null(pc.less(rows.column(rules.sequence), 1), True)
        needs = f"column {rules.sequence!r} (the sequence) needs a number from 1"
        found.append((pc.and_(pc.is_valid(key), wrong), needs))
    masks, reasons = zip(*found, strict=True)
    which = pa.StructArray.from_arrays(list(masks), names=[str(number) for number in range(len(masks))])
    return pc.case_when(which, *reasons, pa.scalar(None, pa.string()))


def _outside(column: pa.Array) -> pa.Array:
    us = _us(column)
    return pc.fill_null(pc.or_(pc.less(us, EARLIEST_US), pc.greater(us, LATEST_US)), False)


def _us(column: pa.Array) -> pa.Array:
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


def _letters(rows: pa.RecordBatch, reasons: pa.Array) -> pa.Table:
    """A letter for each row: where it lay, as far as that is known, and the line as it stood, or else the row."""
    own = _without(rows, ROW_ID, *ASIDE)
    made = pa.RecordBatch.from_arrays([*map(_as_said, own.columns)], own.schema.names).to_pylist()
    texts = [json.dumps(row, ensure_ascii=False, default=str) for row in made]
    found = zip(_places(rows), reasons.to_pylist(), _texts(rows, CORRUPT), texts, strict=True)
    return dead_letters([(*place, reason, text if line is None else line) for place, reason, line, text in found])


def _places(rows: pa.RecordBatch) -> list[tuple[str | None, int | None]]:
    """File and number of line, or what stands for them."""
    if PLACE not in rows.schema.names:
        return [(file, None) for file in _texts(rows, FILE)]
    return [(f"{at['topic']}/{at['partition']}", at["offset"]) for at in rows.column(PLACE).to_pylist()]


def _texts(rows: pa.RecordBatch, name: str) -> list[str | None]:
    found: list[str | None] = rows.column(name).to_pylist() if name in rows.schema.names else [None] * rows.num_rows
    return found


def _without(rows: pa.RecordBatch, *names: str) -> pa.RecordBatch:
    return rows.drop_columns([name for name in names if name in rows.schema.names])


def _as_said(column: pa.Array) -> pa.Array:
    """Times and dates as texts: Python's calendar is shorter than Spark's."""
    if pa.types.is_timestamp(column.type):
        return _us(column).cast(pa.timestamp("us")).cast(pa.string())
    return column.cast(pa.string()) if pa.types.is_date(column.type) else column
