"""Files of JSON lines into rows: "the slow way is the law; the fast way may only accept what the slow one accepts, with
the same values", whatever is in the file, and wherever a block of it ends.
"""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streaming.files.ways import BEAT, COLUMNS, GOOD, LAYOUT, NO_ID, ROW, T, quick, read, read_alike
from waterclock.streaming.files import reading
from waterclock.streaming.files.jsonl import moments_of
from waterclock.streaming.frames import TIMESTAMP


@pytest.mark.parametrize(
    "data",
    [
        GOOD[:-1] + GOOD,
        GOOD[:-1] + b" " + GOOD,
        GOOD.replace(b":", b":\n"),
        GOOD.replace(b",", b"\n,"),
        GOOD.replace(b":", b":\r"),
        GOOD[:-1] + b"\r" + GOOD,
        GOOD[:-1] + b"\r" + GOOD + b"x\n",
        GOOD.replace(b'"a"', b'"\xff"'),
        GOOD.replace(b'"a"', b'"\xc0\x80"'),
        GOOD.replace(b'"a"', b'"\xed\xa0\x80"'),
        GOOD.replace(b'"a"', b'"\\ud800"'),
        GOOD.replace(b'"a"', b'"\\ud83d\\ude00"'),
        GOOD.replace(b'"a"', b'"\\u0000"'),
        GOOD.replace(b'"a"', b'"\x00"'),
        GOOD.replace(b'"a"', b'"a\\qb"'),
        GOOD.replace(b"{", b'{"z":"\xff",'),
        GOOD.replace(b"{", b'{"\xff":1,'),
        GOOD.replace(b"{", b'{"z":"\\ud800",'),
        GOOD.replace(b"{", b'{"z":NaN,"d":NaN,'),
        GOOD.replace(b"{", b'{"d":-Infinity,'),
        GOOD.replace(b"{", b'{"d":1e400,'),
        GOOD.replace(b"{", b'{"z":1e400,'),
        GOOD.replace(b"00Z", b"00.123456000Z"),
        GOOD.replace(b"00Z", b"00.1234567Z"),
        GOOD.replace(b"{", b'{"d":1e-400,'),
        GOOD.replace(b"{", b'{"d":-0,'),
        GOOD.replace(b"{", b'{"d":9007199254740993,'),
        GOOD.replace(b"{", b'{"d":1' + b"0" * 400 + b","),
        GOOD.replace(b"{", b'{"d":1' + b"0" * 5000 + b","),
        GOOD.replace(b"{", b'{"z":1' + b"0" * 5000 + b","),
        GOOD.replace(b"{", b'{"k":"first",'),
        GOOD.replace(b"}", b',"k":null}'),
        GOOD.replace(b"{", b'{"z":{"k":1,"k":[2,{}]},'),
        GOOD.replace(b'"k"', b'"\\u006b"'),
        GOOD.replace(b"}", b",}"),
        GOOD.replace(b"{", b"{'z':1,"),
        *(line + b"\n" + GOOD for line in (b"1", b"true", b'"x"', b"[]", b"[null]", b"-", b"nul", b"\x00", b"}")),
        GOOD[:-1] + b'{"z":\n{},' + GOOD[1:],  # as many objects as lines, and no line is one
        GOOD[:-1] + b'{"z":{}\n,' + GOOD[1:],
        GOOD.replace(b"{", b'{"z":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b","),
        GOOD[:-1] + b"\x00\n" + GOOD,
        b"\x00" + GOOD,
        GOOD + b"\xef\xbb\xbf" + GOOD,
        GOOD + b"\x0c\n" + GOOD,
        GOOD.decode().encode("utf-16"),
        GOOD + b"{}\n" + BEAT,
        GOOD + b'{"k":null,"t":' + T.encode() + b',"n":null}\n',
    ],
)
@pytest.mark.parametrize("layout", [LAYOUT, NO_ID], ids=["id", "row id"])
def test_the_fast_way_reads_strange_lines_as_the_slow_one_does(
    folder: Path, data: bytes, layout: reading.Layout
) -> None:
    read_alike(folder, data, layout)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (b'"i":"\\ud800"', "column 'i': needs a text, got half of a surrogate pair in '\\ud800'"),
        (b'"i":"\\udc00"', "column 'i': needs a text, got half of a surrogate pair in '\\udc00'"),
        (b'"i":"\xed\xa0\x80"', "not UTF-8: byte 0xed at place "),
        (b'"d":1' + b"0" * 400, "column 'd': needs a number that a double can hold, got 1000"),
        (b'"d":1' + b"0" * 5000, "column 'd': needs a number that a double can hold, got 1000"),
        (b'"d":1e400', "column 'd': needs a number that a double can hold, got 1e400"),
        (b'"d":-1.5E+999', "column 'd': needs a number that a double can hold, got -1.5E+999"),
        (b'"n":1e400', "column 'n': needs an integer of 64 bits, got 1e400"),
        (
            b'"t":"2020-01-01T00:00:00.123456789Z"',
            "column 't': needs a time no finer than a microsecond, got '2020-01-01T00:00:00.123456789Z'",
        ),
        (b'"t":"2020-01-01T00:00:00,0000001"', "column 't': needs a time no finer than a microsecond"),
        (b'"at":"9999-12-31T23:59:59-23:59"', "column 'at': needs a time in the years 1 to 9999 (in UTC), got '9999"),
        (b'"at":' + b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    ],
)
def test_what_no_column_can_hold_is_a_dead_letter_with_a_short_reason(folder: Path, column: bytes, reason: str) -> None:
    file = folder / "bad.jsonl"
    others = [f'"{name}":{value}'.encode() for name, value in {"k": '"a"', "t": T, "n": 1}.items()]
    row = b",".join([*(other for other in others if other[:4] != column[:4]), column])
    file.write_bytes(b"{" + row + b"}\n" + GOOD)
    (block,) = reading.read_file(file.as_uri(), LAYOUT)
    (told,) = block.dead.column("reason").to_pylist()
    assert (block.rows.num_rows, told.startswith(reason), len(told) <= 300) == (1, True, True)


