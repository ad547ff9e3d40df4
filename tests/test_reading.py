"""Files into rows: "the slow way is the law; the fast way may only accept what the slow one accepts, with the
same values", whatever is in the file, and wherever a block of it ends.

Each property reads one file in several ways, which must not be told apart: with the fast way and without it, in
blocks of a few bytes and in one block.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from waterclock import Rules
from waterclock.spark import reading
from waterclock.spark.bucket import Bucket
from waterclock.spark.frames import TIMESTAMP
from waterclock.spark.rows import ROW_ID

COLUMNS = {
    "k": "string",
    "t": "timestamp",
    "i": "string",
    "n": "long",
    "d": "double",
    "b": "boolean",
    "at": "timestamp",
}
RULES = Rules(key="k", time="t", id="i", sequence="n")
LAYOUT = reading.Layout("jsonl", COLUMNS, RULES)
NO_ID = reading.Layout("jsonl", COLUMNS, Rules(key="k", time="t"))
PARQUET = reading.Layout(
    "parquet", {"k": "string", "t": "timestamp", "n": "long"}, Rules(key="k", time="t", id="k", sequence="n")
)
T = '"2020-01-01T00:00:00Z"'
ROW = f'"k":"a","t":{T},"i":"x","n":1'
GOOD = f"{{{ROW}}}\n".encode()
BEAT = f'{{"t":{T}}}\n'.encode()
Y2020 = 1_577_836_800_000_000

quick = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), phases=set(Phase) - {Phase.explain}
)


class Read(NamedTuple):
    """A whole file as plain values, exactly: times in microseconds, texts in bytes, doubles as they print."""

    rows: list[tuple[Any, ...]]
    dead: list[tuple[int | None, str]]  # line, text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reading")


def read(folder: Path, data: bytes, layout: reading.Layout, block: int = 4 << 20, fast: bool = True) -> Read:
    file = folder / "file.jsonl"
    file.write_bytes(data)
    way = reading._fast if fast else lambda *_: None
    with patch.object(reading, "BLOCK_BYTES", block), patch.object(reading, "_fast", way):
        return together(reading.read_file(file.as_uri(), layout))


def together(blocks: Iterator[reading.Block]) -> Read:
    rows, dead = [], []
    for block in blocks:
        columns = dict(zip(block.rows.column_names, map(exactly, block.rows.columns), strict=True))
        made = columns.pop(ROW_ID, [None] * block.rows.num_rows)  # a block has the column where any row needs it
        named = zip(*columns.values(), strict=True)
        rows += [row if made_id is None else (*row, made_id) for row, made_id in zip(named, made, strict=True)]
        dead += [(letter["line"], letter["text"]) for letter in block.dead.to_pylist()]
    return Read(rows, dead)


def exactly(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_string(column.type):
        return column.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_floating(column.type):
        return [value if value is None else repr(value) for value in column.to_pylist()]
    return column.to_pylist()  # type: ignore[no-any-return]


def read_alike(folder: Path, data: bytes, layout: reading.Layout = LAYOUT) -> Read:
    """What every way of reading makes of `data`."""
    law = read(folder, data, layout, fast=False)
    assert read(folder, data, layout) == law, "the fast way differs"
    for block in (1, 7, 100):
        assert read(folder, data, layout, block, fast=False) == law, "the size of the block shows"
        assert read(folder, data, layout, block) == law, "the fast way differs in small blocks"
    return law


# Good lines


def test_a_line_of_every_type_is_read_to_its_value(folder: Path) -> None:
    line = b'{"k":"\\u00e9\xc3\xa9","t":"2020-01-01T01:00:00.5+01:00","i":"x","n":9223372036854775807,"d":-1e-3,'
    line += b'"b":true}\n'
    row = ("éé".encode(), Y2020 + 500_000, b"x", 2**63 - 1, "-0.001", True, None)
    assert read_alike(folder, line) == Read([row], [])


@pytest.mark.parametrize(
    ("data", "rows", "dead_lines"),
    [
        (b"", 0, []),
        (b"\n", 0, []),
        (b"\n\n \t\n\r\n", 0, []),
        (GOOD, 1, []),
        (GOOD[:-1], 1, []),
        (GOOD[:-1] + b"\r\n" + GOOD[:-1] + b"\r\n", 2, []),
        (b"\n" + GOOD + b"\n\n" + GOOD + b"\n", 2, []),
        (BEAT, 1, []),
        (GOOD + BEAT + GOOD, 3, []),
        (GOOD + b"nonsense\n" + GOOD, 2, [2]),
        (b"\n\n1\n" + GOOD + b"\r\n[1]", 1, [3, 6]),
        (b"\xef\xbb\xbf" + GOOD + b"x\n", 1, [2]),
        (GOOD * 90 + b"x\n" + GOOD * 90 + b"y", 180, [91, 182]),
        (b'{"z":"' + b"long" * 1000 + b'",' + ROW.encode() + b"}\nx\n" + GOOD, 2, [2]),
    ],
)
def test_lines_are_counted_and_each_bad_one_keeps_its_number(
    folder: Path, data: bytes, rows: int, dead_lines: list[int]
) -> None:
    got = read_alike(folder, data)
    assert (len(got.rows), [line for line, _ in got.dead]) == (rows, dead_lines)


def test_a_dead_letter_names_the_file_the_line_the_reason_and_the_text(folder: Path) -> None:
    file = folder / "bad.jsonl"
    file.write_bytes(GOOD + b'{"k":"a","t":"2020-01-01T00:00:00Z","i":"x","n":"1"}\n')
    (block,) = reading.read_file(file.as_uri(), LAYOUT)
    assert block.dead.to_pylist() == [
        {
            "file": file.as_uri(),
            "line": 2,
            "reason": "column 'n': needs an integer of 64 bits, got '1'",
            "text": '{"k":"a","t":"2020-01-01T00:00:00Z","i":"x","n":"1"}',
        }
    ]


def test_a_dead_letter_of_a_giant_line_is_small(folder: Path) -> None:
    file = folder / "giant.jsonl"
    file.write_bytes(b'{"n":"' + b"9" * 1_000_000 + b'","k":"a","t":' + T.encode() + b"}\n")
    (block,) = reading.read_file(file.as_uri(), LAYOUT)
    (letter,) = block.dead.to_pylist()
    assert letter["text"].startswith('{"n":"999')
    assert len(letter["text"]) + len(letter["reason"]) < 10_000


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('"k":"a","i":"x","n":1', "column 't' (the time) is missing"),
        ('"k":"a","t":null,"i":"x","n":1', "column 't' (the time) is missing"),
        (f'"t":{T},"i":"x","n":1', "column 'k' (the key) is missing"),
        (f'"t":{T},"b":false', "column 'k' (the key) is missing"),
        (f'"k":"a","t":{T},"i":"x"', "column 'n' (the sequence) needs a number from 1, got None"),
        (f'"k":"a","t":{T},"i":"x","n":0', "column 'n' (the sequence) needs a number from 1, got 0"),
        (f'"k":"a","t":{T},"i":"x","n":-5', "column 'n' (the sequence) needs a number from 1, got -5"),
        (f'"k":"a","t":{T},"i":"x","n":1.0', "column 'n': needs an integer of 64 bits, got 1.0"),
        (f'"k":"a","t":{T},"i":"x","n":true', "column 'n': needs an integer of 64 bits, got True"),
        (
            f'"k":"a","t":{T},"i":"x","n":9223372036854775808',
            "column 'n': needs an integer of 64 bits, got 92",
        ),
        (f'"k":5,"t":{T},"i":"x","n":1', "column 'k': needs a text, got 5"),
        (f'"k":["a"],"t":{T},"i":"x","n":1', "column 'k': needs a text, got ['a']"),
        (f'{ROW},"d":"1"', "column 'd': needs a number, got '1'"),
        (f'{ROW},"d":false', "column 'd': needs a number, got False"),
        (f'{ROW},"b":0', "column 'b': needs true or false, got 0"),
        ('"k":"a","t":1577836800,"i":"x","n":1', "column 't': needs an ISO 8601 time such as"),
        ('"k":"a","t":"yesterday","i":"x","n":1', "column 't': needs an ISO 8601 time such as"),
        (f'{ROW},"at":"2020-02-30"', "column 'at': needs an ISO 8601 time such as"),
    ],
)
def test_nothing_is_guessed_and_the_reason_names_the_column_and_the_value(folder: Path, row: str, reason: str) -> None:
    file = folder / "bad.jsonl"
    file.write_bytes(f"{{{row}}}\n".encode())
    (block,) = reading.read_file(file.as_uri(), LAYOUT)
    assert block.rows.num_rows == 0
    assert block.dead.column("reason").to_pylist()[0].startswith(reason)


# The two ways


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
        (b'"d":1' + b"0" * 5000, "column 'd': needs a number, got 1000"),
        (b'"at":"9999-12-31T23:59:59-23:59"', "column 'at': needs a time in the years 1 to 9999 (in UTC), got '9999"),
        (b'"at":' + b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    ],
)
def test_what_no_column_can_hold_is_a_dead_letter_with_a_short_reason(folder: Path, column: bytes, reason: str) -> None:
    file = folder / "bad.jsonl"
    file.write_bytes(b'{"k":"a","t":' + T.encode() + b',"n":1,' + column + b"}\n" + GOOD)
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
        "import sys; from waterclock import Rules; from waterclock.spark.reading import Layout, read_file;"
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


@settings(quick, max_examples=100)
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


# Ids of rows


def test_without_an_id_equal_rows_have_equal_ids_whatever_the_order_of_their_columns(folder: Path) -> None:
    file = folder / "rows.jsonl"
    file.write_bytes(
        b'{"k":"a","t":'
        + T.encode()
        + b',"n":1}\n{"n":1,"t":'
        + T.encode()
        + b',"k":"a"}\n'
        + BEAT.replace(b"{", b'{"k":"a",')
    )
    (block,) = reading.read_file(file.as_uri(), NO_ID)
    first, same, other = block.rows.column(ROW_ID).to_pylist()
    assert first == same != other


@pytest.mark.parametrize("rule", ["deduplicate", "order"])
def test_events_whose_id_is_null_are_told_apart_by_their_whole_row_as_in_process(folder: Path, rule: str) -> None:
    rules = Rules(key="k", time="t", id="i")
    rules = rules.deduplicate(within="1 day") if rule == "deduplicate" else rules.order()
    file = folder / "nulls.jsonl"
    texts = [f'{{"k":"a","t":{T},"i":{i},"d":{d}}}' for i, d in (("null", 1), ("null", 2), ('"x"', 3), ("null", 1))]
    file.write_text("\n".join(texts) + "\n")
    (block,) = reading.read_file(file.as_uri(), reading.Layout("jsonl", COLUMNS, rules))
    rows = [{**json.loads(text), "t": datetime(2020, 1, 1, tzinfo=UTC)} for text in texts]
    in_process = [result.kind for result in rules.run(rows)]
    bucket = Bucket(rules, None)
    on_spark = bucket.step([block.rows], Y2020 - 1).num_rows + bucket.step([], Y2020 + 1).num_rows
    assert on_spark == len(in_process)


# Files


def one_dead_letter(path: str, layout: reading.Layout = LAYOUT) -> str:
    (block,) = reading.read_file(path, layout)
    assert block.rows.num_rows == 0
    assert block.rows.schema.names[: len(layout.columns)] == list(layout.columns)
    (letter,) = block.dead.to_pylist()
    assert (letter["file"], letter["line"], letter["text"]) == (path, None, None)
    return letter["reason"]  # type: ignore[no-any-return]


def test_a_file_that_is_not_there_is_one_dead_letter(folder: Path) -> None:
    assert "No such file" in one_dead_letter((folder / "gone.jsonl").as_uri())


def test_a_folder_in_place_of_a_file_is_one_dead_letter(folder: Path) -> None:
    assert "is a directory" in one_dead_letter(folder.as_uri())


@pytest.mark.parametrize("path", ["relative.jsonl", "", "nowhere://x/y"])
def test_a_path_that_is_none_is_one_dead_letter(path: str) -> None:
    assert one_dead_letter(path).startswith("cannot be read: ")


def test_a_compressed_file_is_dead_letters_and_no_rows(folder: Path) -> None:
    file = folder / "file.jsonl.gz"
    file.write_bytes(gzip.compress(GOOD * 1000, mtime=0))
    blocks = list(reading.read_file(file.as_uri(), LAYOUT))
    assert sum(block.rows.num_rows for block in blocks) == 0
    (letter,) = (letter for block in blocks for letter in block.dead.to_pylist())
    assert letter["reason"] == "compressed files are not read: decompress it first"


@pytest.mark.parametrize("name", ["a b.jsonl", "é.jsonl", "a#b.jsonl", "a?b.jsonl", "100%.jsonl", "a%20b.jsonl"])
def test_a_file_of_any_name_is_read_by_its_uri(folder: Path, name: str) -> None:
    (folder / name).write_bytes(GOOD)
    assert len(together(reading.read_file((folder / name).as_uri(), LAYOUT)).rows) == 1


@pytest.mark.parametrize("name", ["a b.jsonl", "é.jsonl", "a#b.jsonl", "100%.jsonl", "a%20b.jsonl"])
def test_a_file_of_any_name_is_read_by_the_path_that_spark_tells(folder: Path, name: str) -> None:
    # The binaryFile source gives Hadoop's Path.toString(): "file:" and the path as it is, nothing escaped.
    (folder / name).write_bytes(GOOD)
    assert len(together(reading.read_file(f"file:{folder / name}", LAYOUT)).rows) == 1


# Parquet

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
