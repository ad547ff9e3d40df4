"""What the connections of one listener share and may take: memory for requests on their way in, and time.

Memory is bounded by `queued.max.request.bytes` over all connections. There are two pools, of which none takes from the
other: one for those who are let in, and one for those who have not yet said who they are. Time is bounded twice:

    closed after                                                   is
    `socket.request.timeout.ms`, and a second more for RATE bytes  a request that was begun and does not arrive
    the same; an eighth of it while others wait for the memory     one that claims a hundred megabytes, and sends none
    the same, from the connecting on                               who does not finish TLS's handshake or the login
    `connections.max.idle.ms`                                      one through which nothing goes: its client may be gone

One timer for all: it turns STEPS times in that time, and a connection only notes in which turn something went through: no
clock is read, and no timer set, for a request.

Rule 1: what is held is charged, not what is claimed: a request's buffer grows with the bytes that arrive.
Rule 2: a request of which fewer than four bytes are there is its size: whole with that, and then begun anew.
Rule 3: what is small is always read: a request that fits `small` never waits, however full the pool is.
Rule 4: who finds the pool full waits, and is not read from; but one may go on, so that somebody always comes to an end.
    What is held exceeds the limit by that one request, and by what is small.
Rule 5: never early: a connection is closed between the time allowed and one step more. What waits for memory waits for us:
    its time begins anew.
Rule 6: nothing begun or nobody connected, nothing turns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from waterclock.broker.rhythm import Rhythm

if TYPE_CHECKING:
    from waterclock.broker.net.outgoing import Ready
    from waterclock.broker.net.turns import Turns

SIZE: Final = 4
LEAST: Final = 4 << 10  # bytes that a request which has begun gets first, if it claims so much
MOST_GROWTH: Final = 1 << 20  # bytes at once: to fill fifty million of them would take all others' time


class Frame:
    """Begins with `head`, the bytes that are there; ValueError if it claims less than nothing, or more than `largest`."""

    __slots__ = ("_buffer", "_size", "have")

    def __init__(self, head: memoryview, largest: int) -> None:
        self._size = SIZE
        if len(head) >= SIZE:
            claimed = int.from_bytes(head[:SIZE], "big", signed=True)
            if not 0 <= claimed <= largest:
                raise ValueError(f"a request of {claimed} bytes; {largest} are allowed")
            self._size += claimed
        self._buffer = bytearray(min(self._size, max(LEAST, 2 * len(head))))
        self._buffer[: len(head)] = head
        self.have = len(head)
        """Bytes of it that are there."""

    def __len__(self) -> int:
        """Bytes of memory that it holds."""
        return len(self._buffer)

    @property
    def whole(self) -> bool:
        return self.have == self._size

    @property
    def filled(self) -> bool:
        """Whether it must grow before more can arrive."""
        return self.have == len(self._buffer)

    def grow(self) -> int:
        """Make room for as much as has arrived already; how many bytes that are."""
        more = min(self.have, self._size - self.have, MOST_GROWTH)
        self._buffer.extend(bytes(more))
        return more

    def receive(self, receive_into: Callable[[memoryview], int]) -> None:
        """Take what `receive_into` puts into the free bytes."""
        with memoryview(self._buffer) as buffer, buffer[self.have :] as free:
            self.have += receive_into(free)

    def bytes(self) -> memoryview:
        """All of it, its size in front; only at the end, for it cannot grow after that."""
        return memoryview(self._buffer)


SMALL: Final = 32 << 10  # bytes of a request that are read in any case
SMALL_OF_STRANGERS: Final = 4 << 10


class Waiter(Protocol):
    """A connection that waits for memory."""

    def resume(self) -> None: ...


class MemoryPool:
    """`most` bytes; below zero: without limit."""

    def __init__(self, most: int, small: int = SMALL) -> None:
        self._most, self.small = most, small
        self.held = 0
        self.full = False
        self.waiting: dict[Waiter, None] = {}
        self._beyond: Waiter | None = None  # who may go on although it is full

    def take(self, size: int) -> None:
        """A buffer is there now, or has grown by so much."""
        self.held += size
        self.full = 0 <= self._most <= self.held

    def give_back(self, size: int) -> None:
        """So much is gone again: whoever waits is read from, in turn."""
        self.held -= size
        self.full = 0 <= self._most <= self.held
        if not self.full and self.waiting:
            self._resume_all()

    def may_grow(self, connection: Waiter, has: int) -> bool:
        """Whether a request of which `has` bytes are there may take more; if not, its connection waits from now on."""
        if not self.full or has < self.small or self._beyond is connection:
            return True
        if self._beyond is None:
            self._beyond = connection
            return True
        self.waiting[connection] = None
        return False

    def done(self, connection: Waiter) -> None:
        """Its request is there, or it is closed."""
        self.waiting.pop(connection, None)
        if self._beyond is connection:
            self._beyond = None
            if self.waiting:
                self._resume_all()

    def _resume_all(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for connection in waiting:
            connection.resume()


STEPS: Final = 8
RATE: Final = 64 << 10  # bytes in a second that are no reason to close
log = logging.getLogger("waterclock.broker")


class ArrivingConnection(Protocol):
    """A connection by which a request is arriving."""

    def arrived(self) -> int:
        """Bytes of it that are there."""

    def holds_up(self) -> bool:
        """Whether others wait for the memory that it has."""

    def peer(self) -> str: ...

    def close(self) -> None: ...


class ArrivalWatch:
    """Closes those whose request does not arrive in `allowed_ms`; below one: nobody. `timer` has call_later."""

    def __init__(self, timer: Any, allowed_ms: int) -> None:
        self._allowed_ms, step_s = allowed_ms, allowed_ms / 1000 / STEPS
        self._rhythm = Rhythm(timer, step_s, self._turn_on) if allowed_ms > 0 else None
        self._bytes_a_step = max(1.0, RATE * step_s)
        self._begun: dict[ArrivingConnection, int] = {}  # and in which turn
        self._turn = 0
        self.closed = 0

    def begin(self, connection: ArrivingConnection) -> None:
        """A request begins to arrive, or goes on after a pause that was ours."""
        self._begun[connection] = self._turn
        if self._rhythm is not None:
            self._rhythm.wake()

    def end(self, connection: ArrivingConnection) -> None:
        """It is there, or waits for us."""
        self._begun.pop(connection, None)

    def _turn_on(self) -> float | None:
        self._turn += 1
        for connection, since in list(self._begun.items()):
            allowed = 1 if connection.holds_up() else STEPS
            if self._turn - since > allowed + connection.arrived() / self._bytes_a_step:
                self._close(connection)
        return 0.0 if self._begun else None

    def _close(self, connection: ArrivingConnection) -> None:
        self.closed += 1
        log.warning(
            "closed the connection of %s: the request that it began did not arrive within %d ms"
            " (socket.request.timeout.ms); %d bytes of it came", connection.peer(), self._allowed_ms, connection.arrived(),
        )  # fmt: skip
        connection.close()


class IdleConnection(Protocol):
    """A connection; `heard` is the turn in which something went through it last."""

    heard: int

    def close(self) -> None: ...


class IdleWatch:
    """Closes those of `connections` that are silent for `allowed_ms`; below one: nobody. `timer` has call_later."""

    def __init__(self, timer: Any, connections: Iterable[IdleConnection], allowed_ms: int) -> None:
        self._connections = connections
        self._rhythm = Rhythm(timer, allowed_ms / 1000 / STEPS, self._turn) if allowed_ms > 0 else None
        self.turn = 0
        self.closed = 0

    def begin(self) -> None:
        """Somebody is connected."""
        if self._rhythm is not None:
            self._rhythm.wake()

    @property
    def turning(self) -> bool:
        """Whether somebody is, or was just now."""
        return self._rhythm is not None and self._rhythm.awake

    def _turn(self) -> float | None:
        self.turn += 1
        for connection in list(self._connections):
            if self.turn - connection.heard > STEPS:
                self.closed += 1
                connection.close()
        return 0.0 if any(True for _ in self._connections) else None


class Hub(Protocol):
    """What a connection shares with the others of its listener. `received` and `sent` count bytes."""

    loop: Any
    ready: Ready
    inbox: memoryview
    memory: MemoryPool
    memory_of_strangers: MemoryPool
    turns: Turns
    arriving: ArrivalWatch
    idle: IdleWatch
    largest_request: int
    largest_unknown: int | None
    received: int
    sent: int

    def closed(self, connection: Any) -> None:
        """The connection is over."""
