"""A bucket carried over as bytes from batch to batch gives what the rules give in process."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from tests.spark.pipelines import orders
from tests.streaming.state.blobs import Disk
from waterclock import Rules
from waterclock.errors import StateMismatch
from waterclock.rules.engine import CLOSED, NO_WATERMARK
from waterclock.streaming.frames import TIMESTAMP, clock, counters_of, note
from waterclock.streaming.layout import EARLIEST_US
from waterclock.streaming.state import states
from waterclock.streaming.state.blobs import BlobStore, MapState
from waterclock.streaming.state.bucket import AWAKE, VERSION, Bucket, StoredBucket, read_state
from waterclock.streaming.state.compiled import engine_for
from waterclock.streaming.state.plain import PlainEngine

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
    "promised": COLUMNS.order(wait="1 hour").expect("paid", after="created", by="to", otherwise="too late"),
    "conditions": COLUMNS.order(wait="1 hour")
    .expect("paid", after="created", within="20 minutes", otherwise="unpaid", where="n < 2", met_where="order > 'o2'")
    .quiet("30 minutes", "silent", where="n in (1, 3) and at != to"),
    "promised by time": Rules(key="order", time="at", type="what", id="id").expect(
        "shipped", after="paid", by="to", otherwise="too late"
    ),
    "dead letters": COLUMNS.order(wait="5 minutes", on_gap="dead_letter").deliver_at("to"),
}


def rows() -> list[dict[str, Any]]:
    made = orders(25, seed=3)
    return [{**row, "to": row["at"].replace(minute=0, hour=row["at"].hour + 3)} for row in made]


State = tuple[StoredBucket, dict[int, bytes]]
ENGINES = [PlainEngine, engine_for]  # the second is the compiled one, where it was built
NO_PAGES, PAGES = (1024, 8192), (3, 64)  # AWAKE, LARGE: nothing goes to the blob store here, and nearly all does


@pytest.fixture(params=ENGINES, ids=[engine.__name__ for engine in ENGINES], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bucket, "engine_for", staticmethod(request.param))


@pytest.fixture(params=[NO_PAGES, PAGES], ids=["no pages", "pages"], autouse=True)
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    awake, large = request.param
    monkeypatch.setattr("waterclock.streaming.state.bucket.AWAKE", awake)
    monkeypatch.setattr("waterclock.streaming.state.states.LARGE", large)


def step(rules: Rules, state: State | None, part: list[dict[str, Any]], watermark: int) -> tuple[pa.Table, State]:
    stored, shelf = (None, {}) if state is None else (state[0], dict(state[1]))
    bucket = Bucket(rules, stored, shelf)
    results = bucket.step([pa.Table.from_pylist(part, schema=SCHEMA)] if part else [], watermark)
    after = bucket.store()
    bucket.close()
    return results, (after, shelf)


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
    _, fresh = step(rules, None, events[:30], NO_WATERMARK)
    _, before = step(rules, fresh, [], NO_WATERMARK)  # what is large goes to the blob store when it has rested once
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


def test_a_blob_that_is_gone_from_the_state_is_told_with_the_remedy() -> None:
    class Nothing:
        def getValue(self, key: tuple[int]) -> None:
            return None

    with pytest.raises(StateMismatch, match="lacks its blob 7, so the checkpoint is damaged: restore it"):
        BlobStore(MapState(Nothing())).get(7)


@pytest.mark.parametrize("version", [2, VERSION + 1])
def test_state_of_another_version_is_refused_with_the_remedy(version: int) -> None:
    told = f"version {version}, this waterclock reads 3, {VERSION}: use the version that wrote it"
    stored = step(COLUMNS, None, rows()[:3], NO_WATERMARK)[1][0]
    with pytest.raises(StateMismatch, match=told):
        Bucket(COLUMNS, StoredBucket(bytes([version]) + stored.engine[1:], stored.rows))


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


def test_a_watermark_that_no_calendar_holds_is_told_as_none() -> None:
    # PostgreSQL has no time before 4713 BC: the batch was refused, and each re-run of it
    for watermark, told in ((EARLIEST_US - 1, None), (EARLIEST_US, datetime.min.replace(tzinfo=UTC))):
        results = Bucket(COLUMNS, None).step([pa.Table.from_pylist(rows()[:1], SCHEMA)], watermark)
        assert results.column("emitted_at").to_pylist() == [told]


def test_a_step_tells_its_newest_event_and_one_without_events_tells_none() -> None:
    bucket = Bucket(KINDS_OF_RULES["by time"], None)
    found = bucket.step([pa.Table.from_pylist(rows()[:5], schema=SCHEMA)], NO_WATERMARK)
    assert note(found, "newest") == max(int(row["at"].timestamp() * 1_000_000) for row in rows()[:5])
    assert note(bucket.step([], NO_WATERMARK), "newest") is None


def opened(count: int, start: str = "o") -> pa.Table:
    """So many orders, created and not paid."""
    at = rows()[0]["at"]
    events = [
        {"order": f"{start}{n}", "at": at, "what": "created", "id": f"{start}{n}", "n": 1, "to": at}
        for n in range(count)
    ]
    return pa.Table.from_pylist(events, schema=SCHEMA)


def test_a_batch_costs_what_it_touches_and_not_what_rests() -> None:
    rules = COLUMNS.expect("paid", after="created", within="30 days", otherwise="unpaid").delay(
        "created", "9 days", "hm"
    )
    read, calls = [], []
    for resting in (2_000, 20_000):
        blobs, stored = Disk(), None
        for table in (opened(resting), opened(3, "x"), opened(3, "y"), opened(3, "z")):
            blobs.calls = 0
            bucket = Bucket(rules, stored, blobs)
            bucket.step([table], NO_WATERMARK)
            stored = bucket.store()
        calls.append(blobs.calls)
        read.append(len(stored.engine))
    assert calls[1] <= calls[0] + 3
    assert read[1] < read[0] + 20_000 / 8 + 100  # the bits of what is crossed out


def test_ids_of_keys_that_rest_are_forgotten_in_time() -> None:
    rules = COLUMNS.deduplicate("1 day")
    grown = 0
    day_us, start = 86_400_000_000, int(rows()[0]["at"].timestamp() * 1_000_000)
    blobs, stored, sizes = Disk(), None, []
    for table, watermark in (([opened(5_000)], NO_WATERMARK), ([], start + day_us), ([], start + 2 * day_us)):
        bucket = Bucket(rules, stored, blobs)
        bucket.step(table, watermark)
        stored = bucket.store()
        grown += bucket.grown
        sizes.append(len(stored) + blobs.size())
        assert grown == sizes[-1]
    assert sizes[0] > 30_000
    assert sizes[2] < 2_000


def test_ids_that_are_to_be_forgotten_in_1970_are_so() -> None:
    day_us, blobs, midnight = 86_400_000_000, Disk(), datetime(1970, 1, 1, tzinfo=UTC)
    events = opened(2_000).to_pylist()
    table = pa.Table.from_pylist([{**e, "at": midnight - timedelta(days=1, hours=1)} for e in events], schema=SCHEMA)
    stored = None
    for tables, watermark in (([table], NO_WATERMARK), ([], 0), ([], day_us)):
        bucket = Bucket(COLUMNS.deduplicate("1 day"), stored, blobs)
        bucket.step(tables, watermark)
        stored = bucket.store()
    assert blobs == {}


def test_ids_of_keys_that_rest_are_forgotten_by_the_watermark_of_a_topic_too() -> None:
    day_us, start = 86_400_000_000, int(rows()[0]["at"].timestamp() * 1_000_000)
    blobs, stored = Disk(), None
    for tables, watermark in (([opened(2_000)], start), ([], start + 2 * day_us), ([], start + 2 * day_us)):
        bucket = Bucket(COLUMNS.deduplicate("1 day"), stored, blobs)
        bucket.step(tables, NO_WATERMARK, [clock({"partition": watermark})])
        stored = bucket.store()
    assert blobs == {}


def test_an_id_of_the_far_future_does_not_keep_those_of_other_keys() -> None:
    """A topic has such ids: the partition that is furthest behind makes its watermark, and one clock may be wrong."""
    rules, blobs, stored, sizes = COLUMNS.deduplicate("1 hour"), Disk(), None, []
    day_us, start = 86_400_000_000, int(rows()[0]["at"].timestamp() * 1_000_000)
    for day in range(32):
        at = rows()[0]["at"] + timedelta(days=day)
        events = [{**event, "at": at} for event in opened(600, f"{day}-").to_pylist()]
        events[0]["at"] = at.replace(year=2099)
        bucket = Bucket(rules, stored, blobs)
        bucket.step([pa.Table.from_pylist(events, schema=SCHEMA)], start + day * day_us)
        stored = bucket.store()
        sizes.append(len(stored) + blobs.size())
    assert sizes[-1] < 2 * sizes[8]


def test_as_many_keys_as_may_be_awake_are_and_with_one_more_all_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waterclock.streaming.state.bucket.AWAKE", AWAKE)
    rules = COLUMNS.order(wait="1 hour")
    blobs, stored = Disk(), None
    for table, expected in ((opened(AWAKE), 0), (opened(1, "x"), 2), (opened(1, "y"), 2)):
        bucket = Bucket(rules, stored, blobs)
        bucket.step([table], NO_WATERMARK)
        stored = bucket.store()
        assert len(blobs) == expected  # of a page: its hashes, its states


def test_chunks_of_a_slot_go_to_the_shelf_when_they_are_as_large_as_said_together() -> None:
    shelf = BlobStore(blobs := Disk())
    first, second = bytes(states.LARGE // 2), bytes(states.LARGE - states.LARGE // 2)
    assert states.stored_apart([7, first, second[1:]], shelf) == [7, first, second[1:]]
    assert blobs == {}
    assert states.stored_apart([7, first, second], shelf) == [7, 0]
    assert states.from_store(0, shelf) == [first, second]


def test_deliveries_spread_over_years_rest_on_the_shelf() -> None:
    """Not as thousands of states, each too small for it, in what every batch reads."""
    blobs, stored, start = Disk(), None, rows()[0]
    for batch in range(20):
        events = [
            {
                **start,
                "order": f"{batch}-{n}",
                "id": f"{batch}-{n}",
                "to": start["at"] + timedelta(days=4 * n, hours=batch),
            }
            for n in range(1000)
        ]
        bucket = Bucket(COLUMNS.deliver_at("to"), stored, blobs)
        bucket.step([pa.Table.from_pylist(events, schema=SCHEMA)], 0)
        stored = bucket.store()
    assert stored is not None
    assert (len(stored) < 500_000, blobs.size() > 0) == (True, True)


def test_of_chunks_that_were_read_nothing_stays_on_the_shelf() -> None:
    rules = COLUMNS.delay(after="created", by="9 days", emit="hm")
    blobs, stored, grown = Disk(), None, 0
    for table, watermark in (([opened(3_000)], NO_WATERMARK), ([opened(9, "x")], NO_WATERMARK), ([], CLOSED)):
        assert blobs or stored is None
        bucket = Bucket(rules, stored, blobs)
        bucket.step(table, watermark)
        stored = bucket.store()
        grown += bucket.grown
    assert (blobs, grown) == ({}, len(stored))


def test_a_large_state_is_stored_compressed_and_goes_on_as_if_it_were_not() -> None:
    blobs: dict[int, bytes] = {}
    bucket = Bucket(DELIVERED, None, blobs)
    bucket.step([many(5_000)], JUST_BEFORE_US)
    stored = bucket.store()
    plain = bytes([VERSION]) + msgpack.packb(read_state(stored.engine))
    assert 3 * len(stored.engine) < 2 * len(plain)
    ends = [
        Bucket(DELIVERED, each, dict(blobs)).step([], CLOSED) for each in (stored, StoredBucket(plain, stored.rows))
    ]
    assert ends[0].num_rows == 5_000
    assert ends[0].equals(ends[1])


def test_a_compressed_state_that_is_damaged_is_refused_with_the_remedy() -> None:
    bucket = Bucket(DELIVERED, None, {})
    bucket.step([many(5_000)], JUST_BEFORE_US)
    stored = bucket.store()
    length = int.from_bytes(stored.engine[1:5], "little")
    longer = stored.engine[:1] + (length + 5).to_bytes(4, "little") + stored.engine[5:]
    for damaged in (stored.engine[: len(stored.engine) // 2], longer):
        with pytest.raises(StateMismatch, match=r"the stored state is damaged .*restore the checkpoint and the sink"):
            Bucket(DELIVERED, StoredBucket(damaged, stored.rows), {})


DELIVERED = KINDS_OF_RULES["delivered"]


def many(count: int) -> pa.Table:
    """Rows of as many keys, to be delivered within seconds."""
    at = [EARLY + timedelta(milliseconds=number) for number in range(count)]
    made = [
        {"order": f"o{n}", "at": us, "what": "sent", "id": f"e{n}", "n": 1, "to": us + timedelta(seconds=10)}
        for n, us in enumerate(at)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


EARLY = datetime(2026, 1, 1, tzinfo=UTC)
JUST_BEFORE_US = 1_767_225_600_000_000 - 1
