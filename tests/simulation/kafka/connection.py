"""One connection of a simulated process: requests in their order, answers as they come."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from tests.simulation.kafka.encoding import Message, message, text


class Gone(Exception):
    """The connection is over, or no answer came in time: what was asked may be done or not."""


class Connection:
    def __init__(self, process: Any, network: Any, address: tuple[str, int]) -> None:
        self.process, self.loop, self.address = process, process.loop, address
        self.sock = network.connect(process, address)
        self.out, self.received, self.number = bytearray(), bytearray(), 0
        self.waits: dict[int, asyncio.Future[bytes]] = {}
        self.gone = False
        self.loop.add_reader(self.sock.fd, self._read)

    def _read(self) -> None:
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            return None
        except OSError:
            return self.close()
        if not data:
            return self.close()
        self.received += data
        self._answers()
        return None

    def _answers(self) -> None:
        while len(self.received) >= 4:
            length = int.from_bytes(self.received[:4], "big")
            if len(self.received) < 4 + length:
                return
            answer = bytes(self.received[4 : 4 + length])
            del self.received[: 4 + length]
            waiting = self.waits.pop(int.from_bytes(answer[:4], "big"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer[4:])

    def _write(self) -> None:
        try:
            while self.out:
                sent = self.sock.send(self.out)
                del self.out[:sent]
            self.loop.remove_writer(self.sock.fd)
        except BlockingIOError:
            self.loop.add_writer(self.sock.fd, self._write)
        except OSError:
            self.close()

    def ask(self, asked: Message, *values: Any) -> asyncio.Future[bytes]:
        """A future of the answer behind its number."""
        body = asked.write(*values)
        future = self.loop.create_future()
        if self.gone:
            future.set_exception(Gone("closed"))
            return future
        self.number += 1
        head = struct.pack(">hhi", asked.key, asked.version, self.number) + text(self.process.name)
        head += b"\0" if asked.is_flexible else b""
        self.waits[self.number] = future
        self.out += struct.pack(">i", len(head) + len(body)) + head + body
        self._write()
        return future

    async def call(self, name: str, *values: Any, timeout_s: float) -> Any:
        asked = message(name)
        answered = self.ask(asked, *values)
        late = self.loop.call_later(timeout_s, self._late, answered)
        try:
            return asked.answer(await answered)
        finally:
            late.cancel()

    def _late(self, answered: asyncio.Future[bytes]) -> None:
        if not answered.done():
            answered.set_exception(Gone("no answer"))
            self.close()

    def close(self) -> None:
        if self.gone:
            return
        self.gone = True
        self.loop.remove_reader(self.sock.fd)
        self.loop.remove_writer(self.sock.fd)
        self.sock.close()
        waits, self.waits = self.waits, {}
        for waiting in waits.values():
            if not waiting.done():
                waiting.set_exception(Gone("closed"))
                waiting.exception()
