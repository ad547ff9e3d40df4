"""Parquet files into rows: only columns of the declared kind, row by row, and the same rows as from JSON lines."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.streaming.files.ways import GOOD, PARQUET, Y2020, Read, one_dead_letter, quick, read, together
from waterclock import Rules
from waterclock.streaming.files import reading
from waterclock.streaming.frames import TIMESTAMP

MOMENT = pa.array([datetime(2020, 1, 1, tzinfo=UTC)], TIMESTAMP)


def parquet(folder: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), folder / "file.parquet")
    return (folder / "file.parquet").as_uri()


@pytest.mark.parametrize(
    "columns",
    [
        {"k": ["a"], "t": MOMENT, "n": [1]},
        {"n": pa.array([1], pa.int8()), "t": MOMENT, "z": [[1]], "k": ["a"]},
        {"k": pa.array(["a"]).dictionary_encode(), "t": MOMENT, "n": [1]},
        {"k": pa.array(["a"], pa.large_string()), "t": MOMENT.cast(pa.timestamp("ms")), "n": [1]},
        {"k": ["a"], "t": MOMENT.cast(pa.timestamp("us", "Europe/Berlin")), "n": [1]},
        {"k": ["a"], "t": MOMENT.cast(pa.timestamp("us")), "n": [1]},
    ],
)
def test_parquet_columns_of_the_declared_kind_are_read_to_the_same_row(folder: Path, columns: Any) -> None:
    assert together(reading.read_file(parquet(folder, **columns), PARQUET)) == Read([(b"a", Y2020, 1)], [])


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("n", ["12"]),
        ("n", [True]),
        ("n", [1.0]),
        ("k", [5]),
        ("k", [True]),
        ("t", [5]),
        ("t", ["2020-01-01T00:00:00Z"]),
    ],
)
def test_a_parquet_column_of_another_kind_is_not_guessed_at(folder: Path, column: str, values: Any) -> None:
    # "Rule 2: nothing is guessed: a text where a number is declared is a dead letter, with file, line and reason."
    path = parquet(folder, **{"k": ["a"], "t": MOMENT, "n": [1], column: values})
    got = together(reading.read_file(path, PARQUET))
    assert (got.rows, len(got.dead)) == ([], 1)


@pytest.mark.parametrize(
    "columns",
    [
        {"k": ["a"], "t": MOMENT, "n": ["x"]},
        {"k": [{"x": 1}], "t": MOMENT, "n": [1]},
        {"k": [["a"]], "t": MOMENT, "n": [1]},
        {"k": pa.array([b"\xff"]), "t": MOMENT, "n": [1]},
        {"k": ["a"], "t": pa.array([1], pa.timestamp("ns")), "n": [1]},
        {"k": ["a"], "t": MOMENT, "n": pa.array([2**63], pa.uint64())},
    ],
)
def test_a_parquet_column_that_does_not_fit_is_a_dead_letter(folder: Path, columns: Any) -> None:
    got = together(reading.read_file(parquet(folder, **columns), PARQUET))
    assert (got.rows, len(got.dead)) == ([], 1)


def test_parquet_rows_are_judged_one_by_one_and_numbered_from_1(folder: Path) -> None:
    times = pa.array([datetime(2020, 1, 1, tzinfo=UTC) if t else None for t in (1, 1, 0, 1, 1)], TIMESTAMP)
    path = parquet(folder, k=["a", None, "a", None, "a"], t=times, n=[1, None, 2, 3, 0])
    got = together(reading.read_file(path, PARQUET))
    assert got.rows == [(b"a", Y2020, 1), (None, Y2020, None)]
    assert [line for line, _ in got.dead] == [3, 4, 5]


def test_parquet_rows_past_the_first_batch_keep_their_number(folder: Path) -> None:
    count = 65_536 + 2
    path = parquet(folder, k=["a"] * count, t=pa.repeat(MOMENT[0], count), n=[1] * (count - 1) + [0])
    got = together(reading.read_file(path, PARQUET))
    assert (len(got.rows), [line for line, _ in got.dead]) == (count - 1, [count])


@pytest.mark.parametrize(
    ("columns", "missing"),
    [({"z": ["a", "b"]}, "k"), ({"k": ["a", "b"], "n": [1, 1]}, "t"), ({"k": ["a"], "t": MOMENT}, "n")],
)
def test_a_parquet_file_without_a_column_that_the_rules_name_is_one_dead_letter(
    folder: Path, columns: Any, missing: str
) -> None:
    reason = one_dead_letter(parquet(folder, **columns), PARQUET)
    assert reason.startswith(f"the file has no column '{missing}', which the rules name")


def test_a_parquet_column_that_only_the_layout_names_is_null_where_the_file_has_none(folder: Path) -> None:
    layout = reading.Layout("parquet", {**PARQUET.columns, "a.b": "string", "new": "double"}, PARQUET.rules)
    path = parquet(folder, **{"k": ["a"], "t": MOMENT, "n": [1], "a.b": ["x"]})
    assert together(reading.read_file(path, layout)) == Read([(b"a", Y2020, 1, b"x", None)], [])


def test_a_parquet_value_that_does_not_fit_costs_its_row_and_no_other(folder: Path) -> None:
    times = pa.array([Y2020 * 1000 + (n in (3, 70_000)) for n in range(80_000)], pa.timestamp("ns"))
    numbers = pa.array([2**63 if n == 5 else 1 for n in range(80_000)], pa.uint64())
    got = together(reading.read_file(parquet(folder, k=["a"] * 80_000, t=times, n=numbers), PARQUET))
    assert (len(got.rows), [line for line, _ in got.dead]) == (79_997, [4, 6, 70_001])


YEARS = (datetime(1, 1, 1), datetime(1600, 1, 1), datetime(2020, 1, 1), datetime(2263, 1, 1), datetime(9999, 12, 31))


def test_a_parquet_time_as_spark_writes_it_is_itself_in_every_year_and_no_finer_one_is_cut(folder: Path) -> None:
    # a heartbeat of the year 9999, which closes, was one of the year 1816: Arrow's nanoseconds begin anew behind 2262
    times = pa.array(YEARS, pa.timestamp("us"))
    path, count = folder / "file.parquet", len(YEARS)
    pq.write_table(
        pa.table({"k": ["a"] * count, "t": times, "n": [1] * count}), path, use_deprecated_int96_timestamps=True
    )
    assert [row[1] for row in together(reading.read_file(path.as_uri(), PARQUET)).rows] == times.cast(
        pa.int64()
    ).to_pylist()
    finer = pa.array([Y2020 * 1000, Y2020 * 1000 + 1], pa.timestamp("ns"))
    pq.write_table(pa.table({"k": ["a", "b"], "t": finer, "n": [1, 1]}), path, use_deprecated_int96_timestamps=True)
    got = together(reading.read_file(path.as_uri(), PARQUET))
    assert (got.rows, [line for line, _ in got.dead]) == ([(b"a", Y2020, 1)], [2])


@pytest.mark.parametrize("days", [18_262, 2**31 - 1, -(2**31)])
def test_a_parquet_date_is_its_midnight_or_a_dead_letter(folder: Path, days: int) -> None:
    path = parquet(folder, k=["a"], t=pa.array([days], pa.date32()), n=[1])
    got = together(reading.read_file(path, PARQUET))
    assert (got.rows, len(got.dead)) == (([(b"a", Y2020, 1)], 0) if days == 18_262 else ([], 1))


@pytest.mark.parametrize("key", ["a", None])
def test_a_parquet_time_outside_of_the_calendar_ends_nothing(folder: Path, key: str | None) -> None:
    layout = reading.Layout("parquet", PARQUET.columns, Rules(key="k", time="t"))
    path = parquet(folder, k=pa.array([key], pa.string()), t=pa.array([2**62], TIMESTAMP), n=[1])
    got = together(reading.read_file(path, layout))
    assert len(got.rows) + len(got.dead) == 1


def test_a_parquet_file_with_a_column_twice_is_a_dead_letter(folder: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), MOMENT, pa.array([1])], ["k", "k", "t", "n"])
    pq.write_table(table, folder / "file.parquet")
    got = together(reading.read_file((folder / "file.parquet").as_uri(), PARQUET))
    assert (got.rows, len(got.dead)) == ([], 1)


@pytest.mark.parametrize("content", [b"", b"hello", GOOD, b"PAR1" * 10], ids=["empty", "text", "json", "magic"])
def test_what_is_no_parquet_file_is_one_dead_letter(folder: Path, content: bytes) -> None:
    file = folder / "not.parquet"
    file.write_bytes(content)
    assert one_dead_letter(file.as_uri(), PARQUET).startswith("cannot be read: ")


def test_a_cut_parquet_file_is_one_dead_letter(folder: Path) -> None:
    path = parquet(folder, k=["a"], t=MOMENT, n=[1])
    file = folder / "file.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    assert one_dead_letter(path, PARQUET).startswith("cannot be read: ")


def test_a_parquet_text_that_is_not_utf_8_is_a_dead_letter(folder: Path) -> None:
    layout = reading.Layout("parquet", PARQUET.columns, Rules(key="k", time="t"))
    broken = pa.StringArray.from_buffers(1, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff"))
    got = together(reading.read_file(parquet(folder, k=broken, t=MOMENT, n=[1]), layout))
    assert (got.rows, len(got.dead)) == ([], 1)


@quick
@given(
    st.lists(st.tuples(st.none() | st.text(max_size=3), st.none() | st.datetimes(), st.none() | st.integers(-1, 3))),
    st.booleans(),
)
def test_json_and_parquet_of_the_same_rows_are_read_to_the_same_rows(
    folder: Path, rows: list[Any], row_id: bool
) -> None:
    rules = Rules(key="k", time="t") if row_id else Rules(key="k", time="t", sequence="n", id="k")
    columns = dict(PARQUET.columns)
    table = pa.Table.from_pylist(
        [{"k": k, "t": t, "n": n} for k, t, n in rows],
        pa.schema([("k", pa.string()), ("t", pa.timestamp("us")), ("n", pa.int64())]),
    )
    pq.write_table(table, folder / "file.parquet")
    data = "\n".join(json.dumps({"k": k, "t": t and t.isoformat(), "n": n}) for k, t, n in rows).encode()
    as_parquet = together(
        reading.read_file((folder / "file.parquet").as_uri(), reading.Layout("parquet", columns, rules))
    )
    as_json = read(folder, data, reading.Layout("jsonl", columns, rules))
    assert as_parquet.rows == as_json.rows
    assert [line for line, _ in as_parquet.dead] == [line for line, _ in as_json.dead]
