"""Bytes without a server: binlogs that were stored by MySQL 5.5 and 5.7, MySQL's binary JSON, packets off a socket.

Binlogs decode to the last row, and damaged ones are refused. Binary JSON is written by a small encoder of the tests, read
by ours, and by the package where it is right. Packets are cut anywhere, larger than a packet may be, or late.
"""

from __future__ import annotations

import gzip
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysqlreplication.json_binary import parse_json

from waterclock.cdc.mysql import binlog
from waterclock.cdc.mysql import columns as types
from waterclock.cdc.mysql.binlog import BinlogEvent, EventFramer
from waterclock.cdc.mysql.columns import BinlogColumn
from waterclock.cdc.mysql.tablemap import MYSQL, TableMap
from waterclock.cdc.mysql.tables import Tables
from waterclock.cdc.mysql.transactions import Transactions
from waterclock.cdc.mysql.values import jsonb_text
from waterclock.cdc.mysql.wire import StreamConnection, StreamReady, Wire
from waterclock.cdc.position import MySqlGtidSet, Position
from waterclock.cdc.source import SourceMark
from waterclock.changes.maxwell import MaxwellMessage, json_of
from waterclock.changes.table_schema import TableSchema
from waterclock.errors import ConnectionLost, Unreadable


class Unnamed:
    """A catalog for binlogs whose server is gone: columns by number, all text as UTF-8."""

    def charset_of(self, collation: int) -> str:
        return "utf8mb4"

    def complete(self, table: TableMap, written: int) -> tuple[list[BinlogColumn], tuple[str, ...]]:
        kinds = zip(table.types, table.sizes, strict=True)
        return [self._column(place, *kind) for place, kind in enumerate(kinds)], ("c0",)

    def _column(self, place: int, kind: int, size: int) -> BinlogColumn:
        charset = "binary" if kind in (types.BLOB, types.STRING) else "utf8mb4"
        labels = tuple(f"l{n}" for n in range(64)) if kind in (types.ENUM, types.SET) else ()
        return BinlogColumn(f"c{place}", kind, size, charset=charset, labels=labels)

    def settle(
        self, table: TableMap, columns: list[BinlogColumn], written: int, recalled: Callable[[], TableSchema | None]
    ) -> list[BinlogColumn]:
        return columns

    def virtual(self, table: TableMap) -> set[str]:
        return set()

    def hidden(self, table: TableMap, columns: list[BinlogColumn]) -> set[str]:
        return set()


UNNAMED = Unnamed()


def changes(raw: bytes, catalog: Unnamed = UNNAMED) -> list[MaxwellMessage]:
    tables = Tables(catalog, MYSQL, lambda database, table: True)
    transactions = Transactions(MySqlGtidSet(""), Position(""), tables, lambda database, table: True)
    framing, found, at = EventFramer(), list[MaxwellMessage](), len(b"\xfebin")
    while at < len(raw):
        size = int.from_bytes(raw[at + 9 : at + 13], "little")
        event = framing.event(raw[at : at + size])
        found += [item for item in transactions.take(event) if isinstance(item, MaxwellMessage)]
        at += size
    return found


def test_the_sakila_binlog_has_every_row_of_sakila(data: Path) -> None:
    whole = changes(gzip.decompress((data / "binlog" / "mysql-bin.sakila.gz").read_bytes()))
    found = [change for change in whole if change.type != "truncate"]
    assert Counter(change.table for change in found) == {
        "actor": 200, "address": 603, "category": 16, "city": 600, "country": 109, "customer": 599, "film": 1000,
        "film_actor": 5462, "film_category": 1000, "film_text": 1000, "inventory": 4581, "language": 6,
        "payment": 16049, "rental": 16044, "staff": 2, "store": 2,
    }  # fmt: skip
    assert {change.type for change in found} == {"insert"}
    emptied = [change.table for change in whole if change.type == "truncate"]
    assert sorted(emptied) == sorted({change.table for change in found})  # it begins with DROP SCHEMA
    assert found[0].data == {"c0": "1", "c1": '"PENELOPE"', "c2": '"GUINESS"', "c3": '"2006-02-15 03:34:33"'}
    payment = next(change for change in found if change.table == "payment")
    assert payment.data["c4"] == "2.99"


