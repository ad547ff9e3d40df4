"""What the bytes of a character set mean: the server's names for them, and Python's codecs.

Rule 1: bytes that the character set does not know are refused, never replaced.
Rule 2: a character set whose codec is not known to agree with the server's is not in the table, and refused by name.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

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

# MySQL's latin1 is Windows' code page 1252, and where that has a hole it keeps the byte's own number
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
