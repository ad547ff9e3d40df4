"""Rows that compiled code reads, held against the plain readers: the same messages, byte for byte.

Every stored binlog goes through both, and rows of Hypothesis: of every type that is compiled, nulls, cut off, changed.
"""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("waterclock.cdc.mysql._images", reason="nothing is compiled here")

from tests.cdc.test_decoding import changes
from waterclock.cdc.mysql import columns as types
from waterclock.cdc.mysql import tables
from waterclock.cdc.mysql._images import ImagePlan, how, passed
from waterclock.cdc.mysql.catalog import TableDefinition
from waterclock.cdc.mysql.columns import BinlogColumn, reader
from waterclock.cdc.mysql.fetched import SelectedRows
from waterclock.cdc.mysql.selected import SelectedTable, selected
from waterclock.cdc.mysql.sql_types import mapped_type
from waterclock.cdc.mysql.tables import _row
from waterclock.cdc.postgres import rows as postgres
from waterclock.cdc.postgres.rows import Relation
from waterclock.changes._written import Written
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.changes.sql_types import ColumnTypes
from waterclock.errors import Unreadable

COLUMNS = [
    *(BinlogColumn(f"i{kind}{u}", kind, 0, unsigned=u) for kind in (1, 2, 3, 8, 9) for u in (False, True)),
    BinlogColumn("price", types.NEWDECIMAL, 12 << 8 | 2),
    BinlogColumn("digits", types.NEWDECIMAL, 65 << 8 | 30),
    BinlogColumn("part", types.NEWDECIMAL, 9 << 8 | 9),
    BinlogColumn("short", types.FLOAT, 4),
    BinlogColumn("long", types.DOUBLE, 8),
    *(
        BinlogColumn(f"{kind}-{n}", kind, n)
        for kind in (types.TIME2, types.DATETIME2, types.TIMESTAMP2)
        for n in range(7)
    ),
    BinlogColumn("day", types.DATE, 3),
    BinlogColumn("since", types.YEAR, 1),
    BinlogColumn("bits", types.BIT, 12),
    BinlogColumn("all bits", types.BIT, 64),
    BinlogColumn("state", types.ENUM, 1, labels=("new", 'a "b"', "é")),
    BinlogColumn("states", types.SET, 2, labels=tuple(f"l{n}" for n in range(12))),
    BinlogColumn("name", types.VARCHAR, 100, charset="utf8mb4"),
    BinlogColumn("old name", types.VARCHAR, 300, charset="latin1"),
    BinlogColumn("wide", types.VARCHAR, 300, charset="utf16"),
    BinlogColumn("raw", types.VARCHAR, 300),
    BinlogColumn("digest", types.STRING, 16),
    BinlogColumn("photo", types.BLOB, 2),
    BinlogColumn("text", types.BLOB, 3, charset="utf8mb4"),
    BinlogColumn("note", types.BLOB, 4, charset="utf8mb4", declared="json"),
    BinlogColumn("owner", types.STRING, 16, declared="uuid"),
]
ROW = [*COLUMNS[:-9:5], *COLUMNS[-9:]]
LEAVES = st.none() | st.booleans() | st.floats() | st.integers() | st.text()
JSONS = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
TEXTS = st.text().map(str.encode) | st.binary(max_size=8) | JSONS.map(lambda value: json.dumps(value).encode())
FLOATS = st.floats(width=32).map(lambda value: struct.pack("<f", value))
DOUBLES = st.floats().map(lambda value: struct.pack("<d", value))


def types_of(columns: list[BinlogColumn]) -> ColumnTypes:
    return ColumnTypes({column.name: mapped_type(column) for column in columns})


def plan_of(columns: list[BinlogColumn]) -> ImagePlan:
    kinds = types_of(columns).kinds
    return ImagePlan("shop", "item", (columns[0].name,), kinds, columns, [reader(column) for column in columns], ())


