"""A request that was begun must arrive: `socket.request.timeout.ms`, and a second more for each RATE bytes that came.

Who claims a hundred megabytes and sends none has its connection closed after that time, and after an eighth of it while
others wait for the memory that it holds. So has who does not say who he is, if there are users, or does not
finish TLS's handshake: that counts as begun when it connects.

One timer for all, as in idle.py: it turns STEPS times in that time, and no clock is read for a request.

Rule 1: never early: between the time allowed and one step more.
Rule 2: nothing begun, nothing turns. What waits for memory waits for us: its time begins anew.
"""

from __future__ import annotations

import logging
from typing import Any, Final, Protocol

from waterclock.broker.rhythm import Rhythm

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
