"""Events that compiled code cuts out of the bytes of a connection, held against those that are cut one by one."""

from __future__ import annotations

import gzip
import ssl
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("waterclock.cdc.mysql._images", reason="nothing is compiled here")

import itertools

from waterclock.cdc.mysql import wire
from waterclock.cdc.mysql.binlog import FORMAT_DESCRIPTION, ROTATE, STOP, XID, BinlogEvent, EventFramer
from waterclock.cdc.mysql.server import BinlogStream, MySqlLogin
from waterclock.cdc.mysql.wire import Connection, Wire
from waterclock.errors import ConnectionLost, Unreadable

LOGIN = MySqlLogin("127.0.0.1", 3306, "root", "")
KINDS = st.sampled_from([ROTATE, XID, STOP, 19, 30, 160, 255])
BODIES = st.binary(max_size=40)


def event(kind: int, body: bytes, checksums: bool, end: int = 4000) -> bytes:
    size = 19 + len(body) + 4 * checksums
    raw = struct.pack("<IBIIIH", 1_700_000_000, kind, 7, size, end, 0) + body
    return raw + (zlib.crc32(raw).to_bytes(4, "little") if checksums else b"")


def beginning(checksums: bool) -> bytes:
    """A format description, which says whether there are checksums; with one itself if there are."""
    body = struct.pack("<H50sI", 4, b"10.11.6-MariaDB", 0) + bytes(60) + bytes([checksums])
    return event(FORMAT_DESCRIPTION, body, True) if checksums else event(FORMAT_DESCRIPTION, body + bytes(4), False)


def packed(raw: bytes, status: int = 0) -> bytes:
    return (len(raw) + 1).to_bytes(3, "little") + b"\0" + bytes([status]) + raw


class Pieces:
    """A socket that brings these, and is closed then."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter(pieces)

    def settimeout(self, seconds: float) -> None:
        pass

    def recv(self, most: int) -> bytes:
        return next(self._pieces, b"")


def read(pieces: list[bytes]) -> Iterator[BinlogEvent | str]:
    """The events of a stream, and what is said at its end."""
    stream = BinlogStream.__new__(BinlogStream)
    stream._wire, stream._framing, stream._cut, stream._login = Wire(Pieces(pieces)), EventFramer(), [], LOGIN
    try:
        while (found := stream.event(1.0, str)) is not None:
            yield found
    except (ConnectionLost, Unreadable) as error:
        yield str(error)


def both(data: bytes, places: list[int]) -> list[BinlogEvent | str]:
    """What both ways make of the bytes, which come in pieces that end at these places."""
    cuts = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(cuts) if start < end]
    compiled = list(read(pieces))
    with patch.object(wire, "events_of", None):
        assert compiled == list(read(pieces))
    return compiled


@given(
    st.lists(st.booleans() | st.tuples(KINDS, BODIES), max_size=30),
    st.lists(st.integers(0, 5000), max_size=6),
    st.none() | st.tuples(st.integers(0, 5000), st.integers(1, 255)),
)
def test_events_are_the_same_wherever_their_bytes_are_cut_and_whichever_is_damaged(
    written: list[bool | tuple[int, bytes]], places: list[int], damage: tuple[int, int] | None
) -> None:
    checksums, data = True, bytearray(packed(beginning(True)))
    for each in written:
        if isinstance(each, bool):
            checksums = each
            data += packed(beginning(each))
        else:
            data += packed(event(*each, checksums))
    if damage is not None:
        data[damage[0] % len(data)] ^= damage[1]
    both(bytes(data), places)


def test_an_error_of_the_server_comes_behind_the_events_before_it() -> None:
    data = packed(beginning(True)) + packed(event(XID, bytes(8), True)) * 3 + packed(b"\x01\x04#08S01it is over", 0xFF)
    *events, said = both(data, [])
    assert ([each.kind for each in events if isinstance(each, BinlogEvent)], said) == (
        [FORMAT_DESCRIPTION, XID, XID, XID],
        "The database ended the stream: it is over (1025).",
    )


def test_compiled_code_takes_all_that_is_whole_at_once() -> None:
    cut = Wire(Pieces([]))
    cut._data += packed(event(XID, bytes(8), True)) * 5 + packed(event(XID, bytes(8), True))[:-1]
    framing = EventFramer()
    assert cut.events(framing) == []  # nothing has said yet whether there are checksums
    framing.event(beginning(True))
    assert len(cut.events(framing)) == 5
    assert cut.events(framing) == []


@pytest.mark.parametrize("name", ["mysql-bin.sakila.gz", "mysql-bin.checksum-crc32"])
def test_a_stored_binlog_is_the_same_events(data: Path, name: str) -> None:
    raw = (data / "binlog" / name).read_bytes()
    raw = gzip.decompress(raw) if name.endswith(".gz") else raw
    sent, at = b"", 4
    while at < len(raw):
        size = int.from_bytes(raw[at + 9 : at + 13], "little")
        sent += packed(raw[at : at + size])
        at += size
    assert len(both(sent, list(range(0, len(sent), 70_001)))) > 2


def test_connections_that_check_no_certificate_share_what_tls_needs() -> None:
    first, second = (Connection(**LOGIN.settings(), defer_connect=True) for _ in range(2))
    assert first.ctx is second.ctx
    assert (first.ctx.verify_mode, first.ctx.check_hostname) == (ssl.CERT_NONE, False)


def test_a_connection_that_checks_certificates_has_its_own() -> None:
    login = MySqlLogin("127.0.0.1", 3306, "root", "", tls=True)
    first, second = (Connection(**login.settings(), defer_connect=True) for _ in range(2))
    assert first.ctx is not second.ctx
    plain = wire.pymysql.connections.Connection(**login.settings(), defer_connect=True)
    assert (first.ctx.verify_mode, first.ctx.check_hostname) == (plain.ctx.verify_mode, plain.ctx.check_hostname)
