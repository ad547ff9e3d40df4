"""Connections through which nothing has gone for `connections.max.idle.ms` are closed: the other end may be gone.

One timer for all. It turns STEPS times in that time, and a connection only notes in which turn something went through:
no clock is read, and no timer set, for a request.

Rule 1: never early: between the time allowed and one step more.
Rule 2: nobody connected, nothing turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from waterclock.broker.rhythm import Rhythm

STEPS: Final = 8


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
