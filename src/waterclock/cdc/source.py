"""The seam to a source of changes: what a database has to say, whichever it is.

Promises of every source: changes come in the order of their commits, whole transactions one after the other, each from
its first change to its last; what comes after a position comes again, the same, when that position is read from.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Protocol

from waterclock.cdc.letters import DeadLetter
from waterclock.cdc.position import Position
from waterclock.changes.maxwell_message import MaxwellMessage


class SourceMark(Enum):
    """What is no row change: a transaction's end, or that nothing has come for a moment."""

    COMMITTED = "committed"
    QUIET = "quiet"


Record = MaxwellMessage | DeadLetter
Item = Record | SourceMark


class Source(Protocol):
    """A database's changes after a position."""

    def items(self) -> Iterator[Item]:
        """Changes and marks, without end; ConnectionLost if the server went away, Unreadable if it must not go on."""

    def position(self) -> Position:
        """What may be stored after a COMMITTED: everything before it was given out."""

    def reached(self, end: str) -> bool:
        """Whether everything up to the place `end` was given out."""

    def stored(self, position: Position) -> None:
        """Everything up to `position` is safe in Kafka: the source may throw away what it kept for us."""

    def close(self) -> None: ...


class TableFilter:
    """Whose rows are asked for: patterns of `database.table`, as in a shell; none stands for all but the server's own.

    >>> wanted = TableFilter(["shop.*"])
    >>> wanted("shop", "orders"), wanted("mysql", "user")
    (True, False)
    """

    def __init__(self, patterns: Sequence[str], own: frozenset[str] = frozenset()) -> None:
        self._patterns, self._own = tuple(patterns), own

    def names(self) -> list[tuple[str, str]]:
        """The tables that are asked for by their whole names."""
        whole = [pattern for pattern in self._patterns if not set(pattern) & set("*?[")]
        return [(database, table) for database, _, table in (name.partition(".") for name in whole)]

    def absent(self, there: Iterable[tuple[str, str]]) -> list[str]:
        """The patterns that none of these tables has.

        >>> TableFilter(["shop.*", "shop.imet"]).absent([("shop", "item")])
        ['shop.imet']
        """
        names = [".".join(table) for table in there]
        return [pattern for pattern in self._patterns if not fnmatch.filter(names, pattern)]

    def __call__(self, database: str, table: str) -> bool:
        if not self._patterns:
            return database not in self._own
        return any(fnmatch.fnmatchcase(f"{database}.{table}", pattern) for pattern in self._patterns)
