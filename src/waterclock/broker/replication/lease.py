"""Whether the leader may answer: its follower may have been promoted while this process, or its machine, stood still.

    the lease                   a request that was just read
    holds, or nobody follows    is served
    is over                     is held until the follower has said that it still follows (question.py), or is gone
    is lost: it was deposed     closes its connection

Rule 1: the clock is read after the request was: at whatever moment this process stood still, one that was sent meanwhile is
    not served. An answer to what was read in time may go out late: it was true while the client waited for it.
Rule 2: the lease counts from the moment at which the follower was asked, never from when it answered: the answer may have
    lain in the socket for an hour.
Rule 3: a new leader serves nobody before the old one has heard of it, refuses its connection, or OVER_S has passed since
    the new one has its port: deposing.py. OVER_S is longer than LEASE_S: clocks do not run alike.
Rule 4: the clock goes on while the machine sleeps, and is never set: clock.py.
Rule 5: who logs in, and the other broker, are served always: it is they who say what has become of the lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

LEASE_S: Final = 2.0
OVER_S: Final = 2.5
ASKER: Final = "waterclock-leader"  # the client id of a broker that asks another whether it leads
FOLLOWERS: Final = "waterclock-follower@"
LOGIN: Final = frozenset({17, 18, 36})
MOST_HELD: Final = 64 << 20  # bytes; a connection whose request is one too many is closed
FOREVER_NS: Final = 1 << 62
log = logging.getLogger("waterclock.broker")


class AskingConnection(Protocol):
    """The connection that a request came by, as far as it is asked who it is, or closed."""

    fd: int
    client_id: str
    principal: str | None

    def peer(self) -> str: ...

    def close(self) -> None: ...


class GuardedServer(Protocol):
    """What serves requests, and asks `keeps` about each, if there is one."""

    keeps: Any

    def __call__(self, connection: Any, data: memoryview, /) -> object: ...


class LeaderLease:
    """`now_ns()` goes on while the machine sleeps."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self._serve: GuardedServer | None = None
        self.asked = asyncio.Event()
        """Set if somebody waits for the follower's word."""
        self._until_ns, self._lost = FOREVER_NS, False
        self._held: list[tuple[AskingConnection, bytearray]] = []  # Produce writes offsets into what it was sent
        self._bytes = 0

    @property
    def holds(self) -> bool:
        """Whether this broker leads, as far as it can know."""
        return self.now_ns() <= self._until_ns

    def guard(self, serve: GuardedServer) -> None:
        """What `serve` is to serve is looked at first, as soon as there is a follower."""
        self._serve = serve
        self._guard()

    def _guard(self) -> None:
        if self._serve is not None and self._until_ns != FOREVER_NS:
            self._serve.keeps = self.keeps

    def begin(self) -> None:
        """There is a follower from now on, which has not said anything yet."""
        self._until_ns = -1
        self._guard()
        self.asked.set()

    def renew(self, since_ns: int) -> None:
        """At `since_ns` the follower followed; what was held is served, if that is not too long ago."""
        if self._lost:
            return
        self._until_ns = since_ns + int(LEASE_S * 1e9)
        if not self.holds:
            return
        self.asked.clear()
        for connection, request in self._taken():  # in its order; what is not served in time is held anew
            try:
                if connection.fd >= 0 and self._serve is not None:
                    self._serve(connection, memoryview(request))
            except Exception as error:
                log.warning("closed the connection of %s: %s: %s", connection.peer(), type(error).__name__, error)
                connection.close()

    def lose(self) -> None:
        """Another broker leads: nobody is answered here any more."""
        self._until_ns, self._lost = -1, True
        self._guard()
        for connection, _ in self._taken():
            connection.close()

    # For each request

    def keeps(self, connection: AskingConnection, key: int, request: memoryview) -> bool:
        """Whether a request, with its header, must not be served now."""
        if self.now_ns() <= self._until_ns:
            return False
        if key in LOGIN or connection.client_id == ASKER or connection.client_id.startswith(FOLLOWERS):
            return False  # Rule 5
        if self._lost or self._bytes + len(request) > MOST_HELD:
            connection.close()
            return True
        self._held.append((connection, bytearray(request)))
        self._bytes += len(request)
        self.asked.set()
        return True

    def _taken(self) -> list[tuple[AskingConnection, bytearray]]:
        held, self._held, self._bytes = self._held, [], 0
        return [(connection, request) for connection, request in held if connection.fd >= 0]