def test_a_binlog_with_checksums_decodes_and_each_event_is_checked(data: Path) -> None:
    raw = (data / "binlog" / "mysql-bin.checksum-crc32").read_bytes()
    found = changes(raw)
    assert Counter(change.type for change in found) == {"insert": 34, "update": 23, "delete": 6}
    assert sum(change.commit for change in found) == 60
    for place in range(200, len(raw), 997):
        with pytest.raises(Unreadable, match=r"checksum|damaged|says"):
            changes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])


def test_a_binlog_that_ends_within_an_event_is_refused(data: Path) -> None:
    raw = (data / "binlog" / "mysql-bin.checksum-crc32").read_bytes()
    with pytest.raises(Unreadable, match="damaged"):
        changes(raw[:-10])


class Misled(Unnamed):
    """Takes the numbers of one table, which has nothing else, for wider ones."""

    def complete(self, table: TableMap, written: int) -> tuple[list[BinlogColumn], tuple[str, ...]]:
        columns, key = super().complete(table, written)
        wide = table.table == "announcement_member"
        return [column._replace(type=types.LONGLONG) if wide else column for column in columns], key


def test_rows_that_were_read_with_a_wrong_type_are_refused(data: Path) -> None:
    with pytest.raises(Unreadable, match="do not fit its columns"):
        changes((data / "binlog" / "mysql-bin.checksum-crc32").read_bytes(), Misled())


def event(kind: int, body: bytes, ts: int = 1_700_000_000) -> BinlogEvent:
    return BinlogEvent(ts, kind, 1, 4, 0, body)


BEGINNING = Position("")


def gtid(number: int) -> BinlogEvent:
    return event(binlog.GTID, bytes(17) + number.to_bytes(8, "little"))


def statement(text: str) -> BinlogEvent:
    return event(binlog.QUERY, bytes(13) + b"\0" + text.encode())


def transactions(position: Position = BEGINNING, skip: frozenset[str] = frozenset()) -> Transactions:
    tables = Tables(Unnamed(), MYSQL, lambda database, table: True)
    return Transactions(MySqlGtidSet(position.place), position, tables, lambda database, table: True, skip=skip)


ZERO = "00000000-0000-0000-0000-000000000000"


def test_another_transaction_in_the_place_of_one_that_is_half_in_kafka_is_refused() -> None:
    half = Position("", 0, 5, f"{ZERO}:2")
    assert list(transactions(half).take(gtid(2))) == []
    with pytest.raises(Unreadable, match=f"{ZERO}:2 is half in Kafka and has to come first"):
        transactions(half).take(gtid(1))


def test_a_transaction_without_its_end_is_refused() -> None:
    taking = transactions()
    list(taking.take(gtid(1)))
    list(taking.take(statement("BEGIN")))
    with pytest.raises(Unreadable, match="before its commit"):
        taking.take(gtid(2))


def rows_of_two(taking: Transactions) -> list[object]:
    """Two rows of a table with one column, an INT that is named."""
    content = b"\x01d\0\x01t\0" + bytes([1, types.LONG, 0, 0]) + bytes([4, 3, 2]) + b"id"
    taken = [*taking.take(event(binlog.TABLE_MAP, bytes(8) + content))]
    written = bytes(8) + b"\2\0" + bytes([1, 1]) + b"\0\1\0\0\0" + b"\0\2\0\0\0"
    return [*taken, *taking.take(event(binlog.WRITE_V2, written))]


