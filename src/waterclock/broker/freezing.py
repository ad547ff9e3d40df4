"""What `faults.freeze` holds still: the flushes of a leader, the copying of a follower.

Rule 1: everything here runs in the broker's thread.
Rule 2: a leader is frozen partition by partition; a follower only as a whole, for it flushes all that it copied together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from waterclock.errors import UsageError

if TYPE_CHECKING:
    from waterclock.broker.flusher import Flusher
    from waterclock.broker.log.partition import Partition
    from waterclock.broker.topics import Topics


class Freezer(Protocol):
    """A topic of None stands for everything. UsageError if the broker has no such topic or partition."""

    def freeze(self, topic: str | None, partition: int | None) -> Callable[[], None]:
        """Hold it still; what is returned ends that, and does nothing if it has ended already."""

    def thaw(self, topic: str | None, partition: int | None) -> None:
        """Let it go on, whoever froze it."""


class FlushFreezer:
    """Holds back a leader's flushes: acks=1 is answered, acks=all waits, readers see nothing new."""

    def __init__(self, topics: Topics, flusher: Flusher) -> None:
        self._topics, self._flusher = topics, flusher
        self._frozen: dict[Partition, None] = {}

    def freeze(self, topic: str | None, partition: int | None) -> Callable[[], None]:
        partitions = self._partitions(topic, partition)
        for one in partitions:
            self._frozen[one] = None
            self._flusher.freeze(one, True)
        return lambda: self._thaw(partitions)

    def thaw(self, topic: str | None, partition: int | None) -> None:
        self._thaw(list(self._frozen) if topic is None else self._partitions(topic, partition))

    def _thaw(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            if partition in self._frozen:
                del self._frozen[partition]
                if not partition.deleted:
                    self._flusher.freeze(partition, False)

    def _partitions(self, topic: str | None, number: int | None) -> list[Partition]:
        if topic is None:
            return list(self._topics.partitions())
        known = self._topics.by_name.get(topic)
        if known is None:
            raise UsageError(f"there is no topic {topic!r} to freeze: create it first, as with broker.create_topic")
        if number is None:
            return list(known.partitions)
        if not 0 <= number < len(known.partitions):
            raise UsageError(f"topic {topic!r} has partitions 0 to {len(known.partitions) - 1}, got {number!r}")
        return [known.partitions[number]]


class CopyFreezer:
    """Holds back a follower's copying, as a process that stands still. `freeze(frozen)` does it."""

    def __init__(self, freeze: Callable[[bool], None]) -> None:
        self._freeze = freeze

    def freeze(self, topic: str | None, partition: int | None) -> Callable[[], None]:
        _refuse_topic(topic)
        self._freeze(True)
        return lambda: self._freeze(False)

    def thaw(self, topic: str | None, partition: int | None) -> None:
        _refuse_topic(topic)
        self._freeze(False)


def _refuse_topic(topic: str | None) -> None:
    if topic is not None:
        raise UsageError(
            f"a follower copies all topics together, {topic!r} too: call freeze() and thaw() without a topic"
        )
