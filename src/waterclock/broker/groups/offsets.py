"""The offsets that groups have committed, and those that open transactions will commit for them.

Rule 1: what is fetched is durable: `changes` makes offsets so, `apply` shows them, in this order.
Rule 2: what an open transaction has written for a group is held, not shown; a fetch that wants stable offsets is told
    to wait. The transaction's end lets go of it, and applies it or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from waterclock.broker.store import Change, Store

ROOM: Final = "offset"
NEVER: Final = -1

Place: TypeAlias = "tuple[str, int]"  # topic, partition


class Committed(NamedTuple):
    """One committed offset. `expires_ms`: the date that an old client gave it, or -1 for the broker's retention."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = NEVER

    def expired(self, since_ms: int, now_ms: int, retention_ms: int) -> bool:
        """Whether it is too old, counted from `since_ms`.

        >>> Committed(5, -1, "", 0).expired(0, 1000, 1000), Committed(5, -1, "", 0, 2000).expired(0, 1999, 1000)
        (True, False)
        """
        return now_ms >= (self.expires_ms if self.expires_ms != NEVER else since_ms + retention_ms)


class GroupOffsets:
    """All groups' offsets, read from the store at the start."""

    def __init__(self, store: Store) -> None:
        self._committed: dict[str, dict[Place, Committed]] = {}
        self._held: dict[str, dict[int, dict[Place, Committed]]] = {}  # group -> producer id -> offsets
        for key, value in store.load(ROOM).items():
            group, topic, partition = key.rsplit(":", 2)  # a topic's name has no colon, a group's may
            self._committed.setdefault(group, {})[topic, int(partition)] = Committed(*value)

    def groups(self) -> Iterator[str]:
        """Groups that have offsets."""
        return iter(list(self._committed))

    def has(self, group: str) -> bool:
        return group in self._committed

    def fetch(self, group: str, topic: str, partition: int) -> Committed | None:
        """What the group has committed for a partition."""
        return self._committed.get(group, {}).get((topic, partition))

    def all(self, group: str) -> Mapping[Place, Committed]:
        """All that the group has committed."""
        return self._committed.get(group, {})

    # Transactions

    def pending(self, group: str) -> set[Place]:
        """Partitions for which an open transaction has written an offset of the group."""
        return {place for offsets in self._held.get(group, {}).values() for place in offsets}

    def hold(self, group: str, producer_id: int, offsets: Mapping[Place, Committed]) -> None:
        """An open transaction has written these."""
        self._held.setdefault(group, {}).setdefault(producer_id, {}).update(offsets)

    def let_go(self, group: str, producer_id: int) -> dict[Place, Committed]:
        """The producer's transaction is over; what it had written for the group."""
        held = self._held.get(group, {})
        offsets = held.pop(producer_id, {})
        if not held:
            self._held.pop(group, None)
        return offsets

    # Changes

    def changes(self, group: str, offsets: Mapping[Place, Committed]) -> list[Change]:
        """What makes these offsets durable."""
        return [Change(ROOM, _key(group, place), list(committed)) for place, committed in offsets.items()]

    def apply(self, group: str, offsets: Mapping[Place, Committed]) -> None:
        """These offsets are durable: show them."""
        if offsets:
            self._committed.setdefault(group, {}).update(offsets)

    def removals(self, group: str, places: Iterable[Place]) -> list[Change]:
        """What makes it durable that these are gone."""
        return [Change(ROOM, _key(group, place), None) for place in places]

    def remove(self, group: str, places: Iterable[Place]) -> None:
        """Show these no more."""
        offsets = self._committed.get(group, {})
        for place in list(places):
            offsets.pop(place, None)
        if not offsets:
            self._committed.pop(group, None)


def _key(group: str, place: Place) -> str:
    return f"{group}:{place[0]}:{place[1]}"
