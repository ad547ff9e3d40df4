"""The orders workload: made from a seed, disordered, doubled, each event to be delivered some minutes after it happened.

50,000 orders an hour, four events each (created, paid, shipped, received), about 20 s apart; each arrives up to 60 s late,
5 % arrive twice, and each names a time up to 10 minutes later at which it is to be delivered.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from waterclock import Rules

KINDS = ("created", "paid", "shipped", "received")
START_US = 1_767_225_600_000_000  # 2026-01-01
SECOND_US = 1_000_000
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("key", pa.string()),
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("deliver_at", pa.timestamp("us", tz="UTC")),
    ]
)
COLUMNS = {
    "id": "string",
    "key": "string",
    "seq": "long",
    "kind": "string",
    "ts": "timestamp",
    "deliver_at": "timestamp",
}
RULES = Rules(key="key", time="ts", type="kind", id="id", sequence="seq")
ORDER = RULES.order(wait="2 minutes")
ALL = ORDER.deliver_at("deliver_at").expect("paid", after="created", within="60 s", otherwise="unpaid")
Row = tuple[str, str, int, str, int, int]
END = ("end", "end", 1, "created", START_US + 10**15, START_US + 10**15)


@dataclass(frozen=True, slots=True)
class Orders:
    """Rows in the order of arrival, and how many of them are not duplicates."""

    rows: list[Row]
    distinct: int


def make(keys: int, seed: int = 1) -> Orders:
    """The events of `keys` orders."""
    chance = random.Random(seed)
    span_us = keys * 72_000  # 50,000 an hour
    arrivals: list[tuple[int, float, Row]] = []
    for key in range(keys):
        time_us = START_US + int(chance.random() * span_us)
        for number, kind in enumerate(KINDS, 1):
            deliver_us = time_us + int(chance.random() * 600 * SECOND_US)
            row = (f"o{key:07d}-{number}", f"o{key:07d}", number, kind, time_us, deliver_us)
            arrival = time_us + int(chance.random() * 60 * SECOND_US)
            arrivals.append((arrival, chance.random(), row))
            if chance.random() < 0.05:
                arrivals.append((arrival + int(chance.random() * 60 * SECOND_US), chance.random(), row))
            time_us += int(chance.expovariate(1 / 20) * SECOND_US) + 1000
    arrivals.sort()
    return Orders([row for _, _, row in arrivals], keys * len(KINDS))


def write(orders: Orders, folder: Path, rows_per_file: int) -> int:
    """Parquet files of `rows_per_file` rows, one second apart, and a last one that moves time past everything."""
    folder.mkdir(parents=True)
    parts = [orders.rows[start : start + rows_per_file] for start in range(0, len(orders.rows), rows_per_file)]
    for number, rows in enumerate([*parts, [END]]):
        write_file(rows, folder, number)
    return len(parts)


def write_file(rows: list[Row], folder: Path, number: int) -> None:
    """One Parquet file; a stream takes files in the order of their numbers."""
    file = folder / f"orders-{number:05d}.parquet"
    pq.write_table(_table(rows), file)
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def _table(rows: list[Row]) -> pa.Table:
    return table_of(list(zip(*rows, strict=True)))


def table_of(values: Sequence[Sequence[Any]]) -> pa.Table:
    """A table of the columns of SCHEMA; times are microseconds."""
    columns = dict(zip(SCHEMA.names, values, strict=True))
    times = {name: pa.array(columns[name], pa.int64()).cast(SCHEMA.field(name).type) for name in ("ts", "deliver_at")}
    return pa.table({**columns, **times}, SCHEMA)
