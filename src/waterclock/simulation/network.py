"""The network: sockets in memory. The seed chooses delays, partial sends and reads, resets.

Rule 1: a stream is a stream: bytes arrive in their order, or the connection is reset.
Rule 2: a killed process's sockets end as the kernel ends them, some with what was sent before, some without; a machine
    without power says nothing at all.
"""

from __future__ import annotations

import asyncio
import errno
import socket as real
from collections import deque

from waterclock.simulation import files
from waterclock.simulation.world import MS, US, Killed, world


class Network:
    def __init__(self):
        self.world = world()
        self.rng = self.world.stream("net")
        self.listeners = {}
        self.pairs = {}
        self.delay = (20 * US, 2 * MS)
        self.capacity = 64 << 10
        self.partial = 0.1
        self.resets = self.bytes = 0

    def latency(self):
        least, most = self.delay
        if self.rng.random() < 0.03:
            most *= 20
        return self.rng.randrange(least, most)

    def connect(self, process, address):
        """A connected socket of `process`; ConnectionRefusedError where nobody listens."""
        listener = self.listeners.get(address)
        if listener is None or not listener.process.alive:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens")
        mine, theirs = Socket(process, self), Socket(listener.process, self, attached=False)
        mine.peer, theirs.peer = theirs, mine
        self.pairs[mine] = None
        self.world.at(self.world.now + self.latency(), listener.arrived, theirs)
        return mine

    def reset(self, sock):
        """Both ends hear of it, each in its time; what was on its way is lost."""
        self.resets += 1
        self.pairs.pop(sock, None)
        self.pairs.pop(sock.peer, None)
        for end in (sock, sock.peer):
            self.world.at(self.world.now + self.latency(), end.was_reset)


class Socket:
    def __init__(self, process, network, attached=True):
        files.NUMBER[0] += 1
        self.fd, self.process, self.net, self.world = files.NUMBER[0], process, network, network.world
        self.rx, self.on_way, self.last = bytearray(), 0, 0
        self.peer = None
        self.eof = self.broken = self.closed = False
        process.sockets[self.fd] = self

    # what the loop asks

    def readable(self):
        return bool(self.rx) or self.eof or self.broken

    def writable(self):
        return self.broken or self.room() > 0 or self.peer.closed

    def room(self):
        peer = self.peer
        return self.net.capacity - len(peer.rx) - peer.on_way

    # socket's own

    def fileno(self):
        return -1 if self.closed else self.fd

    def setblocking(self, flag):
        pass

    def setsockopt(self, *args):
        pass

    def getpeername(self):
        return (self.peer.process.name, 1)

    def getsockname(self):
        return (self.process.name, 1)

    def _check(self):
        if not self.process.alive:
            raise Killed
        if self.closed:
            raise OSError(errno.EBADF, "closed")
        if self.broken:
            raise ConnectionResetError(errno.ECONNRESET, "reset")

    def recv_into(self, buffer):
        self._check()
        if not self.rx:
            if self.eof:
                return 0
            raise BlockingIOError(errno.EAGAIN, "nothing there")
        size = min(len(buffer), len(self.rx))
        if size > 1 and self.net.rng.random() < self.net.partial:
            size = self.net.rng.randrange(1, size)
        buffer[:size] = self.rx[:size]
        del self.rx[:size]
        self.peer.news()
        return size

    def recv(self, size):
        buffer = bytearray(size)
        return bytes(buffer[: self.recv_into(buffer)])

    def send(self, data, flags=0):
        self._check()
        if self.peer.closed:
            if not self.peer.process.alive and self.peer.silent:
                return len(data)  # nobody is there to refuse it
            self.broken = True
            raise BrokenPipeError(errno.EPIPE, "the other end is closed")
        room = self.room()
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "full")
        size = min(len(data), room)
        rng = self.net.rng
        if size > 1 and rng.random() < self.net.partial:
            size = rng.randrange(1, size)
        data = bytes(data[:size])
        self.net.bytes += size
        peer = self.peer
        peer.on_way += size
        if size > 8 and rng.random() < 0.2:
            cut = rng.randrange(1, size)
            self._go(data[:cut])
            self._go(data[cut:])
        else:
            self._go(data)
        return size

    def _go(self, data):
        peer = self.peer
        peer.last = max(peer.last + 1, self.world.now + self.net.latency())
        self.world.at(peer.last, peer.arrive, data)

    silent = False

    def arrive(self, data):
        self.on_way -= len(data)
        if not self.closed and not self.broken:
            self.rx += data
            self.news()

    def news(self):
        if not self.closed and self.process.alive:
            self.process.loop.io(self.fd)

    def hear_eof(self):
        self.eof = True
        self.news()

    def was_reset(self):
        self.broken = True
        self.rx.clear()
        self.news()

    def close(self):
        if self.closed or not self.process.alive:
            return
        self.closed = True
        self.process.sockets.pop(self.fd, None)
        self.net.pairs.pop(self, None)
        peer = self.peer
        if self.rx:  # unread bytes: TCP resets
            self.world.at(self.world.now + self.net.latency(), peer.was_reset)
        else:
            peer.last = max(peer.last + 1, self.world.now + self.net.latency())
            self.world.at(peer.last, peer.hear_eof)

    def process_died(self):
        """The kernel closes what a dead process had; without power there is no kernel."""
        self.closed = True
        self.net.pairs.pop(self, None)
        if self.silent:
            return
        peer, when = self.peer, self.world.now + self.net.latency()
        if self.net.rng.random() < 0.5:
            self.world.at(when, peer.was_reset)
        else:
            peer.last = max(peer.last + 1, when)
            self.world.at(peer.last, peer.hear_eof)


