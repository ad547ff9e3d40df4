"""Small files of JSON that say whether they are whole: the value on one line, its checksum (CRC-32) on the next.

Rule 1: they are written whole, durably: a crash leaves the old one or the new one.
Rule 2: brokers wrote CRC-32C there at first: such a file is read all the same.
"""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

from waterclock.disk import write_whole


def sealed(value: Any) -> bytes:
    """A value's bytes.

    >>> unsealed(sealed({"start": 5}))
    {'start': 5}
    """
    line = json.dumps(value, separators=(",", ":")).encode()
    return b"%s\n%08x\n" % (line, crc32(line))


def unsealed(data: bytes) -> Any:
    """The value; ValueError if the bytes are not whole.

    >>> unsealed(sealed({"start": 5}).replace(b"5", b"6"))
    Traceback (most recent call last):
        ...
    ValueError: the checksum is not that of its line
    """
    line, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % crc32(line) and not _has_crc32c(line, rest):
        raise ValueError("the checksum is not that of its line")
    return json.loads(line)


def _has_crc32c(line: bytes, rest: bytes) -> bool:
    """Rule 2. Who has no broker has no such file, and need not have the package."""
    try:
        from crc32c import crc32c
    except ImportError:
        return False
    return rest == b"%08x\n" % crc32c(line)


def write_sealed(path: str, value: Any) -> None:
    """Replace the file at `path`, durably; OSError if the disk refuses."""
    write_whole(path, sealed(value))


def read_sealed(path: str) -> Any:
    """What a file says; OSError if there is none, ValueError if it is not whole."""
    with open(path, "rb") as file:
        return unsealed(file.read())
