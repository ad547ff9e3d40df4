"""Events of a binlog, cut out of the bytes in which a file or a server brings them; their bodies are read elsewhere.

Rule 1: an event is whole or refused: its length has to fit, and if the server writes checksums, each is checked.
Rule 2: the format description, which opens every binlog, says whether there are checksums; before it none is checked.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from waterclock.errors import Unreadable

QUERY, STOP, ROTATE, FORMAT_DESCRIPTION, XID, TABLE_MAP = 2, 3, 4, 15, 16, 19
WRITE_V1, UPDATE_V1, DELETE_V1, WRITE_V2, UPDATE_V2, DELETE_V2 = 23, 24, 25, 30, 31, 32
INCIDENT, HEARTBEAT, ROWS_QUERY, GTID, ANONYMOUS_GTID, PREVIOUS_GTIDS = 26, 27, 29, 33, 34, 35
XA_PREPARE, PARTIAL_UPDATE, TRANSACTION_PAYLOAD, HEARTBEAT_V2, TAGGED_GTID = 38, 39, 40, 41, 42
APPEND_BLOCK, DELETE_FILE, BEGIN_LOAD, EXECUTE_LOAD = 9, 11, 17, 18  # LOAD DATA as a statement
MARIA_ANNOTATE, MARIA_CHECKPOINT, MARIA_GTID, MARIA_GTID_LIST, MARIA_ENCRYPTION = 160, 161, 162, 163, 164
MARIA_QUERY_COMPRESSED, MARIA_WRITE_COMPRESSED, MARIA_UPDATE_COMPRESSED, MARIA_DELETE_COMPRESSED = 165, 166, 167, 168

IGNORABLE = 0x80  # a flag of an event's header: who does not know the event may leave it out

_HEADER = struct.Struct("<IBIIIH")
_CHECKSUM_BYTES = 4


class BinlogEvent(NamedTuple):
    """One event: when its statement began (seconds), what it is, whose it is, and its body without the checksum."""

    ts: int
    kind: int
    server: int
    end: int  # where the next one begins in the binlog's file; 0: made up by the server for this connection
    flags: int
    body: bytes


class EventFramer:
    """Cuts events out of their bytes. It learns from the format description whether they carry checksums.

    >>> EventFramer().event(bytes.fromhex("00000000 03 01000000 13000000 00000000 0000")).kind == STOP
    True
    """

    def __init__(self) -> None:
        self._checksums: bool | None = None

    def event(self, raw: bytes) -> BinlogEvent:
        """The event in `raw`, header and all; Unreadable if its length or its checksum is wrong."""
        ts, kind, server, size, end, flags = _HEADER.unpack_from(raw)
        if size != len(raw):
            raise Unreadable(
                f"A binlog event before {end} has {len(raw)} bytes and says {size}: the binlog is damaged."
            )
        if kind == FORMAT_DESCRIPTION:
            version = raw[_HEADER.size + 2 : _HEADER.size + 52].rstrip(b"\0").decode("ascii", "replace")
            numbers = tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())
            # older servers know none, and the last byte means something else
            knows_them = "MariaDB" in version or numbers >= (5, 6, 1)
            self._checksums = knows_them and raw[-1 - _CHECKSUM_BYTES] == 1
        last = size
        if self._checksums:
            last = size - _CHECKSUM_BYTES
            if zlib.crc32(raw[:last]) != int.from_bytes(raw[last:], "little"):
                raise Unreadable(
                    f"The checksum of the binlog event that ends at {end} is wrong: the binlog, or the way "
                    "from the server, "
                    "is damaged. Try again; where it stays, start from a later GTID (--from) and compare the tables."
                )
        return BinlogEvent(ts, kind, server, end, flags, raw[_HEADER.size : last])


def length_encoded(data: bytes, at: int) -> tuple[int, int]:
    """A whole number as MySQL packs it, and where the next byte is.

    >>> length_encoded(b"\\x07", 0), length_encoded(b"\\xfc\\x00\\x01", 0)
    ((7, 1), (256, 3))
    """
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
    if size is None:
        raise Unreadable(f"A length in a binlog event begins with {first:#x}, which is none.")
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def uncompressed(data: bytes) -> bytes:
    """What MariaDB packed (log_bin_compress=ON): a byte that says how, the length, and zlib's bytes."""
    if not data[0] & 0x80 or (data[0] >> 4) & 7:
        raise Unreadable("A compressed binlog event is not packed by zlib. Set log_bin_compress=OFF on the server.")
    head = 1 + (data[0] & 7)
    plain = zlib.decompress(data[head:])
    if len(plain) != int.from_bytes(data[1:head], "big"):
        raise Unreadable("A compressed binlog event unpacks to another length than it says: the binlog is damaged.")
    return plain
