"""Dead letters of a sink: rows that could be read and cannot be kept, whole, each with its reason.

Rule 1: a row that is refused goes on as a dead letter in the same transaction. It stops no pipeline, and nothing of it
is lost: its text is the row as JSON, not cut.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.sinks.base import Batch

SCHEMA = pa.schema([("file", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("text", pa.string())])


def refused(rows: pa.Table, reasons: pa.ChunkedArray) -> pa.Table:
    """A letter for each of `rows` whose reason is not null: no file and no line, but the row."""
    reasons, rows = reasons.drop_null(), rows.filter(pc.is_valid(reasons))
    texts = [json.dumps(row, ensure_ascii=False) for row in _with_texts_for_times(rows).to_pylist()]
    nothing = pa.nulls(rows.num_rows)
    columns = [nothing.cast(pa.string()), nothing.cast(pa.int64()), reasons, pa.array(texts, pa.string())]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def put_aside(batch: Batch, rows: pa.Table, reasons: pa.ChunkedArray) -> Batch:
    """`batch` without those results, flat in `rows`, whose reason is not null: they are dead letters."""
    if reasons.null_count == rows.num_rows:
        return batch
    kept = batch.results.filter(pc.is_null(reasons))
    return with_letters(replace(batch, results=kept), refused(rows, reasons))


def with_letters(batch: Batch, letters: pa.Table) -> Batch:
    """`batch` with more dead letters behind its own, counted: they are no results any more."""
    count = letters.num_rows
    if not count:
        return batch
    counters = {**batch.counters, "dead_letters": batch.counters.get("dead_letters", 0) + count}
    if "results" in counters:
        counters["results"] -= count
    own = batch.dead_letters.select(SCHEMA.names).replace_schema_metadata(None)
    return replace(batch, dead_letters=pa.concat_tables([own, letters]), counters=counters)


def _with_texts_for_times(rows: pa.Table) -> pa.Table:
    """JSON has no times, and Python's own end in the year 9999; Arrow's texts do neither harm."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            plain = pa.timestamp(field.type.unit)
            texts = rows.column(place).cast(pa.int64()).cast(plain).cast(pa.string())
            rows = rows.set_column(place, field.name, texts)
    return rows
