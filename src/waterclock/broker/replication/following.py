"""A broker that follows another: it holds a copy of everything, and serves nobody but with the leader's address.

Rule 1: its folder is like a leader's: to be promoted is to begin a new epoch there, and to start as a leader.
Rule 2: a client that produces or fetches here is told NOT_LEADER_OR_FOLLOWER, and finds the leader by Metadata.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from waterclock.broker.api.fetch import VERSIONS as FETCH_VERSIONS
from waterclock.broker.api.metadata import MetadataApis
from waterclock.broker.api.produce import VERSIONS as PRODUCE_VERSIONS
from waterclock.broker.api.table import Api, FastApi, Table
from waterclock.broker.folder import locked
from waterclock.broker.identity import Identity
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.net.connection import Connection
from waterclock.broker.net.door import door
from waterclock.broker.replication.copying import Copying
from waterclock.broker.replication.journal import OWN, TOPIC
from waterclock.broker.replication.leading import FOLLOWER
from waterclock.broker.replication.link import Link
from waterclock.broker.security.access import Access
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.store import Change, Forget, Store
from waterclock.broker.topics import ROOM, Topics
from waterclock.broker.wire import fetch, produce
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error
from waterclock.broker.wire.fetch import Found
from waterclock.broker.wire.produce import Appended
from waterclock.timer import AsyncTimer

JOURNAL: Final = "journal"
ELECT_LEADERS: Final = 43
LEAD: Final = "lead"
STOP: Final = "stop"


def open_journal(folder: str, settings: Settings) -> Partition:
    """The journal's partition in a broker's folder: for ever kept, and never old."""
    own = TopicSettings(settings, {"retention.ms": "-1", "max.message.bytes": str(1 << 30), "min.insync.replicas": "1"})
    return open_partition(TOPIC, 0, os.path.join(folder, JOURNAL), own)


class Copy:
    """What a follower has: the store, the topics, the journal."""

    def __init__(self, folder: str, settings: Settings, store: Store, identity: Identity) -> None:
        self.store, self.topics, self._identity = store, Topics(folder, settings, store), identity
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
        for change in changes:
            if change.room == "cluster":
                self._identity.cluster = change.value
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        forget: Iterable[Change | Forget] = [Forget(OWN)] if reset else []
        self.store.commit([*forget, *changes], partial(_tell, done))
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

    def partitions(self) -> list[Partition]:
        return [self.journal, *self.topics.partitions()]

    def begin_epoch(self) -> int:
        """A new leader's epoch in every partition, from its end on; that epoch."""
        partitions = self.partitions()
        epoch = max(p.memo.epoch for p in partitions) + 1
        for partition in partitions:
            partition.memo.epochs.append((epoch, partition.end))
            partition.memo.save()
        return epoch


class Following:
    """Follows the broker at `leader` (HOST:PORT). `over` gets LEAD once it is promoted, or STOP."""

    def __init__(
        self, loop: Any, folder: str, host: str, port: int, settings: Settings, leader: str, access: Access
    ) -> None:
        self.over: asyncio.Future[str] = loop.create_future()
        self._loop, self._lock = loop, locked(folder)
        self.store = Store(os.path.join(folder, "store.sqlite"), loop.call_soon_threadsafe)
        node = self.store.load("self").get("node", 2)
        self.identity = Identity.of(self.store, host, port)
        self.identity.node, self.identity.leader = node, 3 - node
        self.identity.peer, self.identity.peer_at = 3 - node, leader
        self.store.put("self", "node", node)
        self.copy = Copy(folder, settings, self.store, self.identity)
        self.timer = AsyncTimer()
        self.listener = door(loop, (host, port), settings, self.timer, access)
        self.identity.port = self.listener.port
        name = f"{FOLLOWER}{host}:{self.listener.port}"
        self.copying = Copying(self.copy, Link(leader, name), node)
        self.table = self._table(settings)
        self._task: asyncio.Task[None] | None = None

    def _table(self, settings: Settings) -> Table:
        both = (self.identity.leader, self.identity.node)
        metadata = MetadataApis(self.identity, self.copy.topics, settings, lambda partition: both)
        fast = {
            0: FastApi(_refuse_produce, *PRODUCE_VERSIONS),
            1: FastApi(_refuse_fetch, *FETCH_VERSIONS),
        }
        return Table(fast, {**metadata.apis(), ELECT_LEADERS: Api(self._elect, 0, 2)})

    def open(self) -> None:
        """Let clients in, and begin to copy."""
        self.listener.open(self.table)
        self._task = self._loop.create_task(self.copying.run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Copying ends by being cancelled; whatever else ended it ends the broker."""
        if not task.cancelled() and not self.over.done():
            self.over.set_exception(task.exception() or RuntimeError("copying ended"))

    def _elect(self, request: Request) -> None:
        """ElectLeaders: whoever asks a follower for that promotes it."""
        if not self.over.done():
            self.over.set_result(LEAD)
        request.answer(error_code=Error.NONE, replica_election_results=())

    def promote(self) -> None:
        """Become the leader."""
        if not self.over.done():
            self.over.set_result(LEAD)

    async def close(self) -> None:
        """Stop copying; where it was promoted, begin the new epoch; close the files."""
        self.listener.ready.send()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.listener.close()
        self.timer.close()
        if self.over.done() and not self.over.exception() and self.over.result() == LEAD:
            epoch = self.copy.begin_epoch()
            self.store.put("self", "follower", None)
            self.store.put("self", "deposed", {"address": self.identity.peer_at, "epoch": epoch})
        for partition in self.copy.partitions():
            if partition.producers.known:
                partition.take_snapshot()
        self.store.close()
        os.close(self._lock)


def _tell(done: asyncio.Future[bool], stored: bool) -> None:
    if not done.done():  # the copying may have been cancelled meanwhile
        done.set_result(stored)


def _refuse_produce(connection: Connection, data: memoryview, at: int, version: int, correlation: int) -> None:
    request = produce.read(data, at, version)
    if request.acks == 0:
        connection.close()
        return
    refused = [
        (key, [Appended(number, Error.NOT_LEADER_OR_FOLLOWER) for number, _ in batches])
        for key, batches in request.topics
    ]
    connection.slot().answer([produce.answer(correlation, version, refused)])


def _refuse_fetch(connection: Connection, data: memoryview, at: int, version: int, correlation: int) -> None:
    request = fetch.read(data, at, version)
    refused = [
        (key, [Found(row.partition, Error.NOT_LEADER_OR_FOLLOWER) for row in rows]) for key, rows in request.topics
    ]
    connection.slot().answer(fetch.answer(correlation, version, refused))
