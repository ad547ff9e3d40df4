"""The offset that a Debezium connector stored, out of any of the places where it may lie.

    a file of FileOffsetBackingStore     Java's serialized map of bytes (Connect standalone, Debezium Server, embedded)
    JSON of GET /connectors/NAME/offsets {"offsets": [{"partition": ..., "offset": ...}]}
    lines of the topic connect-offsets   KEY, a tab, VALUE; or the value alone

Rule 1: one offset is to be in it, of the connector's own server: several are refused, never chosen among.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from waterclock.errors import UsageError

_JAVA = b"\xac\xed\x00\x05"
_ARRAY = re.compile(rb"u(?:r\x00\x02\[B.{8}\x02\x00\x00xp|q\x00~..)(.{4})", re.DOTALL)
Offset = Mapping[str, Any]


def offset_of(raw: bytes, prefix: str) -> Offset:
    """The stored offset of the connector with this `topic.prefix`.

    >>> offset_of(b'{"file":"binlog.000003","pos":154}', "shop")
    {'file': 'binlog.000003', 'pos': 154}
    """
    try:
        pairs = list(_java(raw) if raw.startswith(_JAVA) else _json(raw.decode()))
    except ValueError:
        pairs = []
    found = {json.dumps(key): value for key, value in pairs if key is None or key.get("server") == prefix}
    offsets = [value for value in found.values() if value is not None]
    if len(offsets) != 1:
        raise UsageError(
            f"The file of offsets has {len(offsets)} of the topic.prefix {prefix!r}, and one is needed. Give the file of "
            "offset.storage.file.filename, or what GET /connectors/NAME/offsets answers."
        )
    return dict(offsets[0])


def _java(raw: bytes) -> Iterator[tuple[Any, Any]]:
    """Key and value of each entry; a value may be null."""
    at, key = 0, None
    while (found := _ARRAY.search(raw, at)) is not None:
        size = int.from_bytes(found[1], "big")
        text, at = raw[found.end() : found.end() + size], found.end() + size
        if key is None:
            key = json.loads(text)[1]
            if raw[at : at + 1] == b"p":  # Java's null
                key = None
        else:
            yield key, json.loads(text)
            key = None


def _json(text: str) -> Iterator[tuple[Any, Any]]:
    try:
        fields = json.loads(text)
    except ValueError:
        for line in filter(str.strip, text.splitlines()):
            key, tab, value = line.rpartition("\t")
            yield (json.loads(key)[1] if tab else None), json.loads(value)
        return
    for each in fields.get("offsets", [{"offset": fields}]):
        yield each.get("partition"), each["offset"]