@pytest.mark.parametrize("skip", [frozenset[str](), frozenset([f"{ZERO}:1"])])
def test_a_transaction_that_was_cut_off_by_the_servers_end_is_refused_and_can_be_left_out(skip: frozenset[str]) -> None:
    taking = transactions(skip=skip)
    assert list(taking.take(gtid(1))) == list(taking.take(statement("BEGIN"))) == []
    sent = rows_of_two(taking)
    if skip:
        assert [*sent, *taking.take(event(binlog.FORMAT_DESCRIPTION, b"")), *taking.take(gtid(2))] == []
        assert list(taking.take(event(binlog.XID, bytes(8)))) == [SourceMark.COMMITTED]
    else:
        with pytest.raises(Unreadable, match=f"the server was killed.*--skip {ZERO}:1"):
            taking.take(event(binlog.FORMAT_DESCRIPTION, b""))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (binlog.TRANSACTION_PAYLOAD, "binlog_transaction_compression=OFF"),
        (binlog.PARTIAL_UPDATE, "binlog_row_value_options=''"),
        (binlog.TAGGED_GTID, "GTID with a tag"),
        (binlog.INCIDENT, "events are missing"),
        (binlog.MARIA_ENCRYPTION, "from the server, not from its files"),
        (99, "an event of the kind 99"),
    ],
)
def test_an_event_that_cannot_be_read_is_refused_with_what_to_set(kind: int, told: str) -> None:
    taking = transactions()
    list(taking.take(gtid(1)))
    with pytest.raises(Unreadable, match=told):
        list(taking.take(event(kind, b"")))


def test_an_unknown_event_that_says_it_may_be_left_out_is_left_out() -> None:
    assert list(transactions().take(event(99, b"")._replace(flags=binlog.IGNORABLE))) == []


def test_mysqls_create_table_as_select_is_one_transaction() -> None:
    taking = transactions()
    for made in (gtid(1), statement("CREATE TABLE `t` (`c` int) START TRANSACTION")):
        assert list(taking.take(made)) == []
    assert list(taking.take(event(binlog.XID, bytes(8)))) == [SourceMark.COMMITTED]
    assert str(taking.position().place) == f"{ZERO}:1"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text('abcä"', max_size=4), inner, max_size=5),
    max_leaves=20,
)


def length(size: int) -> bytes:
    found = bytearray()
    while size >= 0x80:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*found, size])


def number(value: int) -> tuple[int, bytes]:
    for kind, code in ((5, "<h"), (6, "<H"), (7, "<i"), (8, "<I"), (9, "<q"), (10, "<Q")):
        try:
            return kind, struct.pack(code, value)
        except struct.error:
            continue
    raise AssertionError(value)


