"""Rows as records of a topic: the key in its own words, the value a JSON object of the row. No Kafka client here.

Rule 1: times are texts in UTC, as 2007-10-01T00:00:00.000000Z; bytes are base64; decimals are texts, so that no digit is
        lost; what JSON has no number for is the text NaN, Infinity or -Infinity.
Rule 2: results of one key stand in one partition, in their order: the record's key is the result's, as text or as JSON.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.sinks.base import Batch
from waterclock.sinks.tables import flat, letters_of, with_letters

AROUND = 200  # bytes of a record and its batch beside key and value


def records(rows: pa.Table, key: str | None) -> Iterator[tuple[bytes | None, bytes]]:
    """Key and value of each row; `key` names the column that holds it, if there is one."""
    places = rows.schema.names.index(key) if key in rows.schema.names else None
    names = rows.schema.names
    for values in zip(*(_plain(column).to_pylist() for column in rows.columns), strict=True):
        given = None if places is None else values[places]
        yield key_of(given), _json(dict(zip(names, values, strict=True)))


def fitting(batch: Batch, topic: str, limit: int) -> tuple[list[tuple[bytes | None, bytes]], Batch]:
    """The records of the results, and the batch with those put aside that are larger than `limit` bytes."""
    rows = flat(batch.results)
    made = list(records(rows.add_column(0, "batch_id", pa.array([batch.batch_id] * rows.num_rows)), "key"))
    sizes = [len(key or b"") + len(value) + AROUND for key, value in made]
    if max(sizes, default=0) <= limit:
        return made, batch
    sentence = f"bytes are too many for a record of {topic}, which takes {limit}"
    reasons = [f"{size} {sentence}" if size > limit else None for size in sizes]
    refused = letters_of(rows, pa.chunked_array([pa.array(reasons, pa.string())]))
    kept = [record for record, reason in zip(made, reasons, strict=True) if reason is None]
    return kept, with_letters(batch, refused)


def key_of(key: Any) -> bytes | None:
    """A result's key as that of a record.

    >>> key_of("A-7"), key_of(7), key_of(None)
    (b'A-7', b'7', None)
    """
    if key is None:
        return None
    return key.encode() if isinstance(key, str) else _json(key)


def text_of_time(us: int | None) -> str | None:
    """Microseconds since 1970 as rule 1 writes them.

    >>> text_of_time(0)
    '1970-01-01T00:00:00.000000Z'
    """
    text: str | None = _texts_of_times(pa.chunked_array([pa.array([us], pa.int64())]))[0].as_py()
    return text


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        unit = {"s": 1_000_000, "ms": 1_000, "us": 1}.get(column.type.unit)
        if unit is not None:
            return _texts_of_times(pc.multiply(column.cast(pa.int64()), unit))
    return column


def _texts_of_times(us: pa.ChunkedArray) -> pa.ChunkedArray:
    texts = pc.replace_substring(us.cast(pa.timestamp("us")).cast(pa.string()), " ", "T")
    if pc.any(pc.starts_with(texts, "<")).as_py():  # Arrow's "<value out of range: ...>"
        raise ValueError("a time lies too far from the years 1 to 9999 to be written: shorten the rules' durations")
    return pc.binary_join_element_wise(texts, "Z", "")


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_text).encode()
    except ValueError:  # a number that JSON has not
        return json.dumps(_finite(value), ensure_ascii=False, default=_text).encode()


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    raise TypeError(f"{value!r} cannot be written as JSON")


def _finite(value: Any) -> Any:
    """The same with texts for what is no number, at any depth."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
