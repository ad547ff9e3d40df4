"""CSV: what a value is, by the law of the slow way, and that the fast one and blocks of any size say the same."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streaming.files.values import DEAD, ONLY_SPARK, TIME, US, VALUES
from waterclock import Rules
from waterclock.errors import UsageError
from waterclock.streaming.files import csv
from waterclock.streaming.files.csv import time_of
from waterclock.streaming.layout import Csv, Layout

RULES = Rules(key="k", time="t")
KINDS = {"k": "string", "t": "timestamp", "l": "long", "i": "integer", "d": "double", "b": "boolean", "s": "string"}
WHOLE = Layout("csv", KINDS, RULES)
GOOD = f"a,{TIME},1,2,0.5,true,x\nb,{TIME},-1,,1e3,false,\n\nc,{TIME},,,,,\n".encode()


def of(kind: str, **written: Any) -> Layout:
    return Layout("csv", {"k": "string", "v": kind, "t": "timestamp"}, RULES, Csv(**written))


def together(blocks: Any) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Rows, with times in microseconds, and dead letters: line, text, reason."""
    rows, dead = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for block in blocks:
        plain = [each.cast("int64") if str(each.type).startswith("timestamp") else each for each in block.rows.columns]
        rows += zip(*(map(repr, each.to_pylist()) for each in plain), strict=True)
        dead += [(row["line"], row["text"], row["reason"]) for row in block.dead.to_pylist()]
    return rows, dead


def slowly(data: bytes, layout: Layout) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    return together([csv.slow(data, layout, "file", 1)])


def read(layout: Layout, *blocks: bytes) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    return together(csv.blocks_of(blocks, "file", layout))


CASES = [(kind, text, value) for kind, values in VALUES.items() for text, value in values.items()]
CASES += [(kind, text, DEAD) for kind, texts in ONLY_SPARK.items() for text in texts]


@pytest.mark.parametrize(("kind", "text", "value"), CASES)
def test_a_value_is_what_it_is_to_spark_or_a_dead_letter(kind: str, text: str, value: Any) -> None:
    line = f"a,{text},{TIME}".encode()
    rows, dead = read(of(kind), line + b"\n")
    assert (rows, dead) == slowly(line, of(kind))
    if value is DEAD:
        assert not rows
        assert [each[:2] for each in dead] == [(1, line.decode())]
    else:
        assert [row[:3] for row in rows] == [("'a'", repr(value), repr(US))]


def test_good_lines_go_the_fast_way_and_say_the_same() -> None:
    assert csv.fast(GOOD, WHOLE) is not None
    assert read(WHOLE, GOOD) == slowly(GOOD, WHOLE)
    assert len(read(WHOLE, GOOD)[0]) == 3


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("dd.MM.yyyy HH:mm", "01.01.2026 00:00"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2026-01-01T01:00:00.000+01:00"),
        ("MM/dd/yyyy", "01/01/2026"),
        ("yyyyMMddHHmmss", "20260101000000"),
        ("yyyy-MM-dd HH:mm:ss.SSSSSSSSS", "2026-01-01 00:00:00.000000000"),
    ],
)
def test_a_pattern_reads_its_times_and_no_others(pattern: str, text: str) -> None:
    layout = of("string", pattern=pattern)
    for data in (f"a,x,{text}\n".encode(), f'a,"x",{text}\n'.encode()):
        assert read(layout, data)[0][0][2] == repr(US)
    for wrong in (TIME, f"{text} ", text.replace("2026", "26"), text.replace("01", "13")):
        rows, dead = read(layout, f"a,x,{wrong}\n".encode())
        assert not rows
        assert "column 't': needs a time" in dead[0][2]