def encoded(value: Any, large: bool) -> tuple[int, bytes]:
    """A value's kind and bytes, in the large or in the small form."""
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, int):
        return number(value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        return 12, length(len(value.encode())) + value.encode()
    return container(value, large)


def container(value: Any, large: bool) -> tuple[int, bytes]:
    width, code = (4, "<I") if large else (2, "<H")
    names = [name.encode() for name in value] if isinstance(value, dict) else []
    members = [encoded(member, large) for member in (value.values() if isinstance(value, dict) else value)]
    at = 2 * width + len(names) * (width + 2) + len(members) * (width + 1)
    heads, tails = b"", b""
    for name in names:
        heads += struct.pack(code, at + len(tails)) + struct.pack("<H", len(name))
        tails += name
    for kind, raw in members:
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            heads += bytes([kind]) + raw.ljust(width, b"\0")
        else:
            heads += bytes([kind]) + struct.pack(code, at + len(tails))
            tails += raw
    whole = struct.pack(code, len(members)) + struct.pack(code, at + len(tails)) + heads + tails
    return (0 if isinstance(value, dict) else 2) + large, whole


@given(VALUES, st.booleans())
def test_what_was_written_is_read(value: Any, large: bool) -> None:
    kind, raw = encoded(value, large)
    assert json.loads(jsonb_text(bytes([kind]) + raw)) == value


@given(VALUES)
def test_the_package_reads_the_same(value: Any) -> None:
    kind, raw = encoded(value, False)

    def text(found: Any) -> Any:
        if isinstance(found, bytes):
            return found.decode()
        if isinstance(found, list):
            return [text(member) for member in found]
        return {text(name): text(member) for name, member in found.items()} if isinstance(found, dict) else found

    assert json.loads(jsonb_text(bytes([kind]) + raw)) == text(parse_json(kind, raw))


OPAQUE = {
    "a decimal": (246, bytes([6, 3]) + bytes.fromhex("8001") + bytes.fromhex("01f4"), "1.500"),
    "a date": (10, ((2024 * 13 + 2) << 46 | 29 << 41).to_bytes(8, "little"), '"2024-02-29"'),
    "a datetime": (
        12,
        ((2024 * 13 + 2) << 46 | 29 << 41 | (12 << 12 | 34 << 6 | 56) << 24 | 78).to_bytes(8, "little"),
        '"2024-02-29 12:34:56.000078"',
    ),
    "a time": (11, (-((12 << 12 | 34 << 6 | 56) << 24 | 78)).to_bytes(8, "little", signed=True), '"-12:34:56.000078"'),
    "bytes": (253, b"\x00\xff", '"base64:type253:AP8="'),
}


@pytest.mark.parametrize("what", OPAQUE)
def test_what_json_has_no_type_for_keeps_all_it_says(what: str) -> None:
    kind, raw, expected = OPAQUE[what]
    assert jsonb_text(bytes([15, kind]) + length(len(raw)) + raw) == expected


@pytest.mark.parametrize("text", ["NaN", "{", "[1,]", "", "-Infinity"])
def test_text_that_is_no_json_is_a_string(text: str) -> None:
    assert json.loads(json_of(text)) == text


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Wire]]:
    server, client = socket.socketpair()
    with server, client:
        yield server, Wire(client)


def packet(body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + b"\0" + body


def test_packets_come_whole_however_the_bytes_are_cut(ends: tuple[socket.socket, Wire]) -> None:
    server, wire = ends
    whole = packet(b"one") + packet(b"") + packet(b"x" * 60)
    for place in range(len(whole)):
        server.sendall(whole[place : place + 1])
        if place == 2:
            assert wire.packet(0.001) is None
    assert [wire.packet(1) for _ in range(3)] == [b"one", b"", b"x" * 60]
    assert wire.packet(0.001) is None


@pytest.mark.parametrize("rest", [0, 5])
def test_a_body_that_is_larger_than_a_packet_may_be_comes_as_one(rest: int, ends: tuple[socket.socket, Wire]) -> None:
    server, wire = ends
    sent = packet(b"a" * 0xFFFFFF) + packet(b"b" * rest) + packet(b"next")
    sender = threading.Thread(target=server.sendall, args=(sent,))
    sender.start()
    found = wire.packet(10)
    sender.join()
    assert found is not None
    assert (len(found), found[-1:]) == (0xFFFFFF + rest, b"b" if rest else b"a")
    assert wire.packet(1) == b"next"


def test_an_end_is_told(ends: tuple[socket.socket, Wire]) -> None:
    server, wire = ends
    server.sendall(packet(b"whole") + packet(b"torn")[:-1])
    server.close()
    assert wire.packet(1) == b"whole"
    with pytest.raises(ConnectionLost, match="closed the connection"):
        wire.packet(1)


def test_bytes_of_a_password_are_not_taken_for_the_beginning_of_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer to a server's challenge in 128 begins like the command that asks for a binlog."""
    monkeypatch.setattr(pymysql.connections.Connection, "_write_bytes", lambda self, data: None)
    monkeypatch.setattr(pymysql.connections.Connection, "_read_packet", lambda self: "answer")
    connection = StreamConnection.__new__(StreamConnection)
    connection._write_bytes(packet(b"\x12 a scramble"))
    assert connection._read_packet() == "answer"
    connection.watching = True
    connection._write_bytes(packet(b"\x03select 1"))
    assert connection._read_packet() == "answer"
    connection._write_bytes(packet(b"\x12 a binlog"))
    with pytest.raises(StreamReady):
        connection._read_packet()