@st.composite
def images(draw: Any, columns: list[BinlogColumn]) -> bytes:
    """A row's bytes: mostly ones that a server may have written."""
    nulls, parts = 0, []
    for place, column in enumerate(columns):
        if draw(st.integers(0, 9)) == 0:
            nulls |= 1 << place
            continue
        width = how(column)[1]
        if column.type in (types.VARCHAR, types.STRING, types.BLOB):
            text = draw(TEXTS)[: 16 if column.type == types.STRING else 255]
            parts.append(len(text).to_bytes(1 if column.declared == "uuid" else width, "little") + text)
        elif column.type in (types.FLOAT, types.DOUBLE):
            parts.append(draw(FLOATS if column.type == types.FLOAT else DOUBLES))
        elif column.type == types.ENUM:
            parts.append(bytes([draw(st.integers(0, 4))]))
        else:
            parts.append(draw(st.binary(min_size=width, max_size=width)))
    return nulls.to_bytes((len(columns) + 7) // 8, "little") + b"".join(parts)


def plain(columns: list[BinlogColumn], data: bytes) -> dict[str, str] | None:
    """What the plain readers make of a row; None if they refuse, or the bytes end elsewhere."""
    try:
        row, end = _row(([column.name for column in columns], [reader(column) for column in columns]), data, 0)
    except tables._WRONG:
        return None
    return row if end == len(data) else None


def message(columns: list[BinlogColumn], data: Any, old: Any = None) -> MaxwellMessage:
    types = types_of(columns)
    key = (columns[0].name,)
    return MaxwellMessage("shop", "item", "update", 1, "0-1-7", 2**53 - 1, 3, True, key, data, old, 'q "é"', types)


def same(columns: list[BinlogColumn], data: bytes) -> Written | None:
    found = plan_of(columns).rows(data, 0, False, True)
    expected = plain(columns, data)
    if expected is None:
        assert found is None
        return None
    assert found is not None, expected
    row = found[0][1]
    assert isinstance(row, Written)
    assert list(row.items()) == list(expected.items())
    made, right = message(columns, row), message(columns, expected)
    assert (made.as_key(), made.as_json()) == (right.as_key(), right.as_json())
    return row


UNHURRIED = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])  # a sanitizer's build is slow


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
@UNHURRIED
@given(data=st.data())
def test_a_value_of_each_type_is_what_its_plain_reader_makes_of_it(column: BinlogColumn, data: st.DataObject) -> None:
    same([column], data.draw(images([column])))


@UNHURRIED
@given(images(ROW))
def test_a_row_of_all_types_is_the_plain_one(data: bytes) -> None:
    same(ROW, data)


@UNHURRIED  # most of the time goes into making rows
@given(images(COLUMNS[-6:]), st.integers(1, 400), st.integers(0, 255))
def test_a_row_that_is_cut_off_or_damaged_is_read_as_by_the_plain_readers(data: bytes, place: int, byte: int) -> None:
    columns = COLUMNS[-6:]
    same(columns, data[:place])
    same(columns, data[:place] + bytes([byte]) + data[place + 1 :])


@UNHURRIED
@given(images(ROW), images(ROW))
def test_what_an_update_changed_is_what_the_plain_code_says(before: bytes, after: bytes) -> None:
    pair = plan_of(ROW).rows(before + after, 0, True, True)
    old, new = plain(ROW, before), plain(ROW, after)
    if pair is None or old is None or new is None:
        return
    ((was, row),) = pair
    assert was is not None
    assert row is not None
    former = {name: text for name, text in old.items() if new[name] != text}
    assert was.former(row) == former
    assert was.same_key(row) == (ROW[0].name not in former)
    assert message(ROW, row, was.former(row)).as_json() == message(ROW, new, former).as_json()


