"""A source that tells what it is given, and a clock that does not wait: for tests of the loop without a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from waterclock.cdc.position import Position
from waterclock.cdc.source import Item, SourceMark
from waterclock.clock import SystemClock


class Told:
    """A source that tells what it is given, item by item; after each the test looks at what Kafka has."""

    def __init__(self, items: list[Item], look: Callable[[], None]) -> None:
        self._items, self._look, self._place = items, look, 0

    def items(self) -> Iterator[Item]:
        for item in self._items:
            self._place += item in (SourceMark.COMMITTED, SourceMark.MOVED)
            yield item
            self._look()

    def position(self) -> Position:
        return Position(f"0-1-{self._place}")

    def reached(self, end: str) -> bool:
        return end == f"0-1-{self._place}"

    def stored(self, position: Position) -> None: ...

    def close(self) -> None: ...


class Hurried(SystemClock):
    """Does not wait."""

    def sleep_s(self, seconds: float) -> None: ...
