"""Records on their way to a step of the user's own, and rows behind it on their way to the rules."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest

from waterclock import Rules
from waterclock.errors import UsageError
from waterclock.spark.dataframe.rows import PLACE
from waterclock.spark.kafka.stepping import FRAME, StepPacker, frame_packer, row_packer
from waterclock.streaming import frames
from waterclock.streaming.layout import ROW_ID
from waterclock.streaming.topics.records import HEARTBEAT, RecordLayout, Records

START = datetime(2026, 1, 1, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000
RULES = Rules(key="k", time="t")
PACKER = StepPacker(RecordLayout({"k": "string", "t": "timestamp"}, {}), 1_000_000)
KNOWN = [("orders", 0), ("orders", 1)]


def records(*values: bytes | None, partition: int = 1, **more: Any) -> Records:
    count = len(values)
    headers = more.get("headers", [None] * count)
    return Records("orders", partition, list(range(7, 7 + count)), [0] * count, [None] * count, list(values), headers)


def row(key: str | None, seconds: int) -> bytes:
    at = START + timedelta(seconds=seconds)
    return json.dumps({"k": key, "t": at.isoformat()}).encode()


def packed(*given: Records) -> list[dict[str, Any]]:
    """What leaves the packer behind the step, where the step gives all rows as they came."""
    rows = pa.Table.from_batches([PACKER.pack(each, KNOWN) for each in given])
    rows = rows.filter(pa.compute.is_null(rows[FRAME])).drop_columns([FRAME])
    ids = pa.array([str(n) for n in range(rows.num_rows)])
    batch = rows.append_column(ROW_ID, ids).combine_chunks().to_batches()
    made: list[dict[str, Any]] = pa.Table.from_batches(list(row_packer(RULES, 1_000_000, 16)(iter(batch)))).to_pylist()
    return made


def clocks(made: list[dict[str, Any]]) -> set[tuple[str, int | None]]:
    tables = [table for each in made if frames.is_clock(table := frames.from_bytes(each["frame"]))]
    return {(row["partition"], row["watermark"]) for table in tables for row in table.to_pylist()}


def test_a_step_gets_what_could_be_read_with_its_place_and_the_rest_passes_it_by() -> None:
    beat = [(HEARTBEAT, b"2026-01-01T00:01:00Z")]
    given = PACKER.pack(records(row("a", 0), b"rubbish", None, row("b", 1), None, headers=[None] * 4 + [beat]), KNOWN)
    rows = [each for each in given.to_pylist() if each[FRAME] is None]
    assert [(each["k"], each[PLACE]) for each in rows] == [
        ("a", {"topic": "orders", "partition": 1, "offset": 7}),
        ("b", {"topic": "orders", "partition": 1, "offset": 10}),
    ]
    dead, clock = (frames.from_bytes(each[FRAME]) for each in given.to_pylist() if each[FRAME] is not None)
    assert dead.to_pylist()[0]["line"] == 8
    assert frames.counters_of(dead) == {"records": 5, "tombstones": 1, "heartbeats": 1, "dead_letters": 1}
    assert clock.to_pylist() == [
        {"partition": "orders/0", "watermark": None},
        {"partition": "orders/1", "watermark": START_US + 59_000_000},
    ]


def test_behind_the_step_each_partition_tells_its_own_time() -> None:
    assert clocks(packed(records(row("a", 9), partition=0), records(row("b", 2), row("c", 1)))) == {
        ("orders/0", START_US + 8_000_000),
        ("orders/1", START_US + 1_000_000),
    }


def test_no_two_frames_have_one_origin_and_the_order_is_that_of_offsets() -> None:
    # a task that begins anew with an offset of before: rows of one record may lie in two batches of Arrow's
    made = packed(
        records(row("a", 1), partition=1), records(row("a", 2), partition=0), records(row("a", 3), partition=1)
    )
    origins = [each["origin"] for each in made]
    assert len(set(origins)) == len(origins)
    events = [each for each in made if not frames.is_clock(frames.from_bytes(each["frame"]))]
    in_order = [frames.from_bytes(each["frame"])["t"][0].as_py() for each in sorted(events, key=lambda e: e["origin"])]
    assert in_order == [START + timedelta(seconds=s) for s in (2, 1, 3)]


def test_a_row_that_the_step_spoiled_is_a_letter_with_topic_partition_and_offset() -> None:
    letters = [frames.from_bytes(each["frame"]) for each in packed(records(row("a", 1), b'{"k": "b"}'))]
    (letter,) = [row for table in letters if frames.is_dead(table) for row in table.to_pylist()]
    assert (letter["file"], letter["line"], letter["reason"]) == ("orders/1", 8, "column 't' (the time) is missing")


def test_a_row_without_a_place_is_refused() -> None:
    place = pa.array([None], pa.struct([("topic", pa.string()), ("partition", pa.int64()), ("offset", pa.int64())]))
    batch = pa.RecordBatch.from_pydict(
        {"k": ["a"], "t": pa.array([START], frames.TIMESTAMP), ROW_ID: ["1"], PLACE: place}
    )
    with pytest.raises(UsageError, match="gives rows whose _row_id_place is null"):
        list(row_packer(RULES, 0, 16)(iter([batch])))


def test_a_clock_goes_to_every_bucket_and_a_dead_frame_to_one() -> None:
    given = PACKER.pack(records(b"rubbish"), KNOWN)
    aside = pa.RecordBatch.from_arrays([given.column(FRAME)], [FRAME]).filter(pa.compute.is_valid(given.column(FRAME)))
    (made,) = frame_packer(16)(iter([aside]))
    kinds = [frames.is_clock(frames.from_bytes(each)) for each in made.column("frame").to_pylist()]
    assert (kinds.count(True), kinds.count(False)) == (16, 1)
    assert len(set(made.column("origin").to_pylist())) == 17


def test_partitions_that_are_gone_are_told_without_a_row() -> None:
    (told,) = PACKER.pack_gone(KNOWN[:1], KNOWN[1:]).to_pylist()
    assert told[PLACE] is None
    assert [row["watermark"] is None for row in frames.from_bytes(told[FRAME]).to_pylist()] == [True, False]
