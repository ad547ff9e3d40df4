"""A request that does not fit a read, as far as it has arrived: its size in four bytes, and what follows them.

Rule 1: its buffer grows with the bytes that arrive, never with those that it claims.
Rule 2: while less than four bytes are there it is its size that arrives: then it is whole with that, and is begun anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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
