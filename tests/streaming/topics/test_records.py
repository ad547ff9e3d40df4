"""Records into rows: the fast way and the slow one alike, heartbeats, tombstones, dead letters with their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waterclock import Rules
from waterclock.streaming.files.reading import Layout, read_file
from waterclock.streaming.layout import ROW_ID
from waterclock.streaming.topics import records as reading
from waterclock.streaming.topics.records import HEARTBEAT, UNREADABLE, ReadRecords, Records, TopicLayout, read_records

COLUMNS = {"k": "string", "t": "timestamp", "n": "long", "d": "double", "s": "string"}
RULES = Rules(key="k", time="t", sequence="n")
LAYOUT = TopicLayout(COLUMNS, {}, RULES)
ALL_PARTS = {part: f"r_{part}" for part in ("key", "headers", "timestamp", "topic", "partition", "offset")}
WITH_PARTS = TopicLayout(COLUMNS, ALL_PARTS, RULES)
T = '"2020-01-01T00:00:00Z"'
Y2020_US = 1_577_836_800_000_000
GOOD = f'{{"k": "a", "t": {T}, "n": 1}}'.encode()


def records(*values: bytes | None, **columns: list[Any]) -> Records:
    """Records of orders/3 from offset 100 on."""
    count = len(values)
    given: dict[str, list[Any]] = {
        "times_ms": [1_600_000_000_000 + n for n in range(count)],
        "keys": [None] * count,
        "headers": [None] * count,
        **columns,
    }
    return Records("orders", 3, list(range(100, 100 + count)), values=list(values), **given)


def slowly(given: Records, layout: TopicLayout) -> ReadRecords:
    with patch.object(reading, "_fast", lambda bodies, layout: None):
        return read_records(given, layout)


def rows(taken: ReadRecords) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = taken.rows.to_pylist()
    return found


def letters(taken: ReadRecords) -> list[tuple[str, int, str]]:
    return [(each["file"], each["line"], each["reason"]) for each in taken.dead.to_pylist()]


# the two ways --------------------------------------------------------------------------------------------

good_rows = st.builds(
    lambda k, n, d, s: f'{{"k": "{k}", "t": {T}, "n": {n}, "d": {d}, "s": {s}, "other": [1]}}'.encode(),
    st.sampled_from(["a", "b", "ä"]),
    st.integers(1, 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["null", '"x"', '"\\u00e4\\n"']),
)
odd = st.sampled_from(
    [
        b"",
        b"{}",
        b"null",
        b"[1]",
        b"rubbish",
        b'{"k": "a"}',
        f'{{"t": {T}}}'.encode(),
        f'{{"k": "a",\n "t": {T}, "n": 2}}'.encode(),
        f'{{"k": "a", "t": {T}, "n": 1}}\n{{"k": "b", "t": {T}, "n": 1}}'.encode(),
        f'{{"k": "a", "t": {T}, "n": 0}}'.encode(),
        f'{{"k": "a", "t": {T}, "n": "1"}}'.encode(),
        f'{{"k": null, "t": {T}, "n": 1}}'.encode(),
        b"\xff\xfe",
        GOOD + b"\n",
        b"\n" + GOOD,
        GOOD + b"\r\n",
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b'"a"', b'"\\ud800"'),
        GOOD.replace(b"{", b'{"k": "b", '),
    ]
)
headers = st.sampled_from([None, [], [("a", b"1"), ("a", None)], [(HEARTBEAT, b"2021-01-01")], [(HEARTBEAT, None)]])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.one_of(good_rows, odd, st.none()), st.sampled_from([None, b"k", b"\xff"]), headers)))
def test_the_fast_way_and_the_slow_one_cannot_be_told_apart(given: list[tuple[Any, Any, Any]]) -> None:
    values, keys, told = zip(*given, strict=True) if given else ((), (), ())
    some = records(*values, keys=list(keys), headers=list(told))
    for layout in (LAYOUT, WITH_PARTS):
        fast, slow = read_records(some, layout), slowly(some, layout)
        assert fast.rows.equals(slow.rows)
        assert fast.dead.equals(slow.dead)
        assert (fast.latest_us, fast.counters) == (slow.latest_us, slow.counters)


def test_a_value_that_names_a_column_twice_is_a_dead_letter_as_it_stands() -> None:
    # the last one won, without a word
    taken = read_records(records(GOOD, GOOD.replace(b"{", b'{"k": "b", ')), LAYOUT)
    assert letters(taken) == [("orders/3", 101, "the name 'k' is given twice")]
    assert taken.dead["text"].to_pylist() == [f'{{"k": "b", "k": "a", "t": {T}, "n": 1}}']
    assert [row["k"] for row in rows(taken)] == ["a"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(good_rows, odd, st.none()), max_size=8))
def test_every_record_is_counted_once_as_something(values: list[bytes | None]) -> None:
    taken = read_records(records(*values), LAYOUT)
    counted = {name: taken.counters[name] for name in ("tombstones", "heartbeats", "dead_letters")}
    assert taken.counters["records"] == len(values)
    assert taken.rows.num_rows + sum(counted.values()) == len(values)
    assert taken.dead.num_rows == counted["dead_letters"]


def test_plain_values_go_the_fast_way() -> None:
    with patch.object(reading, "_slow", side_effect=AssertionError):
        assert read_records(records(*[GOOD] * 50), WITH_PARTS).rows.num_rows == 50


def test_a_topic_gives_the_rows_and_ids_that_a_file_of_its_values_gives(tmp_path: Path) -> None:
    values = [GOOD, f'{{"k": "b", "t": {T}, "n": 7, "d": 0.5, "s": "x"}}'.encode()]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join([*values, b""]))
    (block,) = read_file(str(tmp_path / "in.jsonl"), Layout("jsonl", COLUMNS, RULES))
    assert read_records(records(*values), LAYOUT).rows.equals(block.rows)


# what is no row ------------------------------------------------------------------------------------------


def test_a_record_that_cannot_be_read_is_a_dead_letter_with_topic_partition_and_offset() -> None:
    taken = read_records(records(GOOD, b"rubbish", GOOD, b'{"k": "a"}'), LAYOUT)
    assert [(place, offset) for place, offset, _ in letters(taken)] == [("orders/3", 101), ("orders/3", 103)]
    assert "column 't' (the time) is missing" in letters(taken)[1][2]
    assert taken.dead.to_pylist()[0]["text"] == "rubbish"
    assert len(rows(taken)) == 2


def test_a_tombstone_is_counted_and_says_nothing() -> None:
    taken = read_records(records(None, GOOD), LAYOUT)
    assert (taken.counters["tombstones"], taken.counters["dead_letters"], len(rows(taken))) == (1, 0, 1)


def test_a_heartbeat_by_header_moves_time_whatever_its_value() -> None:
    beat = [(HEARTBEAT, b"2021-01-01T00:00:00Z")]
    for value in (None, b"", b"rubbish", GOOD):
        taken = read_records(records(value, headers=[beat]), LAYOUT)
        assert (taken.latest_us, rows(taken), letters(taken)) == (1_609_459_200_000_000, [], [])
        assert taken.counters["heartbeats"] == 1


def test_a_heartbeat_without_a_time_is_a_dead_letter() -> None:
    taken = read_records(records(GOOD, headers=[[(HEARTBEAT, b"soon")]]), LAYOUT)
    ((place, offset, reason),) = letters(taken)
    assert (place, offset) == ("orders/3", 100)
    assert "header 'waterclock-heartbeat': needs an ISO 8601 time" in reason


def test_a_value_with_a_time_and_nothing_else_is_a_heartbeat() -> None:
    for layout in (LAYOUT, WITH_PARTS):
        taken = read_records(records(f'{{"t": {T}}}'.encode()), layout)
        assert (taken.latest_us, rows(taken), letters(taken)) == (Y2020_US, [], [])


def test_the_time_of_a_partition_is_the_largest_of_its_events_and_heartbeats() -> None:
    later = GOOD.replace(b"2020", b"2022")
    taken = read_records(records(later, GOOD, None, headers=[None, None, [(HEARTBEAT, b"2021-01-01")]]), LAYOUT)
    assert taken.latest_us == 1_640_995_200_000_000
    assert read_records(records(b"rubbish", None), LAYOUT).latest_us is None


# columns of the record -----------------------------------------------------------------------------------


def test_parts_of_the_record_stand_in_the_columns_that_were_named() -> None:
    told = [("trace", b"7"), ("trace", None), ("b", b"\xff")]
    taken = read_records(records(GOOD, keys=[b"who"], headers=[told]), WITH_PARTS)
    (row,) = rows(taken)
    assert (row["r_key"], row["r_topic"], row["r_partition"], row["r_offset"]) == ("who", "orders", 3, 100)
    assert row["r_timestamp"].timestamp() == 1_600_000_000
    assert row["r_headers"] == '[["trace", "7"], ["trace", null], ["b", "\ufffd"]]'


def test_a_key_and_a_time_of_the_record_may_be_the_rules_own() -> None:
    layout = TopicLayout({"s": "string"}, {"key": "who", "timestamp": "when"}, Rules(key="who", time="when"))
    taken = read_records(records(b'{"s": "x"}', b'{"s": "y"}', b"{}", keys=[b"a", None, None]), layout)
    assert [(row["who"], row["s"]) for row in rows(taken)] == [("a", "x")]
    assert [reason for _, _, reason in letters(taken)] == ["column 'who' (the key) is missing"]
    assert taken.counters["heartbeats"] == 1
    assert taken.latest_us == 1_600_000_000_002_000


def test_a_key_that_is_no_text_is_a_dead_letter_where_it_is_wanted() -> None:
    some = records(GOOD, GOOD, keys=[b"\xff", b"ok"])
    assert letters(read_records(some, WITH_PARTS)) == [("orders/3", 100, "the record's key is not UTF-8")]
    assert letters(read_records(some, LAYOUT)) == []


def test_a_timestamp_outside_of_the_calendar_is_a_dead_letter_where_it_is_wanted() -> None:
    some = records(GOOD, GOOD, times_ms=[2**62, None])
    assert "years 1 to 9999" in letters(read_records(some, WITH_PARTS))[0][2]
    assert rows(read_records(some, WITH_PARTS))[0]["r_timestamp"] is None
    assert letters(read_records(some, LAYOUT)) == []


def test_a_record_that_was_sent_twice_has_one_id_wherever_it_lies() -> None:
    taken = read_records(records(GOOD, GOOD, times_ms=[5, 5]), WITH_PARTS)
    first, second = taken.rows.column(ROW_ID).to_pylist()
    assert first == second
    other = read_records(records(GOOD, keys=[b"other"], times_ms=[5]), WITH_PARTS)
    assert other.rows.column(ROW_ID).to_pylist() != [first]


def test_a_place_that_the_rules_name_as_the_id_serves_as_one() -> None:
    layout = TopicLayout(COLUMNS, {"offset": "o"}, Rules(key="k", time="t", id="o"))
    assert ROW_ID not in read_records(records(GOOD, GOOD), layout).rows.column_names


@pytest.mark.parametrize("layout", [LAYOUT, WITH_PARTS])
def test_no_records_are_no_rows_of_the_same_schema(layout: TopicLayout) -> None:
    none, some = read_records(records(), layout), read_records(records(GOOD), layout)
    assert none.rows.schema == some.rows.schema
    assert isinstance(none.rows, pa.Table)
    assert (none.rows.num_rows, none.dead.num_rows, none.latest_us) == (0, 0, None)


def test_a_value_of_two_objects_beside_an_empty_one_is_two_dead_letters_and_no_rows() -> None:
    # joined by lines, they would look like two good values
    taken = read_records(records(GOOD + b"\n" + GOOD, b""), LAYOUT)
    assert (rows(taken), [line for _, line, _ in letters(taken)]) == ([], [100, 101])


def test_of_two_heartbeats_in_one_record_the_last_counts() -> None:
    both = [(HEARTBEAT, b"2020-01-01T00:00:00Z"), (HEARTBEAT, b"2019-01-01T00:00:00Z")]
    assert read_records(records(None, headers=[both[::-1]]), LAYOUT).latest_us == Y2020_US
    assert read_records(records(None, headers=[both]), LAYOUT).latest_us == Y2020_US - 365 * 86_400_000_000


def test_headers_that_cannot_be_read_are_a_dead_letter_where_somebody_asks_for_them() -> None:
    given = records(GOOD, headers=[UNREADABLE])
    assert (len(rows(read_records(given, LAYOUT))), letters(read_records(given, LAYOUT))) == (1, [])
    taken = read_records(given, WITH_PARTS)
    why = "the record's headers cannot be read: a name in them is not UTF-8"
    assert (rows(taken), letters(taken)) == ([], [("orders/3", 100, why)])
