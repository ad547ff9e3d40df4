"""What a follower has: the store, the topics, and the journal of the leader's store, which both are kept by.

Rule 1: the journal is durable here before what it says is done; up to where it is done stands in the store, in the same
    commit. What is missing after a crash is done at the next start, or before this broker leads. So from where on it is
    to be done stands in the store before the first record is copied.
    If the disk is full it stays undone, and is tried again.
Rule 2: a reset is done whole: the records of one that has not come to its end change nothing.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.folder.inventory import JOURNAL, NAMESPACE
from waterclock.broker.folder.topics import Topics
from waterclock.broker.log.batch import PREFIX, header_of
from waterclock.broker.log.clean_stop import CleanStop
from waterclock.broker.log.durable import flush_files
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import Said, open_partition
from waterclock.broker.replication.highs import KeptHighs
from waterclock.broker.replication.journal import OWN, TOPIC, read
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.store import Entry, Forget, Store
from waterclock.disk import make_folder
from waterclock.errors import WaterclockError
from waterclock.outside import os

if TYPE_CHECKING:
    from waterclock.broker.folder.identity import Identity

CHUNK: Final = 4 << 20
FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def open_journal(folder: str, settings: Settings, stop: CleanStop) -> Partition:
    """The journal's partition in a broker's folder: nothing of it is ever too old, or too large.

    How many replicas must be in sync for it, the broker's own min.insync.replicas says.
    """
    own = TopicSettings(settings, {"retention.ms": "-1", "max.message.bytes": str(1 << 30)})
    path = os.path.join(folder, JOURNAL)
    make_folder(path)
    return open_partition(TOPIC, 0, path, own, Said(stop.take(path), rebooted=stop.rebooted))


class NoRoom(WaterclockError):
    """The disk takes no more. Nothing is lost: it can be copied again when there is room."""


@contextmanager
def room_awaited() -> Iterator[None]:
    """NoRoom instead of the OSError of a full disk, which must leave everything as it was."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise NoRoom(str(error)) from error
        raise


class FollowerReplica:
    """The follower's. `applied` is how far the journal was done, or None if nothing was copied yet."""

    def __init__(self, journal: Partition, store: Store, topics: Topics, identity: Identity) -> None:
        self.store = store
        self.topics = topics
        self._identity = identity
        self.journal = journal
        self.applied: int | None = store.load("self").get("applied")
        self._highs = KeptHighs(store)
        for partition in topics.partitions():
            self._highs.restore(partition)
        self.changed: Callable[[bool, Collection[str]], object] = lambda reset, namespaces: None
        """Hears of what was done to the store, once it is durable: whether everything was, and in which namespaces."""
        self._begin_reading()

    def _begin_reading(self) -> None:
        """Read the journal from where it was done; what was in it before this broker followed says nothing here."""
        end, kept = self.journal.end, self.store.load("self")
        done = kept.get("applied", kept.get("copied_from"))
        self._read = end if done is None else max(self.journal.start, min(done, end))
        self._done = self._read
        self._gather_anew()

    async def begin_copying(self) -> None:
        """The journal is the leader's as far as it goes: what is behind that is done from now on, whatever happens."""
        known = "copied_from" if self.applied is None else "applied"
        if self.store.load("self").get(known) != self._read:
            await self.keep([Entry("self", known, self._read)])

    def _gather_anew(self) -> None:
        """From what is done on."""
        self._read = self._done
        self._gathered: list[Entry] = []
        self._reset = self._more = False

    def partitions(self) -> list[Partition]:
        return [self.journal, *self.topics.partitions()]

    def replace(self, old: Partition, new: Partition) -> None:
        """A partition was cut and opened anew."""
        old.deleted = True  # for whoever holds it still
        new.high = min(new.end, max(new.start, old.high))
        if old is self.journal:
            self.journal = new
            self._begin_reading()
        else:
            self.topics.replace(old, new)

    async def catch_up(self) -> None:
        """Do what the durable part of the journal says, as far as it was not done; NoRoom."""
        try:
            with room_awaited():
                while (records := self.journal.read(self._read, CHUNK, self.journal.durable)) is not None:
                    data, at = records.read(), 0
                    while at < len(data):
                        batch = header_of(data, at)
                        for said in read(data[at : at + PREFIX + batch.length]):
                            if said.reset:
                                await self._apply()  # what came before must not hang on the end of the reset
                                self._gathered, self._reset = [], True
                            self._gathered += said.changes
                            self._more = said.more
                        self._read, at = batch.last + 1, at + PREFIX + batch.length
                await self._apply()
        except NoRoom:
            self._gather_anew()
            raise

    async def _apply(self) -> None:
        """Do what was gathered, durably, unless more of it is to come; after a reset everything else is forgotten."""
        if self._more or not (self._gathered or self._reset):
            return
        changes, reset = self._gathered, self._reset
        self._gathered, self._reset = [], False
        named = {change.key: change.value for change in changes if change.namespace == NAMESPACE}
        for topic in self.topics if reset else ():
            if topic.name not in named:
                self.topics.drop(topic)
        for name, value in named.items():
            self.topics.adopt(name, value)
        for change in changes:
            if change.namespace == "cluster":
                self._identity.join(change.value)
        forget: list[Entry | Forget] = [Forget(OWN)] if reset else []
        await self.keep([*forget, *changes, Entry("self", "applied", self._read)])
        self.applied = self._done = self._read
        self.changed(reset, {change.namespace for change in changes})

    async def keep(self, changes: Iterable[Entry | Forget]) -> None:
        """Commit to the store; NoRoom if it is refused."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def kept(stored: bool) -> None:
            if not done.done():  # the copying may have been cancelled meanwhile
                done.set_result(stored)

        self.store.commit(changes, kept)
        if not await done:
            raise NoRoom("the replica of the store cannot be written")

    async def flush(self) -> None:
        """Make all durable that was appended."""
        work = [(p, p.end, p.unflushed()) for p in self.partitions() if p.durable < p.end]
        if work:
            every = [file for _, _, files in work for file in files]
            await asyncio.get_running_loop().run_in_executor(None, flush_files, every)
        for partition, end, files in work:
            partition.flushed(end, files)

    def keep_highs(self) -> float:
        """Remember how far the leader's readers may read: if this broker is promoted, its own may read as far."""
        self._highs.keep(self.topics.partitions())
        return 0.0  # the leader may say more at any time

    def next_epoch(self) -> int:
        """An epoch that no other leader has had: after all that are known here, and none that the other broker takes."""
        known: Any = self.store.load("self").get("epoch", 0)
        return self._identity.next_epoch(max(int(known), *(p.memo.epoch for p in self.partitions())))

    def begin(self, epoch: int) -> None:
        """Begin the new leader's epoch in every partition, from its end on."""
        begin_epoch([*self.topics.partitions(), self.journal], epoch)


def begin_epoch(partitions: Iterable[Partition], epoch: int) -> None:
    """Begin an epoch in each partition that is in an earlier one. The journal comes last: if it has it, all have."""
    for partition in partitions:
        if partition.memo.epoch < epoch:
            partition.memo.epochs.append((epoch, partition.end))
            partition.memo.save()