@pytest.mark.parametrize(
    "data",
    [
        GOOD[:-1] + b"\x00}\n",
        GOOD + GOOD[:-1] + b"\x00}\n",
        GOOD.replace(b'"a"', b'"\\udc00"'),
        GOOD.replace(b"{", b'{"z":' + b"[" * 2000 + b"]" * 2000 + b",") + GOOD,
        GOOD.replace(b"{", b'{"d":-0.0,'),
        GOOD.replace(b"{", b'{"z":"[[[[{{{{",') * 70,
        GOOD[:-2] + b',"z":{}\n{"z":1}}\n',
        GOOD[:-1] + b"  \n" + GOOD,
        b'{"k":"a","t":' + T.encode() + b"}\n",
        b'{"k":"a","t":' + T.encode() + b',"i":null,"n":1}\n' + GOOD + BEAT,
    ],
)
@pytest.mark.parametrize("layout", [LAYOUT, NO_ID], ids=["id", "row id"])
def test_what_arrow_takes_more_lightly_is_read_by_the_law(folder: Path, data: bytes, layout: reading.Layout) -> None:
    read_alike(folder, data, layout)


def test_heartbeats_and_empty_lines_at_the_end_stay_on_the_fast_way(folder: Path) -> None:
    with patch.object(reading, "_slow", None):
        (folder / "file.jsonl").write_bytes(GOOD + BEAT + GOOD + b'{"k":null,"t":' + T.encode() + b"}\r\n\n")
        (block,) = reading.read_file((folder / "file.jsonl").as_uri(), LAYOUT)
    assert block.rows.column("k").to_pylist() == ["a", None, "a", None]


def test_rows_that_read_the_same_when_joined_have_ids_of_their_own(folder: Path) -> None:
    texts = [("a", "b\x1fc"), ("a\x1fb", "c"), ("", None), (None, "")]
    data = "\n".join(json.dumps({"k": "k", "t": "2020-01-01", "i": i, "z": z}) for i, z in texts)
    layout = reading.Layout("jsonl", {"i": "string", "z": "string", "k": "string", "t": "timestamp"}, NO_ID.rules)
    assert len({row[-1] for row in read_alike(folder, data.encode(), layout).rows}) == 4


