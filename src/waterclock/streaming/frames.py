"""Frames: Arrow tables as bytes, which is how rows travel through Spark between our parts.

    an event frame   the user's columns of some events of one bucket
    a result frame   results of one bucket and one batch (RESULT_FIELDS + the event), counters in the schema's metadata
    a dead frame     lines that could not be read: file, line, reason, text
    a file frame     a file of results that an executor wrote: what the commit must know of it
    a clock frame    the watermark of each partition of a topic, null if nothing was read of it

Packing rows into frames is what makes the operator fast: Spark moves one row per bucket instead of one per event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

TIMESTAMP = pa.timestamp("us", tz="UTC")
DEAD_SCHEMA = pa.schema(
    [("file", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("text", pa.string())],
    metadata={b"waterclock": b"dead"},
)
CLOCK_SCHEMA = pa.schema(
    [("partition", pa.string()), ("watermark", pa.int64())],
    metadata={b"waterclock": b"clock"},
)
FILE_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("modified_ms", pa.int64()),
        ("figures", pa.string()),
    ],
    metadata={b"waterclock": b"file"},
)
_EVENT = "event_"
_KIND = b"waterclock"
_MUCH_BYTES = 64 << 10
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def result_schema(key: pa.DataType, event: pa.Schema) -> pa.Schema:
    """The columns of results for events of schema `event`."""
    return pa.schema(
        [
            ("kind", pa.string()),
            ("key", key),
            ("rule", pa.string()),
            ("due", TIMESTAMP),
            ("emitted_at", TIMESTAMP),
            ("source_id", pa.string()),
            ("result_id", pa.string()),
            ("event", pa.struct(list(event))),
        ]
    )


def chosen(results: pa.Table, names: Iterable[str]) -> pa.Table:
    """The columns `names` of a result frame, those of its event as event_<name>; and `kind`, which no result lacks."""
    there = results.column_names
    columns = {name: results.column(name) for name in ("kind", *names) if name in there}
    event = results.schema.field("event").type if "event" in there else None
    fields = {field.name for field in event} if event is not None and pa.types.is_struct(event) else set()
    for name in names:
        own = name.removeprefix(_EVENT)
        if name not in there and own in fields:
            # as a list: alone, `.order` would be a path to `order`
            columns[name] = pc.struct_field(results.column("event"), [own])
    return pa.table(columns).replace_schema_metadata(results.schema.metadata)


def with_kind(schema: pa.Schema) -> pa.Schema:
    """`schema` and what `chosen` gives beside its columns."""
    return schema if "kind" in schema.names else schema.append(pa.field("kind", pa.string()))


def to_bytes(rows: pa.RecordBatch | pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def to_travel(rows: pa.RecordBatch | pa.Table) -> bytes:
    """The same, compressed if there is much of it: on its way to the driver Java copies each byte several times."""
    return to_bytes(rows, _COMPRESSED if rows.nbytes > _MUCH_BYTES else None)


def from_bytes(frame: bytes) -> pa.Table:
    return pa.ipc.open_stream(frame).read_all()


def with_counters(rows: pa.Table, counters: Mapping[str, int], kind: str = "results") -> pa.Table:
    """`rows` as a frame of a kind that says `counters`, and nothing else yet."""
    return noted(rows.replace_schema_metadata({_KIND: kind.encode()}), counters=dict(counters))


def counters_of(frame: pa.Table) -> dict[str, int]:
    return note(frame, "counters") or {}


def noted(rows: pa.Table, **notes: Any) -> pa.Table:
    """`rows` that say more beside their rows, as plain values:

    counters    what was counted        watermark   at which the step of these results ended, in microseconds
    watermarks  of the partitions that are furthest behind, by TOPIC/PARTITION; null for one that nothing was read of
    held        the keys that hold most events for their order, by bucket (streaming/state/held.py)
    newest      the largest time of an event which that step took, in microseconds
    refused     the compiled modules that could not be loaded where they were made (spark/packing/operator.py)
    file        the file that ends here     unseen      a file that was not there for the worker on a host: both names
    put_aside   so many results, which the table does not keep, are dead letters
    """
    said = {name.encode(): json.dumps(value).encode() for name, value in notes.items()}
    return rows.replace_schema_metadata({**(rows.schema.metadata or {}), **said})


def note(frame: pa.Table, name: str) -> Any:
    """What a frame says under this name of `noted`; None if it says nothing."""
    said = (frame.schema.metadata or {}).get(name.encode())
    return None if said is None else json.loads(said)


def kind_of(frame: pa.Table) -> str:
    """One of "dead", "file", "clock", or "results"; "" of events and changes."""
    return (frame.schema.metadata or {}).get(_KIND, b"").decode()  # type: ignore[no-any-return]


def clock(watermarks: Mapping[str, int | None]) -> pa.Table:
    """A clock frame: partition -> the watermark that it allows, in microseconds."""
    columns = [pa.array(list(watermarks), pa.string()), pa.array(list(watermarks.values()), pa.int64())]
    return pa.Table.from_arrays(columns, schema=CLOCK_SCHEMA)


def sum_counters(all_counters: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for counters in all_counters:
        for name, value in counters.items():
            total[name] = total.get(name, 0) + value
    return total


def conform(results: pa.Table, schema: pa.Schema) -> pa.Table:
    """A result frame with exactly the columns of `schema`; one that no result of the frame has is null."""
    present = results.column_names
    columns = [
        results.column(f.name).cast(f.type) if f.name in present else pa.nulls(results.num_rows, f.type) for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def up_to(last_us: int, results: pa.Table) -> pa.Table:
    """`results`, none made after `last_us`: the close makes its own at a watermark that no calendar holds."""
    place = results.schema.get_field_index("emitted_at")
    if place < 0 or not pa.types.is_timestamp(
        results.schema.field(place).type
    ):  # changes of tables; a user's own column
        return results
    made = results.column(place)
    last = pa.scalar(last_us, pa.int64()).cast(made.type)
    return results.set_column(place, results.schema.field(place), pc.if_else(pc.greater(made, last), last, made))
