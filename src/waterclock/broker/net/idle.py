"""Connections through which nothing has gone for `connections.max.idle.ms` are closed: the other end may be gone.

One timer for all. It turns STEPS times in that time, and a connection only notes in which turn something went through:
no clock is read, and no timer set, for a request.

Rule 1: never early: between the time allowed and one step more.
Rule 2: nobody connected, nothing turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

STEPS: Final = 8


class IdleConnection(Protocol):
    """A connection; `heard` is the turn in which something went through it last."""

    heard: int

    def close(self) -> None: ...


class IdleWatch:
    """Closes those of `connections` that are silent for `allowed_ms`; below one: nobody. `timer` has call_later."""

    def __init__(self, timer: Any, connections: Iterable[IdleConnection], allowed_ms: int) -> None:
        self._timer, self._connections = timer, connections
        self._step_s = allowed_ms / 1000 / STEPS if allowed_ms > 0 else 0.0
        self.turning = False
        self.turn = 0
        self.closed = 0

    def begin(self) -> None:
        """Somebody is connected."""
        if not self.turning and self._step_s:
            self.turning = True
            self._timer.call_later(self._step_s, self._turn)

    def _turn(self) -> None:
        self.turning = False
        self.turn += 1
        for connection in list(self._connections):
            if self.turn - connection.heard > STEPS:
                self.closed += 1
                connection.close()
        if any(True for _ in self._connections):
            self.begin()
