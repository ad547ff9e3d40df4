"""MySQL's binary JSON: written by a small encoder of the tests, read by ours, and by the package where it is right."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysqlreplication.json_binary import parse_json

from waterclock.cdc.mysql.values import json_of, jsonb_text

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text('abcä"', max_size=4), inner, max_size=5),
    max_leaves=20,
)


def length(size: int) -> bytes:
    found = bytearray()
    while size >= 0x80:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*found, size])


def number(value: int) -> tuple[int, bytes]:
    for kind, code in ((5, "<h"), (6, "<H"), (7, "<i"), (8, "<I"), (9, "<q"), (10, "<Q")):
        try:
            return kind, struct.pack(code, value)
        except struct.error:
            continue
    raise AssertionError(value)


def encoded(value: Any, large: bool) -> tuple[int, bytes]:
    """A value's kind and bytes, in the large or in the small form."""
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, int):
        return number(value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        return 12, length(len(value.encode())) + value.encode()
    return container(value, large)


def container(value: Any, large: bool) -> tuple[int, bytes]:
    width, code = (4, "<I") if large else (2, "<H")
    names = [name.encode() for name in value] if isinstance(value, dict) else []
    members = [encoded(member, large) for member in (value.values() if isinstance(value, dict) else value)]
    at = 2 * width + len(names) * (width + 2) + len(members) * (width + 1)
    heads, tails = b"", b""
    for name in names:
        heads += struct.pack(code, at + len(tails)) + struct.pack("<H", len(name))
        tails += name
    for kind, raw in members:
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            heads += bytes([kind]) + raw.ljust(width, b"\0")
        else:
            heads += bytes([kind]) + struct.pack(code, at + len(tails))
            tails += raw
    whole = struct.pack(code, len(members)) + struct.pack(code, at + len(tails)) + heads + tails
    return (0 if isinstance(value, dict) else 2) + large, whole


@given(VALUES, st.booleans())
def test_what_was_written_is_read(value: Any, large: bool) -> None:
    kind, raw = encoded(value, large)
    assert json.loads(jsonb_text(bytes([kind]) + raw)) == value


@given(VALUES)
def test_the_package_reads_the_same(value: Any) -> None:
    kind, raw = encoded(value, False)

    def text(found: Any) -> Any:
        if isinstance(found, bytes):
            return found.decode()
        if isinstance(found, list):
            return [text(member) for member in found]
        return {text(name): text(member) for name, member in found.items()} if isinstance(found, dict) else found

    assert json.loads(jsonb_text(bytes([kind]) + raw)) == text(parse_json(kind, raw))


OPAQUE = {
    "a decimal": (246, bytes([6, 3]) + bytes.fromhex("8001") + bytes.fromhex("01f4"), "1.500"),
    "a date": (10, ((2024 * 13 + 2) << 46 | 29 << 41).to_bytes(8, "little"), '"2024-02-29"'),
    "a datetime": (
        12,
        ((2024 * 13 + 2) << 46 | 29 << 41 | (12 << 12 | 34 << 6 | 56) << 24 | 78).to_bytes(8, "little"),
        '"2024-02-29 12:34:56.000078"',
    ),
    "a time": (11, (-((12 << 12 | 34 << 6 | 56) << 24 | 78)).to_bytes(8, "little", signed=True), '"-12:34:56.000078"'),
    "bytes": (253, b"\x00\xff", '"base64:type253:AP8="'),
}


@pytest.mark.parametrize("what", OPAQUE)
def test_what_json_has_no_type_for_keeps_all_it_says(what: str) -> None:
    kind, raw, expected = OPAQUE[what]
    assert jsonb_text(bytes([15, kind]) + length(len(raw)) + raw) == expected


@pytest.mark.parametrize("text", ["NaN", "{", "[1,]", "", "-Infinity"])
def test_text_that_is_no_json_is_a_string(text: str) -> None:
    assert json.loads(json_of(text)) == text
