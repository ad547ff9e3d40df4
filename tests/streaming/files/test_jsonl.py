"""Files of JSON lines into rows: what is read to which value, what is a dead letter, which id a row gets; and files
that cannot be read at all.
"""

import bz2
import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.streaming.files.ways import (
    BEAT,
    COLUMNS,
    GOOD,
    LAYOUT,
    NO_ID,
    ROW,
    Y2020,
    Read,
    T,
    one_dead_letter,
    read_alike,
    together,
)
from waterclock import Rules
from waterclock.streaming.files import reading
from waterclock.streaming.layout import ROW_ID
from waterclock.streaming.state.bucket import Bucket

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
        (f'"k":"b",{ROW}', "the name 'k' is given twice"),
        (f'{ROW},"\\u006b":"a"', "the name 'k' is given twice"),
        (f'{ROW},"d":null,"d":null', "the name 'd' is given twice"),
    ],
)
def test_nothing_is_guessed_and_the_reason_names_the_column_and_the_value(folder: Path, row: str, reason: str) -> None:
    file = folder / "bad.jsonl"
    file.write_bytes(f"{{{row}}}\n".encode())
    (block,) = reading.read_file(file.as_uri(), LAYOUT)
    assert block.rows.num_rows == 0
    assert block.dead.column("reason").to_pylist()[0].startswith(reason)


def test_a_name_in_another_case_or_twice_where_nobody_reads_it_is_no_double_one(folder: Path) -> None:
    line = f'{{"K":"b",{ROW},"z":1,"z":{{"k":1,"k":2}}}}\n'.encode()
    assert read_alike(folder, line) == read_alike(folder, GOOD)


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


def test_a_folder_in_place_of_a_file_is_one_dead_letter(folder: Path) -> None:
    assert "is a directory" in one_dead_letter(folder.as_uri())


@pytest.mark.parametrize("path", ["relative.jsonl", ""])
def test_a_path_that_is_none_is_one_dead_letter(path: str) -> None:
    assert one_dead_letter(path).startswith("cannot be read: ")


@pytest.mark.parametrize("packed", [gzip.compress(GOOD * 1000), bz2.compress(GOOD * 1000), bz2.compress(b"")])
def test_a_compressed_file_is_dead_letters_and_no_rows(folder: Path, packed: bytes) -> None:
    file = folder / "file.jsonl.packed"
    file.write_bytes(packed)
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
