"""asyncio's streams on simulated sockets: `open_connection`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from waterclock.simulation.world import world

if TYPE_CHECKING:
    from waterclock.simulation.loop import Loop
    from waterclock.simulation.network import Socket


class Stream:
    """asyncio's reader and writer in one."""

    def __init__(self, loop: Loop, sock: Socket) -> None:
        self._loop, self._sock = loop, sock
        self._in, self._out = bytearray(), bytearray()
        self._waiting: asyncio.Future[Any] | None = None
        self._error: Exception | None = None
        loop.add_reader(sock.fd, self._readable)

    def _readable(self) -> None:
        buffer = bytearray(1 << 16)
        try:
            size = self._sock.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)
            return
        if size:
            self._in += buffer[:size]
            self._wake()
        else:
            self._fail(EOFError("the other end has closed"))

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._stop_watching()
        self._wake()

    def _stop_watching(self) -> None:
        self._loop.remove_reader(self._sock.fd)
        self._loop.remove_writer(self._sock.fd)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def readexactly(self, count: int) -> bytes:
        while len(self._in) < count:
            if self._error is not None:
                raise self._error
            self._waiting = self._loop.create_future()
            await self._waiting
        data = bytes(self._in[:count])
        del self._in[:count]
        return data

    def write(self, data: bytes) -> None:
        self._out += data
        self._send()

    def _send(self) -> None:
        try:
            while self._out:
                del self._out[: self._sock.send(self._out)]
            self._loop.remove_writer(self._sock.fd)
        except BlockingIOError:
            self._loop.add_writer(self._sock.fd, self._send)
        except OSError as error:
            self._fail(error)

    async def drain(self) -> None:
        """As asyncio's; there is always room."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._stop_watching()
        self._sock.close()


async def open_connection(host: str, port: int, limit: int = 0, ssl: object = None) -> tuple[Stream, Stream]:
    here, loop = world(), asyncio.get_running_loop()
    await asyncio.sleep(here.network.latency() / 1e9)
    made = Stream(loop, here.network.connect(loop.process, (host, port)))  # type: ignore[attr-defined, arg-type]
    return made, made
