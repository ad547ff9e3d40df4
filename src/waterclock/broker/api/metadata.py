"""Which topics there are, who leads their partitions (always this broker), and how much of the disk each takes.

Rule 1: a topic that a client's Metadata creates is answered once it is durable: what is appended to it
    would go at the next start otherwise, as the files of a topic that nobody knows.
Rule 2: who may not describe a topic does not learn whether it is there: of all topics it is left out, by its name it is
    refused before anything is looked for.
Rule 3: DescribeTopicPartitions describes topics with many partitions in portions, in the order of their names; each answer
    has a cursor, the topic and partition with which the next begins.
Source: KIP-966 (portions), KIP-113 and KIP-827 (DescribeLogDirs; there is one folder).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from waterclock.broker.api.table import Api, may_with_cluster, may_with_topic, operations, operations_with_cluster
from waterclock.broker.api.waiting import Countdown
from waterclock.broker.folder.topics import Topic, Topics, legal
from waterclock.broker.log.partition import Partition
from waterclock.broker.security.acls import Operation, ResourceType
from waterclock.broker.wire import answers
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error
from waterclock.outside import os, uuid

if TYPE_CHECKING:
    from waterclock.broker.folder.identity import Identity
    from waterclock.broker.settings import Settings

METADATA: Final = 3
DESCRIBE_CLUSTER: Final = 60
NO_ID: Final = uuid.UUID(int=0)
NOBODY_ASKED: Final = -(2**31)  # "authorized operations" that nobody asked for
BROKERS, CONTROLLERS = 1, 2  # types of endpoints


InSync: TypeAlias = "Callable[[Partition], tuple[int, ...]]"


class MetadataApis:
    """Metadata and DescribeCluster. A topic is created if a client asks for it by name, and may."""

    def __init__(self, identity: Identity, topics: Topics, settings: Settings, in_sync: InSync) -> None:
        self._identity = identity
        self._topics = topics
        self._settings = settings
        self._in_sync = in_sync

    def apis(self) -> dict[int, Api]:
        return {METADATA: Api(self.metadata, 0, 13), DESCRIBE_CLUSTER: Api(self.describe_cluster, 0, 2)}

    def metadata(self, request: Request) -> None:
        missing = self._missing(request)
        several = Countdown(len(missing), lambda: self._answer(request))
        for name in missing:
            if name in self._topics.making:
                self._topics.making[name].append(several.settled)
            else:
                self._topics.create(name, self._settings["num.partitions"], {}, several.settled)

    def _missing(self, request: Request) -> list[str]:
        """The topics that this request makes, and those that are being made."""
        body, topics = request.body, self._topics
        leads = self._identity.leader == self._identity.node
        may = self._makes_topics(request) and leads
        names = {requested.name: None for requested in body.topics or () if not getattr(requested, "topic_id", None)}
        free = [name for name in names if name and legal(name) and name not in topics.by_name]
        seen = [name for name in free if not self._refused(request, name)]
        may = may and bool(seen) and topics.maker.why_no_room(self._settings["num.partitions"]) is None
        return [name for name in seen if name in topics.making or (may and topics.namesakes.of(name) is None)]

    def _makes_topics(self, request: Request) -> bool:
        wanted = getattr(request.body, "allow_auto_topic_creation", True)
        return bool(wanted and self._settings["auto.create.topics.enable"])

    def _refused(self, request: Request, name: str) -> bool:
        """Whether the client may not see a topic, or not make it if the request would."""
        if not may_with_topic(request, Operation.DESCRIBE, name):
            return True
        if request.rights is None or name in self._topics.by_name or not self._makes_topics(request):
            return False
        creates = may_with_cluster(request, Operation.CREATE) or may_with_topic(request, Operation.CREATE, name)
        return not creates

    def _answer(self, request: Request) -> None:
        identity, body = self._identity, request.body
        everything = body.topics is None or (request.version == 0 and not body.topics)
        topics = list(self._topics) if everything else []
        seen = (may_with_topic(request, Operation.DESCRIBE, topic.name) for topic in topics)
        known = (self._known(request, topic) if sees else None for topic, sees in zip(topics, seen, strict=True))
        rows = known if everything else self._requested(request)
        brokers = tuple(
            request.make("MetadataResponseBroker", node_id=node, host=host, port=port, rack=None)
            for node, host, port in identity.brokers()
        )
        requested = getattr(body, "include_cluster_authorized_operations", False)
        answers.answer(
            request, "topics", rows, self._count(topics if everything else body.topics), brokers=brokers,
            cluster_id=identity.cluster, controller_id=identity.leader, error_code=Error.NONE,
            cluster_authorized_operations=operations_with_cluster(request) if requested else NOBODY_ASKED,
        )  # fmt: skip

    def _count(self, topics: Sequence[Any]) -> int:
        """How many rows there are of these topics, those of partitions included; of many topics less may be said."""
        count = len(topics)
        if count <= answers.MANY:
            by_name, by_id = self._topics.by_name, self._topics.by_id
            known = (by_name.get(one.name) or by_id.get(getattr(one, "topic_id", None) or NO_ID) for one in topics)
            count += sum(len(topic.partitions) for topic in known if topic is not None)
        return count

    def _requested(self, request: Request) -> Iterator[Any]:
        """The rows of the topics in the request, each once."""
        names = {(getattr(requested, "topic_id", None), requested.name): None for requested in request.body.topics}
        for topic_id, name in names:
            yield self._by_id(request, topic_id) if topic_id else self._by_name(request, name)

    def _by_id(self, request: Request, topic_id: uuid.UUID) -> Any:
        topic = self._topics.by_id.get(topic_id)
        if topic is not None and not may_with_topic(request, Operation.DESCRIBE, topic.name):
            return self._topic(request, None, topic_id, Error.TOPIC_AUTHORIZATION_FAILED)
        if topic is not None:
            return self._known(request, topic)
        return self._topic(request, None, topic_id, Error.UNKNOWN_TOPIC_ID)

    def _by_name(self, request: Request, name: str | None) -> Any:
        if self._refused(request, name or ""):
            return self._topic(request, name or "", None, Error.TOPIC_AUTHORIZATION_FAILED)
        topic = self._topics.by_name.get(name) if name else None
        if topic is not None:
            return self._known(request, topic)
        error = Error.UNKNOWN_TOPIC_OR_PARTITION if name and legal(name) else Error.INVALID_TOPIC_EXCEPTION
        return self._topic(request, name or "", None, error)

    def _known(self, request: Request, topic: Topic) -> Any:
        replicas = tuple(node for node, _, _ in self._identity.brokers())
        partitions = (
            request.make(
                "MetadataResponsePartition", error_code=Error.NONE, partition_index=p.number,
                leader_id=self._identity.leader, leader_epoch=p.memo.epoch, replica_nodes=replicas,
                isr_nodes=self._in_sync(p), offline_replicas=(),
            )
            for p in list(topic.partitions)
        )  # fmt: skip
        if len(topic.partitions) <= answers.FEW:
            return self._topic(request, topic.name, topic.id, Error.NONE, tuple(partitions))
        row = self._topic(request, topic.name, topic.id, Error.NONE)
        return answers.Branch(row, "partitions", partitions, len(topic.partitions))

    def _topic(
        self,
        request: Request,
        name: str | None,
        topic_id: uuid.UUID | None,
        error: Error,
        partitions: tuple[Any, ...] = (),
    ) -> Any:
        bits = NOBODY_ASKED
        if name is not None and not error and getattr(request.body, "include_topic_authorized_operations", False):
            bits = operations(request, ResourceType.TOPIC, name)
        return request.make(
            "MetadataResponseTopic", error_code=error, name=name, topic_id=topic_id, is_internal=False,
            partitions=partitions, topic_authorized_operations=bits,
        )  # fmt: skip

    def describe_cluster(self, request: Request) -> None:
        wanted = getattr(request.body, "endpoint_type", BROKERS)
        if wanted == BROKERS:
            self._describe_brokers(request)
            return
        error, message = Error.MISMATCHED_ENDPOINT_TYPE, "Brokers are described here; there are no controllers to ask"
        if wanted != CONTROLLERS:
            error, message = Error.UNSUPPORTED_ENDPOINT_TYPE, f"There are no endpoints of type {wanted}"
        request.answer(
            error_code=error, error_message=message, cluster_id="", controller_id=-1, brokers=(),
            cluster_authorized_operations=NOBODY_ASKED, endpoint_type=BROKERS,
        )  # fmt: skip

    def _describe_brokers(self, request: Request) -> None:
        identity = self._identity
        brokers = tuple(
            request.make("DescribeClusterBroker", broker_id=node, host=host, port=port, rack=None, is_fenced=False)
            for node, host, port in identity.brokers()
        )
        requested = request.body.include_cluster_authorized_operations
        request.answer(
            error_code=Error.NONE, error_message=None, cluster_id=identity.cluster, controller_id=identity.leader,
            brokers=brokers, endpoint_type=BROKERS,
            cluster_authorized_operations=operations_with_cluster(request) if requested else NOBODY_ASKED,
        )  # fmt: skip


DESCRIBE_PARTITIONS: Final = 75
MOST: Final = 2000  # partitions in one answer


class PartitionApis:
    """DescribeTopicPartitions."""

    def __init__(self, identity: Identity, topics: Topics, in_sync: InSync) -> None:
        self._identity = identity
        self._topics = topics
        self._in_sync = in_sync

    def apis(self) -> dict[int, Api]:
        return {DESCRIBE_PARTITIONS: Api(self.describe, 0, 0)}

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


DESCRIBE_DIRS: Final = 35


class LogDirApis:
    """DescribeLogDirs, of the data folder `folder`."""

    def __init__(self, folder: str, topics: Topics) -> None:
        self._folder, self._topics = os.path.abspath(folder), topics

    def apis(self) -> dict[int, Api]:
        return {DESCRIBE_DIRS: Api(self.describe, 1, 5)}

    def describe(self, request: Request) -> None:
        disk = os.statvfs(self._folder)
        if request.body.topics is None:
            wanted = [(topic.name, topic.partitions) for topic in self._topics]
        else:
            at = self._topics.partition
            found = ((one.topic, [at(one.topic, number) for number in one.partitions]) for one in request.body.topics)
            wanted = [(name, [one for one in partitions if one is not None]) for name, partitions in found]
        rows = tuple(self._topic(request, name, partitions) for name, partitions in wanted if partitions)
        folder = request.make(
            "DescribeLogDirsResult", error_code=Error.NONE, log_dir=self._folder, topics=rows,
            total_bytes=disk.f_frsize * disk.f_blocks, usable_bytes=disk.f_frsize * disk.f_bavail, is_cordoned=False,
        )  # fmt: skip
        request.answer(error_code=Error.NONE, results=(folder,))

    def _topic(self, request: Request, name: str, partitions: list[Partition]) -> Any:
        rows = tuple(
            request.make(
                "DescribeLogDirsPartition", partition_index=partition.number, offset_lag=0, is_future_key=False,
                partition_size=sum(segment.size for segment in partition.segments),
            )
            for partition in partitions
        )  # fmt: skip
        return request.make("DescribeLogDirsTopic", name=name, partitions=rows)
