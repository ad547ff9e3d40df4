"""DescribeTopicPartitions: topics with many partitions described in portions, each answer saying where the next begins.

Rule 1: topics are described in the order of their names; a cursor names a topic and a partition to begin with.
Source: KIP-966.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.demands import may_with_topic, operations
from waterclock.broker.api.metadata import NOBODY_ASKED, InSync
from waterclock.broker.api.table import Api
from waterclock.broker.security.acls import Operation, ResourceType
from waterclock.broker.topics import Topics, legal
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.folder.identity import Identity
    from waterclock.broker.log.partition import Partition

DESCRIBE: Final = 75
MOST: Final = 2000  # partitions in one answer


class PartitionApis:
    """DescribeTopicPartitions."""

    def __init__(self, identity: Identity, topics: Topics, in_sync: InSync) -> None:
        self._identity = identity
        self._topics = topics
        self._in_sync = in_sync

    def apis(self) -> dict[int, Api]:
        return {DESCRIBE: Api(self.describe, 0, 0)}

    def describe(self, request: Request) -> None:
        body = request.body
        left = min(max(body.response_partition_limit, 1), MOST)
        rows, following = [], None
        portion = self._portion(body)
        names = (name for name, _ in portion) if request.rights is not None else ()
        refused = {name for name in names if not may_with_topic(request, Operation.DESCRIBE, name)}
        for name, first in portion:
            if name in refused:
                continue
            if not left:
                following = request.make("Cursor", topic_name=name, partition_index=first)
                break
            partitions = self._of(name)[first : first + left]
            rows.append(self._row(request, name, partitions))
            left -= len(partitions)
            if first + len(partitions) < len(self._of(name)):
                following = request.make("Cursor", topic_name=name, partition_index=first + len(partitions))
                break
        hidden = sorted(refused & {requested.name for requested in body.topics})
        rows += [self._row(request, name, [], Error.TOPIC_AUTHORIZATION_FAILED) for name in hidden]
        request.answer(topics=tuple(rows), next_cursor=following)

    def _portion(self, body: Any) -> list[tuple[str, int]]:
        """The names from the cursor on, each with its first partition."""
        names = sorted({requested.name for requested in body.topics} or self._topics.by_name)
        if body.cursor is None:
            return [(name, 0) for name in names]
        start = body.cursor.topic_name
        return [(name, max(body.cursor.partition_index, 0) if name == start else 0) for name in names if name >= start]

    def _of(self, name: str) -> list[Partition]:
        topic = self._topics.by_name.get(name)
        return topic.partitions if topic is not None else []

    def _row(self, request: Request, name: str, partitions: list[Partition], error: Error = Error.NONE) -> Any:
        refused = error is Error.TOPIC_AUTHORIZATION_FAILED
        topic = self._topics.by_name.get(name) if not error else None
        if topic is None and not error:
            error = Error.UNKNOWN_TOPIC_OR_PARTITION if legal(name) else Error.INVALID_TOPIC_EXCEPTION
        return request.make(
            "DescribeTopicPartitionsResponseTopic", error_code=error, name=name, topic_id=topic.id if topic else None,
            is_internal=False, partitions=tuple(self._partition(request, p) for p in partitions),
            topic_authorized_operations=operations(request, ResourceType.TOPIC, name) if not refused else NOBODY_ASKED,
        )  # fmt: skip

    def _partition(self, request: Request, partition: Partition) -> Any:
        return request.make(
            "DescribeTopicPartitionsResponsePartition", error_code=Error.NONE, partition_index=partition.number,
            leader_id=self._identity.leader, leader_epoch=partition.memo.epoch,
            replica_nodes=tuple(node for node, _, _ in self._identity.brokers()), isr_nodes=self._in_sync(partition),
            eligible_leader_replicas=(), last_known_elr=(), offline_replicas=(),
        )  # fmt: skip
