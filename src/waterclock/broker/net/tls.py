"""TLS around a connection: the same requests and answers, through Python's `ssl` without waiting.

Rule 1: what OpenSSL has decrypted is not seen by the loop any more: reading goes on until it holds nothing, a few
    records at a time so that others have their turn.
Rule 2: a write that could not go is tried again with the same bytes, or more: a file is read again at its place.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from waterclock.broker.buffers import Slice
from waterclock.broker.net.connection import Connection, Serve
from waterclock.broker.net.hub import Hub

if TYPE_CHECKING:
    from waterclock.broker.net.listener import Connect, Listener

CHUNK: Final = 64 << 10
RECORDS: Final = 16


def connector(made: ssl.SSLContext) -> Connect:
    """What makes connections of sockets."""

    def connect(sock: socket.socket, listener: Listener, serve: Serve) -> TlsConnection:
        try:
            wrapped = made.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except (OSError, ValueError) as error:  # gone before it said anything
            sock.close()
            raise ConnectionResetError from error
        return TlsConnection(wrapped, listener, serve)

    return connect


class TlsConnection(Connection):
    """A connection whose bytes are encrypted."""

    sock: ssl.SSLSocket
    _shaken = False  # hands, that is
    _reads_after_write = False

    def __init__(self, sock: ssl.SSLSocket, hub: Hub, serve: Serve) -> None:
        super().__init__(sock, hub, serve)
        hub.arriving.begin(self)  # a handshake must end too

    def _read_on(self) -> None:
        super()._read_on()
        if self._shaken and self.fd >= 0 and self.sock.pending():
            self.loop.call_soon(self._read_rest)

    def _read_rest(self) -> None:
        if self._reading:
            self._readable()

    def receive(self) -> None:
        """Shake hands; then read what there is, and serve the requests that are whole."""
        if not self._shaken:
            self._in_time(self.sock.do_handshake)
            self._shaken = True
            if not self._stranger:
                self._hub.arriving.end(self)
        for _ in range(RECORDS):
            super().receive()
            if self.fd < 0 or not self._reading or not self.sock.pending() or self._full():
                return
        self.loop.call_soon(self._read_rest)

    def _receive_into(self, buffer: memoryview) -> int:
        return self._in_time(lambda: self.sock.recv_into(buffer)) or 0

    def _in_time(self, step: Callable[[], int | None]) -> int | None:
        """Do a step that may want to read or to write first: BlockingIOError, and the loop waits for it."""
        try:
            return step()
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self._reads_after_write = True
            self._write_when_possible(True)
            raise BlockingIOError from None

    def pump(self) -> None:
        """Send what is answered, or go on with what waited for a write."""
        if self._reads_after_write:
            self._reads_after_write = False
            self._write_when_possible(False)
            self.loop.call_soon(self._read_rest)
        if self._shaken:
            super().pump()

    def _send(self, data: bytes | memoryview, more: bool) -> int:
        try:
            return self.sock.send(data[:CHUNK])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def _send_file(self, part: Slice) -> int:
        data = os.pread(part.segment.fd, min(part.size, CHUNK), part.at)
        if not data:
            raise ConnectionResetError("a file ended before the answer that it is part of")
        sent = self._send(data, False)
        part.at += sent
        part.size -= sent
        return sent

    def _hang_up(self) -> None:
        with suppress(OSError, ValueError):
            self.sock.unwrap()  # says goodbye; what the other end says to that is not waited for
        self.sock.close()
