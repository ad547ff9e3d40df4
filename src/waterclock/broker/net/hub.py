"""What the connections of one listener share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from waterclock.broker.net.arriving import ArrivalWatch
    from waterclock.broker.net.idle import IdleWatch
    from waterclock.broker.net.memory import MemoryPool
    from waterclock.broker.net.outgoing import Ready
    from waterclock.broker.net.turns import Turns


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
