"""asyncio's transports on simulated sockets: those of a user's client, and of `open_connection`."""

# mypy: disable-error-code="override"
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from waterclock.simulation.world import NS, world

if TYPE_CHECKING:
    from waterclock.simulation.loop import Loop
    from waterclock.simulation.network import Socket

P = TypeVar("P", bound=asyncio.Protocol)
AT_ONCE = 1 << 16


class Transport(asyncio.Transport):
    """A simulated connection, for asyncio's protocols and streams. It keeps whatever the network does not take yet."""

    def __init__(self, loop: Loop, sock: Socket, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": sock.getpeername(), "sockname": sock.getsockname()})
        self._loop, self._sock, self._protocol = loop, sock, protocol
        self._out, self._closing, self._over = bytearray(), False, False
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self.resume_reading)

    def is_closing(self) -> bool:
        """What belongs to a dead process is nobody's to close."""
        return self._closing or not self._loop.process.alive

    def pause_reading(self) -> None:
        self._loop.remove_reader(self._sock.fd)

    def resume_reading(self) -> None:
        if not self._closing:
            self._loop.add_reader(self._sock.fd, self._receive)

    def _receive(self) -> None:
        try:
            data = self._sock.recv(AT_ONCE)
        except BlockingIOError:
            pass
        except OSError as error:
            self._end(error)
        else:
            if data:
                self._protocol.data_received(data)
            else:
                self.pause_reading()
                if not self._protocol.eof_received():
                    self.close()

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        if not self._closing:
            self._out += data
            self._send()

    def _send(self) -> None:
        try:
            while self._out:
                del self._out[: self._sock.send(self._out)]
            self._loop.remove_writer(self._sock.fd)
            if self._closing:
                self._end(None)
        except BlockingIOError:
            self._loop.add_writer(self._sock.fd, self._send)
        except OSError as error:
            self._end(error)

    def close(self) -> None:
        """Once what was written has gone."""
        self._closing = True
        self.pause_reading()
        if not self._out:
            self._end(None)

    def abort(self) -> None:
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if not self._over:
            self._closing = self._over = True
            self.pause_reading()
            self._loop.remove_writer(self._sock.fd)
            self._sock.close()
            self._loop.call_soon(self._protocol.connection_lost, error)


async def connected(loop: Loop, make: Callable[[], P], host: str, port: int) -> tuple[Transport, P]:
    """A connection of the loop's process, and the protocol that was made for it."""
    network = world().network
    await asyncio.sleep(network.latency() / NS)
    sock, protocol = network.connect(loop.process, (host, port)), make()
    return Transport(loop, sock, protocol), protocol


async def open_connection(
    host: str, port: int, limit: int = AT_ONCE, ssl: object = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """As asyncio's."""
    loop: Loop = asyncio.get_running_loop()  # type: ignore[assignment]
    reader = asyncio.StreamReader(limit, loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await connected(loop, lambda: protocol, host, port)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
