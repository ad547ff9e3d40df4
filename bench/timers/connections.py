"""A connection that ends when nothing came for a while, kept in five ways; `idle.py` says what is measured of them.

    none                    nobody ends it: what the load itself costs
    reschedule              an AsyncTimer's handle is moved by each message
    IdleTimeout             each message is a touch
    cancel and call_later   the loop's timer is cancelled by each message, and another one made
    time stamp              each message notes the loop's time; the loop's timer looks, and waits for what is left

Rule 1: a way is written as its own documentation shows it, and does nothing else with a message.
Rule 2: what ends is told to the server once, with its number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from waterclock.timer import AsyncTimer, IdleTimeout

Ended = Callable[[int], None]


class Server:
    """What connections share: the loop, a timer, how long is too long, and who is told."""

    def __init__(self, idle_s: float, ended: Ended) -> None:
        self.loop = asyncio.get_running_loop()
        self.timer = AsyncTimer()
        self.idle_s, self.ended = idle_s, ended


class Connection:
    """Nobody ends it."""

    __slots__ = ("number", "server")

    def __init__(self, server: Server, number: int) -> None:
        self.server, self.number = server, number

    def data_received(self, data: bytes) -> None:
        pass

    def end(self) -> None:
        self.server.ended(self.number)


class Rescheduled(Connection):
    __slots__ = ("idle",)

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self.idle = server.timer.call_later(server.idle_s, self.end)

    def data_received(self, data: bytes) -> None:
        self.idle.reschedule(self.server.idle_s)


class Touched(Connection):
    __slots__ = ("idle",)

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self.idle = IdleTimeout(server.timer, server.idle_s, self.end)

    def data_received(self, data: bytes) -> None:
        self.idle.touch()


class Replaced(Connection):
    __slots__ = ("idle",)

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self.idle = server.loop.call_later(server.idle_s, self.end)

    def data_received(self, data: bytes) -> None:
        server = self.server
        self.idle.cancel()
        self.idle = server.loop.call_later(server.idle_s, self.end)


class Stamped(Connection):
    __slots__ = ("latest_s",)

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self.latest_s = server.loop.time()
        server.loop.call_later(server.idle_s, self.look)

    def data_received(self, data: bytes) -> None:
        self.latest_s = self.server.loop.time()

    def look(self) -> None:
        due_s = self.latest_s + self.server.idle_s
        if due_s > self.server.loop.time():
            self.server.loop.call_at(due_s, self.look)
        else:
            self.end()


NOBODY = "none"
WAYS: dict[str, type[Connection]] = {
    NOBODY: Connection,
    "waterclock, reschedule": Rescheduled,
    "waterclock, IdleTimeout": Touched,
    "asyncio, cancel and call_later": Replaced,
    "asyncio, time stamp": Stamped,
}


def loop_of(name: str) -> Any:
    """A new loop of that package; `ImportError` where it is not installed."""
    if name == "asyncio":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()
