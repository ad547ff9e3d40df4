"""How a thread waits for what the loop of its process does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.confluent.requests import raised
from waterclock.simulation.futures import Future, begun
from waterclock.simulation.world import world

__all__ = ["Calls", "Future", "begun", "me"]
TIMED_OUT = -185


class Calls:
    """What a client has begun and not ended: who asks again, as time was over, waits for the same."""

    def __init__(self, process: Any) -> None:
        self._process, self._under_way = process, dict[str, Future]()

    def wait(self, name: str, work: Callable[[], Coroutine[Any, Any, Any]], timeout_s: float) -> Any:
        if name not in self._under_way:
            self._under_way[name] = begun(self._process, work())
        future = self._under_way[name]
        if not future.wait(None if timeout_s < 0 else timeout_s):
            raise raised(TIMED_OUT, retriable=True)
        del self._under_way[name]
        return future.result()

    def has(self, name: str) -> bool:
        return name in self._under_way


def me() -> Any:
    """The process whose thread runs."""
    return world().running().process
