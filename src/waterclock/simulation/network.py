"""The network: sockets in memory. The seed chooses delays, partial sends and reads, resets.

Rule 1: a stream is a stream: bytes arrive in their order, or the connection is reset.
Rule 2: a killed process's sockets end as the kernel ends them, some with what was sent before, some without; a machine
    without power says nothing at all.
"""

from __future__ import annotations

import errno
import socket as real
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from waterclock.simulation.world import MS, US, DeadProcess, world

if TYPE_CHECKING:
    from waterclock.simulation.processes import Process

Address: TypeAlias = "tuple[str, int]"
HOST: Final = "127.0.0.1"
USUAL_DELAY_NS: Final = (20 * US, 2 * MS)


class Network:
    """What connects processes. `delay` is what a packet takes, at least and at most; now and then twenty times that."""

    def __init__(self) -> None:
        self.world = world()
        self.rng = self.world.stream("net")
        self._random = self.rng.random
        self.listeners: dict[Address, ListeningSocket] = {}
        self.pairs: dict[Socket, None] = {}  # the connecting ends
        self.delay = USUAL_DELAY_NS
        self.capacity = 64 << 10
        self.partial = 0.1

    def latency(self) -> int:
        """What the next packet takes."""
        least, most = self.delay
        random = self._random
        if random() < 0.03:
            most *= 20
        return least + int(random() * (most - least))

    def connect(self, process: Process, address: Address) -> Socket:
        """A connected socket of `process`; ConnectionRefusedError where nobody listens."""
        listener = self.listeners.get(address)
        if listener is None or not listener.process.alive:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens")
        mine, theirs = Socket(process, self), Socket(listener.process, self)
        mine.peer, theirs.peer = theirs, mine
        self.pairs[mine] = None
        self.world.at(self.world.now + self.latency(), listener.arrived, theirs)
        return mine

    def reset(self, sock: Socket) -> None:
        """Both ends hear of it, each in its time; what was on its way is lost."""
        for end in (sock, sock.peer):
            self.pairs.pop(end, None)
            self.world.at(self.world.now + self.latency(), end.was_reset)


