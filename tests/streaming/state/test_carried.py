"""What results carry of an event comes back as it was, in its column, whatever its type and however long it rests."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from tests.streaming.state.blobs import Disk
from tests.streaming.state.test_bucket import ENGINES
from waterclock import Rules
from waterclock.rules.engine import CLOSED, NO_WATERMARK
from waterclock.streaming.frames import TIMESTAMP
from waterclock.streaming.state.bucket import Bucket

AT = datetime(2026, 1, 1, tzinfo=UTC)
VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "text": (pa.string(), "a\0\U0001f600"),
    "byte": (pa.int8(), -128),
    "long": (pa.int64(), -(2**63)),
    "float": (pa.float32(), 0.10000000149011612),
    "double": (pa.float64(), float("inf")),
    "truth": (pa.bool_(), False),
    "bytes": (pa.binary(), b"\xff\0"),
    "day": (pa.date32(), date(1, 1, 1)),
    "moment": (TIMESTAMP, datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    "naive": (pa.timestamp("us"), datetime(1, 1, 1)),
    "zoned": (pa.timestamp("us", "America/New_York"), datetime(2026, 1, 1, tzinfo=UTC)),
    "price": (pa.decimal128(38, 10), Decimal("-1234567890123456789012345678.0123456789")),
    "null": (pa.decimal128(5, 2), None),
}
SCHEMA = pa.schema(
    [("key", pa.string()), ("at", TIMESTAMP), ("what", pa.string()), ("id", pa.string())]
    + [(name, kind) for name, (kind, _) in VALUES.items()]
)
RULES = (
    Rules(key="key", time="at", type="what", id="id")
    .delay("a", "1 day", "later", carry=VALUES)
    .expect("b", after="a", within="2 days", otherwise="missing", carry=VALUES)
    .quiet("3 days", "calm", carry=["price", "text"])
)


@pytest.fixture(params=ENGINES, ids=[engine.__name__ for engine in ENGINES], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bucket, "engine_for", staticmethod(request.param))


@pytest.fixture(params=[(1024, 8192), (0, 0)], ids=["no pages", "pages"], autouse=True)
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    awake, large = request.param
    monkeypatch.setattr("waterclock.streaming.state.bucket.AWAKE", awake)
    monkeypatch.setattr("waterclock.streaming.state.states.LARGE", large)


def opened(key: str = "k", **more: Any) -> dict[str, Any]:
    values = {name: value for name, (_, value) in VALUES.items()}
    return {"key": key, "at": AT, "what": "a", "id": f"{key}1", **values, **more}


def after_rests(events: list[dict[str, Any]], rules: Rules = RULES) -> list[dict[str, Any]]:
    """The results that are no events, the state stored and loaded after every step; the last steps bring no events."""
    blobs, stored, found = Disk(), None, []
    steps = [([pa.Table.from_pylist([event], SCHEMA)], NO_WATERMARK) for event in events]
    for tables, watermark in [*steps, ([], NO_WATERMARK), ([], NO_WATERMARK), ([], CLOSED)]:
        bucket = Bucket(rules, stored, blobs)
        found += bucket.step(tables, watermark).to_pylist()
        stored = bucket.store()
        bucket.close()
    return [result for result in found if result["kind"] != "event"]


def test_every_type_comes_back_as_it_was_and_the_other_columns_are_null() -> None:
    later, missing, calm = after_rests([opened()])
    nothing = dict.fromkeys(SCHEMA.names)
    everything = nothing | {name: value for name, (_, value) in VALUES.items()}
    assert [(r["kind"], r["event"]) for r in (later, missing, calm)] == [
        ("emit", everything),
        ("expired", everything),
        ("quiet", nothing | {"price": VALUES["price"][1], "text": VALUES["text"][1]}),
    ]


def test_a_batch_in_which_there_is_no_row_but_what_is_carried_has_all_columns() -> None:
    rules = Rules(key="key", time="at", type="what", id="id").delay("a", "1 day", "later", carry=["price"])
    (later,) = after_rests([opened()], rules)
    assert later["event"] == dict.fromkeys(SCHEMA.names) | {"price": VALUES["price"][1]}


def test_what_is_carried_is_what_the_rules_carry_in_process() -> None:
    events = [opened(), opened("j"), opened("k", id="k2", what="b", text="other", at=AT.replace(day=2))]
    told = [(r["kind"], r["key"], r["source_id"], r["event"]) for r in after_rests(events)]
    found = [r for r in RULES.run(events, "10 days") if r.kind != "event"]
    expected = [(r.kind, r.key, r.source_id, dict.fromkeys(SCHEMA.names) | dict(r.event or {})) for r in found]
    assert sorted(told, key=itemgetter(0, 1, 2)) == sorted(expected, key=itemgetter(0, 1, 2))


def test_an_event_and_what_is_carried_stand_in_one_table_of_results() -> None:
    bucket = Bucket(RULES, None)
    bucket.step([pa.Table.from_pylist([opened()], SCHEMA)], NO_WATERMARK)
    results = bucket.step([], CLOSED).to_pylist()
    assert [(r["kind"], r["event"]["id"], r["event"]["text"] == VALUES["text"][1]) for r in results] == [
        ("event", "k1", True),
        ("emit", None, True),
        ("expired", None, True),
        ("quiet", None, True),
    ]
