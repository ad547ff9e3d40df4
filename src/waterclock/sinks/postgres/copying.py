"""Arrow tables into PostgreSQL by binary COPY: what a column becomes there, and what a column cannot hold.

Rule 1: a text in PostgreSQL holds no NUL. A result with one is a dead letter, as JSON, which writes NUL as \\u0000; in a
    dead letter's own text NUL is written so, too.
Rule 2: a table goes over in pieces of a few MB, so that no second copy of it stands in memory.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pgpq import ArrowToPostgresBinaryEncoder

from waterclock.errors import UsageError
from waterclock.postgres.session import Session
from waterclock.sinks.base import Batch
from waterclock.sinks.postgres.destination import fitting_postgres
from waterclock.sinks.tables import letters
from waterclock.sinks.tables.results import flat
from waterclock.sinks.tables.tables import listed

_NUL = "\0"
_PIECE_BYTES = 4 << 20
_TYPES = {
    pa.string(): "text",
    pa.bool_(): "boolean",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.timestamp("us"): "timestamp without time zone",
}


def columns_of(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """The columns as (name, type), in PostgreSQL's own spelling of its types."""
    return tuple(
        (fitting_postgres(field.name, f"the column {field.name!r}", "rename it in [source.columns]"), _type_of(field))
        for field in schema
    )


def _type_of(field: pa.Field) -> str:
    if pa.types.is_timestamp(field.type) and field.type.tz and field.type.unit == "us":
        return "timestamp with time zone"
    if field.type not in _TYPES:
        raise UsageError(f"the column {field.name!r} is of the type {field.type}, which is not kept in PostgreSQL")
    return _TYPES[field.type]


def copy_rows(session: Session, table: str, rows: pa.Table) -> None:
    """Add `rows` to `table`, a quoted name, whose columns of the same names have the types of `columns_of`."""
    if not rows.num_rows:
        return
    encoder = ArrowToPostgresBinaryEncoder(rows.schema)
    piece = max(1, _PIECE_BYTES * rows.num_rows // max(1, rows.nbytes))
    with session.copy(f"COPY {table} ({listed(rows.column_names)}) FROM STDIN (FORMAT binary)") as copy:
        copy.write(encoder.write_header())
        for part in rows.to_batches(max_chunksize=piece):
            copy.write(encoder.write_batch(part))
        copy.write(encoder.finish())


# NUL -----------------------------------------------------------------------------------------------------------


def without_nul(batch: Batch) -> Batch:
    """`batch` with results that hold a NUL among the dead letters."""
    rows = flat(batch.results)
    reasons = pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])
    for field in rows.schema:
        if field.type == pa.string() and (found := _with_nul(rows.column(field.name))) is not None:
            reason = f"{field.name!r} holds the character NUL, which a text in PostgreSQL cannot"
            reasons = pc.if_else(found, pa.scalar(reason), reasons)
    return letters.put_aside(batch, rows, reasons)


def _with_nul(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Which texts hold a NUL; None where none does."""
    found = pc.fill_null(pc.match_substring(column, _NUL), False)
    return found if pc.any(found).as_py() else None


def escaped(rows: pa.Table) -> pa.Table:
    """`rows` whose texts hold no NUL: it is written as JSON writes it."""
    for place, field in enumerate(rows.schema):
        if field.type == pa.string() and _with_nul(rows.column(place)) is not None:
            rows = rows.set_column(place, field, pc.replace_substring(rows.column(place), _NUL, "\\u0000"))
    return rows