@pytest.mark.parametrize("name", ["mysql-bin.sakila.gz", "mysql-bin.checksum-crc32"])
def test_a_stored_binlog_has_the_same_bytes_through_both(
    data: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = (data / "binlog" / name).read_bytes()
    raw = gzip.decompress(raw) if name.endswith(".gz") else raw
    compiled = changes(raw)
    monkeypatch.setattr(tables, "ImagePlan", None)
    expected = changes(raw)
    assert all(isinstance(change.data, Written) for change in compiled if change.type != "truncate")
    assert [(each.as_key(), each.as_json()) for each in compiled] == [(m.as_key(), m.as_json()) for m in expected]


SHOWN = {
    "int": ("int(11)", None, st.integers().map(str)),
    "decimal": ("decimal(9,2)", None, st.decimals(allow_nan=False, allow_infinity=False).map(lambda n: f"{n:f}")),
    "float": ("float", None, st.floats(width=32).map(repr)),
    "double": ("double", None, st.floats().map(repr)),
    "datetime": ("datetime", None, st.datetimes().map(str)),
    "blob": ("blob", None, st.text()),
    "varchar": ("varchar(9)", "utf8mb4", st.text()),
    "char": ("char(9)", "latin1", st.text(st.characters(max_codepoint=300))),
    "set": ("set('a','b')", "utf8mb4", st.integers(0, 3).map(str)),
    "bit": ("bit(9)", None, st.integers(0, 511).map(str)),
    "longtext": ("longtext", "utf8mb4", JSONS.map(json.dumps)),
}
ODD = st.sampled_from(["00", "-0", "007", "0.50", ".5", "-", "1e5", "1_0", " 1", "1e999", "nan", ""])


def packet(values: list[bytes | None], most: int = 0xFFFFFF) -> bytes:
    """A row as a server sends it, with its key's value behind; in pieces of `most` bytes, 0xFFFFFF of the protocol."""
    lengths = [b"\xfb" if value is None else length(len(value)) + value for value in values]
    whole, packets = b"".join([*lengths, b"\x02k1"]), b""
    while len(whole) >= most:
        packets, whole = packets + b"\xff\xff\xff\0" + whole[:most], whole[most:]
    return packets + len(whole).to_bytes(3, "little") + b"\0" + whole


def length(size: int) -> bytes:
    if size < 0xFB:
        return bytes([size])
    width = 2 if size < 1 << 16 else 3 if size < 1 << 24 else 8
    return bytes([{2: 0xFC, 3: 0xFD, 8: 0xFE}[width]]) + size.to_bytes(width, "little")


def selected_of(*kinds: str) -> SelectedTable:
    columns = [(kind, kind, SHOWN[kind][0], SHOWN[kind][1], "") for kind in kinds]
    return selected(("shop", "item"), TableDefinition(columns, (kinds[0],), 0, frozenset({"longtext"})), {})


def fetched_by_both(table: SelectedTable, rows: list[list[bytes | None]]) -> None:
    data = bytearray(b"".join(map(packet, rows)))
    assert passed(data + b"\5\0\0\0\xfe\0\0\2\0", 0) == (len(data), len(rows), True)
    try:
        expected = SelectedRows([(*row, b"k1") for row in rows]).written(table)
    except (Unreadable, ValueError, ArithmeticError) as refusal:
        with pytest.raises(type(refusal)):
            SelectedRows(packets=data, end=len(data)).written(table)
        return
    found, behind = SelectedRows(packets=data, end=len(data)).written(table)
    assert ([list(row.items()) for row in found], behind) == ([list(row.items()) for row in expected[0]], expected[1])


@pytest.mark.parametrize("kind", SHOWN)
@settings(max_examples=40)
@given(data=st.data())
def test_a_value_of_a_select_is_what_its_writer_makes_of_it(kind: str, data: st.DataObject) -> None:
    shown = st.one_of(SHOWN[kind][2], ODD).map(str.encode) | TEXTS | st.none()
    fetched_by_both(selected_of(kind), data.draw(st.lists(st.tuples(shown).map(list), min_size=1, max_size=3)))


def test_rows_of_a_select_of_any_length_are_read() -> None:
    table = selected_of("varchar", "blob", "int")
    sizes = (0, 250, 251, 65_535, 65_536, 0xFFFFFF - 20, 0xFFFFFF, 0xFFFFFF + 20)
    fetched_by_both(table, [[b"a" * size, None, b"7"] for size in sizes])


def test_rows_of_a_select_are_counted_as_they_come() -> None:
    data = bytearray(packet([b"a", None]) + packet([b"b" * 300, b"x"]))
    first = len(packet([b"a", None]))
    assert [passed(data[:cut], 0) for cut in (0, 4, first - 1, first, len(data) - 1)] == [
        (0, 0, False), (0, 0, False), (0, 0, False), (first, 1, False), (first, 1, False),
    ]  # fmt: skip
    assert passed(data + b"\3\0\0\0\xff\1\0", first) == (len(data), 1, True)
    assert passed(data + b"\3\0\0\0\xff\1\0", len(data)) == (len(data), 0, True)


PRINTED = st.none() | st.sampled_from([b"NaN", b"-1.5", b"t", b"f", b"", b"null", b'{"a":[1]}']) | TEXTS


@given(st.lists(PRINTED, min_size=4, max_size=4), st.integers(0, 60))
def test_a_tuple_of_postgresql_is_the_plain_one(values: list[bytes | None], cut: int) -> None:
    names, oids = ("id", "word", "yes", "note"), (1700, 25, 16, 3802)
    types = ColumnTypes.parsed({"id": "numeric", "note": "jsonb"})
    relation = Relation(1, "public", "item", names, oids, (-1,) * 4, ("id",), True, types)
    parts = [b"n" if value is None else b"t" + struct.pack(">I", len(value)) + value for value in values]
    raw = struct.pack(">H", 4) + b"".join(parts)
    planned = relation.planned()
    assert planned.plan is not None
    planned.plan.row(raw[:cut], 0)
    found = planned.plan.row(raw, 0)
    try:
        expected = postgres.row_at(relation, raw, 0)
    except (UnicodeError, IndexError):
        assert found is None
        return
    if found is None:  # what PostgreSQL never prints of a number or a boolean is left to the plain reader
        assert not (values[0] or b"0").isascii() or (values[2] is not None and len(values[2]) != 1)
        return
    assert (list(found[0].items()), found[1]) == (list(expected[0].items()), expected[1])
    made, right = (
        MaxwellMessage("public", "item", "insert", 1, "0/1", 2, 3, False, ("id",), row, None, None, relation.types)
        for row in (found[0], expected[0])
    )
    assert (made.as_key(), made.as_json()) == (right.as_key(), right.as_json())


def test_a_row_is_a_mapping_as_a_dict_is() -> None:
    columns = COLUMNS[:2]
    found = plan_of(columns).rows(b"\2\5", 0, False, True)
    assert found is not None
    row = found[0][1]
    assert row == {"i1False": "5", "i1True": "null"}
    assert (dict(row or {}), len(row or ()), "i1True" in (row or ()), (row or {}).get("no")) == (row, 2, True, None)
    with pytest.raises(KeyError):
        (row or {})["no"]


def test_the_key_alone_is_the_keys_columns_and_no_others() -> None:
    columns = COLUMNS[:2]
    found = plan_of(columns).rows(b"\0\5\6", 0, True, False)
    assert found is not None
    assert found[0][0] is not None
    known = found[0][0].key_alone()
    assert known == {"i1False": "5"}
    assert message(columns, known).as_json() == message(columns, {"i1False": "5"}).as_json()
