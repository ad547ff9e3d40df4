"""Rows of a DataFrame in a worker: which the rules can take, and what becomes of the others. No session is started."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from waterclock import Rules
from waterclock.spark.dataframe.rows import CORRUPT, FILE, REASON, pack_letters, reasons_of, row_packer
from waterclock.streaming import frames
from waterclock.streaming.layout import END_US, LATEST_US, ROW_ID

RULES = Rules(key="k", time="at", sequence="n")
AT = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [("k", pa.string()), ("at", frames.TIMESTAMP), ("n", pa.int64()), ("x", pa.float64()), (ROW_ID, pa.string())]
)


def rows(*given: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{ROW_ID: "i", **row} for row in given], schema=SCHEMA)


def packed(*batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for made in row_packer(RULES, 0)(iter(batches)) for row in made.to_pylist()]


def letters(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [frames.from_bytes(row["frame"]) for row in made if row["frame"] is not None]
    return [letter for frame in found if frames.is_dead(frame) for letter in frame.to_pylist()]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"k": "a", "at": AT, "n": 1}, None),
        ({"at": AT}, None),  # a heartbeat
        ({"k": "a", "n": 1}, "column 'at' (the time) is missing"),
        ({}, "column 'at' (the time) is missing"),
        ({"at": AT, "x": 0.5}, "column 'k' (the key) is missing"),
        ({"at": AT, "n": 1}, "column 'k' (the key) is missing"),
        ({"k": "a", "at": AT}, "column 'n' (the sequence) needs a number from 1"),
        ({"k": "a", "at": AT, "n": 0}, "column 'n' (the sequence) needs a number from 1"),
        ({"k": "a", "at": LATEST_US + 1, "n": 1}, "column 'at': needs a time in the years 1 to 9999"),
    ],
)
def test_a_row_that_the_rules_cannot_take_is_told_why(row: dict[str, Any], reason: str | None) -> None:
    good = {"k": "a", "at": AT, "n": 7}
    assert reasons_of(rows(good, row, good), RULES).to_pylist() == [None, reason, None]


def test_a_line_that_comes_with_a_reason_is_a_dead_letter_by_that_reason_with_its_text() -> None:
    told = {"\ufffd;1": "it is wrong", "x;y": "it is worse"}
    columns = {"k": pa.nulls(2), CORRUPT: [*told], REASON: [*told.values()], FILE: ["a.csv"] * 2}
    found = letters(
        [row for made in pack_letters(iter([pa.RecordBatch.from_pydict(columns)])) for row in made.to_pylist()]
    )
    assert [(letter["file"], letter["reason"], letter["text"]) for letter in found] == [
        ("a.csv", reason, line) for line, reason in told.items()
    ]
    beside = rows({"k": "a", "at": AT, "n": 1}, {}, {}).append_column(REASON, pa.array([None, *told.values()]))
    assert reasons_of(beside, RULES).to_pylist() == [None, *told.values()]


def test_a_row_that_is_refused_is_a_dead_letter_with_all_its_columns_and_the_others_go_on() -> None:
    made = packed(rows({"k": "a", "at": AT, "n": 1}, {"k": "b", "at": AT, "n": 0, "x": 0.5}))
    (letter,) = letters(made)
    assert (letter["file"], letter["line"]) == (None, None)
    assert json.loads(letter["text"]) == {"k": "b", "at": "2026-01-01 00:00:00.000000", "n": 0, "x": 0.5}
    events = [frames.from_bytes(row["frame"]) for row in made]
    assert [frame.column("k").to_pylist() for frame in events if not frames.is_dead(frame)] == [["a"]]


def test_a_date_beyond_pythons_calendar_ends_no_batch() -> None:
    # Python could not say it, and the batch of a row that was refused failed, each time anew
    bad = rows({"k": "b", "at": AT, "n": 0}).append_column("day", pa.array([5_000_000], pa.int32()).cast(pa.date32()))
    (letter,) = letters(packed(bad))
    assert json.loads(letter["text"])["day"] == "15659-07-15"


def test_the_time_beside_packed_rows_is_the_largest_of_those_that_are_taken() -> None:
    bad = {"k": "b", "at": AT.replace(year=2027), "n": 0}
    (event, dead) = packed(rows({"k": "a", "at": AT, "n": 1}, bad))
    assert (event["ts"], dead["ts"]) == (AT, AT)


def test_a_batch_of_nothing_but_a_heartbeat_moves_the_watermark_and_is_counted() -> None:
    (made,) = packed(rows({"at": AT}))
    assert made["ts"] == AT
    assert frames.counters_of(frames.from_bytes(made["frame"])) == {"dead_letters": 0, "heartbeats": 1}


def test_a_time_of_the_last_day_of_the_calendar_closes() -> None:
    (made,) = row_packer(RULES, 0)(iter([rows({"at": AT.replace(year=9999, month=12, day=31)})]))
    assert made.column("ts").cast(pa.int64()).to_pylist() == [END_US]


def test_frames_of_one_task_keep_the_order_of_their_rows() -> None:
    made = packed(*(rows({"k": "a", "at": AT, "n": n}) for n in (3, 1, 2)))
    origins = sorted((row["origin"], frames.from_bytes(row["frame"]).column("n").to_pylist()) for row in made)
    assert [numbers for _, numbers in origins] == [[3], [1], [2]]
