"""Memory for requests that are on their way in, over all connections: `queued.max.request.bytes`.

Two pools, of which none takes from the other: one for those who are let in, and one for those who have not yet said who
they are.

Rule 1: what is held is charged, not what is claimed: a buffer grows with the bytes that arrive.
Rule 2: what is small is always read: a request that fits `small` never waits, however full the pool is.
Rule 3: who finds the pool full waits, and is not read from; but one may go on, so that somebody always comes to an end.
    What is held exceeds the limit by that one request, and by what is small.
"""

from __future__ import annotations

from typing import Final, Protocol

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
