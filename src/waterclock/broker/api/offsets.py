"""Offsets of a partition: its ends, and where a moment lies. Exact: Spark starts from what is answered here.

    timestamp    the offset
    -1           the reader's end: the high watermark, or the last stable offset for committed records
    -2, -4       the start
    -3           the record with the latest timestamp; -1 if that lies behind the reader's end, whatever lies before
    -5, -6       -1: nothing is tiered here
    0 or more    the first record at or after it; -1 if there is none before the reader's end
An epoch's end is where the next one begins; of the latest one it is the log's end.

DeleteRecords moves the start: what lies before is hidden at once, and its files go with the next retention. A
`DelayedOperation` waits in the purgatory until every partition's new start is durable; if its time is up first, each that
is not gets REQUEST_TIMED_OUT, and its records are gone all the same.
Source: KIP-79, KIP-734 (-3), KIP-405 (-4), KIP-1005 (-5), KIP-1023 (-6), KIP-320 (epochs, for readers).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.table import Api, may_with_cluster, may_with_topic
from waterclock.broker.errors import LogDamaged
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.times import NONE, RecordTime, first_at, latest
from waterclock.broker.replication.journal import TOPIC
from waterclock.broker.replication.leader import KnownFollower
from waterclock.broker.replication.lease import ASKER
from waterclock.broker.security.acls import Operation
from waterclock.broker.wire import answers
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error
from waterclock.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from waterclock.broker.folder.topics import Topics
    from waterclock.broker.replication.leader import Leader
    from waterclock.broker.upkeep import Upkeep

LIST_OFFSETS: Final = 2
LEADER_EPOCH: Final = 23
NOT_AVAILABLE_SINCE: Final = 5
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
log = logging.getLogger("waterclock.broker")
FIRST_VERSION_OF: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class OffsetApis:
    """ListOffsets and OffsetForLeaderEpoch."""

    def __init__(self, topics: Topics, leading: Leader) -> None:
        self._topics, self._leading = topics, leading

    def apis(self) -> dict[int, Api]:
        return {LIST_OFFSETS: Api(self.list, 1, 11), LEADER_EPOCH: Api(self.leader_epoch, 2, 4)}

    def list(self, request: Request) -> None:
        topics = request.body.topics
        rows = (
            answers.Branch(
                request.make("ListOffsetsTopicResponse", name=topic.name, partitions=()), "partitions",
                self._rows(request, topic), len(topic.partitions),
            )
            for topic in topics
        )  # fmt: skip
        answers.answer(request, "topics", rows, sum(1 + len(topic.partitions) for topic in topics))

    def _rows(self, request: Request, topic: Any) -> Iterator[Any]:
        """A row of the answer for each partition."""
        committed = getattr(request.body, "isolation_level", 0) == 1
        numbers = Counter(requested.partition_index for requested in topic.partitions)
        if not may_with_topic(request, Operation.DESCRIBE, topic.name):
            for number in numbers:
                yield _listed(request, number, Error.TOPIC_AUTHORIZATION_FAILED)
            return
        for requested in topic.partitions:
            if numbers[requested.partition_index] == 1:
                yield self._row(request, topic.name, requested, committed)
            else:
                yield _listed(request, requested.partition_index, Error.INVALID_REQUEST)

    def _row(self, request: Request, topic: str, requested: Any, committed: bool) -> Any:
        partition = self._topics.partition(topic, requested.partition_index)
        error = wrong_epoch(partition, getattr(requested, "current_leader_epoch", -1))
        if partition is None or error:
            return _listed(request, requested.partition_index, error)
        if requested.timestamp == LATEST and self._leading.replicas.unsure(partition):
            error = Error.OFFSET_NOT_AVAILABLE if request.version >= NOT_AVAILABLE_SINCE else Error.LEADER_NOT_AVAILABLE
            return _listed(request, requested.partition_index, error)
        if (
            request.version < FIRST_VERSION_OF.get(requested.timestamp, 0)
            or requested.timestamp < EARLIEST_PENDING_UPLOAD
        ):
            return _listed(request, requested.partition_index, Error.UNSUPPORTED_VERSION)
        try:
            found = self._find(partition, requested.timestamp, partition.stable if committed else partition.high)
        except LogDamaged as damage:  # as with Apache Kafka: its place cannot be found, and the client gets the error
            if partition.is_news(damage):
                log.error("%s-%d cannot be searched: %s", partition.topic, partition.number, damage)
            return _listed(request, requested.partition_index, Error.CORRUPT_MESSAGE)
        epoch = partition.memo.epoch if found.offset >= 0 else -1
        return _listed(request, requested.partition_index, Error.NONE, found, epoch)

    def _find(self, partition: Partition, timestamp: int, upto: int) -> RecordTime:
        if timestamp == LATEST:
            return RecordTime(-1, upto)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return RecordTime(-1, partition.start)
        if timestamp == MAX_TIMESTAMP:
            found = latest(partition)
            return found if found.offset < upto else NONE
        return NONE if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD) else first_at(partition, timestamp, upto)

    def leader_epoch(self, request: Request) -> None:
        topics = request.body.topics
        rows = (
            answers.Branch(
                request.make("OffsetForLeaderTopicResult", topic=topic.topic, partitions=()), "partitions",
                self._ends(request, topic), len(topic.partitions),
            )
            for topic in topics
        )  # fmt: skip
        answers.answer(request, "topics", rows, sum(1 + len(topic.partitions) for topic in topics))

    def _ends(self, request: Request, topic: Any) -> Iterator[Any]:
        follows = may_with_cluster(request, Operation.CLUSTER_ACTION)
        copied = follows and self._copies(request)
        may = follows or may_with_topic(request, Operation.DESCRIBE, topic.topic)
        for one in topic.partitions:
            if may:
                yield self._end_of(request, topic.topic, one, copied)
            else:
                yield _end(request, one.partition, Error.TOPIC_AUTHORIZATION_FAILED)

    def _copies(self, request: Request) -> bool:
        """Whether a follower asks."""
        client = request.slot.connection
        replica = getattr(request.body, "replica_id", -1) >= 0
        return replica and KnownFollower.of(client.client_id) is not None and self._leading.admits(client)

    def _end_of(self, request: Request, topic: str, requested: Any, copied: bool) -> Any:
        partition = self._topics.partition(topic, requested.partition)
        if partition is None and copied:
            partition = self._leading.journal_at(topic.encode(), requested.partition)
        error = wrong_epoch(partition, requested.current_leader_epoch)
        epoch, end = -1, -1
        if partition is not None and not error:
            # never the high watermark: after a start it may be lower than what readers have, who would take that for a
            # log that was cut, and jump back. A follower keeps what the leader has on its disk
            log_end = partition.durable if copied else partition.end
            epoch, end = partition.memo.end_of(requested.leader_epoch, log_end)
        elif topic == TOPIC and request.slot.connection.client_id == ASKER:  # whether this broker leads, and since when
            error, epoch = Error.NONE, self._leading.epoch
        return _end(request, requested.partition, error, epoch, end)


def _listed(request: Request, partition: int, error: Error, found: RecordTime = NONE, epoch: int = -1) -> Any:
    return request.make(
        "ListOffsetsPartitionResponse", partition_index=partition, error_code=error, timestamp=found.timestamp,
        offset=found.offset, leader_epoch=epoch,
    )  # fmt: skip


def _end(request: Request, partition: int, error: Error, epoch: int = -1, end: int = -1) -> Any:
    return request.make(
        "EpochEndOffset", error_code=error, partition=partition, leader_epoch=epoch, end_offset=end
    )  # fmt: skip


def wrong_epoch(partition: Partition | None, epoch: int) -> Error:
    """What is wrong with a client's idea of the leader's epoch (-1: it has none)."""
    if partition is None:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    if epoch < 0 or epoch == partition.memo.epoch:
        return Error.NONE
    return Error.FENCED_LEADER_EPOCH if epoch < partition.memo.epoch else Error.UNKNOWN_LEADER_EPOCH


DELETE_RECORDS: Final = 21
HIGH_WATERMARK: Final = -1
NO_WATERMARK: Final = -1


class Deletion:
    """What becomes of one partition's deletion; `error` is None as long as nobody knows."""

    __slots__ = ("error", "low", "number", "partition")

    def __init__(self, number: int, partition: Partition | None, error: Error | None) -> None:
        self.number = number
        self.partition = partition
        self.error = error
        self.low = NO_WATERMARK


