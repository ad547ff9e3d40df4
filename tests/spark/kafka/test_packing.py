"""Packed rows of a topic: every bucket hears how far each partition is, and rows have an order and no time for Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from waterclock import Rules
from waterclock.kafka import Partition
from waterclock.spark.kafka.packing import RowPacker
from waterclock.spark.packing.packs import FIRST
from waterclock.streaming import buckets, frames
from waterclock.streaming.layout import END_US
from waterclock.streaming.topics.records import HEARTBEAT, Records, TopicLayout

LAYOUT = TopicLayout({"k": "string", "t": "timestamp"}, {}, Rules(key="k", time="t"))
DELAY_US = 3_600_000_000
NOON_US = 1_577_880_000_000_000
KNOWN: list[Partition] = [("orders", 0), ("orders", 1), ("returns", 0)]


def records(*values: bytes, partition: int = 1, start: int = 9) -> Records:
    count = len(values)
    offsets = list(range(start, start + count))
    return Records("orders", partition, offsets, [0] * count, [None] * count, list(values), [None] * count)


def event(key: str, hour: int = 12) -> bytes:
    return f'{{"k": "{key}", "t": "2020-01-01T{hour:02}:00:00Z"}}'.encode()


def packed(given: Records, gone: tuple[Partition, ...] = ()) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = RowPacker(LAYOUT, DELAY_US).pack(given, KNOWN, gone).to_pylist()
    return [{**row, "frame": frames.from_bytes(row["frame"])} for row in found]


def clocks(rows: list[dict[str, Any]]) -> dict[int, list[dict[str, int | None]]]:
    """Of each bucket, what its clock frames tell: partition -> watermark."""
    told: dict[int, list[dict[str, int | None]]] = {}
    for row in rows:
        if frames.kind_of(row["frame"]) == "clock":
            each = row["frame"].to_pydict()
            pairs = zip(each["partition"], each["watermark"], strict=True)
            told.setdefault(row["bucket"], []).append(dict(pairs))
    return told


def test_every_bucket_hears_of_every_partition_and_how_far_this_one_allows() -> None:
    expected = {"orders/0": None, "orders/1": NOON_US - DELAY_US, "returns/0": None}
    found = clocks(packed(records(event("a", 11), event("b", 12), event("c", 3))))
    assert found == {label: [expected] for label in buckets.labels(buckets.BUCKETS)}


def test_a_partition_without_a_time_yet_says_so() -> None:
    assert clocks(packed(records(b"rubbish")))[FIRST] == [{"orders/0": None, "orders/1": None, "returns/0": None}]


def test_a_partition_that_is_gone_holds_nobody_back() -> None:
    (told,) = clocks(packed(records(event("a")), gone=(("orders", 7),)))[FIRST]
    assert told["orders/7"] == END_US


def test_rows_have_no_time_for_sparks_own_watermark() -> None:
    assert {row["ts"] for row in packed(records(event("a"), event("b")))} == {None}


def test_each_key_goes_to_its_bucket_with_all_its_rows_in_order() -> None:
    rows = packed(records(*(event(key, hour) for hour in range(3) for key in "abcdefgh")))
    of_key: dict[str, list[tuple[int, Any]]] = {}
    for row in rows:
        frame: pa.Table = row["frame"]
        if "k" in frame.column_names:
            for each in frame.to_pylist():
                of_key.setdefault(each["k"], []).append((row["bucket"], each["t"].hour))
    assert sorted(of_key) == list("abcdefgh")
    assert all([hour for _, hour in told] == [0, 1, 2] for told in of_key.values())
    assert all(len({bucket for bucket, _ in told}) == 1 for told in of_key.values())
    assert len({told[0][0] for told in of_key.values()}) > 3


def test_origins_sort_by_partition_and_offset_as_numbers() -> None:
    places = [(2, 9), (2, 10), (2, 100), (10, 0), (10, 5)]
    origins = [row["origin"] for p, n in places for row in packed(records(event("a"), partition=p, start=n))]
    assert origins == sorted(origins)


def test_what_was_counted_and_dead_letters_go_to_the_first_bucket() -> None:
    rows = [row for row in packed(records(event("a"), b"rubbish")) if frames.kind_of(row["frame"]) == "dead"]
    assert [(row["bucket"], row["frame"].column("line").to_pylist()) for row in rows] == [(FIRST, [10])]
    assert frames.counters_of(rows[0]["frame"])["records"] == 2


def test_a_closed_partition_lets_everything_pass_whatever_the_delay() -> None:
    given = replace(records(b"x"), values=[None], headers=[[(HEARTBEAT, b"9999-12-31T00:00:00Z")]])
    assert clocks(packed(given))[FIRST][0]["orders/1"] == END_US - DELAY_US
