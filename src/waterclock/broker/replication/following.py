"""A broker that follows another: it holds a copy of everything, and serves nobody but with the leader's address.

Rule 1: it has the same folder as a leader: to be promoted is to begin a new epoch and to start as a leader.
Rule 2: a client that asks it for more is told NOT_LEADER_OR_FOLLOWER, and finds the leader by Metadata.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Any, Final

from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.replication.copying import Copying
from waterclock.broker.replication.journal import OWN, TOPIC
from waterclock.broker.replication.link import Link
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.store import Change, Forget, Store
from waterclock.broker.topics import ROOM, Topics

JOURNAL: Final = "journal"


def open_journal(folder: str, settings: Settings) -> Partition:
    """The journal's partition in a broker's folder: for ever kept, and never old."""
    own = TopicSettings(settings, {"retention.ms": "-1", "max.message.bytes": str(1 << 30)})
    return open_partition(TOPIC, 0, os.path.join(folder, JOURNAL), own)


class Copy:
    """What a follower has: the store, the topics, the journal."""

    def __init__(self, folder: str, settings: Settings, store: Store) -> None:
        self.store, self.topics = store, Topics(folder, settings, store)
        self.journal = open_journal(folder, settings)

    def replace(self, old: Partition, new: Partition) -> None:
        """A partition was cut and opened anew."""
        if old is self.journal:
            self.journal = new
        else:
            self.topics.replace(old, new)

    async def apply(self, reset: bool, changes: list[Change]) -> None:
        """Do what the leader's store did, durably; with `reset` everything else is forgotten."""
        self._apply_to_topics(reset, changes)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        forget: Iterable[Change | Forget] = [Forget(OWN)] if reset else []
        self.store.commit([*forget, *changes], done.set_result)
        if not await done:
            raise OSError("the copy of the store cannot be written")

    def _apply_to_topics(self, reset: bool, changes: list[Change]) -> None:
        named = {change.key: change.value for change in changes if change.room == ROOM}
        if reset:
            for topic in self.topics:
                if topic.name not in named:
                    self.topics.drop(topic)
        for name, value in named.items():
            self.topics.adopt(name, value)

    def begin_epoch(self) -> None:
        """A new leader's epoch in every partition, from its end on."""
        partitions = [self.journal, *self.topics.partitions()]
        epoch = max(p.memo.epoch for p in partitions) + 1
        for partition in partitions:
            partition.memo.epochs.append((epoch, partition.end))
            partition.memo.save()


class Following:
    """Follows the broker at `leader` as replica `node`, until it is stopped."""

    def __init__(
        self, loop: Any, folder: str, settings: Settings, store: Store, leader: str, node: int, name: str
    ) -> None:
        self.copy = Copy(folder, settings, store)
        self.copying = Copying(self.copy, Link(leader, name), node)
        self._task: asyncio.Task[None] = loop.create_task(self.copying.run())

    async def stop(self) -> None:
        """Copy no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
