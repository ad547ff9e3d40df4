"""What a batch brings to the three tables of a lake, which have no transaction in common: Delta Lake's and Iceberg's.

    <table>                 results, a row each (results.py), behind batch_id and batch_row
    <table>_dead_letters    batch_id, file, line, reason, text
    <table>_batches         a row a batch: query_id, batch_id, offsets, counters, watermark, seconds

Rule 1: rows of a batch stand in no order in a lake; `batch_row` counts them, from 0, as they came.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.sinks.base import Batch
from waterclock.sinks.tables import letters
from waterclock.sinks.tables.results import flat, flat_schema
from waterclock.sinks.tables.tables import BATCH_NAMES, BATCHES, DEAD_LETTERS, DEAD_NAMES

_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # of the years 1 to 9999
_TIME = pa.timestamp("us", tz="UTC")
_PLACE = (("batch_id", pa.int64()), ("batch_row", pa.int64()))
_DEAD = (pa.int64(), pa.string(), pa.int64(), pa.string(), pa.string())
_BATCH = (pa.string(), pa.int64(), pa.string(), pa.string(), _TIME, pa.float64())
SIDES = {DEAD_LETTERS: pa.schema(zip(DEAD_NAMES, _DEAD)), BATCHES: pa.schema(zip(BATCH_NAMES, _BATCH))}  # noqa: B905


def schemas(results: pa.Schema) -> dict[str, pa.Schema]:
    """The columns of the tables by the ends of their names; the results come last."""
    return {**SIDES, "": pa.schema([*_PLACE, *flat_schema(results)])}


def rows_of(batch: Batch) -> dict[str, pa.Table]:
    """What `batch` brings to each table, in the order in which they are committed: the results come last."""
    return {**sides_of(batch), "": results_of(batch)}


def results_of(batch: Batch) -> pa.Table:
    """The rows of the table of results."""
    rows = flat(batch.results)
    place = [[batch.batch_id] * rows.num_rows, range(rows.num_rows)]
    return typed([*place, *rows.columns], pa.schema([*_PLACE, *rows.schema]))


def far_times(rows: pa.Table, reason: str, first_us: int = _FIRST_US) -> pa.ChunkedArray | None:
    """`reason` at the rows with a time before `first_us` or after the year 9999, null at others; None if none has one."""
    is_far = pa.chunked_array([pa.array([False] * rows.num_rows, pa.bool_())])
    for field in rows.schema:
        if pa.types.is_timestamp(field.type):
            us = rows.column(field.name).cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())
            outside = pc.or_(pc.less(us, first_us), pc.greater(us, _LAST_US))
            is_far = pc.or_(is_far, pc.fill_null(outside, False))
    return pc.if_else(is_far, reason, None) if pc.any(is_far).as_py() else None


def with_times_that_fit(batch: Batch, reason: str) -> Batch:
    """`batch` with those results put aside, each with `reason`, that have a time outside of the years 1 to 9999."""
    rows = flat(batch.results)
    reasons = far_times(rows, reason)
    return batch if reasons is None else letters.put_aside(batch, rows, reasons)


def sides_of(batch: Batch) -> dict[str, pa.Table]:
    """The dead letters, and the row of the batch itself; TypeError for counters that are no numbers."""
    dead = batch.dead_letters
    counters = json.dumps(dict(batch.counters), sort_keys=True)
    row = (batch.query_id, batch.batch_id, batch.offsets, counters, batch.watermark_us, batch.seconds)
    return {
        DEAD_LETTERS: typed([[batch.batch_id] * dead.num_rows, *dead.columns], SIDES[DEAD_LETTERS]),
        BATCHES: typed([[value] for value in row], SIDES[BATCHES]),
    }


def typed(columns: list[Any], schema: pa.Schema) -> pa.Table:
    """A table of these columns, cast to the types of `schema`."""
    return pa.Table.from_arrays(
        [
            column.cast(field.type) if isinstance(column, pa.ChunkedArray) else pa.array(column, field.type)
            for column, field in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )
