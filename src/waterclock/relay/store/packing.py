"""A message as one row of bytes: what the store keeps of it, besides due time, origin and target.

lengths of value and key (i4, -1: null), number of headers (u4), length of the id (u1) | id | key | value | headers
a header: length of its name (u4), of its value (i4, -1: null) | name | value
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct("<iiIB")
_HEADER: Final = struct.Struct("<Ii")
_ID_AT: Final = _HEAD.size - 1
MOST_ID: Final = 255  # bytes

Header = tuple[str, bytes | None]


class Payload(NamedTuple):
    """What is handed on when the message is due; `id` is empty where it has none."""

    value: bytes | None
    key: bytes | None
    id: bytes
    headers: list[Header]


def pack(value: bytes | None, key: bytes | None, id: bytes = b"", headers: Sequence[Header] = ()) -> bytes:
    """The bytes of a message. ValueError for an id of more than 255 bytes.

    >>> unpack(pack(b"hello", None, b"cart-17", [("a", None)]))
    Payload(value=b'hello', key=None, id=b'cart-17', headers=[('a', None)])
    """
    if len(id) > MOST_ID:
        raise ValueError(f"id must have at most {MOST_ID} bytes, got {len(id)}")
    head = _HEAD.pack(-1 if value is None else len(value), -1 if key is None else len(key), len(headers), len(id))
    packed = b"".join((head, id, key or b"", value or b""))
    return packed + b"".join(map(_packed_header, headers)) if headers else packed


def _packed_header(header: Header) -> bytes:
    name, value = header[0].encode(), header[1]
    return _HEADER.pack(len(name), -1 if value is None else len(value)) + name + (value or b"")


def unpack(blob: bytes) -> Payload:
    """The message that `pack` was given."""
    value_size, key_size, count, id_size = _HEAD.unpack_from(blob)
    key_at = _HEAD.size + id_size
    value_at = key_at + max(0, key_size)
    end = value_at + max(0, value_size)
    return Payload(
        None if value_size < 0 else blob[value_at:end],
        None if key_size < 0 else blob[key_at:value_at],
        blob[_HEAD.size : key_at],
        _unpacked_headers(blob, end, count) if count else [],
    )


def _unpacked_headers(blob: bytes, at: int, count: int) -> list[Header]:
    headers: list[Header] = []
    for _ in range(count):
        name_size, value_size = _HEADER.unpack_from(blob, at)
        value_at = at + _HEADER.size + name_size
        at = value_at + max(0, value_size)
        name = blob[value_at - name_size : value_at].decode()
        headers.append((name, None if value_size < 0 else blob[value_at:at]))
    return headers


def ids_of(blobs: Sequence[bytes]) -> list[bytes]:
    """The id of each; empty where there is none.

    >>> ids_of([pack(b"", b"", b"cart-17"), pack(b"", b"")])
    [b'cart-17', b'']
    """
    start = _HEAD.size
    return [blob[start : start + blob[_ID_AT]] if blob[_ID_AT] else b"" for blob in blobs]
