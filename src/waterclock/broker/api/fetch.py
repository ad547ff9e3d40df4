"""Fetch: a long poll. It is answered when enough can be read, when something is wrong, or when its time is up.

A `DelayedFetch` waits in the purgatory, watched under each of its partitions, and asks:

    a partition                                         then
    is gone, or the offset or the epoch is wrong        answer at once, with the error
    has its offset in a segment that is closed          answer at once: no more will come to that segment
    has bytes before the reader's end                   count them; answer when there are `min_bytes` in all

Rule 1: the reader's end is the high watermark; for committed records the last stable offset; for a follower the log's end.
Rule 2: a batch is never cut: an answer has at least one whole batch if there is one, however large. KIP-74
Rule 3: whose connection is closed waits no more: readers that came and went would be looked at with every append.
Rule 4: topics that a reader may not read are refused before anything is looked for; of a follower: everything.
Rule 5: if a file is damaged, its partition is refused, with a line in the log, once; the others are answered. The error is
    CORRUPT_MESSAGE, as with Apache Kafka: clients hand it to their program, and ask again. At KAFKA_STORAGE_ERROR they look
    for another leader, for ever and without a word.
Rule 6: where nothing is left from the offset to the reader's end, since the log has lost its last records, a client gets
    an empty batch up to there: it goes on at the end, and does not ask for the same for ever.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from waterclock.broker.errors import LogDamaged
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.records import empty
from waterclock.broker.net.outgoing import Slice
from waterclock.broker.replication.leader import KnownFollower
from waterclock.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from waterclock.broker.wire import fetch
from waterclock.broker.wire.errors import Error
from waterclock.broker.wire.fetch import FetchedPartition, FetchPartition, FetchRequest
from waterclock.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from waterclock.broker.folder.topics import Topics
    from waterclock.broker.net.connection import Connection
    from waterclock.broker.net.outgoing import Slot
    from waterclock.broker.replication.leader import Leader
    from waterclock.broker.security.authorizer import Authorizer, Rights

VERSIONS: Final = (4, 18)
NOTHING: Final[frozenset[bytes]] = frozenset()
log = logging.getLogger("waterclock.broker")


class DelayedFetch:
    """One fetch. `partitions` are in the order of the request, None for one that does not exist.

    So it is for those of topics that are `forbidden`, by their keys in the request.
    """

    __slots__ = ("_correlation", "_forbidden", "_most", "_request", "_slot", "_version", "partitions")

    def __init__(
        self,
        slot: Slot,
        correlation: int,
        version: int,
        request: FetchRequest,
        partitions: list[Partition | None],
        most: int,
        forbidden: frozenset[bytes] = NOTHING,
    ) -> None:
        self._slot = slot
        self._correlation = correlation
        self._version = version
        self._request = request
        self.partitions = partitions
        self._most = most
        self._forbidden = forbidden

    def try_complete(self, op: DelayedOperation | None) -> bool:
        """Whether there is something to say."""
        if self._slot.gone:
            return True
        missing = self._request.min_bytes
        partitions = iter(self.partitions)
        for _, rows in self._request.topics:
            for wanted in rows:
                partition = next(partitions)
                if partition is None or self._error(partition, wanted) or -1 < wanted.start < partition.start:
                    return True  # the last: a follower hears at once that the log begins later
                missing -= self._readable(partition, wanted, missing)
        return missing <= 0

    def on_complete(self, op: DelayedOperation | None) -> None:
        """Answer with what there is."""
        if self._slot.gone:
            return
        try:
            self._slot.answer(fetch.answer(self._correlation, self._version, self._found()))
        except OSError as error:  # a slot without an answer would hold up all that follow it
            log.error(
                "closed the connection of %s: its records cannot be read: %s", self._slot.connection.peer(), error
            )
            self._slot.connection.close()

    def _end(self, partition: Partition) -> int:
        if self._request.replica >= 0:
            return partition.durable
        return partition.stable if self._request.committed else partition.high

    def _error(self, partition: Partition, wanted: FetchPartition) -> Error:
        if partition.deleted:
            return Error.UNKNOWN_TOPIC_ID if self._version >= fetch.BY_ID else Error.UNKNOWN_TOPIC_OR_PARTITION
        if partition.deposed:
            return Error.NOT_LEADER_OR_FOLLOWER
        if wanted.leader_epoch >= 0 and wanted.leader_epoch != partition.memo.epoch:
            older = wanted.leader_epoch < partition.memo.epoch
            return Error.FENCED_LEADER_EPOCH if older else Error.UNKNOWN_LEADER_EPOCH
        end = partition.durable if self._request.replica >= 0 else partition.end
        return Error.NONE if partition.start <= wanted.offset <= end else Error.OFFSET_OUT_OF_RANGE

    def _readable(self, partition: Partition, wanted: FetchPartition, missing: int) -> int:
        """How many bytes can be read; no more is found out than whether they are enough."""
        end = self._end(partition)
        if wanted.offset >= end:
            return 0
        if missing <= 1 or wanted.offset < partition.active.base:
            return missing
        try:
            records = partition.read(wanted.offset, wanted.limit, end)
        except (LogDamaged, OSError):
            return missing  # the answer says so
        return records.size if records is not None else 0

    def _found(self) -> list[tuple[bytes, list[FetchedPartition]]]:
        left = most = min(self._request.max_bytes, self._most)
        unknown = Error.UNKNOWN_TOPIC_ID if self._version >= fetch.BY_ID else Error.UNKNOWN_TOPIC_OR_PARTITION
        partitions, topics = iter(self.partitions), []
        for key, rows in self._request.topics:
            found = []
            for wanted in rows:
                partition = next(partitions)
                if partition is None:
                    missing = Error.TOPIC_AUTHORIZATION_FAILED if key in self._forbidden else unknown
                    found.append(FetchedPartition(wanted.partition, missing))
                    continue
                found.append(row := self._row(partition, wanted, left, left == most))
                left -= row.size
            topics.append((key, found))
        return topics

    def _row(self, partition: Partition, wanted: FetchPartition, left: int, first: bool) -> FetchedPartition:
        """`first`: nothing has been found yet, so a batch that is larger than the limits may go along."""
        error = self._error(partition, wanted)
        if error:
            follows = self._request.replica >= 0  # and is answered with the start, to begin anew there
            return FetchedPartition(wanted.partition, error, start=partition.start if follows else -1)
        try:
            if self._request.replica >= 0 and (end := partition.resumes_at(wanted.offset)) is not None:
                return FetchedPartition(wanted.partition, Error.OFFSET_OUT_OF_RANGE, high=end, start=partition.start)
            return self._records(partition, wanted, min(wanted.limit, left), first)
        except LogDamaged as damage:
            if partition.is_news(damage):
                log.error("%s-%d cannot be read: %s", partition.topic, partition.number, damage)
            return FetchedPartition(wanted.partition, Error.CORRUPT_MESSAGE)
        except OSError as error:
            log.error("%s-%d cannot be read: %s", partition.topic, partition.number, error)
            return FetchedPartition(wanted.partition, Error.KAFKA_STORAGE_ERROR)

    def _records(self, partition: Partition, wanted: FetchPartition, limit: int, first: bool) -> FetchedPartition:
        end, aborted = self._end(partition), None
        records: Slice | bytes | None = None
        if wanted.offset < end and (first or limit > 0):
            records = partition.read(wanted.offset, limit, end)
            if records is None and self._request.replica < 0:
                records = empty(wanted.offset, end, partition.memo.epoch)
            elif records is not None and records.size > limit and not first:
                records = None
        if self._request.committed:
            upto = min(end, partition.bound(records)) if isinstance(records, Slice) else wanted.offset
            aborted = partition.aborted.between(wanted.offset, upto)
        return FetchedPartition(
            wanted.partition, Error.NONE, partition.high, partition.stable, partition.start, aborted, records
        )


class FetchApi:
    """`most_bytes` bounds every answer, whatever a reader asks for. `leading` learns of the follower's fetches."""

    def __init__(self, topics: Topics, purgatory: Purgatory, most_bytes: int, leading: Leader) -> None:
        self._topics = topics
        self._purgatory = purgatory
        self._most = most_bytes
        self._leading = leading
        self.authorizer: Authorizer | None = None

    def __call__(self, connection: Connection, data: memoryview, at: int, version: int, correlation: int) -> None:
        """Handle the request whose body begins at `at`."""
        request = fetch.read(data, at, version)
        slot = connection.slot()
        if request.session:
            slot.answer(fetch.answer(correlation, version, [], Error.FETCH_SESSION_ID_NOT_FOUND))
            return
        forbidden, follows = NOTHING, request.replica >= 0
        if self.authorizer is not None:
            rights = self.authorizer.rights(connection)
            follows = follows and rights.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
            forbidden = NOTHING if follows else self._forbidden(rights, request, version)
        if follows:
            request, error = self._of_replica(connection, request)
            if error:
                slot.answer(fetch.answer(correlation, version, [], error))
                return
        partitions = self._partitions(request, forbidden)
        delayed = DelayedFetch(slot, correlation, version, request, partitions, self._most, forbidden)
        watched = tuple(partition for partition in delayed.partitions if partition is not None)
        if request.max_wait_ms <= 0 or not watched or delayed.try_complete(None):
            delayed.on_complete(None)
            return
        op = DelayedOperation(delayed.try_complete, delayed.on_complete, request.max_wait_ms / 1000)
        slot.on_gone = op.force_complete
        self._purgatory.try_complete_else_watch(op, watched)

    def _of_replica(self, connection: Connection, request: FetchRequest) -> tuple[FetchRequest, Error]:
        """A fetch that calls itself a replica's, as it is to be understood; it says what the follower has."""
        client_id = connection.client_id
        if KnownFollower.of(client_id) is not None and not self._leading.admits(connection):
            return request, Error.CLUSTER_AUTHORIZATION_FAILED
        if self._leading.is_over(client_id, request):
            return request, Error.NOT_LEADER_OR_FOLLOWER
        error = self._leading.meets(client_id, request.replica)
        if error == Error.NOT_LEADER_OR_FOLLOWER:
            return request._replace(replica=-1), Error.NONE  # it calls itself a replica, and is a client
        if not error:
            partitions = iter(self._partitions(request))
            for _, rows in request.topics:
                for row in rows:
                    if (partition := next(partitions)) is not None:
                        self._leading.replicas.fetched(partition, row.offset, row.start)
        return request, error

    def _forbidden(self, rights: Rights, request: FetchRequest, version: int) -> frozenset[bytes]:
        """The keys of the topics that the client may not read: all, if it calls itself a follower and must not be one."""
        if request.replica >= 0:
            return frozenset(key for key, _ in request.topics)
        return frozenset(key for key, _ in request.topics if not self._may_read(rights, key, version))

    def _may_read(self, rights: Rights, key: bytes, version: int) -> bool:
        """A topic that is not there is one by its name only."""
        known = self._topics.by_key.get(key)
        if known is None and version >= fetch.BY_ID:
            return True
        name = known[0].topic if known else key.decode(errors="replace")
        return rights.may(Operation.READ, ResourceType.TOPIC, name)

    def _partitions(self, request: FetchRequest, forbidden: frozenset[bytes] = NOTHING) -> list[Partition | None]:
        partitions: list[Partition | None] = []
        for key, rows in request.topics:
            if key in forbidden:
                partitions += [None] * len(rows)
                continue
            known = self._topics.by_key.get(key)
            if known is None and request.replica >= 0:
                partitions += (self._leading.journal_at(key, row.partition) for row in rows)
                continue
            known = known or []
            partitions += (known[r.partition] if 0 <= r.partition < len(known) else None for r in rows)
        return partitions
