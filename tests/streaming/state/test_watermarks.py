"""The watermark of a topic: the partition that is furthest behind decides, and a bucket keeps what it was told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from waterclock import Rules
from waterclock.rules.engine import NO_WATERMARK
from waterclock.streaming import frames
from waterclock.streaming.frames import TIMESTAMP
from waterclock.streaming.state.bucket import Bucket, StoredBucket, Watermarks

SCHEMA = pa.schema([("order", pa.string()), ("at", TIMESTAMP), ("what", pa.string()), ("id", pa.string())])
RULES = Rules(key="order", time="at", type="what", id="id").expect(
    "paid", after="created", within="20 minutes", otherwise="unpaid"
)
START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE_US = 60_000_000
START_US = int(START.timestamp()) * 1_000_000


def after(minutes: float) -> int:
    return START_US + int(minutes * MINUTE_US)


def row(order: str, minutes: float, what: str) -> dict[str, Any]:
    return {"order": order, "at": START + timedelta(minutes=minutes), "what": what, "id": f"{order}-{what}"}


def step(
    stored: StoredBucket | None, rows: list[dict[str, Any]], clocks: dict[str, int | None]
) -> tuple[pa.Table, StoredBucket]:
    """One batch of a bucket of a topic: its results, and the state behind it."""
    bucket = Bucket(RULES, stored)
    tables = [pa.Table.from_pylist(rows, schema=SCHEMA)] if rows else []
    found = bucket.step(tables, NO_WATERMARK, [frames.clock(clocks)])
    state = bucket.store()
    bucket.close()
    return frames.from_bytes(frames.to_bytes(found)), state


def kinds(found: pa.Table) -> list[tuple[str, str]]:
    return [(each["kind"], each["key"]) for each in found.to_pylist()]


# the record of partitions --------------------------------------------------------------------------------


def test_the_partition_that_is_furthest_behind_decides() -> None:
    marks = Watermarks()
    marks.take([frames.clock({"t/0": 50, "t/1": 20}), frames.clock({"t/0": 70})])
    assert marks.lowest() == 20


def test_a_partition_that_nothing_was_read_of_holds_the_watermark_back() -> None:
    marks = Watermarks()
    marks.take([frames.clock({"t/0": 50, "t/1": None})])
    assert marks.lowest() == NO_WATERMARK
    marks.take([frames.clock({"t/0": None, "t/1": 10})])
    assert marks.lowest() == 10


def test_a_partition_never_goes_back() -> None:
    marks = Watermarks({"t/0": 50})
    marks.take([frames.clock({"t/0": 20}), frames.clock({"t/0": None})])
    assert marks.lowest() == 50


def test_where_there_are_no_partitions_there_is_no_watermark() -> None:
    assert Watermarks().lowest() == NO_WATERMARK


def test_those_that_are_furthest_behind_are_told_and_no_more_than_so_many() -> None:
    marks = Watermarks({f"t/{number}": 100 + number for number in range(50)} | {"t/x": None})
    slowest = marks.slowest()
    assert len(slowest) == 20
    assert list(slowest.items())[:3] == [("t/x", None), ("t/0", 100), ("t/1", 101)]


# in a bucket ---------------------------------------------------------------------------------------------


def test_a_fast_partition_makes_nothing_of_a_slow_one_late() -> None:
    _, state = step(None, [row("a", 500, "created")], {"t/0": after(500), "t/1": after(0)})
    found, _ = step(state, [row("b", 10, "created"), row("b", 12, "paid")], {"t/1": after(13), "t/0": None})
    assert ("late", "b") not in kinds(found)
    assert kinds(found) == [("event", "b"), ("met", "b"), ("event", "b")]


def test_what_a_batch_makes_due_comes_out_in_that_batch() -> None:
    _, state = step(None, [row("a", 0, "created")], {"t/0": after(5)})
    found, _ = step(state, [row("b", 31, "created")], {"t/0": after(31)})
    assert kinds(found) == [("expired", "a")]


def test_events_are_judged_against_the_watermark_before_their_batch() -> None:
    _, state = step(None, [], {"t/0": after(30)})
    found, state = step(
        state, [row("a", 40, "created"), row("b", 30, "created"), row("c", 29, "created")], {"t/0": after(90)}
    )
    assert ("late", "c") in kinds(found)
    assert ("late", "b") not in kinds(found)
    assert ("expired", "a") in kinds(found)


def test_results_tell_the_watermark_at_which_their_batch_ended() -> None:
    found, _ = step(None, [row("a", 0, "created")], {"t/0": after(5)})
    assert frames.note(found, "watermark") == after(5)
    assert frames.counters_of(found)["events"] == 1


def test_counters_of_both_halves_of_a_batch_are_told_together() -> None:
    found, state = step(None, [row("a", 0, "created")], {"t/0": after(60)})
    assert {name: frames.counters_of(found)[name] for name in ("events", "released", "pending", "held")} == {
        "events": 1,
        "released": 1,
        "pending": 0,
        "held": 0,
    }
    again, _ = step(state, [], {"t/0": after(61)})
    assert set(frames.counters_of(again).values()) == {0}


def test_spark_s_watermark_counts_where_it_is_later() -> None:
    # the closing heartbeat of a run to the end comes by Spark's own way
    _, state = step(None, [row("a", 0, "created")], {"t/0": after(5)})
    bucket = Bucket(RULES, state)
    assert kinds(bucket.step([], after(9_000_000))) == [("expired", "a")]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_same_batches_leave_the_same_bytes(cut: int) -> None:
    def run() -> StoredBucket:
        state = None
        for number in range(cut):
            rows = [row(f"o{number}", 10 * number, "created")]
            _, state = step(state, rows, {"t/1": after(10 * number), "t/0": after(5 * number)})
        assert state is not None
        return state

    assert run() == run()


def test_results_say_which_partitions_hold_the_watermark_back() -> None:
    found, state = step(None, [row("a", 0, "created")], {"t/0": after(50), "t/1": after(20)})
    assert frames.note(found, "watermarks") == {"t/1": after(20), "t/0": after(50)}
    found, _ = step(state, [], {"t/0": after(50), "t/1": after(60), "t/2": None})
    assert frames.note(found, "watermarks") == {"t/2": None, "t/0": after(50), "t/1": after(60)}
