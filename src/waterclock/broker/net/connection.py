"""One client's connection: whole requests in, answers out in the order of the requests.

asyncio's transports are not used: they refuse writes while a file is being sent, and copy what a socket did not take.

Rule 1: requests that arrive in one read are served from one shared buffer without a copy: a handler keeps no view of it.
    A request that does not fit a read gets a buffer of its own.
Rule 2: a client that does not read its answers is not read from either: what it can make us hold is bounded.
Rule 3: a request that cannot be understood closes its connection, with one line in the log. Nobody else notices.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.log.segment import Slice
from waterclock.broker.net.outgoing import Part, Ready, Slot

if TYPE_CHECKING:
    from waterclock.broker.net.listener import Listener

INBOX: Final = memoryview(bytearray(256 << 10))  # one for all: reading and serving run without a break between
MOST_SLOTS: Final = 1000
MOST_UNSENT: Final = 4 << 20
log = logging.getLogger("waterclock.broker")


class Connection:
    """`serve(connection, request)` takes the bytes of one request, without their size."""

    def __init__(
        self, sock: socket.socket, listener: Listener, serve: Callable[[Connection, memoryview], None]
    ) -> None:
        self.sock, self.fd = sock, sock.fileno()
        self.loop: Any = listener.loop
        self.ready: Ready = listener.ready
        self._listener, self._serve = listener, serve
        self.slots: deque[Slot] = deque()
        self.make_slot: Callable[[Connection], Slot] = Slot  # a fault puts its own there for one request
        self.principal: str | None = None  # who it is, once SASL knows
        self.login: Any = None  # the exchange of a SASL mechanism, while it goes on
        self.client_id = ""
        self._out: deque[Part | memoryview] = deque()
        self._unsent = 0  # bytes in _out, those of files not counted
        self._frame: memoryview | None = None
        self._have = 0
        self._reading = self._writing = False
        self._read_on()

    # In

    def _read_on(self) -> None:
        if not self._reading and self.fd >= 0:
            self._reading = True
            self.loop.add_reader(self.fd, self._readable)

    def _read_no_more(self) -> None:
        if self._reading:
            self._reading = False
            self.loop.remove_reader(self.fd)

    def _readable(self) -> None:
        try:
            self.receive()
            if self._out or (self.slots and self.slots[0].parts is not None):
                self.pump()
        except (BlockingIOError, InterruptedError):
            pass
        except ConnectionError:
            self.close()
        except Exception as error:
            log.warning("closed the connection of %s: %s: %s", self.peer(), type(error).__name__, error)
            self.close()

    def receive(self) -> None:
        """Read once, and serve the requests that are whole."""
        if self._frame is None:
            self._split(self._received(self.sock.recv_into(INBOX)))
            return
        self._have += self._received(self.sock.recv_into(self._frame[self._have :]))
        if self._have == len(self._frame):
            self._frame_full()

    def _received(self, count: int) -> int:
        if not count:
            raise ConnectionResetError
        self._listener.received += count
        return count

    def _frame_full(self) -> None:
        frame, self._frame = self._frame, None
        assert frame is not None
        if len(frame) == 4:
            self._open_frame(frame, 4)
        else:
            self._serve(self, frame[4:])

    def _split(self, count: int) -> None:
        """Serve the whole requests of the shared buffer; keep the start of the next."""
        at = 0
        while count - at >= 4 and self.fd >= 0:
            size = int.from_bytes(INBOX[at : at + 4], "big", signed=True)
            if count - at - 4 < size or size < 0:
                break
            self._serve(self, INBOX[at + 4 : at + 4 + size])
            at += 4 + size
        if count > at:
            self._open_frame(INBOX[at:count], count - at)

    def _open_frame(self, head: memoryview, have: int) -> None:
        """A buffer for a request of which `have` bytes are there, or for its size."""
        size = 4
        if have >= 4:
            size += int.from_bytes(head[:4], "big", signed=True)
            if not 4 <= size <= self._listener.largest_request + 4:
                raise ValueError(
                    f"a request of {size - 4} bytes; socket.request.max.bytes allows {self._listener.largest_request}"
                )
        self._frame, self._have = memoryview(bytearray(size)), have
        self._frame[:have] = head[:have]

    # Out

    def slot(self) -> Slot:
        """The place of the next request's answer."""
        self.slots.append(slot := self.make_slot(self))
        if len(self.slots) >= MOST_SLOTS:
            self._read_no_more()
        return slot

    def pump(self) -> None:
        """Send what is answered, as far as the socket takes it."""
        slots = self.slots
        while slots and slots[0].parts is not None:
            self._put(slots.popleft().parts or [])
        try:
            while self._out and self.fd >= 0:
                self._send_first()
            self._write_when_possible(False)
        except (BlockingIOError, InterruptedError):
            self._write_when_possible(True)
        except OSError:
            self.close()
        self._read_as_fits()

    def _put(self, parts: list[Part]) -> None:
        self._out.extend(parts)
        self._unsent += sum(len(part) for part in parts if not isinstance(part, Slice))

    def _read_as_fits(self) -> None:
        if len(self.slots) >= MOST_SLOTS or self._unsent > MOST_UNSENT:
            self._read_no_more()
        elif len(self.slots) < MOST_SLOTS // 2:
            self._read_on()

    def _send_first(self) -> None:
        part = self._out[0]
        if isinstance(part, Slice):
            self._send_file(part)
            return
        if len(self._out) > 1 and not isinstance(self._out[1], Slice):
            part = self._join()
        sent = self.sock.send(part, socket.MSG_MORE if len(self._out) > 1 else 0)
        self._unsent -= sent
        self._listener.sent += sent
        if sent < len(part):
            self._out[0] = memoryview(part)[sent:]
        else:
            self._out.popleft()

    def _join(self) -> bytes:
        """The bytes before the next file as one part: one call costs less than many."""
        many: list[Any] = []
        while self._out and type(self._out[0]) is not Slice:
            many.append(self._out.popleft())
        self._out.appendleft(joined := b"".join(many))
        return joined

    def _send_file(self, part: Slice) -> None:
        sent = os.sendfile(self.fd, part.segment.fd, part.at, part.size)
        if not sent:
            raise ConnectionResetError("a file ended before the answer that it is part of")
        self._listener.sent += sent
        part.at += sent
        part.size -= sent
        if not part.size:
            self._out.popleft()

    def _write_when_possible(self, wanted: bool) -> None:
        if wanted != self._writing and self.fd >= 0:
            self._writing = wanted
            if wanted:
                self.loop.add_writer(self.fd, self.pump)
            else:
                self.loop.remove_writer(self.fd)

    # The end

    def peer(self) -> str:
        """Who is at the other end, for the log."""
        try:
            return ":".join(map(str, self.sock.getpeername()[:2]))
        except OSError:
            return "a client that is gone"

    def close(self) -> None:
        """Drop the connection and all its answers."""
        if self.fd < 0:
            return
        self._write_when_possible(False)
        self._read_no_more()
        self.fd = -1
        self.sock.close()
        self.slots.clear()
        self._out.clear()
        self._frame = None
        self._listener.closed(self)
