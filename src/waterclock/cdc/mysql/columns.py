"""A column as the binlog describes it, and what reads its values out of a row image: as JSON text, in Maxwell's form.

Rule 1: a reader takes (row image, where the value begins) and gives (JSON text, where the next one begins).
Rule 2: what it writes is what SELECT shows. Numbers stand bare and with all their digits, bytes as base64, a SET as a
        list; BINARY keeps the zeros at its end, which the binlog leaves out.
Rule 3: a type that no reader knows is refused; nothing is guessed.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import NamedTuple
from uuid import UUID

from waterclock.cdc.mysql import temporal
from waterclock.cdc.mysql.charsets import decoder
from waterclock.cdc.mysql.decimals import decimals
from waterclock.cdc.mysql.geometry import as_text
from waterclock.cdc.mysql.jsonb import json_of, jsonb_text
from waterclock.cdc.mysql.temporal import Reader
from waterclock.changes.maxwell_message import quoted
from waterclock.errors import Unreadable

TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, TIME, DATETIME, YEAR, NEWDATE, VARCHAR, BIT = 10, 11, 12, 13, 14, 15, 16
TIMESTAMP2, DATETIME2, TIME2, BLOB_COMPRESSED, VARCHAR_COMPRESSED = 17, 18, 19, 140, 141
JSON, NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 245, 246, 247, 248, 252, 253, 254, 255

BINARY = "binary"


class BinlogColumn(NamedTuple):
    """One column. `size` is what its type needs to be read: bytes at most, digits of a second, precision and scale.

    `declared` is what only the server's catalog knows of it: uuid, inet6, inet4, json; or "".
    """

    name: str
    type: int
    size: int
    unsigned: bool = False
    charset: str = BINARY
    labels: tuple[str, ...] = ()
    collation: int = 0
    declared: str = ""


def reader(column: BinlogColumn) -> Reader:
    """What reads this column's values; Unreadable if its type is not known, or comes in a form that is not."""
    if column.declared in _DECLARED:
        return _DECLARED[column.declared](column)
    if column.type not in _READERS:
        raise Unreadable(
            f"Column {column.name} is of the binlog's type {column.type}, which has no reader here. Leave its table out "
            "(--tables), or change the column's type."
        )
    return _READERS[column.type](column)


def raw_reader(column: BinlogColumn) -> Reader:
    """The same for what `reader` refuses: bytes whose length is known as base64, everything else as ever."""
    read = raw = reader(column)
    if column.type in (VARCHAR, VAR_STRING, STRING, BLOB, GEOMETRY, JSON):
        raw = _sized(_prefix(column), base64_text)

    def either(data: bytes, at: int) -> tuple[str, int]:
        try:
            return read(data, at)
        except (Unreadable, LookupError, ValueError, ArithmeticError, struct.error):
            return raw(data, at)

    return either


def _prefix(column: BinlogColumn) -> int:
    """How many bytes hold the length of a value that has one."""
    if column.type in (BLOB, GEOMETRY, JSON):
        return column.size
    return 2 if column.size > 255 else 1


def _always(read: Reader) -> Callable[[BinlogColumn], Reader]:
    return lambda column: read


def _integers(size: int, code: str) -> Callable[[BinlogColumn], Reader]:
    def choose(column: BinlogColumn) -> Reader:
        unpack = struct.Struct("<" + (code.upper() if column.unsigned else code)).unpack_from
        return lambda data, at: (str(unpack(data, at)[0]), at + size)

    return choose


def _three_bytes(column: BinlogColumn) -> Reader:
    signed = not column.unsigned
    return lambda data, at: (str(int.from_bytes(data[at : at + 3], "little", signed=signed)), at + 3)


def _floats(data: bytes, at: int) -> tuple[str, int]:
    """A short number that is this float of four bytes: 0.1, not 0.10000000149011612."""
    raw = data[at : at + 4]
    exact: float = struct.unpack("<f", raw)[0]
    for digits in (6, 7, 8, 9):
        short = float(f"{exact:.{digits}g}")
        if abs(short) <= 3.4028234663852886e38 and struct.pack("<f", short) == raw:
            return repr(short), at + 4
    return repr(exact), at + 4


def _bits(column: BinlogColumn) -> Reader:
    size = (column.size + 7) // 8
    return lambda data, at: (str(int.from_bytes(data[at : at + size], "big")), at + size)


def _enums(column: BinlogColumn) -> Reader:
    texts, size = ['""', *map(quoted, column.labels)], column.size  # 0 is what was no label when it was written

    def read(data: bytes, at: int) -> tuple[str, int]:
        return texts[int.from_bytes(data[at : at + size], "little")], at + size

    return read


