"""Conditions on columns of every type: the plain engine and the compiled one are told the same, before and after a rest."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.streaming.state.compiled.buckets import Life
from waterclock import Rules
from waterclock.rules.engine import CLOSED
from waterclock.streaming.frames import TIMESTAMP
from waterclock.streaming.layout import ROW_ID
from waterclock.streaming.state.rows import conditions

TIME = datetime(2026, 1, 1, tzinfo=UTC)
OF_EACH_TYPE: list[tuple[pa.DataType, Any]] = [
    (pa.string(), ""),
    (pa.int8(), 0),
    (pa.float32(), 0.0),
    (pa.decimal128(20, 2), Decimal(0)),
    (pa.bool_(), False),
    (TIMESTAMP, TIME),
    (pa.date32(), date(1970, 1, 1)),
    (pa.binary(), b""),
    (pa.list_(pa.int64()), []),
    (pa.struct([("a", pa.int64())]), {"a": None}),
    (pa.map_(pa.string(), pa.int64()), []),
    (pa.duration("us"), 0),
    (pa.time64("us"), 0),
]
RULES = Rules(key="key", time="time", type="type", id="id", events=False)


def table(kind: pa.DataType, *values: Any) -> pa.Table:
    count = len(values)
    columns = {
        "key": pa.array(["a"] * count),
        "time": pa.array([TIME] * count, TIMESTAMP),
        "type": pa.array(["made"] * count),
        "id": pa.array(map(str, range(count))),
        "x": pa.array(values, kind),
        "y": pa.array(values, kind),
        ROW_ID: pa.nulls(count, pa.string()),
    }
    return pa.table(columns)


def told(rows: pa.Table, *asked: str) -> list[tuple[bool, ...]]:
    """What each of the conditions says of each row, after both engines were found to agree."""
    rules = RULES
    for number, condition in enumerate(asked):
        rules = rules.delay("made", "1 hour", str(number), where=condition)
    plain, compiled = Life(rules), Life(rules)
    for watermark, tables in ((0, [rows]), (0, [rows.slice(0, 1)]), (CLOSED, [])):
        assert plain.step(True, tables, watermark) == compiled.step(False, tables, watermark)
    return list(conditions(rules, rows))


@pytest.mark.parametrize(("kind", "value"), OF_EACH_TYPE, ids=[str(kind) for kind, _ in OF_EACH_TYPE])
def test_a_column_of_any_type_is_none_or_it_is_not(kind: pa.DataType, value: Any) -> None:
    asked = ("x is None", "x is not None", "not x is None and type == 'made'")
    assert told(table(kind, value, None), *asked) == [(False, True, True), (True, False, False)]
    assert told(table(pa.null(), None), *asked) == [(True, False, False)]


def test_dates_compare_with_dates_beyond_pythons_calendar_too() -> None:
    days = pa.array([-800_000, 0, 20_484, 5_000_000], pa.int32()).cast(pa.date32())
    rows = table(pa.date32(), None, None, None, None)
    rows = rows.set_column(rows.column_names.index("x"), "x", days)
    asked = ("x >= '2026-01-31'", "x == '1970-01-01'", "x in ('0001-01-01', '2026-01-31')", "x < y or x == x")
    assert told(rows, *asked) == [
        (False, False, False, True),
        (False, True, False, True),
        (True, False, True, True),
        (True, False, False, True),
    ]


def test_bytes_compare_with_bytes_byte_by_byte() -> None:
    rows = table(pa.binary(), b"\x01", b"", None)
    rows = rows.set_column(rows.column_names.index("y"), "y", pa.array([b"\x00\xff", b"", b"a"]))
    assert told(rows, "x > y", "x == y", "x != y") == [(True, False, True), (False, True, False), (False, False, False)]
