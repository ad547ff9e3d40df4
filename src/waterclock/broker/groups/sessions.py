"""Sessions of members: each is a delayed operation that waits for the next heartbeat.

    DelayedHeartbeat     leaves it by                              then
    waiting              a heartbeat, or an answer sent            completed; the next one is begun by whoever completed it
                         no heartbeat for the session's length     expired: `gone()`
                         the member has left                       cancelled

Rule 1: one operation a member, watched under (sort, group, member): what is begun anew takes the place of what waited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from waterclock.purgatory import DelayedOperation, Purgatory


class DelayedHeartbeat:
    """Waits for a sign of life; `gone()` is called if there is none."""

    __slots__ = ("_gone", "heard")

    def __init__(self, gone: Callable[[], Any]) -> None:
        self._gone = gone
        self.heard = False

    def try_complete(self, op: DelayedOperation) -> bool:
        return self.heard

    def on_complete(self, op: DelayedOperation) -> None:
        """Nobody waits for an answer."""

    def on_expire(self, op: DelayedOperation) -> None:
        self._gone()


class Sessions:
    """One sort of them, for all groups, in `purgatory`: "session", or what a member has a time of its own for."""

    def __init__(self, purgatory: Purgatory, sort: str) -> None:
        self._purgatory, self._sort = purgatory, sort
        self._waiting: dict[tuple[str, str, str], DelayedHeartbeat] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, group: str, member: str, session_ms: int, gone: Callable[[], Any]) -> None:
        """The member is there; unless it is heard of within `session_ms`, `gone()` is called."""
        key = (self._sort, group, member)
        before = self._waiting.get(key)
        if before is not None:
            before.heard = True
            self._purgatory.check_and_complete(key)

        def over() -> None:
            del self._waiting[key]
            gone()

        delayed = self._waiting[key] = DelayedHeartbeat(over)
        op = DelayedOperation(delayed.try_complete, delayed.on_complete, session_ms / 1000, delayed.on_expire)
        self._purgatory.try_complete_else_watch(op, (key,))

    def waits(self, group: str, member: str) -> bool:
        """Whether a sign of that member is waited for."""
        return (self._sort, group, member) in self._waiting

    def end(self, group: str, member: str) -> None:
        """The member has left: its heartbeats are waited for no more."""
        key = (self._sort, group, member)
        if self._waiting.pop(key, None) is not None:
            self._purgatory.cancel_for_key(key)
