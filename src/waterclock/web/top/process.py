"""Processes that are watched from a terminal: what each says now, as panels.

Rule 1: a process that is away keeps its last values, and says why and since when.
Rule 2: what is due next is asked for each `DUE_EVERY_S`; what keeps the relay from answering is said in its panel.
"""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final

from waterclock.clock import WallClock
from waterclock.errors import unstopped
from waterclock.web.console.sources import Seen, Source
from waterclock.web.panel import Panel, span
from waterclock.web.panels import History, wheels_of
from waterclock.web.server import NoSuchPage

DUE: Final = 10
DUE_EVERY_S: Final = 2.0


class Process:
    """One process. `look` may wait for its answers; what it finds is had by anybody."""

    def __init__(self, source: Source, clock: WallClock) -> None:
        self._source, self._clock = source, clock
        self.seen = Seen(why="it was not asked yet")
        self._history = History()
        self._asked_s = -DUE_EVERY_S
        self.due: Mapping[str, Any] | None = None
        self._due_ms = 0  # when it was answered
        self._why_not = ""

    def look(self) -> None:
        """See what is new."""
        seen, now_s = self._source.seen(), self._clock.monotonic_s()
        self._history.hear(seen, now_s)
        self.seen = seen
        is_relay = seen.record is not None and seen.record["command"] == "relay"
        if is_relay and not seen.why and now_s - self._asked_s >= DUE_EVERY_S:
            self._asked_s = now_s
            try:
                self._due_ms = self._clock.wall_ms()
                answer = self._source.ask("due", str(DUE))
                self.due, self._why_not = (answer if isinstance(answer, Mapping) else None), ""
            except NoSuchPage:
                self._asked_s = float("inf")  # a relay of an older version
            except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                self._why_not = f"not known: {unstopped(error)}"

    @property
    def name(self) -> str:
        """By its command and what it serves."""
        if (record := self.seen.record) is None:
            return self._source.name
        command, own = record["command"], record["statistics"].get("topic") or record["statistics"].get("pipeline")
        return f"{'pipeline' if command == 'run' else command} {own or self._source.name}"

    @property
    def state(self) -> str:
        """Rule 1; empty of one that answers."""
        if not self.seen.why:
            return ""
        heard_s, now_s = self._history.heard_s, self._clock.monotonic_s()
        since_ms = 1000 * round(now_s - heard_s) if heard_s is not None else 0
        return f"is away{f' for {span(since_ms)}' if since_ms else ''}: {self.seen.why}"

    def panels(self) -> list[Panel]:
        """Those of its wheels, and of what it says."""
        found = wheels_of(self.seen.dials or {}) + self._history.panels(self.due, self._due_ms)
        return [*found, Panel("Due next", note=self._why_not)] if self._why_not else found
