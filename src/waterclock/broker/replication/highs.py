"""How far readers may read, remembered by both brokers of a pair: after a start nothing more is certain of the other one.

Rule 1: what is remembered may be lower than what it was, never higher. Readers wait then; what they have read, both have.
Rule 2: it belongs to one broker, and is taken however few replicas are in sync: leader.py, Rule 4.
Source: KIP-207 (offsets that may be lower than they were), KIP-966.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from waterclock.broker.log.partition import Partition
from waterclock.broker.store import Store

NAMESPACE, HIGH = "self", "high"
HIGHS_EVERY_S: Final = 5.0


class KeptHighs:
    """The high watermarks of a broker's partitions, in its store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, int] = store.load(NAMESPACE).get(HIGH) or {}
        self._kept: dict[str, int] = {}  # since this start

    def restore(self, partition: Partition) -> None:
        """After a start: readers may read as far as is known of it."""
        high = self._known.get(_key_of(partition), 0)
        partition.high = min(partition.end, max(partition.start, high))

    def keep(self, partitions: Iterable[Partition]) -> float | None:
        """Remember them; None if that is remembered (rhythm.py)."""
        highs = all_of(partitions)
        if highs == self._kept:
            return None

        def kept(done: bool) -> None:
            if done:
                self._kept = highs

        self._store.put(NAMESPACE, HIGH, highs, kept)
        return 0.0


def all_of(partitions: Iterable[Partition]) -> dict[str, int]:
    """What is remembered of them."""
    return {_key_of(partition): partition.high for partition in partitions}


def _key_of(partition: Partition) -> str:
    return f"{partition.topic}-{partition.number}"
