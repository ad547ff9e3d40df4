"""Results as rows: their own columns, and those of the event taken out of its struct, as event_<name>.

Results that a user's own step made may lack some of the common columns, and have others.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from waterclock.errors import UsageError

COMMON = ("kind", "key", "rule", "due", "emitted_at", "source_id", "result_id")


def flat_schema(results: pa.Schema) -> pa.Schema:
    """The columns of flattened results."""
    own = [field for field in results if not _is_event(field)]
    event = results.field("event").type if len(own) < len(results) else []
    return pa.schema([*own, *(field.with_name(f"event_{field.name}") for field in event)])


def chosen_schema(results: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """The columns `names` of flattened results, in their order; UsageError where results have none of that name."""
    there = flat_schema(results)
    if unknown := [name for name in names if name not in there.names]:
        raise UsageError(f"[sink]: 'columns' names the column {unknown[0]!r}; results have {', '.join(there.names)}")
    return pa.schema([there.field(name) for name in names])


def flat(results: pa.Table) -> pa.Table:
    """Results with the event's struct taken apart."""
    own = [field.name for field in results.schema if not _is_event(field)]
    parts = []
    if len(own) < results.num_columns:
        column = results.column("event")
        event = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        parts = event.flatten()
    schema = flat_schema(results.schema)
    return pa.Table.from_arrays([*(results.column(name) for name in own), *parts], schema=schema)


def _is_event(field: pa.Field) -> bool:
    return bool(field.name == "event" and pa.types.is_struct(field.type))
