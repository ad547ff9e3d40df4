"""What rows of Arrow answer to the rules is what the same rows answer in process."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules import test_conditions as language
from waterclock import Rules
from waterclock.durations import datetime_us
from waterclock.rules.events import Answers
from waterclock.streaming.frames import TIMESTAMP
from waterclock.streaming.state.rows import events_of

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("time", TIMESTAMP),
        ("type", pa.string()),
        ("_row_id", pa.string()),
        ("i", pa.int64()),
        ("d", pa.decimal128(38, 4)),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("at", TIMESTAMP),
    ]
)
START = datetime(2026, 1, 1, tzinfo=UTC)
RULES = Rules(key="key", time="time", type="type")


def answers(rules: Rules, rows: list[dict[str, Any]]) -> list[Answers | None]:
    """Of rows in Arrow."""
    whole = [
        {"key": "k", "time": START, "type": "a", "_row_id": str(n), "at": None} | row for n, row in enumerate(rows)
    ]
    return [event.answers for _, event in events_of(rules, pa.Table.from_pylist(whole, SCHEMA), 0)]


def in_process(rules: Rules, row: dict[str, Any]) -> bool:
    """Whether the one delay of `rules` is set off by the row."""
    whole = {"key": "k", "time": START, "type": "a", "at": None} | row
    return any(result.kind == "emit" for result in rules.run([whole]))


@settings(max_examples=80, deadline=None)
@given(language.expressions, st.lists(language.rows, min_size=1, max_size=3))
def test_a_condition_at_random_says_the_same_of_rows_in_arrow_and_in_process(tree: Any, rows: Any) -> None:
    rules = RULES.delay(after="a", by=0, emit="x", where=language.written(tree))
    expected = [language.said(tree, row) is True for row in rows]
    assert [found and found.holds for found in answers(rules, rows)] == [(truth,) for truth in expected]
    assert [in_process(rules, row) for row in rows] == expected


@pytest.mark.parametrize("kind", [TIMESTAMP, pa.timestamp("us"), pa.timestamp("us", "America/New_York")])
def test_times_of_any_zone_are_compared_as_moments(kind: pa.DataType) -> None:
    rules = RULES.delay(after="a", by=0, emit="x", where="at > '2026-01-01T01:00:00+01:00'").expect(
        "b", after="a", by="at", otherwise="y"
    )
    table = pa.table({"key": ["k"] * 3, "time": [START] * 3, "type": ["a"] * 3, "_row_id": ["1", "2", "3"]})
    us = [datetime_us(START), datetime_us(START + timedelta(microseconds=1)), None]
    table = table.append_column("at", pa.array(us, pa.int64()).cast(kind))
    found = [event.answers for _, event in events_of(rules, table, 0)]
    assert found == [Answers((at,), (at == us[1],)) for at in us]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), 5),
        (pa.float32(), 5.0),
        (pa.decimal128(5, 2), Decimal(5)),
        (pa.uint64(), 5),
        (pa.large_string(), "5"),
    ],
)
def test_other_widths_of_numbers_and_texts_are_as_good(kind: pa.DataType, value: Any) -> None:
    rules = RULES.delay(after="a", by=0, emit="x", where="n == '5'" if isinstance(value, str) else "n == 5")
    columns = {"key": ["k"], "time": [START], "type": ["a"], "_row_id": ["1"], "n": pa.array([value], kind)}
    assert [event.answers for _, event in events_of(rules, pa.table(columns), 0)] == [Answers((), (True,))]
