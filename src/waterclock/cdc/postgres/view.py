"""What a view of PostgreSQL shows: which transactions, by their numbers. No place of its log says it: commits become
visible in another order than they stand there, and later, under synchronous replication as late as somebody likes.

Rule 1: a view says it itself (pg_current_snapshot): xmin, xmax, and what runs between them. pgoutput tells a transaction's
        number, in 32 of its 64 bits.
Rule 2: what has a number holds the lock on it until queries see what it did. So what was given out before a start, and is
        not seen yet, is found among the locks; whoever is idle in its transaction has not begun to commit. Nor has one that
        is prepared (its lock is nobody's) while nobody says COMMIT PREPARED, which is always a statement of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg

_BITS = 1 << 32
_HELD = (
    "select l.transactionid::text::bigint from pg_locks l left join pg_stat_activity a on a.pid = l.pid "
    "where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted "
    "and coalesce(a.state, '') not in ('idle in transaction', 'idle in transaction (aborted)') "
    "and (l.pid is not null or exists (select from pg_stat_activity where pid <> pg_backend_pid() "
    "and state is distinct from 'idle' and (query ~* 'prepared' or query = '<insufficient privilege>' or query = '' "
    "and (backend_type = 'client backend' or backend_type like 'logical replication%worker'))))"
)


class View(NamedTuple):
    """
    >>> view = View.parsed("100:105:102,103")
    >>> [number for number in (99, 101, 102, 104, 105) if view.shows(number)]
    [99, 101, 104]
    """

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def parsed(cls, text: str) -> View:
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, filter(None, running.split(",")))))

    def shows(self, number: int) -> bool:
        """Whether it shows a transaction that has committed, by 32 bits of its number: those next to this view."""
        back = (self.xmax - number) % _BITS
        whole = self.xmax - back if back < _BITS >> 1 else self.xmax + _BITS - back
        return whole < self.xmin or (whole < self.xmax and whole not in self.running)


def unseen(connection: psycopg.Connection[Any]) -> set[int]:
    """Rule 2: transactions that may stand in the log, and that no query sees yet."""
    return {int(number) for (number,) in connection.execute(_HELD)}