class Socket:
    """One end of a connection: `socket.socket` that does not block."""

    __slots__ = ("_last", "broken", "closed", "eof", "fd", "net", "on_way", "peer", "process", "rx", "silent", "world")

    def __init__(self, process: Process, network: Network) -> None:
        self.process, self.net, self.world = process, network, network.world
        self.fd = next(self.world.fds)
        self.peer: Socket
        self.rx, self.on_way = bytearray(), 0  # what has arrived, and how much is on its way here
        self._last = 0  # when the last of that arrives
        self.eof = self.broken = self.closed = False
        self.silent = False  # its machine has no power
        process.sockets[self.fd] = self

    # What the loop asks

    def readable(self) -> bool:
        """Whether a read would not block."""
        return bool(self.rx) or self.eof or self.broken

    def writable(self) -> bool:
        """Whether a write would not block."""
        return self.broken or self._room() > 0 or self.peer.closed

    def _room(self) -> int:
        peer = self.peer
        return self.net.capacity - len(peer.rx) - peer.on_way

    # socket's own

    def fileno(self) -> int:
        return -1 if self.closed else self.fd

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *args: object) -> None:
        """There are none."""

    def getpeername(self) -> tuple[str, int]:
        """The other end's; everybody is on this machine's address."""
        return (HOST, self.peer.fd)

    def getsockname(self) -> tuple[str, int]:
        """This end's."""
        return (HOST, self.fd)

    def _check(self) -> None:
        if not self.process.alive:
            raise DeadProcess
        if self.closed:
            raise OSError(errno.EBADF, "closed")
        if self.broken:
            raise ConnectionResetError(errno.ECONNRESET, "reset")

    def recv_into(self, buffer: Any) -> int:
        """As `recv`."""
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def recv(self, size: int) -> bytes:
        """As Python's; now and then less than there is."""
        self._check()
        rx, peer = self.rx, self.peer
        if not rx:
            if self.eof:
                return b""
            raise BlockingIOError(errno.EAGAIN, "nothing there")
        size = self._part(min(size, len(rx)))
        data = bytes(rx[:size])
        del rx[:size]
        if peer.process.loop.waits_to_write(peer.fd):
            peer._news()
        return data

    def _part(self, size: int) -> int:
        net = self.net
        return net.rng.randrange(1, size) if size > 1 and net._random() < net.partial else size

    def send(self, data: Any, flags: int = 0) -> int:
        """As Python's; now and then less than there is room for, and in two packets."""
        self._check()
        peer, rng = self.peer, self.net.rng
        if peer.closed:
            if not peer.process.alive and peer.silent:
                return len(data)  # nobody is there to refuse it
            self.broken = True
            raise BrokenPipeError(errno.EPIPE, "the other end is closed")
        room = self._room()
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "full")
        size = self._part(min(len(data), room))
        data = bytes(data[:size])
        peer.on_way += size
        if size > 8 and rng.random() < 0.2:
            cut = rng.randrange(1, size)
            peer._expect(peer._arrive, data[:cut])
            peer._expect(peer._arrive, data[cut:])
        else:
            peer._expect(peer._arrive, data)
        return size

    def close(self) -> None:
        """As Python's: unread bytes make it a reset."""
        if self.closed or not self.process.alive:
            return
        self.closed = True
        self.process.sockets.pop(self.fd, None)
        self.net.pairs.pop(self, None)
        if self.rx:
            self.world.at(self.world.now + self.net.latency(), self.peer.was_reset)
        else:
            self.peer._expect(self.peer._hear_eof)

    # What comes to it

    def _expect(self, deed: Any, *args: object) -> None:
        """Behind all that is on its way here."""
        here, when = self.world, self._last + 1
        self._last = when = max(when, here.now + self.net.latency())
        here.at(when, deed, *args)

    def _arrive(self, data: bytes) -> None:
        self.on_way -= len(data)
        if not self.closed and not self.broken:
            self.rx += data
            if self.process.alive:
                self.process.loop.io(self.fd)

    def _news(self) -> None:
        if not self.closed and self.process.alive:
            self.process.loop.io(self.fd)

    def _hear_eof(self) -> None:
        self.eof = True
        self._news()

    def was_reset(self) -> None:
        """An event: the connection is over."""
        self.broken = True
        self.rx.clear()
        self._news()

    def process_died(self) -> None:
        """The kernel closes what a dead process had; without power there is no kernel."""
        self.closed = True
        self.net.pairs.pop(self, None)
        if self.silent:
            return
        when = self.world.now + self.net.latency()
        if self.net.rng.random() < 0.5:
            self.world.at(when, self.peer.was_reset)
        else:
            self.peer._last = max(self.peer._last + 1, when)
            self.world.at(self.peer._last, self.peer._hear_eof)


class ListeningSocket:
    """A socket that takes connections."""

    silent = False

    def __init__(self, process: Process, network: Network, address: Address) -> None:
        if address in network.listeners and network.listeners[address].process.alive:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self.process: Process = process
        self.fd, self._net, self._address = next(network.world.fds), network, address
        self._queue: deque[Socket] = deque()
        network.listeners[address] = self
        process.sockets[self.fd] = self

    def arrived(self, sock: Socket) -> None:
        """An event: somebody connects."""
        if not self.process.alive or self._net.listeners.get(self._address) is not self:
            sock.closed = True
            sock.peer.was_reset()
            return
        self._queue.append(sock)
        self.process.loop.io(self.fd)

    def readable(self) -> bool:
        """Whether somebody waits."""
        return bool(self._queue)

    def writable(self) -> bool:
        """Never."""
        return False

    def fileno(self) -> int:
        return self.fd

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def getsockname(self) -> Address:
        """Where it listens."""
        return self._address

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        if not self._queue:
            raise BlockingIOError(errno.EAGAIN, "nobody")
        sock = self._queue.popleft()
        return sock, sock.getpeername()

    def close(self) -> None:
        self.process_died()
        self.process.sockets.pop(self.fd, None)
        for sock in self._queue:
            sock.close()

    def process_died(self) -> None:
        """Nobody is taken here any more."""
        if self._net.listeners.get(self._address) is self:
            del self._net.listeners[self._address]


class SocketModule:
    """`socket`."""

    def __getattr__(self, name: str) -> Any:
        if name in ("socket", "socketpair", "create_connection"):
            raise AttributeError(f"socket.{name} is not simulated")
        return getattr(real, name)

    @staticmethod
    def create_server(address: Address, family: int | None = None, backlog: int = 0) -> ListeningSocket:
        here = world()
        return ListeningSocket(here.running().process, here.network, address)
