"""The largest offset of each partition that something outside of its folder names: none of them is given again.

    a group has committed it, or will with its transaction      it has read all before
    a follower had all before it (`high`)                        the leader keeps that
    the write-ahead log holds the record before it               it was acknowledged

Rule 1: they are looked up only if a log's own files say that some are missing, or none are there: a client may commit any
    offset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from waterclock.broker.groups.offsets import NAMESPACE as OFFSETS
from waterclock.broker.groups.offsets import CommittedOffset, committed_for
from waterclock.broker.replication.leader import NAMESPACE as OWN
from waterclock.broker.transactions.ledger import NAMESPACE as TRANSACTIONS

if TYPE_CHECKING:
    from uuid import UUID

    from waterclock.broker.store import Store


class NamedOffsets:
    """Those of the store, and `ahead`: the ends of partitions in the write-ahead log, by their folders."""

    def __init__(self, store: Store, ahead: Mapping[str, int]) -> None:
        self._ahead = ahead
        self._committed: dict[tuple[str, int], list[CommittedOffset]] = defaultdict(list)
        for key, value in store.load(OFFSETS).items():
            self._committed[committed_for(key)[1]].append(CommittedOffset(*value))
        for kept in store.load(TRANSACTIONS).values():
            for topic, number, *value in (row for rows in kept["offsets"].values() for row in rows):
                self._committed[topic, number].append(CommittedOffset(*value))
        self._highs: dict[str, int] = store.load(OWN).get("high") or {}

    def largest(self, topic: str, topic_id: UUID, number: int, folder: str) -> int:
        """The largest of the partition with that folder; 0 if there is none."""
        committed = (one.offset for one in self._committed[topic, number] if one.topic in (topic_id.hex, ""))
        return max(self._ahead.get(folder, 0), self._highs.get(f"{topic}-{number}", 0), *committed, 0)
