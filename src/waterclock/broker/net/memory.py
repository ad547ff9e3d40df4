"""Memory for requests that are on their way in, over all connections: `queued.max.request.bytes`.

Rule 1: a buffer may be taken while less than the limit is taken: what is held exceeds the limit by one request at most.
    So a request that was begun can always be finished, and no two wait for each other.
Rule 2: who finds the pool full is not read from until it is not; what it sends waits in its socket, and then in itself.
"""

from __future__ import annotations

from typing import Protocol


class Waiter(Protocol):
    """A connection that waits for memory."""

    def resume(self) -> None: ...


class MemoryPool:
    """`most` bytes; below zero: without limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0
        self.full = False
        self._waiting: dict[Waiter, None] = {}

    def take(self, size: int) -> None:
        """A buffer is there now."""
        self.held += size
        self.full = 0 <= self._most <= self.held

    def give_back(self, size: int) -> None:
        """It is gone again: whoever waits is read from, in turn."""
        self.held -= size
        self.full = 0 <= self._most <= self.held
        if not self.full and self._waiting:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                connection.resume()

    def wait(self, connection: Waiter) -> None:
        """Call its `resume()` once there is memory again."""
        self._waiting[connection] = None

    def leave(self, connection: Waiter) -> None:
        """It is closed."""
        self._waiting.pop(connection, None)
