"""Packets off a socket: cut anywhere, larger than a packet may be, late; and what begins the stream."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pymysql
import pytest

from waterclock.cdc.mysql.server import Wire, _Connection, _StreamReady
from waterclock.errors import ConnectionLost


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
    connection = _Connection.__new__(_Connection)
    connection._write_bytes(packet(b"\x12 a scramble"))
    assert connection._read_packet() == "answer"
    connection.watching = True
    connection._write_bytes(packet(b"\x03select 1"))
    assert connection._read_packet() == "answer"
    connection._write_bytes(packet(b"\x12 a binlog"))
    with pytest.raises(_StreamReady):
        connection._read_packet()