@pytest.mark.parametrize("depth", [500, 100_000])
@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
def test_a_deeply_nested_line_is_read_or_dead_and_ends_nothing(folder: Path, depth: int, fast: bool) -> None:
    # One run after the other: how deep Python's reader goes depends on the stack that it starts on.
    deep = b'{"z":' + b"[" * depth + b"]" * depth + b"," + ROW.encode() + b"}\n"
    got = read(folder, deep + GOOD, LAYOUT, fast=fast)
    assert len(got.rows) + len(got.dead) == 2


@pytest.mark.parametrize("line", ["null", " null null"])
def test_a_line_that_is_no_object_is_a_dead_letter_even_as_the_first_of_its_block(tmp_path: Path, line: str) -> None:
    # In a process of its own: a first line `null` once ended the whole process with SIGSEGV.
    file = tmp_path / "file.jsonl"
    file.write_bytes(line.encode() + b"\n" + GOOD)
    script = (
        "import sys; from waterclock import Rules; from waterclock.streaming.files.reading import Layout, read_file;"
        "layout = Layout('jsonl', {'k': 'string', 't': 'timestamp'}, Rules(key='k', time='t'));"
        "print([(b.rows.num_rows, b.dead.column('line').to_pylist()) for b in read_file(sys.argv[1], layout)])"
    )
    done = subprocess.run([sys.executable, "-c", script, file.as_uri()], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[(1, [1])]\n")


DATES = [
    "2020-01-01",
    "0000-01-01",
    "0001-01-01",
    "9999-12-31",
    "2020-02-30",
    "20200101",
    "2020-W01-1",
    "1969-12-31",
]
CLOCKS = [
    "", "12", "12:30", "12:30:15", "12:30:15.", "12:30:15.1", "12:30:15.123456", "12:30:15.1234567", "1230",
    "12:30:15.123456789", "12:30:15,123", "24:00:00", "23:59:60", "25:00", "1:30", "23:59:59.999999",
]  # fmt: skip
ZONES = [
    "",
    "Z",
    "z",
    "+00:00",
    "-00:00",
    "+05:30",
    "+0530",
    "-05",
    "+23:59",
    "-23:59",
    "+24:00",
    "+05:60",
    " Z",
    "UTC",
]
moments = st.builds(
    "".join, st.tuples(*map(st.sampled_from, (DATES, ["T", " ", "t", ""], CLOCKS, ZONES)))
)  # fmt: skip


@quick
@given(st.lists(moments, min_size=1, max_size=3))
def test_times_in_all_formats_and_zones_are_read_alike(folder: Path, texts: list[str]) -> None:
    lines = [json.dumps({"k": "a", "t": text, "i": "x", "n": 1}) for text in texts]
    read_alike(folder, "\n".join(lines).encode())


def both_casts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as times by the cast that takes all of them, whichever that is: the costly way."""
    try:
        return column.cast(pa.timestamp("us")).cast(TIMESTAMP)
    except pa.ArrowInvalid:
        return column.cast(TIMESTAMP)


@settings(quick, max_examples=400)
@given(st.lists(st.lists(st.none() | moments, max_size=3), max_size=3))
def test_one_look_at_a_text_chooses_the_cast_that_would_have_taken_the_whole_column(texts: list[list[str]]) -> None:
    column = pa.chunked_array(texts, pa.string())
    try:
        expected = both_casts(column)
    except pa.ArrowInvalid:
        with pytest.raises(pa.ArrowInvalid):
            moments_of(column, TIMESTAMP)
    else:
        assert moments_of(column, TIMESTAMP) == expected


def test_times_with_a_zone_are_cast_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # of such a column each value failed the cast without a zone first, at 30 times the price of the right one
    tried: list[pa.DataType] = []

    class Column:
        type = pa.string()

        def cast(self, kind: pa.DataType) -> None:
            tried.append(kind)

    monkeypatch.setattr(pc, "first", lambda column: pa.scalar("2020-01-01T00:00:00Z"))
    moments_of(Column(), TIMESTAMP)
    assert tried == [TIMESTAMP]


@pytest.mark.parametrize("text", ["0000-01-01T00:00:00Z", "0000-12-31 12"])
def test_the_year_0_is_no_time_on_either_way(folder: Path, text: str) -> None:
    assert read_alike(folder, GOOD.replace(T.encode(), f'"{text}"'.encode())).rows == []


@pytest.mark.parametrize("layout", [LAYOUT, NO_ID], ids=["id", "row id"])
@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_a_time_whose_zone_takes_it_out_of_the_calendar_ends_nothing(
    folder: Path, text: str, layout: reading.Layout
) -> None:
    got = read_alike(folder, GOOD.replace(T.encode(), f'"{text}"'.encode()) + GOOD, layout)
    assert len(got.rows) + len(got.dead) == 2


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**30]),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec="utf-8"), max_size=6),
)
NESTED = st.recursive(
    SCALARS,
    lambda some: st.lists(some, max_size=2) | st.dictionaries(st.text(max_size=2), some, max_size=2),
    max_leaves=4,
)
OF_TYPE = {
    "string": st.sampled_from(["", "a", "é", "\x00", "line\nbreak", "\u2028", "😀", "\\", '"']),
    "timestamp": moments | st.datetimes().map(datetime.isoformat) | st.datetimes(timezones=st.just(UTC)).map(str),
    "long": st.integers(-1, 5) | st.integers(-(2**63), 2**63 - 1),
    "double": st.floats() | st.integers(-(2**70), 2**70),
    "boolean": st.booleans(),
}
GARBAGE = [
    b"",
    b" ",
    b"\t",
    b"{",
    b"}",
    b"{}",
    b"[]",
    b"x",
    b'"',
    b"\xff",
    b"\x00",
    b"\r",
    b"{}{}",
    b"// no",
    b"1 2",
    b"NaN",
]


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A line: most of them good, some with one wrong value, doubled or missing columns, some broken, some garbage."""
    kind = draw(st.sampled_from(["good"] * 6 + ["heartbeat", "wrong", "less", "twice", "broken", "garbage"]))
    if kind == "garbage":
        return draw(st.sampled_from(GARBAGE))
    row = {"k": "a", "t": "2020-01-01T00:00:00Z", "i": "x", "n": draw(st.integers(1, 3))}
    row |= {name: draw(OF_TYPE[of]) for name, of in COLUMNS.items() if draw(st.integers(0, 5)) == 0}
    if kind == "heartbeat":
        row = {"t": row["t"]} | draw(st.sampled_from([{}, {"k": None}, {"z": 1}, {"n": 1}]))
    elif kind == "wrong":
        row[draw(st.sampled_from([*COLUMNS, "z"]))] = draw(NESTED)
    elif kind == "less":
        del row[draw(st.sampled_from(["k", "t", "i", "n"]))]
    pairs = [*row.items(), *([("k", draw(SCALARS))] if kind == "twice" else [])]
    pairs = draw(st.permutations(pairs))
    ascii_only = draw(st.booleans())
    text = ", ".join(f"{json.dumps(n)}: {json.dumps(v, ensure_ascii=ascii_only)}" for n, v in pairs)
    line = f"{{{text}}}".encode()
    if kind == "broken":
        place = draw(st.integers(0, len(line) - 1))
        line = (
            line[:place] + draw(st.sampled_from([b"", b"\x00", b"\xff", b'"', b",", b"}", b"\r"])) + line[place + 1 :]
        )
    return line


@settings(quick, max_examples=50)
@given(
    st.lists(st.tuples(lines(), st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\n\n"])), max_size=6),
    st.booleans(),
    st.sampled_from([LAYOUT, NO_ID]),
)
def test_any_file_is_read_alike_on_both_ways_and_in_blocks_of_any_size(
    folder: Path, ended: list[tuple[bytes, bytes]], ends: bool, layout: reading.Layout
) -> None:
    data = b"".join(line + end for line, end in ended)
    got = read_alike(folder, data if ends else data.removesuffix(b"\n"), layout)
    written = data.split(b"\n")
    for number, text in got.dead:
        assert number is not None
        assert text == written[number - 1].removesuffix(b"\r").decode(errors="replace")
