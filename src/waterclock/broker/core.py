"""The broker on one event loop: its rooms, made in the order in which they need each other, and closed in the other.

Rule 1: everything but files and flushes happens in the loop's thread.
Rule 2: a room is handed what it needs, never this.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from typing import Any

from waterclock.broker.api import fetch, produce
from waterclock.broker.api.fetch import FetchApi
from waterclock.broker.api.groups import group_apis
from waterclock.broker.api.metadata import MetadataApis
from waterclock.broker.api.offsets import OffsetApis
from waterclock.broker.api.produce import ProduceApi
from waterclock.broker.api.table import FastApi, Table
from waterclock.broker.api.topics import TopicApis
from waterclock.broker.errors import DataInUse
from waterclock.broker.flusher import Flusher
from waterclock.broker.groups.coordinator import GroupCoordinator
from waterclock.broker.identity import Identity
from waterclock.broker.log.partition import Partition
from waterclock.broker.net.listener import Listener
from waterclock.broker.settings import Settings
from waterclock.broker.store import Store
from waterclock.broker.topics import Topic, Topics
from waterclock.broker.watermarks import Watermarks
from waterclock.broker.wire.errors import Error
from waterclock.clock import WallClock
from waterclock.purgatory import Purgatory
from waterclock.timer import AsyncTimer


class Core:
    """Serves `folder` on `host:port` with `loop`, which must be running; `on_failure(error)` hears of a failed flush."""

    def __init__(
        self,
        loop: Any,
        folder: str,
        host: str,
        port: int,
        settings: Settings,
        clock: WallClock,
        on_failure: Callable[[OSError], None],
    ) -> None:
        self.settings, self.clock = settings, clock
        self._lock = _locked(folder)
        self.store = Store(os.path.join(folder, "store.sqlite"), loop.call_soon_threadsafe)
        self.topics = Topics(folder, settings, self.store)
        self.timer = AsyncTimer(clock=clock)
        self.produces, self.fetches = Purgatory("produce", self.timer), Purgatory("fetch", self.timer)
        self.groups = GroupCoordinator(self.store, self.timer, settings, self.topics, clock.wall_ms)
        self.listener = Listener(
            loop, host, port, largest_request=settings["socket.request.max.bytes"], most=settings["max.connections"],
        )  # fmt: skip
        self.identity = Identity.of(self.store, host, self.listener.port)
        self.watermarks = Watermarks(self.listener.ready, self.produces, self.fetches)
        self.flusher = Flusher(loop, self.watermarks.flushed, on_failure)
        self.table = self._table()

    def _table(self) -> Table:
        self.produce = ProduceApi(self.topics, self.flusher, self.produces, self.clock.wall_ms, _admit_nobody)
        fetches = FetchApi(self.topics, self.fetches, self.settings["fetch.max.bytes"])
        fast = {0: FastApi(self.produce, *produce.VERSIONS), 1: FastApi(fetches, *fetch.VERSIONS)}
        rooms = (
            MetadataApis(self.identity, self.topics, self.settings),
            TopicApis(self.topics, self.settings, self._topic_gone),
            OffsetApis(self.topics),
            *group_apis(self.identity, self.topics, self.groups, self.settings),
        )
        return Table(fast, {key: api for room in rooms for key, api in room.apis().items()})

    def _topic_gone(self, topic: Topic) -> None:
        for partition in topic.partitions:
            self.flusher.forget(partition)
        self.watermarks.changed(topic.partitions)
        self.groups.topic_gone(topic.name)

    def open(self) -> None:
        """Let clients in."""
        self.listener.open(self.table)

    def close(self) -> None:
        """Answer nobody any more, put everything onto the disk, close the files."""
        self.listener.close()
        for purgatory in (self.produces, self.fetches, self.groups):
            purgatory.close()
        self.timer.close()
        self.flusher.close()
        for partition in self.topics.partitions():
            _settle(partition)
        self.store.close()
        os.close(self._lock)


def _settle(partition: Partition) -> None:
    """Flush what is not durable, and keep the producers for the next start."""
    files = partition.unflushed()
    for segment, _ in files:
        segment.flush()
    partition.flushed(partition.end, files)
    if partition.producers.known:
        partition.take_snapshot()


def _admit_nobody(transactional_id: str, partition: Partition, batch: memoryview, version: int) -> Error:
    return Error.INVALID_TXN_STATE


def _locked(folder: str) -> int:
    """Take the folder for this process alone."""
    os.makedirs(folder, exist_ok=True)
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise DataInUse(f"another broker has {folder} open: stop it, or choose another folder with --data") from None
    return lock
