"""Rows on their way through Spark: small as they are, large compressed, read by the same words."""

from __future__ import annotations

import pyarrow as pa

from waterclock.streaming import frames


def test_a_large_frame_travels_compressed_and_is_read_as_it_was() -> None:
    rows = frames.with_counters(pa.table({"key": [f"order {n % 9}" for n in range(20_000)]}), {"events": 3})
    travels = frames.to_travel(rows)
    assert 2 * len(travels) < len(frames.to_bytes(rows))
    read = frames.from_bytes(travels)
    assert read.equals(rows)
    assert frames.counters_of(read) == {"events": 3}


def test_a_small_frame_travels_as_it_is() -> None:
    rows = pa.table({"key": ["a", "b"]})
    assert frames.to_travel(rows) == frames.to_bytes(rows)