@pytest.mark.parametrize(
    "pattern", ["HH:mm", "d.M.yyyy", "yyyy-MM-dd EEE", "yyyy-MM-dd HH:mm a", "yyyy-MM-dd'T", "dd.MM.yyyy dd"]
)
def test_a_pattern_that_only_spark_knows_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(pattern)) + r" needs Spark"):
        time_of(Csv(pattern=pattern))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a,1", "needs 3 fields, one for each column, got 2"),
        (f"a,1,{TIME},x".encode(), "needs 3 fields, one for each column, got 4"),
        (b"a,1,", "column 't' (the time) is missing"),
        (f",1,{TIME}".encode(), "column 'k' (the key) is missing"),
        (f"a\r,1,{TIME}".encode(), "a carriage return stands inside of the line"),
        (f"a\xff,1,{TIME}".encode("latin-1"), "not UTF-8: byte 0xff at place 2 of the line"),
        (f'"a,1,{TIME}'.encode(), "field 1 begins with a quote, and does not end with one"),
        (f"a,x,{TIME}".encode(), "column 'v': needs an integer of 64 bits, got 'x'"),
    ],
)
def test_a_line_that_cannot_be_read_is_a_dead_letter_with_its_place(line: bytes, reason: str) -> None:
    good = f"a,1,{TIME}\n".encode()
    rows, dead = read(of("long"), good * 2, good + line + b"\r\n" + good)
    assert len(rows) == 4
    assert dead == [(4, line.decode(errors="replace"), reason)]


def test_a_row_of_a_time_alone_is_a_heartbeat() -> None:
    rows, dead = read(of("long"), f",,{TIME}\n".encode())
    assert rows[0][:3] == ("None", "None", repr(US))
    assert dead == []


@pytest.mark.parametrize("first", [b"k,v,t\n", b"K,V,T\r\n", b'\n \n"k","v","t"\n', b"\xef\xbb\xbfk,v,t\n"])
def test_a_first_line_that_names_the_columns_is_none_of_the_rows(first: bytes) -> None:
    rows, dead = read(of("long", has_header=True), first, f"a,x,{TIME}\na,1,{TIME}\n".encode())
    assert len(rows) == 1
    assert [line for line, *_ in dead] == [first.count(b"\n") + 1]


@pytest.mark.parametrize("first", [b"v,k,t\n", b"k,v\n", b"k,v,t,w\n", b" k,v,t\n", b'"k,v,t\n', b"\xff,v,t\n"])
def test_a_first_line_that_names_others_makes_a_dead_letter_of_the_file(first: bytes) -> None:
    data = first + f"a,1,{TIME}\n".encode()
    rows, ((line, text, reason),) = read(of("long", has_header=True), data)
    assert (rows, line, text) == ([], None, None)
    assert reason.endswith("and not the columns that are read: 'k,v,t'")
    if b'"' not in first:
        assert len(read(of("long", has_header=True, by_place=True), data)[0]) == 1


@pytest.mark.parametrize("separator", [";", "|", "\t", " "])
def test_another_separator(separator: str) -> None:
    data = separator.join(["a", "1", TIME]) + "\n" + separator.join(['"a,"', '"1"', TIME]) + "\n \n"
    rows, dead = read(of("long", separator=separator), data.encode())
    assert [row[0] for row in rows] == ["'a'", "'a,'"]
    assert dead == []


def test_what_marks_the_beginning_of_a_file_is_a_letter_within_it_wherever_a_block_ends() -> None:
    # of two files put into one: a key had it or not, as the block began with it, or had a line that needed a closer look
    first, second = f"a,1,{TIME}\n".encode(), f"\ufeffb,1,{TIME}\n".encode()
    whole = read(of("long"), first + second)
    assert [row[0] for row in whole[0]] == ["'a'", "'\\ufeffb'"]
    assert whole == read(of("long"), first, second) == slowly(first + second, of("long"))


def test_an_empty_file_has_no_rows() -> None:
    for data in ([], [b""], [b"\n \n"]):
        for layout in (of("long"), of("long", has_header=True)):
            assert read(layout, *data) == ([], [])


FIELDS = st.sampled_from(
    ["a", "1", TIME, "", '"', '"a"', "\\", " ", "2026", "1.5", "-0", "true", "\r", "x\0", ",", "é", "1e400", "+1"]
)
LINES = st.lists(FIELDS, min_size=0, max_size=8).map(",".join)


@settings(max_examples=300)
@given(st.lists(st.one_of(LINES, st.just(f"a,{TIME},1,2,0.5,true,x")), max_size=6), st.sampled_from(["\n", "\r\n"]))
def test_the_fast_way_takes_nothing_that_the_slow_one_reads_otherwise(lines: list[str], end: str) -> None:
    data = (end.join(lines) + end).encode()
    assert read(WHOLE, data) == slowly(data, WHOLE)
    assert read(WHOLE, *(f"{line}{end}".encode() for line in lines)) == slowly(data, WHOLE)
