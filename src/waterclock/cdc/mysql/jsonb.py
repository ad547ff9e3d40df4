"""JSON values as JSON text: MariaDB keeps the text itself, MySQL a binary form of its own.

Rule 0: JSON's null is no NULL: its text is JSON_NULL.
Rule 1: what the server keeps as text is passed on as it stands, once it is certain that it is JSON.
Rule 2: of the binary form nothing is rounded: a DECIMAL inside it keeps its digits, a date or a time is its text,
        any other opaque value is "base64:typeN:..." as the server itself shows it.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode

from waterclock.cdc.mysql.decimals import decimals
from waterclock.changes.maxwell_message import JSON_NULL, quoted
from waterclock.errors import Unreadable

_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_DOUBLE, _STRING, _OPAQUE, _LITERAL = 11, 12, 15, 4
_NEWDECIMAL, _DATE, _TIME, _DATETIME, _TIMESTAMP = 246, 10, 11, 12, 7


def json_of(text: str) -> str:
    """`text` if it is JSON, else the JSON string of it: a table may have been filled while its check was off."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return quoted(text)
    return JSON_NULL if value is None else text


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # NaN and Infinity: Python reads them, JSON has none


def jsonb_text(raw: bytes) -> str:
    """MySQL's binary JSON as text; an empty value, which an old server may write, is null."""
    text = _value(raw[0], raw, 1) if raw else "null"
    return JSON_NULL if text == "null" else text


def _value(kind: int, raw: bytes, at: int) -> str:
    """The value of this kind that begins at `at`."""
    if kind <= 3:
        return _container(raw, at, large=bool(kind & 1), names=kind < 2)
    if kind == _LITERAL:
        return _LITERALS[raw[at]]
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], raw, at)[0])
    if kind == _DOUBLE:
        return repr(struct.unpack_from("<d", raw, at)[0])
    if kind == _STRING:
        length, start = _length(raw, at)
        return quoted(raw[start : start + length].decode())
    if kind == _OPAQUE:
        length, start = _length(raw, at + 1)
        return _opaque(raw[at], raw[start : start + length])
    raise Unreadable(f"A JSON value is of the kind {kind}, which is none. Leave its table out (--tables).")


def _container(raw: bytes, at: int, large: bool, names: bool) -> str:
    """An object or an array: count and size, the names' places, the values' kinds and places, all counted from `at`."""
    width = 4 if large else 2
    count = int.from_bytes(raw[at : at + width], "little")
    entries = at + 2 * width + (count * (width + 2) if names else 0)
    values = [_member(raw, at, entries + place * (width + 1), width) for place in range(count)]
    if not names:
        return "[" + ",".join(values) + "]"
    return "{" + ",".join(f"{_name(raw, at, place, width)}:{value}" for place, value in enumerate(values)) + "}"


def _member(raw: bytes, start: int, entry: int, width: int) -> str:
    kind = raw[entry]
    inline = kind in (_LITERAL, 5, 6) or (width == 4 and kind in (7, 8))
    offset = int.from_bytes(raw[entry + 1 : entry + 1 + width], "little")
    return _value(kind, raw, entry + 1 if inline else start + offset)


def _name(raw: bytes, start: int, place: int, width: int) -> str:
    entry = start + 2 * width + place * (width + 2)
    offset = start + int.from_bytes(raw[entry : entry + width], "little")
    length = int.from_bytes(raw[entry + width : entry + width + 2], "little")
    return quoted(raw[offset : offset + length].decode())


def _length(raw: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the low ones first; the eighth says that another byte follows."""
    value = shift = 0
    while raw[at] & 0x80:
        value |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | raw[at] << shift, at + 1


def _opaque(kind: int, raw: bytes) -> str:
    if kind == _NEWDECIMAL:
        return decimals(raw[0], raw[1])(raw, 2)[0]
    if kind in (_DATE, _DATETIME, _TIMESTAMP):
        return f'"{_moment(int.from_bytes(raw, "little"), kind == _DATE)}"'
    if kind == _TIME:
        packed = int.from_bytes(raw, "little", signed=True)
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        return f'"{sign}{_clock(packed >> 24, packed & 0xFFFFFF)}"'
    return f'"base64:type{kind}:{b64encode(raw).decode()}"'


def _moment(packed: int, is_date: bool) -> str:
    year, month = divmod(packed >> 46, 13)
    day = f"{year:04d}-{month:02d}-{packed >> 41 & 31:02d}"
    return day if is_date else f"{day} {_clock(packed >> 24 & 0x1FFFF, packed & 0xFFFFFF)}"


def _clock(seconds: int, microseconds: int) -> str:
    return f"{seconds >> 12:02d}:{seconds >> 6 & 63:02d}:{seconds & 63:02d}.{microseconds:06d}"
