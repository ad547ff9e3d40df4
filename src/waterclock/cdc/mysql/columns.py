"""A column as the binlog describes it, and what reads its values out of a row image: as JSON text, in Maxwell's form. Texts
are decoded by the server's names for character sets, and Python's codecs.

Rule 1: a reader takes (row image, where the value begins) and gives (JSON text, where the next one begins).
Rule 2: what it writes is what SELECT shows. Numbers stand bare and with all their digits, bytes as base64, a SET as a
        list; BINARY keeps the zeros at its end, which the binlog leaves out.
Rule 3: a type that no reader knows is refused; nothing is guessed.
Rule 4: bytes that the character set does not know are refused, never replaced.
Rule 5: a character set whose codec is not known to agree with the server's is not in the table, and refused by name.
"""

from __future__ import annotations

import codecs
import struct
from base64 import b64encode
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import NamedTuple
from uuid import UUID

from waterclock.cdc.mysql import values
from waterclock.cdc.mysql.values import Reader, as_text, decimals, jsonb_text
from waterclock.changes.maxwell import json_of, quoted
from waterclock.errors import Unreadable

Decode = Callable[[bytes], str]

_CODECS = {
    "utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf8": "utf-8", "ascii": "ascii",
    "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be",
    "latin2": "iso8859-2", "latin5": "iso8859-9", "latin7": "iso8859-13", "greek": "iso8859-7", "hebrew": "iso8859-8",
    "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257",
    "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "koi8r": "koi8-r", "koi8u": "koi8-u", "tis620": "tis-620",
    "gbk": "gbk", "gb2312": "gb2312", "gb18030": "gb18030", "big5": "big5", "ujis": "euc-jp",
    "sjis": "shift-jis", "cp932": "cp932", "euckr": "cp949",
}  # fmt: skip

# if the server means another character than the codec does; each comes of one sequence of bytes only. Of Big5's seven
# that the server shows as U+FFFD the codec's stay: two keys that differ would become one
_SERVERS_OWN = {
    "greek": {"\u2018": "\u02bd", "\u2019": "\u02bc"},
    "hebrew": {"\u00af": "\u203e"},
    "cp866": {"\u2116": "\u207f", "\u00a4": "\u00b2"},
    "koi8u": {"\u2219": "\u2022"},
    "ujis": {"\uff3c": "\\"},
    "sjis": {"\uff3c": "\\"},
}

_ROW = range(0xA1, 0xFF)
# what the codec lacks: characters that makers added to Big5, and the places for users' own characters in EUC-JP
_MORE: dict[str, dict[bytes, str]] = {
    "big5": {b"\xf9" + bytes([0xD6 + place]): letter for place, letter in enumerate("碁銹裏墻恒粧嫺")},
    "ujis": {
        before + bytes([row, cell]): chr(first + (row - 0xF5) * 94 + cell - 0xA1)
        for before, first in ((b"", 0xE000), (b"\x8f", 0xE3AC))
        for row in range(0xF5, 0xFF)
        for cell in _ROW
    },
}

# MySQL's latin1 is Windows' code page 1252, and if that has a hole it keeps the byte's own number
_LATIN1 = "".join(
    chr(byte) if byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else bytes([byte]).decode("cp1252") for byte in range(256)
)


def decoder(charset: str) -> Decode:
    """What makes text of a value's bytes; Unreadable for a character set without a codec, or bytes that are not in it.

    >>> decoder("latin1")(b"\\xe9\\x81")
    'é\\x81'
    """
    if charset == "latin1":
        return lambda raw: codecs.charmap_decode(raw, "strict", _LATIN1)[0]
    if charset not in _CODECS:
        raise Unreadable(
            f"The character set {charset} has no codec here. Leave its tables out (--tables), or convert its columns: "
            "ALTER TABLE ... CONVERT TO CHARACTER SET utf8mb4."
        )
    codec = codecs.lookup(_CODECS[charset])
    errors = "strict"
    if charset in _MORE:
        errors = f"waterclock-{charset}"
        codecs.register_error(errors, _more(_MORE[charset]))
    if charset in _SERVERS_OWN:
        own = str.maketrans(_SERVERS_OWN[charset])
        return lambda raw: codec.decode(raw, errors)[0].translate(own)
    return lambda raw: codec.decode(raw, errors)[0]


def _more(letters: dict[bytes, str]) -> Callable[[UnicodeError], tuple[str, int]]:
    """What a codec calls for bytes that it does not know."""

    def known(error: UnicodeError) -> tuple[str, int]:
        if isinstance(error, UnicodeDecodeError):
            for size in (2, 3):
                found = letters.get(error.object[error.start : error.start + size])
                if found is not None:
                    return found, error.start + size
        raise error

    return known


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


def reads_ascii(charset: str) -> bool:
    """Whether bytes below 128 are ASCII in it, whatever stands beside them; false for one that has no codec.

    >>> reads_ascii("latin1"), reads_ascii("utf16")
    (True, False)
    """
    try:
        return decoder(charset)(bytes(range(128))) == bytes(range(128)).decode("ascii")
    except (Unreadable, UnicodeError):
        return False


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
        raw = _sized(prefix(column), base64_text)
    elif column.type == DATETIME:
        raw = lambda data, at: (base64_text(data[at : at + 8]), at + 8)  # noqa: E731

    def either(data: bytes, at: int) -> tuple[str, int]:
        try:
            return read(data, at)
        except (Unreadable, LookupError, ValueError, ArithmeticError, struct.error):
            return raw(data, at)

    return either


def prefix(column: BinlogColumn) -> int:
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


def float_text_at(data: bytes, at: int) -> tuple[str, int]:
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


def text_writer(column: BinlogColumn) -> Callable[[bytes], str]:
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
    write = text_writer(column)
    if column.type == STRING and column.charset == BINARY:
        return _sized(prefix(column), lambda raw: write(raw.ljust(column.size, b"\0")))
    return _sized(prefix(column), write)


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
    FLOAT: _always(float_text_at),
    DOUBLE: _always(lambda data, at: (repr(struct.unpack_from("<d", data, at)[0]), at + 8)),
    NEWDECIMAL: lambda column: decimals(column.size >> 8, column.size & 255),
    BIT: _bits,
    YEAR: _always(values.years),
    DATE: _always(values.dates),
    NEWDATE: _always(values.dates),
    TIME: _always(values.old_times),
    DATETIME: _always(values.old_datetimes),
    TIMESTAMP: _always(values.old_timestamps),
    TIME2: lambda column: values.times(column.size),
    DATETIME2: lambda column: values.datetimes(column.size),
    TIMESTAMP2: lambda column: values.timestamps(column.size),
    ENUM: _enums,
    SET: _sets,
    VARCHAR: _strings,
    VAR_STRING: _strings,
    STRING: _strings,
    BLOB: lambda column: _sized(column.size, text_writer(column)),
    GEOMETRY: lambda column: _sized(column.size, lambda raw: quoted(as_text(raw))),
    JSON: lambda column: _sized(column.size, jsonb_text),
}