class RecordApis:
    """Deletion of records. `begins_at(partition, offset)`: whether none before can come back with a follower."""

    def __init__(
        self, topics: Topics, purgatory: Purgatory, upkeep: Upkeep, begins_at: Callable[[Partition, int], bool]
    ) -> None:
        self._topics = topics
        self._purgatory = purgatory
        self._upkeep = upkeep
        self._begins_at = begins_at

    def apis(self) -> dict[int, Api]:
        return {DELETE_RECORDS: Api(self.delete, 0, 2)}

    def delete(self, request: Request) -> None:
        topics = [
            (topic.name, [self._begin(request, topic.name, row) for row in topic.partitions])
            for topic in request.body.topics
        ]
        deletions = [one for _, rows in topics for one in rows]
        waited = tuple(one.partition for one in deletions if one.partition is not None)
        if not waited:
            _answer(request, topics)
            return
        op = DelayedOperation(
            lambda op: not [one for one in deletions if not self._done(one)],
            lambda op: _answer(request, topics),
            request.body.timeout.total_seconds(),
        )
        self._purgatory.try_complete_else_watch(op, waited)

    def _begin(self, request: Request, topic: str, row: Any) -> Deletion:
        if not may_with_topic(request, Operation.DELETE, topic):
            return Deletion(row.partition_index, None, Error.TOPIC_AUTHORIZATION_FAILED)
        partition = self._topics.partition(topic, row.partition_index)
        error = _refused(partition, row.offset)
        deletion = Deletion(row.partition_index, partition, error)
        if partition is not None and error is None:

            def begun(error: Exception | None) -> None:
                if error is None:
                    deletion.low = partition.start
                else:
                    deletion.error = Error.KAFKA_STORAGE_ERROR
                self._purgatory.check_and_complete(partition)

            self._upkeep.begin_at(partition, partition.high if row.offset == HIGH_WATERMARK else row.offset, begun)
        return deletion

    def _done(self, deletion: Deletion) -> bool:
        """Whether it is known how the deletion ended: here, and at the follower."""
        partition = deletion.partition
        if deletion.error is None and partition is not None and deletion.low != NO_WATERMARK:
            deletion.error = Error.NONE if self._begins_at(partition, deletion.low) else None
        return deletion.error is not None or _gone(deletion)


def _refused(partition: Partition | None, offset: int) -> Error | None:
    if partition is None:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    if "delete" not in partition.settings["cleanup.policy"]:
        return Error.POLICY_VIOLATION
    if offset < HIGH_WATERMARK or offset > partition.high:
        return Error.OFFSET_OUT_OF_RANGE
    return None


def _gone(deletion: Deletion) -> bool:
    return deletion.partition is not None and deletion.partition.deleted


def _answer(request: Request, topics: list[tuple[str, list[Deletion]]]) -> None:
    rows = tuple(
        request.make("DeleteRecordsTopicResult", name=name, partitions=tuple(_row(request, one) for one in deletions))
        for name, deletions in topics
    )
    request.answer(topics=rows)


def _row(request: Request, deletion: Deletion) -> Any:
    error = deletion.error
    if error is None:
        error = Error.NOT_LEADER_OR_FOLLOWER if _gone(deletion) else Error.REQUEST_TIMED_OUT
    return request.make(
        "DeleteRecordsPartitionResult", partition_index=deletion.number, low_watermark=deletion.low, error_code=error
    )
