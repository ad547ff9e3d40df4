"""One client's connection: whole requests in, answers out in the order of the requests.

asyncio's transports are not used: they refuse writes while a file is being sent, and copy what a socket did not take.

Rule 1: requests that arrive in one read are served from one shared buffer without a copy: a handler keeps no view of it.
    A request that does not fit a read gets a buffer of its own, which grows with what arrives (`limits.py`), in bounded
    time.
Rule 2: a client that does not read its answers is not read from either: what it can make us hold is bounded.
Rule 3: of many requests that came at once a few are served; the rest is kept as it came, and has its turn among others
    (`turns.py`). Nothing is read while something is kept: requests are served in their order.
Rule 4: a request that cannot be understood closes its connection, with one line in the log. Nobody else notices.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from waterclock.broker.net.limits import SIZE, Frame, Hub
from waterclock.broker.net.outgoing import AnswerPart, Ready, Slice, Slot
from waterclock.broker.net.turns import MANY, SLICE_NS
from waterclock.outside import os, socket

INBOX: Final = 256 << 10  # bytes of one read
MOST_SLOTS: Final = 1000
MOST_UNSENT: Final = 4 << 20
log = logging.getLogger("waterclock.broker")

Serve = Callable[["Connection", memoryview], None]


class Connection:
    """`serve(connection, request)` takes the bytes of one request, without their size."""

    def __init__(self, sock: socket.socket, hub: Hub, serve: Serve) -> None:
        self.sock, self.fd = sock, sock.fileno()
        self.loop: Any = hub.loop
        self.ready: Ready = hub.ready
        self._hub, self._serve = hub, serve
        self._stranger = hub.largest_unknown is not None
        self._largest = hub.largest_request if hub.largest_unknown is None else hub.largest_unknown
        self._memory = hub.memory_of_strangers if self._stranger else hub.memory
        self.slots: deque[Slot] = deque()
        self.make_slot: Callable[[Connection], Slot] = Slot  # a fault puts its own there for one request
        self.principal: str | None = None  # who it is, once SASL knows
        self.login: Any = None  # how far it has come with saying so
        self.rights: Any = None  # what it may do, as far as the authorizer has decided
        self.client_id = ""
        self.heard = hub.idle.turn  # when something last went through, by the turns of `IdleWatch`
        self.unsent = 0  # bytes of answers, those in files not counted
        self._out: deque[AnswerPart | memoryview] = deque()
        self._frame: Frame | None = None  # the request that arrives, if it does not fit a read
        self._kept: memoryview | None = None  # requests that came together with others, and have not had their turn
        self._keeps = 0  # bytes of memory that are held for it
        self._works = 0  # requests that take long: those behind them wait
        self._reading = self._writing = self._deaf = self._ending = self._queued = False
        if self._stranger:
            hub.arriving.begin(self)
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
        self._attempt(self.receive)

    def _attempt(self, step: Callable[[], None]) -> None:
        """Do what clients can make go wrong."""
        try:
            step()
            if self._out or (self.slots and self.slots[0].parts is not None):
                self.pump()
            elif not self._reading:
                self._read_as_fits()
        except (BlockingIOError, InterruptedError):
            pass
        except ConnectionError:
            self.close()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        log.warning("closed the connection of %s: %s: %s", self.peer(), type(error).__name__, error)
        self.close()

    def receive(self) -> None:
        """Read once, and serve the requests that are whole."""
        if self._frame is None:
            inbox = self._hub.inbox
            if self._memory.full:
                inbox = inbox[: self._memory.small]
            self._split(inbox[: self._received(self._receive_into(inbox))])
        elif self._grows(self._frame):
            self._frame.receive(self._receive_counted)
            if self._frame.whole:
                self._frame_whole()

    def _receive_into(self, buffer: memoryview) -> int:
        return self.sock.recv_into(buffer)

    def _receive_counted(self, buffer: memoryview) -> int:
        return self._received(self._receive_into(buffer))

    def _received(self, count: int) -> int:
        if not count:
            raise ConnectionResetError
        self._hub.received += count
        self.heard = self._hub.idle.turn
        return count

    def _grows(self, frame: Frame) -> bool:
        """Whether there is a free byte in it; if not, and there is no memory for more, wait."""
        if not frame.filled:
            return True
        if not self._memory.may_grow(self, frame.have):
            self._read_no_more()
            if not self._stranger:
                self._hub.arriving.end(self)
            return False
        self._memory.take(frame.grow())
        return True

    def _frame_whole(self) -> None:
        data = self._drop_frame().bytes()
        if len(data) == SIZE:
            self._open_frame(data)
        else:
            self._serve(self, data[SIZE:])

    def _split(self, data: memoryview) -> None:
        """Serve whole requests, as many as a slice takes; keep the others, and the start of the next."""
        at, count, served, until = 0, len(data), 0, 0
        while count - at >= 4 and self.fd >= 0:
            size = int.from_bytes(data[at : at + 4], "big", signed=True)
            if not 0 <= size <= self._largest:
                break  # `_open_frame` refuses it
            if count - at - 4 < size:
                break
            if self._full() or (served and (served == MANY or self._hub.turns.now_ns() >= until)):
                self._keep(data[at:])
                return
            self._serve(self, data[at + 4 : at + 4 + size])
            at += 4 + size
            served += 1
            if served == 1 and at < count:
                until = self._hub.turns.now_ns() + SLICE_NS
        if count > at and self.fd >= 0 and not self._deaf:
            self._open_frame(data[at:])

    def _full(self) -> bool:
        return len(self.slots) >= MOST_SLOTS or self.unsent > MOST_UNSENT or self._deaf or self._works > 0

    def _keep(self, data: memoryview) -> None:
        """Requests for their turn. Handlers write into requests, such as offsets: so into these too."""
        if not self._keeps:
            data = memoryview(bytearray(data))
            self._keeps = len(data)
            self._memory.take(self._keeps)
        self._kept = data
        self._read_no_more()

    def _let_go(self) -> None:
        """Nothing is kept any more."""
        self._kept, keeps, self._keeps = None, self._keeps, 0
        if keeps:
            self._memory.give_back(keeps)

    def work(self, steps: Iterator[Any]) -> None:
        """Do something for a request a slice at a time, and serve those behind it when it is done."""
        self._works += 1
        self._hub.turns.work(self._worked(steps), self._failed)

    def _worked(self, steps: Iterator[Any]) -> Iterator[Any]:
        while self.fd >= 0 and next(steps, self) is not self:  # for nobody who is gone
            yield
        self._works -= 1
        self._attempt(self._read_as_fits)

    def slice(self) -> bool:
        """Serve some of what was kept. Always False: if there is more, `_read_as_fits` has added another turn."""
        self._queued = False
        kept, self._kept = self._kept, None

        def split() -> None:
            assert kept is not None
            self._split(kept)
            if self._kept is None:
                self._let_go()

        if kept is not None and self.fd >= 0:
            self._attempt(split)
        return False

    def _open_frame(self, head: memoryview) -> None:
        """A buffer for a request that begins with `head`, or for its size."""
        self._frame = frame = Frame(head, self._largest)
        self._memory.take(len(frame))
        if not self._stranger:
            self._hub.arriving.begin(self)
        if frame.whole:
            self._frame_whole()  # a request of no bytes at all: it is for the table to say so

    def _drop_frame(self) -> Frame:
        frame, self._frame = self._frame, None
        assert frame is not None
        self._memory.give_back(len(frame))
        self._memory.done(self)
        if not self._stranger:
            self._hub.arriving.end(self)
        return frame

    def resume(self) -> None:
        """There is memory again for a request that has begun."""
        if not self._stranger:
            self._hub.arriving.begin(self)
        self._read_as_fits()

    def arrived(self) -> int:
        """Bytes of the request that has begun; nothing of a stranger's, whose way in is what must end."""
        return 0 if self._stranger or self._frame is None else self._frame.have

    def holds_up(self) -> bool:
        """Whether others wait for the memory that it has."""
        return bool(self._memory.waiting)

    # On the way in, if there are users

    def admit(self, user: str, serve: Serve) -> None:
        """It is known who this is: its requests are served by `serve`, may be large, and share the others' memory."""
        self.principal = user
        self.login = None
        self.rights = None
        self._serve, self._largest = serve, self._hub.largest_request
        if self._stranger:
            self._stranger = False
            self._memory.give_back(self._keeps)
            self._memory = self._hub.memory
            self._memory.take(self._keeps)
            self._hub.arriving.end(self)

    def serve_by(self, serve: Serve, known: Serve) -> None:
        """Another serves it from now on: `known` if it is known who this is."""
        self._serve = serve if self.principal is None else known
        if not self._deaf:
            self._read_as_fits()

    def hold(self) -> None:
        """Read nothing until `serve_by`."""
        self._read_no_more()

    def deafen(self) -> None:
        """Take nothing from this client any more."""
        self._deaf = True
        self._read_no_more()

    def finish(self) -> None:
        """Close once what was answered has gone."""
        self.deafen()
        self._ending = True
        self.ready.add(self)

    # Out

    def slot(self) -> Slot:
        """The slot of the next request's answer."""
        self.slots.append(slot := self.make_slot(self))
        return slot

    def pump(self) -> None:
        """Send what is answered, as far as the socket takes it."""
        slots = self.slots
        while slots and slots[0].parts is not None:
            self._out.extend(slots.popleft().parts or [])
        try:
            while self._out and self.fd >= 0:
                self._send_first()
            self._write_when_possible(False)
        except (BlockingIOError, InterruptedError):
            self._write_when_possible(True)
        except OSError:
            self.close()
        if self._ending and not self._out and not slots:
            self.close()
        self._read_as_fits()

    def _read_as_fits(self) -> None:
        if self._full():
            self._read_no_more()
        elif len(self.slots) < MOST_SLOTS // 2:
            if self._memory.waiting and self in self._memory.waiting:
                return
            if self._kept is None:
                self._read_on()
            elif not self._queued:
                self._queued = True
                self._hub.turns.add(self)

    def _send_first(self) -> None:
        part = self._out[0]
        if isinstance(part, Slice):
            self._went(self._send_file(part))
            if not part.size:
                self._out.popleft()
            return
        if len(self._out) > 1 and not isinstance(self._out[1], Slice):
            part = self._join()
        self._went(sent := self._send(part, len(self._out) > 1))
        self.unsent -= sent
        if sent < len(part):
            self._out[0] = memoryview(part)[sent:]
        else:
            self._out.popleft()

    def _went(self, sent: int) -> None:
        self._hub.sent += sent
        self.heard = self._hub.idle.turn

    def _send(self, data: bytes | memoryview, more: bool) -> int:
        return self.sock.send(data, socket.MSG_MORE if more else 0)

    def _join(self) -> bytes:
        """The bytes before the next file as one part: one call costs less than many."""
        many: list[Any] = []
        while self._out and type(self._out[0]) is not Slice:
            many.append(self._out.popleft())
        self._out.appendleft(joined := b"".join(many))
        return joined

    def _send_file(self, part: Slice) -> int:
        sent = os.sendfile(self.fd, part.segment.fd, part.at, part.size)
        if not sent:
            raise ConnectionResetError("a file ended before the answer that it is part of")
        part.at += sent
        part.size -= sent
        return sent

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
        self._hang_up()
        unanswered = list(self.slots)
        self.slots.clear()
        for slot in unanswered:
            if slot.on_gone is not None:
                slot.on_gone()
        self._out.clear()
        self._let_go()
        if self._frame is not None:
            self._drop_frame()
        self._memory.done(self)
        self._hub.arriving.end(self)
        self._hub.closed(self)

    def _hang_up(self) -> None:
        self.sock.close()