class ListeningSocket:
    def __init__(self, process, network, address):
        if address in network.listeners and network.listeners[address].process.alive:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        files.NUMBER[0] += 1
        self.fd, self.process, self.net, self.address = files.NUMBER[0], process, network, address
        self.queue = deque()
        network.listeners[address] = self
        process.sockets[self.fd] = self

    def arrived(self, sock):
        if not self.process.alive or self.net.listeners.get(self.address) is not self:
            sock.closed = True
            sock.peer.was_reset()
            return
        self.queue.append(sock)
        self.process.loop.io(self.fd)

    def readable(self):
        return bool(self.queue)

    def writable(self):
        return False

    def fileno(self):
        return self.fd

    def setblocking(self, flag):
        pass

    def getsockname(self):
        return self.address

    def accept(self):
        if not self.queue:
            raise BlockingIOError(errno.EAGAIN, "nobody")
        sock = self.queue.popleft()
        return sock, sock.getpeername()

    def close(self):
        if self.net.listeners.get(self.address) is self:
            del self.net.listeners[self.address]
        self.process.sockets.pop(self.fd, None)
        for sock in self.queue:
            sock.close()

    def process_died(self):
        if self.net.listeners.get(self.address) is self:
            del self.net.listeners[self.address]


class SocketModule:
    """`socket`, for the product's modules."""

    def __getattr__(self, name):
        found = getattr(real, name)
        if callable(found) and name in ("socket", "socketpair", "create_connection"):
            raise AttributeError(f"socket.{name} is not simulated")
        return found

    @staticmethod
    def create_server(address, family=None, backlog=0):
        process = world().thread.process
        return ListeningSocket(process, world().network, address)


class Stream:
    """asyncio's reader and writer in one, on a simulated socket."""

    def __init__(self, loop, sock):
        self._loop, self._sock = loop, sock
        self._in, self._out, self._waiting, self._error = bytearray(), bytearray(), None, None
        loop.add_reader(sock.fd, self._readable)

    def _readable(self):
        buffer = bytearray(1 << 16)
        try:
            size = self._sock.recv_into(buffer)
        except BlockingIOError:
            return None
        except OSError as error:
            return self._fail(error)
        if not size:
            return self._fail(EOFError("the other end has closed"))
        self._in += buffer[:size]
        self._wake()

    def _fail(self, error):
        self._error = error
        self._loop.remove_reader(self._sock.fd)
        self._loop.remove_writer(self._sock.fd)
        self._wake()

    def _wake(self):
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def readexactly(self, count):
        while len(self._in) < count:
            if self._error is not None:
                raise self._error
            self._waiting = self._loop.create_future()
            await self._waiting
        data = bytes(self._in[:count])
        del self._in[:count]
        return data

    def write(self, data):
        self._out += data
        self._send()

    def _send(self):
        try:
            while self._out:
                del self._out[: self._sock.send(self._out)]
            self._loop.remove_writer(self._sock.fd)
        except BlockingIOError:
            self._loop.add_writer(self._sock.fd, self._send)
        except OSError as error:
            self._fail(error)

    async def drain(self):
        if self._error is not None:
            raise self._error

    def close(self):
        self._loop.remove_reader(self._sock.fd)
        self._loop.remove_writer(self._sock.fd)
        self._sock.close()


async def open_connection(host, port, limit=0, ssl=None):
    loop = asyncio.get_running_loop()
    await asyncio.sleep(world().network.latency() / 1e9)
    made = Stream(loop, world().network.connect(loop.process, (host, port)))
    return made, made
