"""DeleteRecords: what lies before an offset is hidden at once, and its files go with the next retention.

A `DelayedOperation` waits in the purgatory until every partition's new start is durable; if its time is up first,
each that is not gets REQUEST_TIMED_OUT, and its records are gone all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.demands import may_with_topic
from waterclock.broker.api.table import Api
from waterclock.broker.log.partition import Partition
from waterclock.broker.security.acls import Operation
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error
from waterclock.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from waterclock.broker.topics import Topics
    from waterclock.broker.upkeep.upkeep import Upkeep

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
    """Deletion of records."""

    def __init__(self, topics: Topics, purgatory: Purgatory, upkeep: Upkeep) -> None:
        self._topics = topics
        self._purgatory = purgatory
        self._upkeep = upkeep

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
            lambda op: all(one.error is not None or _gone(one) for one in deletions),
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

            def begun(done: bool) -> None:
                deletion.error = Error.NONE if done else Error.KAFKA_STORAGE_ERROR
                deletion.low = partition.start if done else NO_WATERMARK
                self._purgatory.check_and_complete(partition)

            self._upkeep.begin_at(partition, partition.high if row.offset == HIGH_WATERMARK else row.offset, begun)
        return deletion


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
