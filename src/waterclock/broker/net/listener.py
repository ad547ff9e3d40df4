"""Where connections come in: one listening socket, all its connections, and TLS around them through Python's `ssl`.

Rule 1: what cannot be taken is refused when it connects: one more than `max.connections`, and what there is no file for.
Rule 2: what OpenSSL has decrypted is not seen by the loop any more: reading goes on until it holds nothing, a few
    records at a time so that others have their turn.
Rule 3: a write that could not go is tried again with the same bytes, or more: a file is read again at its place.
"""

from __future__ import annotations

import errno
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.net.connection import INBOX, Connection, Serve
from waterclock.broker.net.limits import SMALL_OF_STRANGERS, ArrivalWatch, Hub, IdleWatch, MemoryPool
from waterclock.broker.net.outgoing import Ready, Slice
from waterclock.broker.net.turns import Turns
from waterclock.clock import SystemClock
from waterclock.errors import UsageError
from waterclock.outside import os, socket
from waterclock.ports import holder

if TYPE_CHECKING:
    from waterclock.broker.settings import Settings

AT_ONCE: Final = 100  # connections taken before others have their turn
NO_FILES_S: Final = 1.0  # how long nobody is taken if the process has no file left
LARGEST_PORT: Final = 65_535
log = logging.getLogger("waterclock.broker")

Connect = Callable[[socket.socket, "Listener", Serve], Connection]


class Listener:
    """Accepts clients on `address` (port 0: any free one). `connect` makes a connection of a socket."""

    def __init__(
        self, loop: Any, address: tuple[str, int], settings: Settings, timer: Any, connect: Connect = Connection,
        now_ns: Callable[[], int] = SystemClock.monotonic_ns,
    ) -> None:  # fmt: skip
        self.loop, self.ready = loop, Ready(loop)
        self._settings = settings
        self._timer = timer
        self._connect = connect
        self._owns_timer = False
        self.largest_request: int = settings["socket.request.max.bytes"]
        self.largest_unknown: int | None = None  # if there are users
        self.received = self.sent = self.refused = 0  # bytes, and connections
        self.connections: dict[Connection, None] = {}
        # one for all of its connections: reading and serving run without a break between. Not one for all listeners:
        # another broker of the process has a thread of its own
        self.inbox = memoryview(bytearray(INBOX))
        self.memory = MemoryPool(settings["queued.max.request.bytes"])
        self.memory_of_strangers = MemoryPool(settings["queued.max.unauthenticated.bytes"], SMALL_OF_STRANGERS)
        self.turns = Turns(loop, now_ns)
        self.arriving = ArrivalWatch(timer, settings["socket.request.timeout.ms"])
        self.idle = IdleWatch(timer, self.connections, settings["connections.max.idle.ms"])
        self._socket = _listening(address)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def open(self, serve: Serve, known: Serve | None = None) -> None:
        """Begin to accept; `serve(connection, request)` takes the bytes of each request, without their size.

        Who was connected already and is known is served by `known`.
        """
        self._serve = serve
        for connection in list(self.connections):
            connection.serve_by(serve, serve if known is None else known)
        self._accept_on()

    def _accept_on(self) -> None:
        self.loop.add_reader(self._socket, self._accept)

    def hand_over(self) -> None:
        """Whoever opens it next serves those who are connected; who waits for an answer is dropped.

        A client that lost all its brokers at once would forget them. The timer is the listener's own from now on.
        """
        self._owns_timer = True
        self.loop.remove_reader(self._socket)
        for connection in list(self.connections):
            if connection.slots:
                connection.close()
            else:
                connection.hold()

    def _accept(self) -> None:
        try:
            for _ in range(AT_ONCE):
                self._take(self._socket.accept()[0])
        except (BlockingIOError, InterruptedError, ConnectionError):
            pass
        except OSError as error:  # no file left: the loop would call again at once, and for nothing
            log.warning("cannot take connections for %.0f s: %s", NO_FILES_S, error)
            self.loop.remove_reader(self._socket)
            self._timer.call_later(NO_FILES_S, self._accept_on)

    def _take(self, sock: socket.socket) -> None:
        if len(self.connections) >= self._settings["max.connections"]:
            self.refused += 1
            log.warning("refused a connection: max.connections allows %d", self._settings["max.connections"])
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        with suppress(ConnectionError):  # gone again
            self.connections[self._connect(sock, self, self._serve)] = None
            self.idle.begin()

    def closed(self, connection: Connection) -> None:
        """A connection has ended."""
        self.connections.pop(connection, None)

    def close(self) -> None:
        """Accept no more, and drop all connections."""
        self.loop.remove_reader(self._socket)
        self._socket.close()
        for connection in list(self.connections):
            connection.close()
        if self._owns_timer:
            self._timer.close()


def _listening(address: tuple[str, int]) -> socket.socket:
    """A socket that listens there; UsageError if that cannot be."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    if not 0 <= address[1] <= LARGEST_PORT:  # create_server would leave the socket open
        raise _cannot_listen(address, f"ports go from 0 to {LARGEST_PORT}")
    try:
        return socket.create_server(address, family=family, backlog=1024)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while")[0]  # what Python adds is the address
        raise _cannot_listen(address, reason, is_taken=error.errno == errno.EADDRINUSE) from None


def _cannot_listen(address: tuple[str, int], reason: str, *, is_taken: bool = False) -> UsageError:
    remedy = "choose another host or port (--host, --port)"
    if is_taken:
        there = holder(*address)
        who = f"{there} has it" if there else "a broker may still run there"
        remedy = f"{who}: end it, or choose another port with --port"
    return UsageError(f"cannot listen on {address[0]}:{address[1]} ({reason}): {remedy}; --port 0 takes any free one")


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
