"""The socket of a connection to MySQL or MariaDB: how it is made, and the packets and events that are cut out of it.

Rule 1: the socket is read by `Wire` and nowhere else once the stream was asked for. Waiting ends when the time is over;
        what was read of a packet until then is kept for the next time.
Rule 2: where there is compiled code it cuts all whole events that are there at once. What is not certain (a packet of
        several pieces, an error, another binlog's beginning, a wrong checksum) it leaves to the code here, which alone
        says what is wrong.
"""

from __future__ import annotations

import ssl
import sys
from functools import cache
from typing import Any

import pymysql

from waterclock.cdc.mysql.binlog import BinlogEvent, EventFramer
from waterclock.errors import ConnectionLost, EnvironmentMissing, unstopped
from waterclock.outside import socket

try:
    from waterclock.cdc.mysql._images import events_of
except ImportError:
    events_of = None  # type: ignore[assignment]

_PIECE = 1 << 18
_FULL = 0xFFFFFF  # a packet of this length goes on in the next one
_STREAM = (b"\x12", b"\x1e")  # the commands that ask for a binlog: by place, and by MySQL's GTID set


class Connection(pymysql.connections.Connection):  # type: ignore[misc]  # PyMySQL has no types
    """One that does not read the machine's certificates each time where none is checked: a start makes a dozen of them."""

    def connect(self, sock: socket.socket | None = None) -> None:
        """EnvironmentMissing where PyMySQL lacks a package for a password in clear text."""
        try:
            super().connect(sock)
        except RuntimeError as error:
            raise EnvironmentMissing(
                f"The server offers no TLS, and no password goes there in clear text: {unstopped(error)}. Have it offer "
                "TLS, as it does by default (tls_version), or install the package: pip install cryptography."
            ) from None

    def _create_ssl_ctx(self, given: Any) -> ssl.SSLContext:
        if given:
            checked: ssl.SSLContext = super()._create_ssl_ctx(given)
            return checked
        return _unchecked()


@cache
def _unchecked() -> ssl.SSLContext:
    """As PyMySQL has it for who asked for no TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class StreamReady(Exception):
    """The stream was asked for, and the first event is about to be read: the package's part is done."""


class StreamConnection(Connection):
    """A connection that stops the package where the stream begins."""

    watching = False  # not yet while it logs in: bytes of a password may look like the command
    streaming = False

    def _write_bytes(self, data: bytes) -> None:
        super()._write_bytes(data)
        self.streaming = self.streaming or (self.watching and data[4:5] in _STREAM)

    def _read_packet(self, *arguments: Any, **named: Any) -> Any:
        if self.streaming:
            raise StreamReady
        return super()._read_packet(*arguments, **named)


class Wire:
    """The packets of one connection."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._data = bytearray()
        self._at = 0
        self._parts: list[bytes] = []

    def packet(self, timeout_s: float) -> bytes | None:
        """The next packet; None if it is not whole after `timeout_s` seconds. ConnectionLost if there is no more."""
        while len(self._data) - self._at >= 4 or self._has(4, timeout_s):
            size = int.from_bytes(self._data[self._at : self._at + 3], "little")
            if len(self._data) - self._at < 4 + size and not self._has(4 + size, timeout_s):
                return None
            start = self._at + 4
            self._at = start + size
            piece = bytes(memoryview(self._data)[start : self._at])
            if size < _FULL and not self._parts:
                return piece
            self._parts.append(piece)
            if size < _FULL:
                whole, self._parts = b"".join(self._parts), []
                return whole
        return None

    def events(self, framing: EventFramer) -> list[BinlogEvent]:
        """The events that are whole already, as many as compiled code cuts (rule 2); the last one first."""
        if events_of is None or sys.byteorder != "little" or self._parts or framing.checksums is None:
            return []
        found, self._at = events_of(self._data, self._at, framing.checksums)
        found.reverse()
        return found

    def _has(self, count: int, timeout_s: float) -> bool:
        while len(self._data) - self._at < count:
            if self._at > _PIECE or self._at == len(self._data):
                del self._data[: self._at]
                self._at = 0
            self._socket.settimeout(timeout_s)
            try:
                piece = self._socket.recv(_PIECE)
            except TimeoutError:
                return False
            except OSError as error:
                raise ConnectionLost(f"The connection to the database broke: {unstopped(error)}.") from None
            if not piece:
                raise ConnectionLost("The database closed the connection.")
            self._data += piece
        return True
