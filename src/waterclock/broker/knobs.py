"""Sizes that make things rare: how often a log's half is full, a snapshot is taken, a file is written anew.

A broker has the usual ones. The simulation turns them down, so that what happens once in a day happens in each history.

Rule 1: who is made reads them once, and keeps what it read: nothing here is asked while requests are served.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Knobs:
    """All of them, in bytes."""

    ahead_room: int = 4 << 20
    """Of a half of the write-ahead log (log/write_ahead.py)."""
    ahead_small: int = 16 << 10
    """What is larger is flushed in its own file: written ahead it would be written twice."""
    ahead_most: int = 1 << 20
    """Of appends in one frame that is written ahead."""
    snapshot_every: int = 4 << 20
    """Of a log: what a start after a crash reads again, header by header (log/partition.py)."""
    store_reserved: int = 256 << 10
    """That the store's file grows by at a time (store/file.py)."""
    store_renew: int = 4 << 20
    """A store's file below this is never written anew."""
    journal_renew: int = 64 << 20
    """After which the store's journal starts over (replication/journal.py)."""


_present = Knobs()


def knobs() -> Knobs:
    """What a broker that is made now has."""
    return _present


def turn(to: Knobs) -> Knobs:
    """What is made from now on has these; those before, to be put back."""
    global _present
    before, _present = _present, to
    return before


@contextmanager
def turned(to: Knobs) -> Iterator[None]:
    """The same, for a while."""
    before = turn(to)
    try:
        yield
    finally:
        turn(before)
