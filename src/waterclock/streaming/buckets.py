"""Keys into buckets, buckets evenly over Spark's partitions.

A bucket is what one `transformWithState` key stands for: a few hundred thousand user keys with one state. Spark places a
bucket by murmur3(label) modulo the shuffle partitions; with labels 0, 1, 2, ... two partitions would get, say, 11 and 5
of 16 buckets. So the labels are chosen: label i is the smallest unused number whose hash is i modulo the bucket count.

How many there are: what the user says; else what the checkpoint was made with; else, at the first start, one a core, 16 at
least (`by_cores`). The pipeline decides it (spark/pipeline.py, `_count`), and for `on_spark` spark/packing/transform.py.

Rule 1: the bucket of a key depends on the key and the bucket count alone, not on cores, runs or Python's hash seed.
Rule 2: a checkpoint lives with one count: under another one its keys would look for their state where it is not.
"""

from __future__ import annotations

import os
from functools import cache
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BUCKETS = 16  # if nobody says how many, and there are no more cores
FEWEST, MOST = 2, 4096
_MASK = 0xFFFFFFFF


def checked(name: str, count: int | None) -> int | None:
    """`count` buckets, or None; TypeError or ValueError, which names the argument `name`, if it is no such number.

    >>> checked("buckets", 64)
    64
    """
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} must be an integer, got {count!r}")
    if not FEWEST <= count <= MOST:
        raise ValueError(f"{name} must be from {FEWEST} to {MOST}, got {count}")
    return count


def by_cores(cores: int | None = None) -> int:
    """How many buckets `cores` cores get, those of this machine if None is given: no core is without one.

    >>> by_cores(2), by_cores(16), by_cores(100), by_cores(10_000)
    (16, 16, 100, 4096)
    """
    return min(max(BUCKETS, cores or os.cpu_count() or 1), MOST)


@cache
def labels(count: int) -> tuple[int, ...]:
    """`count` labels that Spark spreads evenly over any number of shuffle partitions that divides `count`."""
    found: dict[int, int] = {}
    label = 0
    while len(found) < count:
        found.setdefault(spark_hash(label) % count, label)
        label += 1
    return tuple(found[place] for place in range(count))


def spark_hash(value: int) -> int:
    """Spark's hash of an int column (murmur3 x86 32, seed 42), as its HashPartitioning uses it.

    >>> spark_hash(1)
    -559580957
    """
    k = value * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    h = 42 ^ (k * 0x1B873593 & _MASK)
    h = (h << 13 | h >> 19) & _MASK
    h = (h * 5 + 0xE6546B64 & _MASK) ^ 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def places(keys: pa.Array, count: int) -> np.ndarray:
    """The place (0 .. count-1) of each key's bucket; keys are texts or integers without nulls.

    >>> places(pa.array(["a", "é", "7"]), 16).tolist(), places(pa.array([7, -20]), 16).tolist()
    ([3, 14, 2], [2, 12])
    """
    encoded = pc.dictionary_encode(keys)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    texts = encoded.dictionary.cast(pa.string()).cast(pa.binary()).to_pylist()
    of_key = (np.fromiter(map(crc32, texts), np.uint32, len(texts)) % count).astype(np.uint16)  # which sorts quicker
    found: np.ndarray = of_key[encoded.indices.to_numpy()]
    return found


def split(batch: pa.RecordBatch, keys: pa.Array, count: int) -> list[tuple[int, pa.RecordBatch]]:
    """(label, rows) for each bucket that has rows in `batch`, rows in their order."""
    if batch.num_rows == 0:
        return []
    place = places(keys, count)
    order = np.argsort(place, kind="stable")
    cuts = np.flatnonzero(np.diff(place[order])) + 1
    sorted_rows = batch.take(pa.array(order))
    starts, ends = [0, *cuts.tolist()], [*cuts.tolist(), len(order)]
    return [
        (labels(count)[place[order[start]]], sorted_rows.slice(start, end - start))
        for start, end in zip(starts, ends, strict=True)
    ]
