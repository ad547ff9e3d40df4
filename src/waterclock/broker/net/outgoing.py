"""Answers on their way: each request has a slot, and slots are sent in the order of the requests.

Rule 1: an answer is a list of bytes and slices of files; its first bytes begin with the answer's size.
Rule 2: whoever completes a slot later than in its own request makes its connection ready; ready ones are sent together.
Rule 3: whoever waits for something to answer with may hear that nobody waits for the answer any more (`on_gone`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

from waterclock.outside import os

Buffer: TypeAlias = "bytes | bytearray | memoryview"


class OpenFile(Protocol):
    """A file that is open as long as this is held."""

    @property
    def fd(self) -> int: ...


class Slice:
    """Bytes of a segment on their way to a reader: `size` bytes from byte `at`. Holds the file open."""

    __slots__ = ("at", "segment", "size")

    def __init__(self, segment: OpenFile, at: int, size: int) -> None:
        self.segment = segment
        self.at = at
        self.size = size

    def read(self) -> bytes:
        return os.pread(self.segment.fd, self.size, self.at)


AnswerPart: TypeAlias = "bytes | Slice"


class ClientConnection(Protocol):
    """The connection that a request came by, as far as whoever answers needs it: see `Connection`."""

    fd: int
    unsent: int
    slots: deque[Slot]
    ready: Ready
    client_id: str
    principal: str | None
    login: Any
    rights: Any

    def peer(self) -> str: ...

    def pump(self) -> None: ...

    def close(self) -> None: ...

    def admit(self, user: str, serve: Callable[[Any, memoryview], None]) -> None: ...

    def deafen(self) -> None: ...

    def finish(self) -> None: ...

    def work(self, steps: Iterator[Any]) -> None: ...


class Slot:
    """One request's position in its connection's answers."""

    __slots__ = ("connection", "on_gone", "parts")

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.parts: list[AnswerPart] | None = None
        self.on_gone: Callable[[], Any] | None = None

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.connection.fd < 0

    def answer(self, parts: list[AnswerPart]) -> None:
        """Give the request its answer, once."""
        self.parts = parts
        self.connection.unsent += sum(len(part) for part in parts if not isinstance(part, Slice))
        if self.connection.slots and self.connection.slots[0] is self:
            self.connection.ready.add(self.connection)


class Ready:
    """Connections with answers to send."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._connections: dict[ClientConnection, None] = {}
        self._scheduled = False

    def add(self, connection: ClientConnection) -> None:
        """Send its answers soon: at the end of this turn of the loop, unless `send` is called before."""
        self._connections[connection] = None
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._send_scheduled)

    def _send_scheduled(self) -> None:
        self._scheduled = False
        self.send()

    def send(self) -> None:
        """Send what can be sent now."""
        while self._connections:
            connections, self._connections = self._connections, {}
            for connection in connections:
                connection.pump()
