"""A broker that follows another: it holds a copy of everything, and serves nobody but with the leader's address.

To be promoted is:
1. to copy no more, and to do what the journal says to its end;
2. to make everything durable;
3. to remember that it leads, in which epoch, and whom it deposes. From here on it starts as a leader, whatever `--follow`
   says;
4. to begin that epoch in every partition, in the journal last.
A crash before 3 leaves a follower, which may be promoted again; one after it a leader, whose start does 4 (core.py). An
epoch in a log that no leader was ever remembered for would be one that the living leader has never heard of.

Rule 1: its folder is like a leader's: Core opens it.
Rule 2: a client that produces or fetches here gets NOT_LEADER_OR_FOLLOWER, and finds the leader by Metadata.
Rule 3: if nothing was copied yet there is nothing to lead with: only an unclean election makes that one a leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from contextlib import ExitStack, closing
from typing import Any, Final

from waterclock.broker.api.acls import DESCRIBE as DESCRIBE_ACLS
from waterclock.broker.api.acls import AclApis
from waterclock.broker.api.elsewhere import elsewhere
from waterclock.broker.api.faults import CopyFreezer
from waterclock.broker.api.fetch import VERSIONS as FETCH_VERSIONS
from waterclock.broker.api.metadata import LogDirApis, MetadataApis, PartitionApis
from waterclock.broker.api.produce import VERSIONS as PRODUCE_VERSIONS
from waterclock.broker.api.sasl import SaslApis
from waterclock.broker.api.table import Api, ApiTable, FastApi
from waterclock.broker.api.topics import ELECT_LEADERS, NOTHING_THERE, answer_election
from waterclock.broker.api.waiting import NotKept
from waterclock.broker.folder.identity import NO_NODE, NODE, NODE_ID, Identity, beside, node_of
from waterclock.broker.folder.inventory import DataFolder
from waterclock.broker.folder.topics import Topics
from waterclock.broker.log.durable import close_durably
from waterclock.broker.net.connection import Connection
from waterclock.broker.net.listener import Listener
from waterclock.broker.net.outgoing import ClientConnection
from waterclock.broker.replication.fetcher import ReplicaFetcher
from waterclock.broker.replication.highs import HIGH, HIGHS_EVERY_S, all_of
from waterclock.broker.replication.leader import KnownFollower, id_of
from waterclock.broker.replication.link import Link
from waterclock.broker.replication.promoting import UNCLEAN
from waterclock.broker.replication.replica import FollowerReplica, open_journal
from waterclock.broker.rhythm import Rhythm
from waterclock.broker.security.access import Access, listener_for
from waterclock.broker.security.authorizer import Authorizer, Rights
from waterclock.broker.security.users import NAMESPACE as USERS_MADE
from waterclock.broker.security.users import Users
from waterclock.broker.settings import Settings
from waterclock.broker.statistics import BrokerStatistics, FlushStatistics, ReplicationStatistics
from waterclock.broker.store import Entry
from waterclock.broker.upkeep import Scrub
from waterclock.broker.wire import fetch, produce
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error
from waterclock.broker.wire.fetch import FetchedPartition
from waterclock.broker.wire.produce import ProducedPartition
from waterclock.broker.worker import Worker
from waterclock.clock import MachineClock
from waterclock.timer import AsyncTimer

LEAD: Final = "lead"
STOP: Final = "stop"


class Follower:
    """Follows the broker at `leader` (HOST:PORT). `over` gets LEAD once it is promoted, or STOP."""

    def __init__(
        self, loop: Any, folder: str, host: str, port: int, settings: Settings, leader: str, access: Access,
        machine: MachineClock,
    ) -> None:  # fmt: skip
        self.over: asyncio.Future[str] = loop.create_future()
        self._loop, self._leader = loop, leader
        with ExitStack() as opened:  # a start that fails closes what was opened, the folder's lock last
            self._data = DataFolder(folder, loop.call_soon_threadsafe, opened, copied=True)
            self.store = self._data.store
            topics = Topics(folder, settings, self.store, self._data.stop)
            chosen, node = NODE_ID in settings.given, node_of(self.store, settings, beside(NODE))
            self.timer = opened.enter_context(closing(AsyncTimer(clock=machine)))
            made = listener_for(loop, (host, port), settings, self.timer, access, machine.monotonic_ns)
            self.listener = opened.enter_context(closing(made))
            self.identity = Identity.of(self.store, folder, node, *access.advertised(host, self.listener.port))
            self.identity.leader = NO_NODE if self.identity.peer is None else self.identity.peer
            self.identity.peer_at = leader
            known = {"node": node, "follows": leader, "deposed": None}
            self.store.commit_at_once(*(Entry("self", *item) for item in known.items()))
            self.replica = FollowerReplica(
                open_journal(folder, settings, self._data.stop), self.store, topics, self.identity
            )
            us = KnownFollower(f"{self.identity.host}:{self.identity.port}", id_of(self.store))
            self.fetcher = ReplicaFetcher(
                self.replica, Link(leader, us.name(), access.link), self.identity, chosen=chosen
            )
            self.freezer = CopyFreezer(self.fetcher.freeze)
            self._questions: dict[asyncio.Task[None], None] = {}  # of clients, to the leader
            self._task: asyncio.Task[None] | None = None
            self._promotion: asyncio.Task[None] | None = None
            self._authorizer = Authorizer.of(settings, self.store)
            self.users = Users(access.users, self.store)
            self.sasl = SaslApis(self.users, self.timer.call_later)
            self.replica.changed = self._users_changed
            self.table = self._table(settings, folder, access)
            self._data.begin()
            self.worker = opened.enter_context(closing(Worker(loop.call_soon_threadsafe, machine.monotonic_ns)))
            self.scrub = Scrub(topics.partitions, self.worker, machine)
            self._scrub_after_s = settings["log.initial.task.delay.ms"] / 1000
            opened.pop_all()

    @property
    def topics(self) -> Topics:
        """The copied topics."""
        return self.replica.topics

    def _users_changed(self, reset: bool, namespaces: Collection[str]) -> None:
        """Clients have made users at the leader, or taken them away: they hold here too."""
        if reset or USERS_MADE in namespaces:
            self.users.read_again(self.store)

    def _table(self, settings: Settings, folder: str, access: Access) -> ApiTable:
        topics = self.replica.topics
        apis = (
            MetadataApis(self.identity, topics, settings, self._both),
            PartitionApis(self.identity, topics, self._both),
            LogDirApis(folder, topics),
        )
        looking = {DESCRIBE_ACLS: AclApis(self._authorizer, NotKept()).apis()[DESCRIBE_ACLS]}
        logging_in = self.sasl.apis() if access.users else {}
        here = {key: api for some in apis for key, api in some.apis().items()} | NOTHING_THERE | logging_in | looking
        fast = {
            0: FastApi(_refuse_produce, *PRODUCE_VERSIONS),
            1: FastApi(_refuse_fetch, *FETCH_VERSIONS),
        }
        authorizer = self._authorizer

        def rights(client: ClientConnection) -> Rights:
            """By the ACLs as far as they are copied."""
            assert authorizer is not None
            authorizer.reload()
            return authorizer.rights(client)

        def start(question: Coroutine[Any, Any, None]) -> None:
            """Ask the leader for a client."""
            task = self._loop.create_task(question)
            self._questions[task] = None
            task.add_done_callback(self._questions.pop)

        there, electing = elsewhere(self.identity, start, access.link), {ELECT_LEADERS: Api(self._elect, 0, 2)}
        return ApiTable(fast, {**there, **here, **electing}, rights if authorizer is not None else None)

    def _both(self, partition: Any) -> tuple[int, ...]:
        """Who is in sync: a follower takes itself for that."""
        return (self.identity.leader, self.identity.node)

    def open(self) -> None:
        """Let clients in, and begin to copy."""
        self.listener.open(self.sasl.guarded(self.table))
        self._task = self._loop.create_task(self.fetcher.run())
        self._task.add_done_callback(self._ended)
        self.scrub.begin(self.timer, self._scrub_after_s)
        Rhythm(self.timer, HIGHS_EVERY_S, self.replica.keep_highs).wake()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Copying and a promotion end by themselves or by being cancelled; what else ended them ends the broker."""
        if not task.cancelled() and task.exception() is not None and not self.over.done():
            self.over.set_exception(task.exception() or RuntimeError("copying ended"))

    def statistics(self) -> BrokerStatistics:
        """What there is of it, and whom it follows; what only a leader has is empty."""
        listener, topics = self.listener, self.replica.topics
        return BrokerStatistics(
            connections=len(listener.connections), requests=self.table.requests(),
            bytes_in=listener.received, bytes_out=listener.sent, records_in=0, record_bytes_in=0,
            topics=len(topics.by_name), partitions=sum(len(topic.partitions) for topic in topics),
            purgatories={}, flushes=FlushStatistics(0, 0, None, None), groups={}, group_members=0, transactions={},
            replication=ReplicationStatistics(False, self._leader, None, None), scrub=self.scrub.statistics(),
        )  # fmt: skip

    # Promotion

    def _elect(self, request: Request) -> None:
        """ElectLeaders: whoever asks a follower for that promotes it. The answer goes out once that is durable."""
        unclean = getattr(request.body, "election_type", 0) == UNCLEAN
        error = self.promote(unclean)
        if self._promotion is None:
            answer_election(request, lambda topic, number: error, error)
            return

        def elected(task: asyncio.Task[None]) -> None:
            failed = task.cancelled() or task.exception() is not None
            error = Error.KAFKA_STORAGE_ERROR if failed else Error.NONE
            if not request.slot.gone:
                answer_election(request, lambda topic, number: error, error)
                self.listener.ready.send()

        self._promotion.add_done_callback(elected)

    def promote(self, unclean: bool = False) -> Error:
        """Become the leader; ELIGIBLE_LEADERS_NOT_AVAILABLE if nothing was copied yet, and that is not accepted."""
        if self.replica.applied is None and not unclean:
            return Error.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if self._promotion is None:
            self._promotion = self._loop.create_task(self._take_over())
            self._promotion.add_done_callback(self._ended)
        return Error.NONE

    async def _take_over(self) -> None:
        await self._stop_copying()  # 1
        await self.replica.catch_up()
        await self.replica.flush()  # 2
        epoch = self.replica.next_epoch()
        deposed = {"address": self._leader, "epoch": epoch}
        known = {"epoch": epoch, "deposed": deposed, HIGH: all_of(self.topics.partitions())}
        known |= dict.fromkeys(("follows", "follower", "applied", "copied_from"))
        await self.replica.keep(Entry("self", key, value) for key, value in known.items())  # 3
        await self._loop.run_in_executor(None, self.replica.begin, epoch)  # 4
        if not self.over.done():
            self.over.set_result(LEAD)

    async def _stop_copying(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        """Stop copying, and close the files."""
        await self._leave()
        try:
            self._settle_logs()
            self.replica.keep_highs()
        finally:  # a disk that refuses it leaves an unclean stop, and the folder free
            self._close()

    def _settle_logs(self) -> None:
        for partition in self.replica.partitions():
            close_durably(partition)
        self._data.stop.write(self.replica.partitions())

    async def lose_power(self) -> None:
        """Keep of the logs what is durable, as if the machine had died."""
        await self._leave()
        for partition in self.replica.partitions():
            partition.lose_undurable()
        self._close()

    async def hand_over(self) -> Listener:
        """Close all but the listener: who is connected is served by the leader that this one becomes."""
        await self._settle()
        self._settle_logs()
        self.listener.ready.send()
        self.listener.hand_over()
        self._close()
        return self.listener

    async def _leave(self) -> None:
        await self._settle()
        self.listener.close()
        self.timer.close()

    async def _settle(self) -> None:
        """Answer what can be answered, and copy no more."""
        self.scrub.close()
        self.worker.close()
        self.listener.ready.send()
        await self._stop_copying()
        if self._promotion is not None:
            await asyncio.gather(self._promotion, return_exceptions=True)

    def _close(self) -> None:
        for task in list(self._questions):
            task.cancel()
        self.fetcher.close()
        self.store.close()
        self._data.lock.release()


def _refuse_produce(connection: Connection, data: memoryview, at: int, version: int, correlation: int) -> None:
    request = produce.read(data, at, version)
    if request.acks == 0:
        connection.close()
        return
    refused = [
        (key, [ProducedPartition(number, Error.NOT_LEADER_OR_FOLLOWER) for number, _ in batches])
        for key, batches in request.topics
    ]
    connection.slot().answer([produce.answer(correlation, version, refused)])


def _refuse_fetch(connection: Connection, data: memoryview, at: int, version: int, correlation: int) -> None:
    request = fetch.read(data, at, version)
    refused = [
        (key, [FetchedPartition(row.partition, Error.NOT_LEADER_OR_FOLLOWER) for row in rows])
        for key, rows in request.topics
    ]
    connection.slot().answer(fetch.answer(correlation, version, refused))
