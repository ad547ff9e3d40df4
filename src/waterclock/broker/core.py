"""The broker on one event loop: its parts, made in the order in which they need each other, and closed in the other.

Rule 1: everything but files and flushes happens in the loop's thread.
Rule 2: a part is handed what it needs, never this.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any

from waterclock.broker.api import fetch, produce
from waterclock.broker.api.absent import AbsentApis
from waterclock.broker.api.acls import AclApis
from waterclock.broker.api.configs import ConfigApis
from waterclock.broker.api.elections import ElectionApis
from waterclock.broker.api.envelopes import EnvelopeApi
from waterclock.broker.api.fetch import FetchApi
from waterclock.broker.api.groups import group_apis
from waterclock.broker.api.logdirs import LogDirApis
from waterclock.broker.api.metadata import MetadataApis
from waterclock.broker.api.not_kept import NotKept
from waterclock.broker.api.offsets import OffsetApis
from waterclock.broker.api.overdue import EVERY_S, Overdue
from waterclock.broker.api.partitions import PartitionApis
from waterclock.broker.api.produce import ProduceApi
from waterclock.broker.api.records import RecordApis
from waterclock.broker.api.resources import Resources, advertised
from waterclock.broker.api.sasl import SaslApis
from waterclock.broker.api.scram import ScramApis
from waterclock.broker.api.table import FastApi, Table
from waterclock.broker.api.topics import TopicApis
from waterclock.broker.api.transaction_views import TransactionViewApis
from waterclock.broker.api.transactions import TransactionApis
from waterclock.broker.api.txn_markers import TxnMarkerApi
from waterclock.broker.faults import FlushFreezer
from waterclock.broker.flusher import Flusher, Watermarks, Work
from waterclock.broker.folder.data_folder import DataFolder
from waterclock.broker.folder.identity import Identity, node_of
from waterclock.broker.folder.inventory import JOURNAL
from waterclock.broker.groups.coordinator import GroupCoordinator
from waterclock.broker.log.durable import settle
from waterclock.broker.log.memo import Memo
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.write_ahead import WriteAheadLog
from waterclock.broker.named_offsets import NamedOffsets
from waterclock.broker.net.listener import Listener
from waterclock.broker.replication.journal import Journal
from waterclock.broker.replication.leader import HIGHS_EVERY_S, Leader
from waterclock.broker.replication.replica import begin_epoch, open_journal
from waterclock.broker.replication.replicas import Replicas
from waterclock.broker.replication.tenure import Tenure
from waterclock.broker.rhythm import Rhythm
from waterclock.broker.runtime import RuntimeSettings
from waterclock.broker.security.access import Access
from waterclock.broker.security.authorizer import Authorizer
from waterclock.broker.security.listening import listener_for
from waterclock.broker.security.users import Users
from waterclock.broker.settings import Settings
from waterclock.broker.statistics import BrokerStatistics
from waterclock.broker.store import Entry
from waterclock.broker.topics import Topic, Topics
from waterclock.broker.transactions.coordinator import TransactionCoordinator
from waterclock.broker.transactions.restart import take_up
from waterclock.broker.upkeep.scrub import Scrub
from waterclock.broker.upkeep.upkeep import Upkeep
from waterclock.broker.worker import Worker
from waterclock.clock import WallClock
from waterclock.errors import TimerClosed
from waterclock.purgatory import Purgatory
from waterclock.timer import AsyncTimer

log = logging.getLogger("waterclock.broker")


class Core:
    """Serves `folder` on `host:port` with `loop`, which must be running; `listener` is that of the follower it was."""

    def __init__(
        self, loop: Any, folder: str, host: str, port: int, settings: Settings, clock: WallClock, access: Access,
        listener: Listener | None = None,
    ) -> None:  # fmt: skip
        self.over: asyncio.Future[str] = loop.create_future()
        """How it ends: STOP, or the address of a new leader, to be followed from now on."""
        self.settings = settings
        self.clock = clock
        self.folder = folder
        self._loop = loop
        self._deposed = False
        with ExitStack() as opened:  # a start that fails closes what was opened, the folder's lock last
            if listener is not None:
                opened.callback(listener.close)
            self._data = data = DataFolder(folder, self._soon, opened, copied=False)
            self.store, node = data.store, node_of(data.store, settings)
            self.runtime = RuntimeSettings(settings, self.store, self._settings_changed)
            self.worker = opened.enter_context(closing(Worker(self._soon)))
            self.topics = self._topics()
            self.timer = opened.enter_context(closing(AsyncTimer(clock=clock)))
            self.produces, self.fetches = Purgatory("produce", self.timer), Purgatory("fetch", self.timer)
            self.deletions = Purgatory("delete records", self.timer)
            self.groups = GroupCoordinator(self.store, self.timer, settings, self.topics, clock.wall_ms)
            self.transactions = TransactionCoordinator(self.store, self.timer, settings, clock.wall_ms, self.produces)
            self._guard(access)
            self.listener = listener or opened.enter_context(closing(self._listener((host, port), access)))
            self.identity = Identity.of(self.store, folder, node, *access.advertised(host, self.listener.port))
            self._listeners = advertised(access, host, self.listener.port)
            self.watermarks = Watermarks(self.listener.ready, self.produces, self.fetches, self._news)
            self.replicas = Replicas(self.identity.node, settings, clock, self.watermarks.changed)
            self.flusher = opened.enter_context(closing(self._flusher()))
            self.freezer = FlushFreezer(self.topics, self.flusher)
            self.tenure = Tenure(loop, self.identity, self.store, access.link, self.depose)
            self.leading = self._leader(access)
            self.upkeep = self._upkeep()
            self._rhythms: tuple[Rhythm, ...] = ()
            self.scrub = Scrub(self.topics.partitions, self.worker, clock)
            self._take_up()
            self.produce = self._produce_api()
            self.table = self._table()
            opened.pop_all()

    def _topics(self) -> Topics:
        named = NamedOffsets(self.store, self._data.ahead)
        return Topics(self.folder, self.settings, self.store, self._data.stop, self.worker.do, named.largest)

    def _leader(self, access: Access) -> Leader:
        attached, user = self.tenure.followed_by, (access.link.user or "") if access.users else None
        return Leader(self.identity, self.store, self.replicas, self._journal, self.depose, attached, user)

    def _take_up(self) -> None:
        """Go on with what the last time left: a promotion that was cut short, a follower, and transactions."""
        self._begin_epoch()
        self.leading.remember(self.topics.partitions())
        self.transactions.open(self.topics, self.flusher, self.groups)
        self.transactions.ids.pass_over(one for p in self.topics.partitions() for one in p.producers.known)
        take_up(self.transactions, self.topics.partitions(), self.replicas.raise_high)

    def _begin_epoch(self) -> None:
        """In every log, if the promotion came no further than to remember that this broker leads: follower.py, step 4."""
        epoch = self.leading.epoch
        if epoch and Memo.load(os.path.join(self.folder, JOURNAL)).epoch < epoch:
            journal = open_journal(self.folder, self.settings, self._data.stop)
            begin_epoch([*self.topics.partitions(), journal], epoch)

    def _guard(self, access: Access) -> None:
        """Who may come in, and do what."""
        self.users = Users(access.users, self.store)
        self.authorizer = self.topics.sight = Authorizer.of(self.settings, self.store)
        self.sasl = SaslApis(self.users, self.timer.call_later)

    def _listener(self, address: tuple[str, int], access: Access) -> Listener:
        return listener_for(self._loop, address, self.settings, self.timer, access)

    def _flusher(self) -> Flusher:
        self.ahead = WriteAheadLog(self.folder, self._data.begin())
        return Flusher(self._loop, self.clock.monotonic_ns, self.ahead, self.worker.do, self._flushed)

    def _upkeep(self) -> Upkeep:
        changed, stands = self.watermarks.changed, self.ahead.stands
        return Upkeep(self.topics, self.settings, self.worker, self.clock.wall_ms, changed, stands)

    def _flushed(self, work: list[Work]) -> None:
        self.watermarks.flushed(work, self.replicas.raise_high)

    def _soon(self, deed: Callable[..., object], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(deed, *arguments)

    def _produce_api(self) -> ProduceApi:
        admission, wall_ms = self.transactions.admission, self.clock.wall_ms
        return ProduceApi(self.topics, self.flusher, self.produces, wall_ms, admission, self.replicas)

    def _table(self) -> Table:
        fetches = FetchApi(self.topics, self.fetches, self.settings["fetch.max.bytes"], self.leading)
        self.produce.authorizer = fetches.authorizer = self.authorizer
        fast = {0: FastApi(self.produce, *produce.VERSIONS), 1: FastApi(fetches, *fetch.VERSIONS)}
        not_kept, envelopes = NotKept(self.leading), EnvelopeApi(self.authorizer, self.leading.admits)
        apis = (
            MetadataApis(self.identity, self.topics, self.settings, self.replicas.in_sync),
            TopicApis(self.identity, self.topics, self.runtime, self._topic_gone, not_kept),
            ConfigApis(Resources(self.topics, self.runtime, self._listeners), not_kept),
            PartitionApis(self.identity, self.topics, self.replicas.in_sync),
            ElectionApis(self.topics),
            LogDirApis(self.folder, self.topics),
            AbsentApis(),
            AclApis(self.authorizer, not_kept),
            OffsetApis(self.topics, self.leading),
            TransactionApis(self.topics, self.transactions, self.settings["offset.metadata.max.bytes"]),
            TransactionViewApis(self.topics, self.transactions),
            TxnMarkerApi(self.topics, self.transactions.ending, self.clock.wall_ms),
            RecordApis(self.topics, self.deletions, self.upkeep),
            *group_apis(self.identity, self.topics, self.groups, self.settings),
            self.sasl,
            ScramApis(self.users, self.store, not_kept),
            envelopes,
        )
        rights = self.authorizer.rights if self.authorizer is not None else None
        table = Table(fast, {key: api for some in apis for key, api in some.apis().items()}, rights)
        envelopes.serve, table.overdue = table.handle, self._overdue()
        self.tenure.lease.guard(table)
        return table

    def _overdue(self) -> Overdue:
        overdue = Overdue(lambda: self.leading.too_few, self.clock.monotonic_ns, lambda: rhythm.wake())
        rhythm = Rhythm(self.timer, EVERY_S, overdue.look)
        return overdue

    def _news(self) -> None:
        """A high watermark or a start has moved, or settings are others: what looks on time is woken."""
        self.upkeep.news()
        for rhythm in self._rhythms:
            rhythm.wake()

    def _settings_changed(self) -> None:
        for topic in self.topics:
            topic.settings.refresh()
        if self.leading.journal is not None:
            self.leading.journal.partition.settings.refresh()
        self._news()

    def _journal(self) -> Journal:
        partition = open_journal(self.folder, self.settings, self._data.stop)
        mark, wall_ms = self.flusher.mark, self.clock.wall_ms
        return Journal(partition, self.produces, mark, wall_ms, self.store.tell_all, self._later)

    def _later(self, delay_s: float, deed: Callable[[], Any]) -> None:
        with suppress(TimerClosed):
            self.timer.call_later(delay_s, deed)

    def depose(self, address: str, epoch: int) -> None:
        """There is a new leader at `address`: who waits is answered so, and it is followed once that is durable."""
        if self._deposed:
            return
        self._deposed = True
        self.tenure.lease.lose()
        log.warning("deposed: %s leads in epoch %d, and is followed from now on", address, epoch)
        for partition in self._partitions():
            partition.deposed = True
        self.watermarks.changed(list(self.topics.partitions()))
        known = {"follows": address, "node": self.identity.node, "peer": self.identity.peer, "epoch": epoch}
        known |= dict.fromkeys(("applied", "copied_from", "follower", "deposed"))
        self.store.commit([Entry("self", *item) for item in known.items()], partial(self._resign, address))

    def _resign(self, address: str, done: bool) -> None:
        if not self.over.done():  # if the store refused, following begins with asking it once more
            self.over.set_result(address)

    def _partitions(self) -> list[Partition]:
        journal = self.leading.journal
        return [*self.topics.partitions(), *([journal.partition] if journal is not None else [])]

    def _topic_gone(self, topic: Topic) -> None:
        self.replicas.forget(topic.partitions)
        for partition in topic.partitions:
            self.flusher.forget(partition)
        self.watermarks.changed(topic.partitions)
        for partition in topic.partitions:
            self.deletions.check_and_complete(partition)
        self.groups.topic_gone(topic.name)

    def statistics(self) -> BrokerStatistics:
        """What it did so far, and what waits now."""
        groups, ids = list(self.groups), self.transactions.ledger.by_name.values()
        return BrokerStatistics(
            connections=len(self.listener.connections),
            requests=self.table.requests(),
            bytes_in=self.listener.received,
            bytes_out=self.listener.sent,
            records_in=self.produce.records,
            record_bytes_in=self.produce.bytes,
            topics=len(self.topics.by_name),
            partitions=sum(len(topic.partitions) for topic in self.topics),
            purgatories={name: purgatory.statistics() for name, purgatory in self._purgatories().items()},
            flushes=self.flusher.statistics(),
            groups=Counter(group.state_name for group in groups),
            group_members=sum(len(group.members) for group in groups),
            transactions=Counter(one.record.state.value for one in ids),
            replication=self.leading.statistics(),
            scrub=self.scrub.statistics(),
        )

    def _purgatories(self) -> dict[str, Purgatory]:
        """Every one that there is, by its name."""
        return {
            "produce": self.produces, "fetch": self.fetches, "delete records": self.deletions,
            "join": self.groups.joins, "heartbeat": self.groups.heartbeats, "transaction": self.transactions.purgatory,
        }  # fmt: skip

    def open(self) -> None:
        """Let clients in."""
        self.listener.open(self.sasl.guarded(self.table), self.table)
        self.upkeep.begin(self.timer)
        self.scrub.begin(self.timer, self.settings["log.initial.task.delay.ms"] / 1000)
        self.topics.configured = self._news
        every_s = self.settings["replica.lag.time.max.ms"] / 2000
        laggards, highs = (
            Rhythm(self.timer, every_s, self._drop_laggards),
            Rhythm(self.timer, HIGHS_EVERY_S, self._highs),
        )
        self._rhythms = (laggards, highs, self.transactions.forgetting)
        self._news()
        self.tenure.begin()

    async def shut_out(self) -> None:
        """Before it lets clients in: see that nobody else answers them."""
        await self.tenure.shut_out(self.over)

    def _highs(self) -> float | None:
        return self.leading.keep_highs(self.topics.partitions())

    def _drop_laggards(self) -> float | None:
        """Unless it is not known who leads: then nothing is acknowledged without the follower, which may be the leader."""
        if self.tenure.lease.holds:
            self.replicas.drop_laggards()
        return None if self.replicas.follower is None else 0.0

    async def close(self) -> None:
        """Answer nobody any more, put everything onto the disk, close the files."""
        self._end(self._settle)

    async def lose_power(self) -> None:
        """Answer nobody any more, and keep of the logs what is durable, as if the machine had died."""
        self._end(self._lose_undurable)

    def _end(self, leave: Callable[[list[Partition]], None]) -> None:
        self.tenure.close()
        self.listener.close()
        for purgatory in (self.produces, self.fetches, self.groups, self.transactions, self.deletions):
            purgatory.close()
        self.timer.close()
        self.worker.close()
        self.flusher.close()
        leave(self._partitions())
        self.leading.keep_highs(self.topics.partitions())
        self.store.close()
        self._data.lock.release()

    def _settle(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            settle(partition)
        self.ahead.close()
        self._data.stop.write(partitions)

    def _lose_undurable(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            partition.lose_undurable()
        self.ahead.abandon()
