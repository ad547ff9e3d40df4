"""A bucket carried over as bytes from batch to batch gives what the rules give in process."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from tests.spark.pipelines import orders
from waterclock import Rules
from waterclock.errors import StateMismatch
from waterclock.rules.engine import CLOSED, NO_WATERMARK
from waterclock.spark.bucket import Bucket, Stored
from waterclock.spark.frames import TIMESTAMP, counters_of, newest_of

SCHEMA = pa.schema(
    [
        ("order", pa.string()),
        ("at", TIMESTAMP),
        ("what", pa.string()),
        ("id", pa.string()),
        ("n", pa.int64()),
        ("to", TIMESTAMP),
    ]
)
HOUR_US = 3_600_000_000
COLUMNS = Rules(key="order", time="at", type="what", id="id", sequence="n")
KINDS_OF_RULES = {
    "by sequence": COLUMNS.order(wait="1 hour").expect(
        "paid", after="created", within="20 minutes", otherwise="unpaid"
    ),
    "by time": Rules(key="order", time="at", type="what", id="id")
    .deduplicate("1 day")
    .order()
    .quiet("1 hour", "quiet"),
    "delivered": COLUMNS.order(wait="1 hour").deliver_at("to").delay(after="paid", by="2 hours", emit="remind"),
    "dead letters": COLUMNS.order(wait="5 minutes", on_gap="dead_letter").deliver_at("to"),
}


def rows() -> list[dict[str, Any]]:
    made = orders(25, seed=3)
    return [{**row, "to": row["at"].replace(minute=0, hour=row["at"].hour + 3)} for row in made]


def step(rules: Rules, stored: Stored | None, part: list[dict[str, Any]], watermark: int) -> tuple[pa.Table, Stored]:
    bucket = Bucket(rules, stored)
    results = bucket.step([pa.Table.from_pylist(part, schema=SCHEMA)] if part else [], watermark)
    after = bucket.store()
    bucket.close()
    return results, after


def carried(rules: Rules, events: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    """The results of steps of `size` events, the state stored and loaded between them."""
    found, stored, watermark = [], None, NO_WATERMARK
    for start in range(0, len(events), size):
        part = events[start : start + size]
        results, stored = step(rules, stored, part, watermark)
        found.extend(results.to_pylist())
        watermark = max(watermark, *(int(row["at"].timestamp() * 1_000_000) - HOUR_US for row in part))
    results, _ = step(rules, stored, [], watermark)
    last, _ = step(rules, _, [], CLOSED)
    return [*found, *results.to_pylist(), *last.to_pylist()]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("rules", KINDS_OF_RULES.values(), ids=KINDS_OF_RULES)
def test_state_carried_as_bytes_changes_no_result(rules: Rules, size: int) -> None:
    found = Counter((r["kind"], r["key"], r["rule"], r["due"], r["source_id"]) for r in carried(rules, rows(), size))
    expected = Counter((r.kind, r.key, r.rule, r.due, r.source_id) for r in rules.run(rows(), "1 hour"))
    assert found == expected


@pytest.mark.parametrize("rules", KINDS_OF_RULES.values(), ids=KINDS_OF_RULES)
def test_an_event_comes_out_with_the_columns_that_went_in(rules: Rules) -> None:
    went_in = {row["id"]: row for row in rows()}
    came_out = [r["event"] for r in carried(rules, rows(), 7) if r["kind"] == "event"]
    assert came_out == [went_in[event["id"]] for event in came_out]
    assert came_out


def test_the_same_steps_leave_the_same_bytes() -> None:
    rules, events = KINDS_OF_RULES["delivered"], rows()
    once = step(rules, step(rules, None, events[:30], NO_WATERMARK)[1], events[30:], NO_WATERMARK)[1]
    again = step(rules, step(rules, None, events[:30], NO_WATERMARK)[1], events[30:], NO_WATERMARK)[1]
    assert once == again


def test_what_rests_is_carried_over_unread() -> None:
    rules, events = KINDS_OF_RULES["delivered"], rows()
    _, before = step(rules, None, events[:30], NO_WATERMARK)
    _, after = step(rules, before, [], NO_WATERMARK)
    assert after == before


def test_counters_tell_the_change_of_one_step() -> None:
    rules, events = KINDS_OF_RULES["by time"], rows()
    first, stored = step(rules, None, events[:10], NO_WATERMARK)
    second, _ = step(rules, stored, events[10:14], NO_WATERMARK)
    assert (counters_of(first)["events"], counters_of(second)["events"]) == (10, 4)


def test_a_null_id_is_not_the_id_of_another_row() -> None:
    events = [{**row, "id": None} for row in rows()[:6]]
    table = pa.Table.from_pylist(events, schema=SCHEMA).append_column("_row_id", pa.array(list("abcdef")))
    bucket = Bucket(KINDS_OF_RULES["by time"], None)
    bucket.step([table], NO_WATERMARK)
    found = bucket.step([], CLOSED).to_pylist()
    assert sorted(r["source_id"] for r in found if r["kind"] == "event") == list("abcdef")


def test_state_of_another_version_is_refused_with_the_remedy() -> None:
    with pytest.raises(StateMismatch, match=r"version 9, this waterclock reads 1 and 2: use the version that wrote it"):
        Bucket(COLUMNS, Stored(bytes([9]) + msgpack.packb([None, {}]), b""))


def test_deadlines_of_one_due_time_keep_their_order_through_a_save() -> None:
    rules = COLUMNS.deliver_at("to").delay(after="created", by="3 hours", emit="remind")
    at = rows()[0]["at"].replace(minute=0)
    events = [
        {"order": "x", "at": at, "what": "created", "id": f"x{n}", "n": n, "to": at.replace(hour=at.hour + 3)}
        for n in (1, 2)
    ]
    found = [(r["kind"], r["source_id"]) for r in carried(rules, events, 1)]
    assert found == [("emit", "x1"), ("event", "x1"), ("emit", "x2"), ("event", "x2")]


def test_rows_with_an_id_keep_it_beside_rows_without() -> None:
    events = [{**row, "id": None if place == 1 else row["id"]} for place, row in enumerate(rows()[:3])]
    table = pa.Table.from_pylist(events, schema=SCHEMA).append_column("_row_id", pa.array([None, "made", None]))
    bucket = Bucket(KINDS_OF_RULES["by time"], None)
    bucket.step([table], NO_WATERMARK)
    found = bucket.step([], CLOSED).to_pylist()
    expected = sorted([events[0]["id"], "made", events[2]["id"]])
    assert sorted(r["source_id"] for r in found if r["kind"] == "event") == expected


def test_a_step_tells_its_newest_event_and_one_without_events_tells_none() -> None:
    bucket = Bucket(KINDS_OF_RULES["by time"], None)
    found = bucket.step([pa.Table.from_pylist(rows()[:5], schema=SCHEMA)], NO_WATERMARK)
    assert newest_of(found) == max(int(row["at"].timestamp() * 1_000_000) for row in rows()[:5])
    assert newest_of(bucket.step([], NO_WATERMARK)) is None
