"""Where connections come in: one listening socket, all its connections."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from waterclock.broker.net.connection import Connection, log
from waterclock.broker.net.outgoing import Ready


class Listener:
    """Accepts clients on `host:port` (0: any free one); one more than `most` is closed at once."""

    def __init__(
        self,
        loop: Any,
        host: str,
        port: int,
        *,
        largest_request: int,
        most: int,
    ) -> None:
        self.loop, self.ready = loop, Ready(loop)
        self.largest_request, self._most = largest_request, most
        self.received = self.sent = 0  # bytes
        self.connections: dict[Connection, None] = {}
        self._socket = socket.create_server((host, port), backlog=1024)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def open(self, serve: Callable[[Connection, memoryview], None]) -> None:
        """Begin to accept; `serve(connection, request)` takes the bytes of each request, without their size."""
        self._serve = serve
        self.loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        with suppress(BlockingIOError, InterruptedError):
            for _ in range(100):
                self._take(self._socket.accept()[0])

    def _take(self, sock: socket.socket) -> None:
        if len(self.connections) >= self._most:
            log.warning("refused a connection: max.connections allows %d", self._most)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections[Connection(sock, self, self._serve)] = None

    def closed(self, connection: Connection) -> None:
        """A connection tells that it is over."""
        self.connections.pop(connection, None)

    def close(self) -> None:
        """Accept no more, and drop all connections."""
        self.loop.remove_reader(self._socket)
        self._socket.close()
        for connection in list(self.connections):
            connection.close()
