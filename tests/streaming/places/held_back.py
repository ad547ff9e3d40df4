"""A way to a server that keeps one request back until it is let through, as a network may do."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Event, Thread


class HeldBack:
    """Listens on `port`, and passes all on to a server of this machine, but for a PUT of a path that ends in `ending`."""

    def __init__(self, server: int, ending: str) -> None:
        self._server, self._ending = server, ending.encode() + b" "
        self.held, self._let = Event(), Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        Thread(target=self._accept, daemon=True).start()

    def let_through(self) -> None:
        """The request goes on, and others like it."""
        self._let.set()

    def close(self) -> None:
        self._let.set()
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                Thread(target=self._pass_on, args=(client, server, True), daemon=True).start()
                Thread(target=self._pass_on, args=(server, client, False), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, asks: bool) -> None:
        with suppress(OSError), one, other:
            while data := one.recv(1 << 16):
                if asks and data.startswith(b"PUT ") and self._ending in data.partition(b"HTTP/")[0]:
                    self.held.set()
                    self._let.wait()
                other.sendall(data)
