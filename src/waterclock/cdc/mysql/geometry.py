"""Geometries as text: the server keeps a reference system (four bytes) and well-known binary; Maxwell writes WKT.

A reference system other than 0 is written before it, as SRID=4326;POINT (1 2): Maxwell loses it.
"""

from __future__ import annotations

import struct

from waterclock.errors import Unreadable

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
