"""Values out of a row image: dates and times, DECIMAL, geometries and MySQL's binary JSON, each as text,
as SELECT shows it.

Rule 1: what no calendar has comes through: zero dates, 0003-00-00, 838 hours, times before zero. A TIMESTAMP is in UTC.
Rule 2: all digits that the column's type has are written, no more and no fewer: DECIMAL(10,4) 12.5 is 12.5000.
Rule 3: a geometry is WKT, as Maxwell writes it. A reference system other than 0 is written before it, as
        SRID=4326;POINT (1 2): Maxwell loses it.
Rule 4: of binary JSON nothing is rounded: a DECIMAL inside it keeps its digits, a date or a time is its text, any other
        opaque value is "base64:typeN:..." as the server itself shows it. JSON's null is no NULL: its text is JSON_NULL.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from itertools import pairwise

from waterclock.changes.maxwell import JSON_NULL, quoted
from waterclock.errors import Unreadable

Reader = Callable[[bytes, int], tuple[str, int]]

_EPOCH = date(1970, 1, 1).toordinal()
_DATETIME_ZERO = 1 << 39
_TIME_ZERO = 1 << 23
_MOST = ((4, "12"), (6, "31"), (8, "23"), (10, "59"), (12, "59"))  # of YYYYMMDDhhmmss


def _fraction(stored: int, stored_bytes: int, digits: int) -> str:
    """`.` and `digits` digits. One to three bytes keep hundredths, ten-thousandths or millionths."""
    return "." + f"{stored:0{2 * stored_bytes}d}"[:digits] if digits else ""


def datetimes(digits: int) -> Reader:
    """DATETIME(digits): 17 bits of year * 13 + month, then day, hour, minute, second; then the fraction."""
    extra = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        packed = int.from_bytes(data[at : at + 5], "big") - _DATETIME_ZERO
        year, month = divmod(packed >> 22, 13)
        seconds = packed & 0x1FFFF
        end = at + 5 + extra
        return (
            f'"{year:04d}-{month:02d}-{packed >> 17 & 31:02d} '
            f"{seconds >> 12:02d}:{seconds >> 6 & 63:02d}:{seconds & 63:02d}"
            f'{_fraction(int.from_bytes(data[at + 5 : end], "big"), extra, digits)}"',
            end,
        )

    return read


def timestamps(digits: int) -> Reader:
    """TIMESTAMP(digits): seconds since 1970 in UTC, then the fraction; zero is the zero date."""
    extra = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + 4 + extra
        seconds, stored = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : end], "big")
        return f'"{_utc(seconds, bool(stored))}{_fraction(stored, extra, digits)}"', end

    return read


def _utc(seconds: int, fraction: bool = False) -> str:
    if not seconds and not fraction:
        return "0000-00-00 00:00:00"
    day, second = divmod(seconds, 86_400)
    return f"{date.fromordinal(_EPOCH + day)} {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def times(digits: int) -> Reader:
    """TIME(digits): hours, minutes, seconds and fraction as ONE number beside zero: a negative one has its sign whole."""
    extra = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + 3 + extra
        packed = int.from_bytes(data[at:end], "big") - (_TIME_ZERO << 8 * extra)
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        seconds, stored = packed >> 8 * extra, packed & (1 << 8 * extra) - 1
        return (
            f'"{sign}{seconds >> 12:02d}:{seconds >> 6 & 63:02d}:{seconds & 63:02d}{_fraction(stored, extra, digits)}"',
            end,
        )

    return read


def dates(data: bytes, at: int) -> tuple[str, int]:
    """DATE: 15 bits of year, 4 of month, 5 of day."""
    packed = int.from_bytes(data[at : at + 3], "little")
    return f'"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}"', at + 3


def years(data: bytes, at: int) -> tuple[str, int]:
    """YEAR: years after 1900, and 0 for the year 0000."""
    return str(1900 + data[at] if data[at] else 0), at + 1


def old_datetimes(data: bytes, at: int) -> tuple[str, int]:
    """DATETIME of before MySQL 5.6: the digits YYYYMMDDhhmmss as one number. MariaDB's DATETIME(6) of before 10.1 has the
    same type, and as many bytes."""
    text = f"{int.from_bytes(data[at : at + 8], 'little'):014d}"
    if len(text) > 14 or any(text[place : place + 2] > most for place, most in _MOST):
        raise Unreadable(
            "A DATETIME is none: MariaDB kept it, with fractions of a second, in its form of before 10.1, which the binlog "
            "does not tell. SET GLOBAL mysql56_temporal_format=ON, and have its table made anew: ALTER TABLE ... FORCE."
        )
    return f'"{text[:4]}-{text[4:6]}-{text[6:8]} {text[8:10]}:{text[10:12]}:{text[12:]}"', at + 8


def old_timestamps(data: bytes, at: int) -> tuple[str, int]:
    """TIMESTAMP of before MySQL 5.6: seconds since 1970."""
    return f'"{_utc(int.from_bytes(data[at : at + 4], "little"))}"', at + 4


def old_times(data: bytes, at: int) -> tuple[str, int]:
    """TIME of before MySQL 5.6: the digits hhmmss as one number, which may be negative."""
    packed = int.from_bytes(data[at : at + 3], "little", signed=True)
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    return f'"{sign}{packed // 10_000:02d}:{packed // 100 % 100:02d}:{packed % 100:02d}"', at + 3


_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # for so many digits


def decimals(precision: int, scale: int) -> Reader:
    """A reader of DECIMAL(precision, scale)."""
    before, after = _groups(precision - scale, leading=True), _groups(scale, leading=False)
    size = sum(_BYTES[digits] for digits in before + after)
    whole, fraction = _cuts(before, 0), _cuts(after, sum(_BYTES[digits] for digits in before))

    def read(data: bytes, at: int) -> tuple[str, int]:
        raw = bytearray(data[at : at + size])
        sign = "" if raw[0] & 0x80 else "-"
        if sign:
            raw = bytearray(byte ^ 0xFF for byte in raw)
        raw[0] ^= 0x80
        number = _digits(raw, whole).lstrip("0") or "0"
        return f"{sign}{number}.{_digits(raw, fraction)}" if scale else sign + number, at + size

    return read


def _groups(digits: int, leading: bool) -> list[int]:
    nines, rest = [9] * (digits // 9), [digits % 9] if digits % 9 else []
    return rest + nines if leading else nines + rest


def _cuts(groups: list[int], start: int) -> list[tuple[int, int, int]]:
    """(first byte, byte after the last, digits) of every group."""
    ends = [start]
    for digits in groups:
        ends.append(ends[-1] + _BYTES[digits])
    return [(low, high, digits) for (low, high), digits in zip(pairwise(ends), groups, strict=True)]


def _digits(raw: bytearray, cuts: list[tuple[int, int, int]]) -> str:
    return "".join([f"{int.from_bytes(raw[low:high], 'big'):0{digits}d}" for low, high, digits in cuts])


_POINT, _LINE, _POLYGON, _MULTIPOINT, _MULTILINE, _MULTIPOLYGON, _COLLECTION = range(1, 8)
_NAMES = {
    _POINT: "POINT",
    _LINE: "LINESTRING",
    _POLYGON: "POLYGON",
    _MULTIPOINT: "MULTIPOINT",
    _MULTILINE: "MULTILINESTRING",
    _MULTIPOLYGON: "MULTIPOLYGON",
    _COLLECTION: "GEOMETRYCOLLECTION",
}


def as_text(raw: bytes) -> str:
    """The text of a geometry as the server keeps it.

    >>> as_text(struct.pack("<IBIdd", 0, 1, 1, 3, 2.5))
    'POINT (3 2.5)'
    """
    reference = int.from_bytes(raw[:4], "little")
    kind, body, end = _parsed(raw, 4)
    if end != len(raw):
        raise Unreadable(f"A geometry of {len(raw)} bytes ends after {end}.")
    return (f"SRID={reference};" if reference else "") + f"{_NAMES[kind]} {body}"


def _parsed(raw: bytes, at: int) -> tuple[int, str, int]:
    """What it is, its coordinates in brackets, and where the next one begins."""
    order = "<" if raw[at] == 1 else ">"
    kind = int(struct.unpack_from(order + "I", raw, at + 1)[0])
    at += 5
    if kind == _POINT:
        points, at = _points(raw, at, order, 1)
        return kind, f"({points})", at
    if kind not in _NAMES:
        raise Unreadable(f"A geometry is of the kind {kind}, which has no text here. Leave its table out (--tables).")
    count = int(struct.unpack_from(order + "I", raw, at)[0])
    at += 4
    if kind == _LINE:
        points, at = _points(raw, at, order, count)
        return kind, f"({points})", at
    parts = []
    for _ in range(count):
        if kind == _POLYGON:  # a ring
            points, at = _points(raw, at + 4, order, int(struct.unpack_from(order + "I", raw, at)[0]))
            parts.append(f"({points})")
        else:
            member, body, at = _parsed(raw, at)
            parts.append(f"{_NAMES[member]} {body}" if kind == _COLLECTION else body)
    return kind, f"({', '.join(parts)})" if parts else "EMPTY", at


def _points(raw: bytes, at: int, order: str, count: int) -> tuple[str, int]:
    numbers = struct.unpack_from(f"{order}{2 * count}d", raw, at)
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return ", ".join(f"{_number(x)} {_number(y)}" for x, y in pairs), at + 16 * count


def _number(value: float) -> str:
    """3 for 3.0; every other number with as many digits as it takes to read it back."""
    return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_DOUBLE, _STRING, _OPAQUE, _LITERAL = 11, 12, 15, 4
_NEWDECIMAL, _DATE, _TIME, _DATETIME, _TIMESTAMP = 246, 10, 11, 12, 7


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
        return _double(struct.unpack_from("<d", raw, at)[0])
    if kind == _STRING:
        length, start = _length(raw, at)
        return quoted(raw[start : start + length].decode())
    if kind == _OPAQUE:
        length, start = _length(raw, at + 1)
        return _opaque(raw[at], raw[start : start + length])
    raise Unreadable(f"A JSON value is of the kind {kind}, which is none. Leave its table out (--tables).")


def _double(value: float) -> str:
    """The fewest digits that say it, with an exponent where the server shows one: from 1e15 on, and below 1e-15.

    >>> _double(1e15), _double(-2.5e-15), _double(7e-16), _double(12345678.0)
    ('1e15', '-0.0000000000000025', '7e-16', '12345678.0')
    """
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    if not value or -15 < len(digits) + exponent < 16:
        text = f"{Decimal(repr(value)):f}"
        return text if "." in text else f"{text}.0"
    first, *others = map(str, digits)
    return f"{'-' * sign}{first}{'.' * bool(others)}{''.join(others)}e{len(others) + exponent}"


def _container(raw: bytes, at: int, large: bool, names: bool) -> str:
    """An object or an array: count and size, the names' places, the values' kinds and places, all counted from `at`."""
    width = 4 if large else 2
    count = int.from_bytes(raw[at : at + width], "little")
    name = at + 2 * width
    entry = name + (count * (width + 2) if names else 0)
    members = []
    for _ in range(count):
        kind = raw[entry]
        inline = kind in (_LITERAL, 5, 6) or (large and kind in (7, 8))
        offset = int.from_bytes(raw[entry + 1 : entry + 1 + width], "little")
        text = _value(kind, raw, entry + 1 if inline else at + offset)
        if names:
            start = at + int.from_bytes(raw[name : name + width], "little")
            length = int.from_bytes(raw[name + width : name + width + 2], "little")
            text = f"{quoted(raw[start : start + length].decode())}:{text}"
        members.append(text)
        name += width + 2
        entry += width + 1
    return "{" + ",".join(members) + "}" if names else "[" + ",".join(members) + "]"


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
        packed = int.from_bytes(raw, "little")
        year, month = divmod(packed >> 46, 13)
        day = f"{year:04d}-{month:02d}-{packed >> 41 & 31:02d}"
        clock = "" if kind == _DATE else f" {_clock(packed >> 24 & 0x1FFFF, packed & 0xFFFFFF)}"
        return f'"{day}{clock}"'
    if kind == _TIME:
        packed = int.from_bytes(raw, "little", signed=True)
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        return f'"{sign}{_clock(packed >> 24, packed & 0xFFFFFF)}"'
    return f'"base64:type{kind}:{b64encode(raw).decode()}"'


def _clock(seconds: int, microseconds: int) -> str:
    return f"{seconds >> 12:02d}:{seconds >> 6 & 63:02d}:{seconds & 63:02d}.{microseconds:06d}"
