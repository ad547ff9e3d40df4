"""The asyncio loop that a user's own code runs on in a universe: what a client library asks of a real one.

Rule 1: futures and tasks are numbered, and their hash is the number: a set of them has one order, whatever their addresses.
Rule 2: tasks stay referenced until the universe is over: what belonged to a killed process is not unwound in its midst.
"""

# mypy: disable-error-code="override, assignment"
from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from typing import Any

from waterclock.simulation.loop import Loop
from waterclock.simulation.network import Socket
from waterclock.simulation.processes import Process
from waterclock.simulation.world import NS, world

AT_ONCE = 1 << 16


class NumberedFuture(asyncio.Future[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class NumberedTask(asyncio.Task[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class UserLoop(Loop):
    """`deed` is done `steps` callbacks from now: a fault in the midst of what the process does."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._made = len(self.world.graveyard) << 24  # no two tasks of a universe have one number
        self.steps = 0
        self._tasks: list[NumberedTask] = []
        self.deed: Callable[[], object] = lambda: None

    def create_future(self) -> NumberedFuture:
        future = NumberedFuture(loop=self)
        future.number = self._made = self._made + 1
        return future

    def create_task(self, coro: Any, *, name: str | None = None, **known: Any) -> NumberedTask:
        self._made += 1
        task = NumberedTask(coro, loop=self, name=name or f"task-{self._made}", **known)
        task.number = self._made
        if self.process.alive:
            self._tasks.append(task)
        return task

    def forget(self) -> None:
        """As of any loop."""
        super().forget()
        self._tasks.clear()

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        if not self.process.alive:  # what is unwound calls too
            return asyncio.Handle(callback, args, self, context)
        if self.steps:
            self.steps -= 1
            if not self.steps:
                self.world.soon(self.deed)
        handle: asyncio.Handle = super().call_soon(callback, *args, context=context)
        return handle

    call_soon_threadsafe = call_soon

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """As a real loop does: into the log, as text. What is freed of a dead process says nothing."""
        if self.process.alive:
            error = context.get("exception")
            trace = "".join(traceback.format_exception(error)) if error is not None else ""
            logging.getLogger("asyncio").error("%s: %s\n%s", self.process.name, context.get("message"), trace)

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        """Nobody sends one: a universe ends a process as SIGKILL does."""

    async def create_connection(
        self, make: Callable[[], asyncio.Protocol], host: str, port: int, ssl: object = None, **_: object
    ) -> tuple[Transport, asyncio.Protocol]:
        if ssl is not None:
            raise NotImplementedError("a universe has no TLS")
        network = world().network
        await asyncio.sleep(network.latency() / NS)
        sock, protocol = network.connect(self.process, (host, port)), make()
        return Transport(self, sock, protocol), protocol


class Transport(asyncio.Transport):
    """A simulated connection, for asyncio's protocols and streams. It keeps whatever the network does not take yet."""

    def __init__(self, loop: UserLoop, sock: Socket, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": sock.getpeername(), "sockname": sock.getsockname()})
        self._loop, self._sock, self._protocol = loop, sock, protocol
        self._out, self._closing, self._over = bytearray(), False, False
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self.resume_reading)

    def is_closing(self) -> bool:
        return self._closing

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