def _sets(column: BinlogColumn) -> Reader:
    texts, size = [(1 << place, quoted(label)) for place, label in enumerate(column.labels)], column.size

    def read(data: bytes, at: int) -> tuple[str, int]:
        chosen = int.from_bytes(data[at : at + size], "little")
        return "[" + ",".join([text for bit, text in texts if chosen & bit]) + "]", at + size

    return read


def _sized(prefix: int, write: Callable[[bytes], str]) -> Reader:
    def read(data: bytes, at: int) -> tuple[str, int]:
        start = at + prefix
        end = start + int.from_bytes(data[at:start], "little")
        return write(data[start:end]), end

    return read


def base64_text(raw: bytes) -> str:
    return f'"{b64encode(raw).decode()}"'


def _written(column: BinlogColumn) -> Callable[[bytes], str]:
    """What writes the bytes of a string: as text if they have a character set, else as base64."""
    if column.charset == BINARY:
        return base64_text
    decode = decoder(column.charset)

    def write(raw: bytes) -> str:
        try:
            return quoted(decode(raw))
        except UnicodeError as error:
            raise Unreadable(
                f"Column {column.name} holds bytes that its character set {column.charset} does not know ({error})."
            ) from None

    return write


def _strings(column: BinlogColumn) -> Reader:
    write = _written(column)
    if column.type == STRING and column.charset == BINARY:
        return _sized(_prefix(column), lambda raw: write(raw.ljust(column.size, b"\0")))
    return _sized(_prefix(column), write)


def _uuid(raw: bytes) -> str:
    """MariaDB keeps UUIDs of the versions 1 to 5 turned round, so that those made one after the other lie together.

    Turned round, the variant is the seventh byte and the version leads the ninth.
    """
    raw = raw.ljust(16, b"\0")
    if raw[6] & 0x80 and 0 < raw[8] < 0x60:
        raw = raw[12:16] + raw[10:12] + raw[8:10] + raw[6:8] + raw[0:6]
    return f'"{UUID(bytes=raw)}"'


def _inet6(raw: bytes) -> str:
    """As the server shows it: the longest run of zeros is left out, even one of a single group."""
    words = struct.unpack(">8H", raw.ljust(16, b"\0"))
    start = length = 0
    for place in range(8):
        zeros = next((end for end in range(place, 8) if words[end]), 8) - place
        if zeros > length:
            start, length = place, zeros
    text = [f"{word:x}" for word in words]
    if start == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        text[6:] = [str(IPv4Address(raw[12:].ljust(4, b"\0")))]
    if not length:
        return f'"{":".join(text)}"'
    return f'"{":".join(text[:start])}::{":".join(text[start + length :])}"'


def _json_text(column: BinlogColumn) -> Reader:
    decode = decoder(column.charset)
    return _sized(column.size, lambda raw: json_of(decode(raw)))


_DECLARED: dict[str, Callable[[BinlogColumn], Reader]] = {
    "uuid": _always(_sized(1, _uuid)),
    "inet6": _always(_sized(1, _inet6)),
    "inet4": _always(_sized(1, lambda raw: f'"{IPv4Address(raw.ljust(4, bytes(1)))}"')),
    "json": _json_text,
}
_READERS: dict[int, Callable[[BinlogColumn], Reader]] = {
    TINY: _integers(1, "b"),
    SHORT: _integers(2, "h"),
    INT24: _three_bytes,
    LONG: _integers(4, "i"),
    LONGLONG: _integers(8, "q"),
    FLOAT: _always(_floats),
    DOUBLE: _always(lambda data, at: (repr(struct.unpack_from("<d", data, at)[0]), at + 8)),
    NEWDECIMAL: lambda column: decimals(column.size >> 8, column.size & 255),
    BIT: _bits,
    YEAR: _always(temporal.years),
    DATE: _always(temporal.dates),
    NEWDATE: _always(temporal.dates),
    TIME: _always(temporal.old_times),
    DATETIME: _always(temporal.old_datetimes),
    TIMESTAMP: _always(temporal.old_timestamps),
    TIME2: lambda column: temporal.times(column.size),
    DATETIME2: lambda column: temporal.datetimes(column.size),
    TIMESTAMP2: lambda column: temporal.timestamps(column.size),
    ENUM: _enums,
    SET: _sets,
    VARCHAR: _strings,
    VAR_STRING: _strings,
    STRING: _strings,
    BLOB: lambda column: _sized(column.size, _written(column)),
    GEOMETRY: lambda column: _sized(column.size, lambda raw: quoted(as_text(raw))),
    JSON: lambda column: _sized(column.size, jsonb_text),
}
