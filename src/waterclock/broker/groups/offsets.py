"""The offsets that groups have committed, and those that open transactions will commit for them.

Rule 1: what is fetched is durable: `changes` makes offsets so, `apply` shows them, in this order.
Rule 2: what an open transaction has written for a group is held, not shown; a fetch that wants stable offsets gets
    to wait. The transaction's end lets go of it, and applies it or not.
Rule 3: an offset belongs to the topic's id. Once that topic is gone it is neither kept nor shown, on whichever way it
    was: another topic of the name begins without offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from waterclock.broker.store import Entry, Store

if TYPE_CHECKING:
    from waterclock.broker.folder.topics import TopicPartition, Topics

NAMESPACE: Final = "offset"
NEVER: Final = -1
UNKNOWN: Final = ""  # the topic's id in stores of versions that did not keep it


class CommittedOffset(NamedTuple):
    """One committed offset. `expires_ms`: the date that an old client gave it, or -1 for the broker's retention.

    `topic` is the topic's id, in hexadecimal.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = NEVER
    topic: str = UNKNOWN

    def expired(self, since_ms: int, now_ms: int, retention_ms: int) -> bool:
        """Whether it is too old, counted from `since_ms`.

        >>> CommittedOffset(5, -1, "", 0).expired(0, 1000, 1000), CommittedOffset(5, -1, "", 0, 2000).expired(0, 1999, 1000)
        (True, False)
        """
        return now_ms >= (self.expires_ms if self.expires_ms != NEVER else since_ms + retention_ms)


class GroupOffsets:
    """All groups' offsets, read from the store at the start. `topics` are those that there are."""

    def __init__(self, store: Store, topics: Topics) -> None:
        self._topics = topics
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._held: dict[str, dict[int, dict[TopicPartition, CommittedOffset]]] = {}  # group -> producer id -> offsets
        self._sent: Counter[tuple[str, TopicPartition]] = Counter()  # on their way to the store
        stale = []
        for key, value in store.load(NAMESPACE).items():
            group, tp = committed_for(key)
            committed = CommittedOffset(*value)
            if self._current(tp, committed):
                self._committed.setdefault(group, {})[tp] = committed
            else:
                stale.append(Entry(NAMESPACE, key, None))
        if stale:
            store.commit(stale)

    def _current(self, tp: TopicPartition, committed: CommittedOffset) -> bool:
        """Rule 3: whether the topic is there for which it was committed."""
        topic = self._topics.by_name.get(tp[0])
        return topic is not None and committed.topic in (topic.id.hex, UNKNOWN)

    def _those_current(
        self, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, CommittedOffset]:
        return {tp: committed for tp, committed in offsets.items() if self._current(tp, committed)}

    def groups(self) -> Iterator[str]:
        """Groups that have offsets, or will have them with a transaction's end."""
        return iter(list(dict.fromkeys([*self._committed, *(group for group in self._held if self.pending(group))])))

    def has(self, group: str) -> bool:
        return group in self._committed

    def fetch(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """What the group has committed for a partition."""
        return self._committed.get(group, {}).get((topic, partition))

    def all(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """All that the group has committed."""
        return self._committed.get(group, {})

    # Transactions

    def pending(self, group: str) -> set[TopicPartition]:
        """Partitions for which an open transaction has written an offset of the group."""
        return {tp for offsets in self._held.get(group, {}).values() for tp in offsets}

    def hold(self, group: str, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """An open transaction has written these."""
        self._held.setdefault(group, {}).setdefault(producer_id, {}).update(self._those_current(offsets))

    def let_go(self, group: str, producer_id: int) -> dict[TopicPartition, CommittedOffset]:
        """The producer's transaction is over; what it had written for the group."""
        held = self._held.get(group, {})
        offsets = held.pop(producer_id, {})
        if not held:
            self._held.pop(group, None)
        return offsets

    # Changes

    def changes(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> list[Entry]:
        """What makes these offsets durable."""
        kept = self._those_current(offsets)
        return [Entry(NAMESPACE, _key(group, tp), list(committed)) for tp, committed in kept.items()]

    def send(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> list[Entry]:
        """As `changes`; until they have `arrived`, these are not too old."""
        self._sent.update((group, tp) for tp in offsets)
        return self.changes(group, offsets)

    def arrived(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """They are durable, or refused."""
        self._sent -= Counter((group, tp) for tp in offsets)

    def on_their_way(self, group: str) -> set[TopicPartition]:
        """Partitions whose offset will be another one soon."""
        return self.pending(group) | {tp for name, tp in self._sent if name == group}

    def apply(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """These offsets are durable: show them."""
        if shown := self._those_current(offsets):
            self._committed.setdefault(group, {}).update(shown)

    def removals(self, group: str, partitions: Iterable[TopicPartition]) -> list[Entry]:
        """What makes it durable that these are gone."""
        return [Entry(NAMESPACE, _key(group, tp), None) for tp in partitions]

    def remove(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Show these no more."""
        offsets = self._committed.get(group, {})
        for tp in list(partitions):
            offsets.pop(tp, None)
        if not offsets:
            self._committed.pop(group, None)

    def forget_topic(self, topic: str) -> list[Entry]:
        """A topic is gone, and with it what was committed for it, within transactions too; what makes that durable."""
        for held in (offsets for some in self._held.values() for offsets in some.values()):
            for tp in [tp for tp in held if tp[0] == topic]:
                del held[tp]
        gone = {g: [tp for tp in offsets if tp[0] == topic] for g, offsets in self._committed.items()}
        for group, partitions in gone.items():
            self.remove(group, partitions)
        return [change for group, partitions in gone.items() for change in self.removals(group, partitions)]


def _key(group: str, tp: TopicPartition) -> str:
    return f"{group}:{tp[0]}:{tp[1]}"


def committed_for(key: str) -> tuple[str, TopicPartition]:
    """The group and the partition that a key of the namespace stands for."""
    group, topic, partition = key.rsplit(":", 2)  # a topic's name has no colon, a group's may
    return group, (topic, int(partition))
