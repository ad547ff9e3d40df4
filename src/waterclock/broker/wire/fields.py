"""The protocol's fields, as far as Produce and Fetch need them by hand: read from a request, written into an answer.

Rule 1: a reader takes the buffer and a place, and returns what stands there and the place after it.
Rule 2: nothing is read beyond the request: IndexError, struct.error or ValueError, which close the connection.
`flexible` versions have compact lengths (one more than the length, as a varint) and tagged fields. KIP-482.
"""

from __future__ import annotations

import struct
from typing import Final

from waterclock.broker.net.outgoing import Buffer

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
MOST_ELEMENTS: Final = 100_000  # of a request's topics and partitions: three bytes of it can stand for 150 here


def uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes."""
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    value, shift = byte & 127, 7
    while shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a varint has more than five bytes")


def skip_tags(data: Buffer, at: int) -> int:
    """The place after the tagged fields."""
    count, at = uvarint(data, at)
    for _ in range(count):
        _, at = uvarint(data, at)
        size, at = uvarint(data, at)
        at += size
    if at > len(data):
        raise ValueError("a tagged field goes beyond its request")
    return at


def text_span(data: Buffer, at: int, flexible: bool) -> tuple[int, int]:
    """First and end of a string's bytes; a null reads as empty, with the end before the first."""
    if flexible:
        size, at = uvarint(data, at)
        size -= 1
    else:
        size = INT16.unpack_from(data, at)[0]
        at += 2
    return _span(data, at, size)


def bytes_span(data: Buffer, at: int, flexible: bool) -> tuple[int, int]:
    """First and end of a byte string."""
    if flexible:
        size, at = uvarint(data, at)
        size -= 1
    else:
        size = INT32.unpack_from(data, at)[0]
        at += 4
    return _span(data, at, size)


def _span(data: Buffer, at: int, size: int) -> tuple[int, int]:
    end = at + max(size, 0)
    if end > len(data) or size < -1:
        raise ValueError("a field goes beyond its request")
    return at, end


def count_of(data: Buffer, at: int, flexible: bool) -> tuple[int, int]:
    """How many elements an array has that may not be null; ValueError for more than there can be."""
    if flexible:
        count, at = uvarint(data, at)
        count -= 1
    else:
        count = INT32.unpack_from(data, at)[0]
        at += 4
    if not 0 <= count <= min(len(data) - at, MOST_ELEMENTS):
        raise ValueError(f"an array of {count} elements in a request of {len(data)} bytes")
    return count, at


def bounded(elements: int) -> int:
    """The number of elements read so far; ValueError if they are too many."""
    if elements > MOST_ELEMENTS:
        raise ValueError(f"a request of more than {MOST_ELEMENTS} topics and partitions")
    return elements


def topic_key(data: Buffer, at: int, flexible: bool, by_id: bool) -> tuple[bytes, int]:
    """A topic's own bytes, those of its name or of its id: what the answer repeats."""
    start, end = (at, at + 16) if by_id else text_span(data, at, flexible)
    return bytes(data[start:end]), end


def as_topic(key: bytes, flexible: bool, by_id: bool) -> bytes:
    if by_id:
        return key
    return (as_uvarint(len(key) + 1) if flexible else INT16.pack(len(key))) + key


def as_uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def as_count(count: int, flexible: bool) -> bytes:
    return as_uvarint(count + 1) if flexible else INT32.pack(count)
