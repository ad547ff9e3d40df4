"""Results as rows: their common columns, and those of the event taken out of its struct, as event_<name>."""

from __future__ import annotations

import pyarrow as pa

COMMON = ("kind", "key", "rule", "due", "emitted_at", "source_id", "result_id")


def flat_schema(results: pa.Schema) -> pa.Schema:
    """The columns of flattened results."""
    event = [field.with_name(f"event_{field.name}") for field in event_schema(results)]
    return pa.schema([*(results.field(name) for name in COMMON), *event])


def flat(results: pa.Table) -> pa.Table:
    """Results with the event's struct taken apart."""
    parts = _event(results).flatten()
    schema = flat_schema(results.schema)
    return pa.Table.from_arrays([*(results.column(name) for name in COMMON), *parts], schema=schema)


def event_schema(results: pa.Schema) -> pa.Schema:
    """The columns of the events that results carry."""
    event = results.field("event").type
    return pa.schema([event.field(i) for i in range(event.num_fields)])


def events(results: pa.Table) -> pa.Table:
    """The events alone, of the results that carry one, in their order."""
    event = _event(results).drop_null()
    return pa.Table.from_arrays(event.flatten(), schema=event_schema(results.schema))


def _event(results: pa.Table) -> pa.StructArray:
    column = results.column("event")
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
