"""Packets of MySQL's protocol off a socket that streams a binlog, read ahead in large pieces.

Rule 1: the socket is read here and nowhere else from the moment the stream was asked for.
Rule 2: waiting ends when the time is over; what was read of a packet until then is kept for the next time.
"""

from __future__ import annotations

import socket

from waterclock.errors import ConnectionLost

_PIECE = 1 << 18
_FULL = 0xFFFFFF  # a packet of this length goes on in the next one


class Wire:
    """The packets of one connection."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._data = bytearray()
        self._at = 0
        self._parts: list[bytes] = []

    def packet(self, timeout_s: float) -> bytes | None:
        """The next packet; None where it is not whole after `timeout_s` seconds. ConnectionLost where there is no more."""
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
                raise ConnectionLost(f"The connection to the database broke: {error}.") from None
            if not piece:
                raise ConnectionLost("The database closed the connection.")
            self._data += piece
        return True
