"""The asyncio loop that a user's own code runs on in a universe: what a client library asks of a real one.

Rule 1: futures and tasks are numbered, and their hash is the number: a set of them has one order, whatever their addresses.
Rule 2: tasks stay referenced until the universe is over: what belonged to a killed process is not unwound in its midst.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

from waterclock.simulation.loop import Loop
from waterclock.simulation.network import Socket
from waterclock.simulation.processes import Process
from waterclock.simulation.world import NS, world

ALMOST_FULL = 1 << 16


class NumberedFuture(asyncio.Future[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class NumberedTask(asyncio.Task[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class UserLoop(Loop):
    """`when_steps` callbacks from now `deed` happens: a fault in the midst of what the process does."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._made = self.when_steps = 0
        self.tasks: list[asyncio.Task[Any]] = []
        self.deed: Callable[[], object] = lambda: None

    def create_future(self) -> asyncio.Future[Any]:
        self._made += 1
        future = NumberedFuture(loop=self)
        future.number = self._made
        return future

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None, **_: object
    ) -> asyncio.Task[Any]:
        self._made += 1
        task = NumberedTask(coro, loop=self, name=name or f"task-{self._made}", context=context)
        task.number = self._made
        self.tasks.append(task)
        return task

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        if self.when_steps:
            self.when_steps -= 1
            if not self.when_steps:
                self.world.soon(self.deed)
        return super().call_soon(callback, *args, context=context)  # type: ignore[no-any-return]

    call_soon_threadsafe = call_soon

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """As a real loop does: into the log. What of a dead process is freed says nothing."""
        if self.process.alive:
            self.world.log(self.process.name, context.get("message"), context.get("exception"))
            logging.getLogger("asyncio").error(context.get("message"), exc_info=context.get("exception"))

    async def getaddrinfo(self, host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        return [(2, 1, 6, "", (host, port))]

    async def create_connection(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        ssl: object = None,
        **_: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        if ssl is not None:
            raise NotImplementedError("a universe has no TLS")
        network = world().network
        await asyncio.sleep(network.latency() / NS)
        sock = network.connect(self.process, (host, port))
        protocol = protocol_factory()
        return Transport(self, sock, protocol), protocol


class Transport(asyncio.Transport):
    """A simulated connection, for asyncio's protocols and streams."""

    def __init__(self, loop: UserLoop, sock: Socket, protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"peername": sock.getpeername(), "sockname": sock.getsockname()})
        self._loop, self._sock, self._protocol = loop, sock, protocol
        self._out, self._closing, self._over, self._full = bytearray(), False, False, False
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self.resume_reading)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._loop.remove_reader(self._sock.fd)

    def resume_reading(self) -> None:
        if not self._closing:
            self._loop.add_reader(self._sock.fd, self._readable)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            return self._end(error)
        if data:
            self._protocol.data_received(data)  # type: ignore[attr-defined]
        else:
            self.pause_reading()
            if not self._protocol.eof_received():  # type: ignore[attr-defined]
                self.close()

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        if not self._over:
            self._out += data
            self._send()

    def _send(self) -> None:
        try:
            while self._out:
                del self._out[: self._sock.send(self._out)]
        except BlockingIOError:
            self._loop.add_writer(self._sock.fd, self._send)
        except OSError as error:
            return self._end(error)
        if not self._out:
            self._loop.remove_writer(self._sock.fd)
            if self._closing:
                return self._end(None)
        if self._full != (len(self._out) > ALMOST_FULL):
            self._full = not self._full
            self._protocol.pause_writing() if self._full else self._protocol.resume_writing()

    def close(self) -> None:
        """After what was written has gone."""
        if not self._closing:
            self._closing = True
            self._loop.remove_reader(self._sock.fd)
            if not self._out:
                self._end(None)

    def abort(self) -> None:
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if not self._over:
            self._closing = self._over = True
            self._out.clear()
            self._loop.remove_reader(self._sock.fd)
            self._loop.remove_writer(self._sock.fd)
            self._sock.close()
            self._loop.call_soon(self._protocol.connection_lost, error)
