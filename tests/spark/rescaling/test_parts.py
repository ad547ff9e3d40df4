"""State taken apart and put together again, in the middle of a run: the results are what the rules give in process.

Buckets are called as Spark calls them: where they have rows, or where the watermark has passed their alarm.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.campaign import examples
from tests.streaming.state.test_bucket import HOUR_US, KINDS_OF_RULES, SCHEMA, State, rows
from waterclock import Rules
from waterclock.durations import datetime_us
from waterclock.errors import StateMismatch
from waterclock.rules.engine import CLOSED, NO_WATERMARK
from waterclock.spark.rescaling import parts
from waterclock.spark.rescaling.parts import JoinedBucket, StateClock, StatePart, part_of, seen, split
from waterclock.streaming.buckets import places
from waterclock.streaming.frames import clock, counters_of, sum_counters
from waterclock.streaming.state.bucket import Bucket, StoredBucket

QUIET = Rules(key="order", time="at", type="what", id="id").deduplicate("1 day").order().quiet("1 hour", "quiet")
KINDS = {**KINDS_OF_RULES, "quiet": QUIET}
SMALL = pytest.mark.parametrize("awake", [1024, 3], ids=["no pages", "pages"])


class Buckets:
    """Some buckets of one pipeline, each with its state between the batches and the time of its alarm."""

    def __init__(self, rules: Rules, count: int) -> None:
        self.rules, self.count = rules, count
        self.states: dict[int, State] = {}
        self.alarms: dict[int, int | None] = {}
        self.counted: dict[str, int] = {}

    def batch(self, events: list[dict[str, Any]], watermark: int, clocks: list[pa.Table] | None = None) -> list[Any]:
        """The results of one batch."""
        told: dict[int, list[dict[str, Any]]] = {}
        for row, place in zip(
            events, places(pa.array([r["order"] for r in events], pa.string()), self.count), strict=True
        ):
            told.setdefault(int(place), []).append(row)
        due = {place for place, at in self.alarms.items() if at is not None and at <= watermark}
        called = sorted({*told, *due, *(range(self.count) if clocks else ())})
        return [
            result for place in called for result in self._step(place, told.get(place, []), watermark, clocks or [])
        ]

    def _step(self, place: int, events: list[dict[str, Any]], watermark: int, clocks: list[pa.Table]) -> list[Any]:
        stored, shelf = self.states.get(place, (None, {}))
        bucket = Bucket(self.rules, stored, shelf)
        results = bucket.step([pa.Table.from_pylist(events, SCHEMA)] if events else [], watermark, clocks)
        self.counted = sum_counters([self.counted, counters_of(results)])
        self._store(place, bucket, shelf)
        return results.to_pylist()  # type: ignore[no-any-return]

    def _store(self, place: int, bucket: Bucket, shelf: dict[int, bytes]) -> None:
        self.alarms[place] = bucket.next_due_us()
        self.states[place] = bucket.store(), shelf
        bucket.close()

    def rescaled(self, count: int) -> Buckets:
        """The same state in another number of buckets."""
        at = StateClock()
        for stored, _ in self.states.values():
            at = at.furthest(seen(stored.engine).clock)
        moved: dict[int, list[StatePart]] = {place: [] for place in range(count)}
        for place, (stored, shelf) in sorted(self.states.items()):
            for new, part in split(self.rules, stored, shelf, count, place):
                moved[new].append(part_of(part.to_bytes()))
        made = Buckets(self.rules, count)
        made.counted = self.counted
        for place, taken in moved.items():
            blobs: dict[int, bytes] = {}
            made._store(place, JoinedBucket(self.rules, at, taken, blobs), blobs)
        return made


def us(row: dict[str, Any]) -> int:
    at: datetime = row["at"]
    return datetime_us(at)


def told(results: list[Any]) -> Counter[Any]:
    return Counter((r["kind"], r["key"], r["rule"], r["due"], r["source_id"], str(r.get("event"))) for r in results)


def run(rules: Rules, counts: list[int], size: int) -> tuple[Counter[Any], dict[str, int]]:
    """The results and counters of batches of `size` events, the number of buckets changed from batch to batch."""
    buckets, found, watermark = Buckets(rules, counts[0]), [], NO_WATERMARK
    events = rows()
    for number, start in enumerate(range(0, len(events), size)):
        batch = events[start : start + size]
        found += buckets.batch(batch, watermark)
        watermark = max(watermark, *(us(row) - HOUR_US for row in batch))
        if (count := counts[number % len(counts)]) != buckets.count:
            buckets = buckets.rescaled(count)
    found += buckets.batch([], watermark)
    return told([*found, *buckets.rescaled(counts[0]).batch([], CLOSED)]), buckets.counted


@SMALL
@pytest.mark.parametrize("rules", KINDS.values(), ids=KINDS)
def test_sixteen_to_sixty_four_to_eight_in_the_middle_changes_no_result(
    rules: Rules, awake: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waterclock.streaming.state.bucket.AWAKE", awake)
    monkeypatch.setattr("waterclock.streaming.state.states.LARGE", awake * 20)
    monkeypatch.setattr(parts, "KEYS_A_PART", awake)
    assert run(rules, [16, 16, 64, 64, 8], 7) == run(rules, [16], 7)


@pytest.mark.parametrize("rules", KINDS.values(), ids=KINDS)
def test_what_comes_out_of_changing_buckets_is_what_the_rules_give_in_process(rules: Rules) -> None:
    found = Counter(key[:5] for key in run(rules, [2, 5, 3], 7)[0].elements())
    assert found == Counter((r.kind, r.key, r.rule, r.due, r.source_id) for r in rules.run(rows(), "1 hour"))


any_numbers = given(
    st.lists(st.integers(1, 40), min_size=2, max_size=6), st.integers(1, 60), st.sampled_from(sorted(KINDS))
)


@settings(deadline=None, max_examples=4)
@any_numbers
def test_any_numbers_of_buckets_give_the_same(counts: list[int], size: int, kind: str) -> None:
    assert run(KINDS[kind], counts, size)[0] == run(KINDS[kind], [16], size)[0]


@pytest.mark.long(seconds=12)
@settings(deadline=None, max_examples=examples(90))
@any_numbers
def test_so_do_many_numbers_of_buckets(counts: list[int], size: int, kind: str) -> None:
    assert run(KINDS[kind], counts, size)[0] == run(KINDS[kind], [16], size)[0]


def test_the_watermark_of_each_partition_of_a_topic_goes_with_the_state_into_every_bucket() -> None:
    rules, events = KINDS["by sequence"], rows()
    tables = [clock({"t/0": us(events[20]), "t/1": us(events[20]) - HOUR_US})]
    plain, moved = (Buckets(rules, 4) for _ in range(2))
    for buckets in (plain, moved):
        buckets.batch(events[:20], NO_WATERMARK, tables)
    moved = moved.rescaled(7)
    later = [clock({"t/0": None, "t/1": us(events[40])})]  # a partition of which nothing was read keeps what it had
    assert told(moved.batch(events[20:40], NO_WATERMARK, later)) == told(
        plain.batch(events[20:40], NO_WATERMARK, later)
    )
    assert len({seen(stored.engine).clock.watermark_us for stored, _ in moved.states.values()}) == 1


def test_as_many_keys_come_out_as_went_in() -> None:
    buckets = Buckets(KINDS["by time"], 16)
    buckets.batch(rows(), NO_WATERMARK)
    keys = [
        sum(seen(stored.engine).keys for stored, _ in each.states.values()) for each in (buckets, buckets.rescaled(5))
    ]
    assert keys[0] == keys[1] > 0


def test_of_keys_that_are_to_rest_those_of_one_part_are_awake_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waterclock.streaming.state.bucket.AWAKE", 3)
    monkeypatch.setattr(parts, "KEYS_A_PART", 4)
    buckets, woken = Buckets(QUIET, 1), list[int]()
    buckets.batch(rows(), NO_WATERMARK)
    made_for = JoinedBucket.engine_for

    def counting(*given: Any) -> Any:
        engine = made_for(*given)
        wake = engine.wake
        engine.wake = lambda some: (woken.append(len(some)), wake(some))
        return engine

    monkeypatch.setattr(JoinedBucket, "engine_for", staticmethod(counting))
    stored, shelf = buckets.states[0]
    taken = [part for _, part in split(QUIET, stored, shelf, 1, 0)]
    joined = JoinedBucket(QUIET, StateClock(), taken, {})
    assert sum(woken) == seen(stored.engine).keys == seen(joined.store().engine).keys > 4
    assert max(woken) <= 4


def test_state_of_another_version_is_not_taken_apart() -> None:
    with pytest.raises(StateMismatch, match="version 99"):
        list(split(QUIET, StoredBucket(bytes([99]), b""), {}, 4, 0))
