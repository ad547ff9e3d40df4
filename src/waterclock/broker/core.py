"""The broker on one event loop: its parts, made in the order in which they need each other, and closed in the other.

Rule 1: everything but files and flushes happens in the loop's thread.
Rule 2: a part is handed what it needs, never this.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import Any

from waterclock.broker.api import fetch, produce
from waterclock.broker.api.acls import AclApis
from waterclock.broker.api.configs import ConfigApis, Resources, advertised
from waterclock.broker.api.elsewhere import EnvelopeApi
from waterclock.broker.api.faults import FlushFreezer
from waterclock.broker.api.fetch import FetchApi
from waterclock.broker.api.groups import group_apis
from waterclock.broker.api.metadata import LogDirApis, MetadataApis, PartitionApis
from waterclock.broker.api.offsets import OffsetApis, RecordApis
from waterclock.broker.api.produce import ProduceApi
from waterclock.broker.api.sasl import SaslApis, ScramApis
from waterclock.broker.api.table import ApiTable, FastApi
from waterclock.broker.api.topics import SingleBrokerApis, TopicApis
from waterclock.broker.api.transaction_admin import TransactionViewApis, TxnMarkerApi
from waterclock.broker.api.transactions import TransactionApis
from waterclock.broker.api.waiting import EVERY_S, NotKept, Overdue
from waterclock.broker.flusher import Flusher, HighWatermarks
from waterclock.broker.folder.identity import Identity, node_of
from waterclock.broker.folder.inventory import JOURNAL, DataFolder
from waterclock.broker.folder.runtime import RuntimeSettings
from waterclock.broker.folder.topics import Topic, Topics
from waterclock.broker.groups.coordinator import GroupCoordinator
from waterclock.broker.groups.lags import lags_of
from waterclock.broker.log.durable import close_durably
from waterclock.broker.log.memo import Memo
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.write_ahead import WriteAheadLog
from waterclock.broker.named_offsets import NamedOffsets
from waterclock.broker.net.listener import Listener
from waterclock.broker.replication.highs import HIGHS_EVERY_S
from waterclock.broker.replication.journal import Journal
from waterclock.broker.replication.leader import Leader
from waterclock.broker.replication.replica import begin_epoch, open_journal
from waterclock.broker.replication.replicas import Replicas
from waterclock.broker.replication.tenure import Tenure
from waterclock.broker.rhythm import Rhythm
from waterclock.broker.security.access import Access, listener_for
from waterclock.broker.security.authorizer import Authorizer
from waterclock.broker.security.users import Users
from waterclock.broker.settings import Settings
from waterclock.broker.statistics import BrokerStatistics
from waterclock.broker.store import Entry
from waterclock.broker.transactions.coordinator import TransactionCoordinator
from waterclock.broker.transactions.restart import take_up
from waterclock.broker.upkeep import Scrub, Upkeep
from waterclock.broker.worker import Worker
from waterclock.clock import MachineClock, WallClock
from waterclock.errors import TimerClosed
from waterclock.outside import os
from waterclock.purgatory import Purgatory
from waterclock.timer import AsyncTimer

log = logging.getLogger("waterclock.broker")


class Core:
    """Serves `folder` on `host:port` with `loop`, which must be running; `listener` is that of the follower it was."""

    def __init__(
        self, loop: Any, folder: str, host: str, port: int, settings: Settings, clock: WallClock, access: Access,
        listener: Listener | None, machine: MachineClock,
    ) -> None:  # fmt: skip
        self.over: asyncio.Future[str] = loop.create_future()
        """How it ends: STOP, or the address of a new leader, to be followed from now on."""
        self.settings = settings
        self.clock, self._machine = clock, machine
        self.folder = folder
        self._loop = loop
        self._deposed = False
        self._rhythms: tuple[Rhythm, ...] = ()
        with ExitStack() as opened:  # a start that fails closes what was opened, the folder's lock last
            if listener is not None:
                opened.callback(listener.close)
            self._open_data(opened)
            self.timer = opened.enter_context(closing(AsyncTimer(clock=clock)))
            self._make_coordinators(access)
            self.listener = listener or opened.enter_context(
                closing(listener_for(loop, (host, port), settings, self.timer, access, machine.monotonic_ns))
            )
            self.identity = Identity.of(self.store, folder, self._node, *access.advertised(host, self.listener.port))
            self._listeners = advertised(access, host, self.listener.port)
            self._make_leader(opened, access)
            self._go_on()
            self.produce = ProduceApi(
                self.topics, self.flusher, self.produces, clock.wall_ms, self.transactions.admission, self.replicas
            )
            self.table = self._table()
            opened.pop_all()

    def _open_data(self, opened: ExitStack) -> None:
        """The data folder, its store, the settings that are kept there, and the topics."""
        self._data = data = DataFolder(self.folder, self._soon, opened, copied=False)
        self.store = data.store
        self._node = node_of(data.store, self.settings)
        self.runtime = RuntimeSettings(self.settings, self.store, self._settings_changed)
        self.worker = opened.enter_context(closing(Worker(self._soon, self._machine.monotonic_ns)))
        named = NamedOffsets(self.store, data.ahead)
        self.topics = Topics(self.folder, self.settings, self.store, data.stop, self.worker.do, named.largest)

    def _make_coordinators(self, access: Access) -> None:
        """What waits, groups and transactions; who may come in, and do what."""
        self.produces, self.fetches = Purgatory("produce", self.timer), Purgatory("fetch", self.timer)
        self.deletions = Purgatory("delete records", self.timer)
        wall_ms = self.clock.wall_ms
        self.groups = GroupCoordinator(self.store, self.timer, self.settings, self.topics, wall_ms)
        self.transactions = TransactionCoordinator(self.store, self.timer, self.settings, wall_ms, self.produces)
        self.users = Users(access.users, self.store)
        self.authorizer = self.topics.sight = Authorizer.of(self.settings, self.store)
        self.sasl = SaslApis(self.users, self.timer.call_later)

    def _make_leader(self, opened: ExitStack, access: Access) -> None:
        """Flushes, high watermarks and replicas, the lease, and upkeep."""
        clock = self.clock
        self.watermarks = HighWatermarks(self.listener.ready, self.produces, self.fetches, self._news)
        changed = self.watermarks.changed
        self.replicas = Replicas(self.identity.node, self.settings, clock, changed, self.deletions.check_and_complete)
        self.ahead = WriteAheadLog(self.folder, self._data.begin())
        flusher = Flusher(
            self._loop, clock.monotonic_ns, self.ahead, self.worker.do,
            lambda work: self.watermarks.flushed(work, self.replicas.raise_high),
        )  # fmt: skip
        self.flusher = opened.enter_context(closing(flusher))
        self.freezer = FlushFreezer(self.topics, self.flusher)
        self.tenure = Tenure(self._loop, self.identity, self.store, access.link, self.depose, self._machine.elapsed_ns)
        user = (access.link.user or "") if access.users else None
        self.leading = Leader(
            self.identity, self.store, self.replicas, self._journal, self.depose, self.tenure.followed_by, user
        )
        self.upkeep = Upkeep(self.topics, self.settings, self.worker, clock.wall_ms, changed, self.ahead.stands)
        self.scrub = Scrub(self.topics.partitions, self.worker, clock)

    def _go_on(self) -> None:
        """Take up what the last time left: a promotion that was cut short, a follower, and transactions."""
        epoch = self.leading.epoch
        if epoch and Memo.load(os.path.join(self.folder, JOURNAL)).epoch < epoch:
            # the promotion came no further than to remember that this broker leads: follower.py, step 4
            journal = open_journal(self.folder, self.settings, self._data.stop)
            begin_epoch([*self.topics.partitions(), journal], epoch)
        self.leading.remember(self.topics.partitions())
        self.transactions.open(self.topics, self.flusher, self.groups)
        self.transactions.ids.pass_over(one for p in self.topics.partitions() for one in p.producers.known)
        take_up(self.transactions, self.topics.partitions, self.replicas.raise_high, self.leading.when_loaded)

    def _soon(self, deed: Callable[..., object], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(deed, *arguments)

    def _table(self) -> ApiTable:
        fetches = FetchApi(self.topics, self.fetches, self.settings["fetch.max.bytes"], self.leading)
        self.produce.authorizer = fetches.authorizer = self.authorizer
        fast = {0: FastApi(self.produce, *produce.VERSIONS), 1: FastApi(fetches, *fetch.VERSIONS)}
        not_kept, envelopes = NotKept(self.leading), EnvelopeApi(self.authorizer, self.leading.admits)
        apis = (
            MetadataApis(self.identity, self.topics, self.settings, self.replicas.in_sync),
            TopicApis(self.identity, self.topics, self.runtime, self._topic_gone, not_kept),
            ConfigApis(Resources(self.topics, self.runtime, self._listeners), not_kept),
            PartitionApis(self.identity, self.topics, self.replicas.in_sync),
            SingleBrokerApis(self.topics),
            LogDirApis(self.folder, self.topics),
            AclApis(self.authorizer, not_kept),
            OffsetApis(self.topics, self.leading),
            TransactionApis(self.topics, self.transactions, self.settings["offset.metadata.max.bytes"]),
            TransactionViewApis(self.topics, self.transactions),
            TxnMarkerApi(self.topics, self.transactions.ending, self.clock.wall_ms),
            RecordApis(self.topics, self.deletions, self.upkeep, self.replicas.begins_at),
            *group_apis(self.identity, self.topics, self.groups, self.settings),
            self.sasl,
            ScramApis(self.users, self.store, not_kept),
            envelopes,
        )
        rights = self.authorizer.rights if self.authorizer is not None else None
        table = ApiTable(fast, {key: api for some in apis for key, api in some.apis().items()}, rights)
        envelopes.serve = table.handle
        table.overdue = overdue = Overdue(lambda: self.leading.too_few, self.clock.monotonic_ns, lambda: rhythm.wake())
        rhythm = Rhythm(self.timer, EVERY_S, overdue.look)
        table.loading = lambda: self.leading.loading
        self.tenure.lease.guard(table)
        return table

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

        def later(delay_s: float, deed: Callable[[], Any]) -> None:
            with suppress(TimerClosed):
                self.timer.call_later(delay_s, deed)

        return Journal(partition, self.produces, mark, wall_ms, self.store.tell_all, later)

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

        def resign(done: bool) -> None:
            if not self.over.done():  # if the store refused, following begins with asking it once more
                self.over.set_result(address)

        self.store.commit([Entry("self", *item) for item in known.items()], resign)

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
        purgatories = {
            "produce": self.produces, "fetch": self.fetches, "delete records": self.deletions,
            "join": self.groups.joins, "heartbeat": self.groups.heartbeats, "transaction": self.transactions.purgatory,
        }  # fmt: skip
        return BrokerStatistics(
            connections=len(self.listener.connections),
            requests=self.table.requests(),
            bytes_in=self.listener.received,
            bytes_out=self.listener.sent,
            records_in=self.produce.records,
            record_bytes_in=self.produce.bytes,
            topics=len(self.topics.by_name),
            partitions=sum(len(topic.partitions) for topic in self.topics),
            purgatories={name: purgatory.statistics() for name, purgatory in purgatories.items()},
            flushes=self.flusher.statistics(),
            groups=Counter(group.state_name for group in groups),
            group_members=sum(len(group.members) for group in groups),
            transactions=Counter(one.record.state.value for one in ids),
            replication=self.leading.statistics(),
            scrub=self.scrub.statistics(),
            lags=lags_of(self.groups.offsets, self.groups, self.topics),
        )

    def open(self) -> None:
        """Let clients in."""
        self.listener.open(self.sasl.guarded(self.table), self.table)
        self.upkeep.begin(self.timer)
        self.scrub.begin(self.timer, self.settings["log.initial.task.delay.ms"] / 1000)
        self.topics.configured = self._news
        every_s = self.settings["replica.lag.time.max.ms"] / 2000
        laggards = Rhythm(self.timer, every_s, self._drop_laggards)
        highs = Rhythm(self.timer, HIGHS_EVERY_S, lambda: self.leading.keep_highs(self.topics.partitions()))
        self._rhythms = (laggards, highs, self.transactions.forgetting)
        self._news()
        self.tenure.begin()

    async def shut_out(self) -> None:
        """Before it lets clients in: see that nobody else answers them."""
        await self.tenure.shut_out(self.over)

    def _drop_laggards(self) -> float | None:
        """Unless it is not known who leads: then nothing is acknowledged without the follower, which may be the leader."""
        if self.tenure.lease.holds:
            self.replicas.drop_laggards()
        return None if self.replicas.follower is None else 0.0

    async def close(self) -> None:
        """Answer nobody any more, put everything onto the disk, close the files."""
        self._stop()
        partitions = self._partitions()
        try:
            for partition in partitions:
                close_durably(partition)
            self.ahead.close()
            self._data.stop.write(partitions)
        finally:  # a disk that refuses it leaves an unclean stop, and the folder free
            self._close_store()

    async def lose_power(self) -> None:
        """Answer nobody any more, and keep of the logs what is durable, as if the machine had died."""
        self._stop()
        for partition in self._partitions():
            partition.lose_undurable()
        self.ahead.abandon()
        self._close_store()

    def _stop(self) -> None:
        """Nobody is served any more, and nothing runs beside the loop."""
        self.tenure.close()
        self.listener.close()
        for purgatory in (self.produces, self.fetches, self.groups, self.transactions, self.deletions):
            purgatory.close()
        self.timer.close()
        self.worker.close()
        self.flusher.close()

    def _close_store(self) -> None:
        try:
            self.leading.keep_highs(self.topics.partitions())
        finally:
            self.store.close()
            self._data.lock.release()
