"""Which topics there are, and who leads their partitions: always this broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from waterclock.broker.api.table import Api
from waterclock.broker.topics import Topic, Topics, legal
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.identity import Identity
    from waterclock.broker.log.partition import Partition
    from waterclock.broker.settings import Settings

METADATA: Final = 3
DESCRIBE_CLUSTER: Final = 60
NOBODY_SAID: Final = -(2**31)  # "authorized operations" that nobody asked for


InSync: TypeAlias = "Callable[[Partition], tuple[int, ...]]"


class MetadataApis:
    """Metadata and DescribeCluster. A topic is created where a client asks for it by name, and may."""

    def __init__(self, identity: Identity, topics: Topics, settings: Settings, in_sync: InSync) -> None:
        self._identity, self._topics, self._settings, self._in_sync = identity, topics, settings, in_sync

    def apis(self) -> dict[int, Api]:
        return {METADATA: Api(self.metadata, 0, 13), DESCRIBE_CLUSTER: Api(self.describe_cluster, 0, 2)}

    def metadata(self, request: Request) -> None:
        identity, asked = self._identity, request.body.topics
        everything = asked is None or (request.version == 0 and not asked)
        rows = [self._known(request, t) for t in self._topics] if everything else self._asked(request)
        brokers = tuple(
            request.make("MetadataResponseBroker", node_id=node, host=host, port=port, rack=None)
            for node, host, port in identity.brokers()
        )
        request.answer(
            brokers=brokers, cluster_id=identity.cluster, controller_id=identity.leader, topics=tuple(rows),
            error_code=Error.NONE, cluster_authorized_operations=NOBODY_SAID,
        )  # fmt: skip

    def _asked(self, request: Request) -> list[Any]:
        rows = []
        for asked in request.body.topics:
            topic_id = getattr(asked, "topic_id", None)
            if topic_id:
                topic = self._topics.by_id.get(topic_id)
                rows.append(
                    self._known(request, topic)
                    if topic
                    else self._unknown(request, None, topic_id, Error.UNKNOWN_TOPIC_ID)
                )
            else:
                rows.append(self._by_name(request, asked.name))
        return rows

    def _by_name(self, request: Request, name: str) -> Any:
        topic = self._topics.by_name.get(name)
        if topic is not None:
            return self._known(request, topic)
        if not legal(name):
            return self._unknown(request, name, None, Error.INVALID_TOPIC_EXCEPTION)
        may = self._settings["auto.create.topics.enable"] and self._identity.leader == self._identity.node
        if may and getattr(request.body, "allow_auto_topic_creation", True):
            return self._known(request, self._topics.create(name, self._settings["num.partitions"], {}))
        return self._unknown(request, name, None, Error.UNKNOWN_TOPIC_OR_PARTITION)

    def _known(self, request: Request, topic: Topic) -> Any:
        replicas = tuple(node for node, _, _ in self._identity.brokers())
        partitions = tuple(
            request.make(
                "MetadataResponsePartition", error_code=Error.NONE, partition_index=p.number,
                leader_id=self._identity.leader, leader_epoch=p.memo.epoch, replica_nodes=replicas,
                isr_nodes=self._in_sync(p), offline_replicas=(),
            )
            for p in topic.partitions
        )  # fmt: skip
        return self._topic(request, topic.name, topic.id, Error.NONE, partitions)

    def _unknown(self, request: Request, name: str | None, topic_id: uuid.UUID | None, error: Error) -> Any:
        return self._topic(request, name, topic_id, error, ())

    def _topic(
        self, request: Request, name: str | None, topic_id: uuid.UUID | None, error: Error, partitions: tuple[Any, ...]
    ) -> Any:
        return request.make(
            "MetadataResponseTopic", error_code=error, name=name, topic_id=topic_id, is_internal=False,
            partitions=partitions, topic_authorized_operations=NOBODY_SAID,
        )  # fmt: skip

    def describe_cluster(self, request: Request) -> None:
        identity = self._identity
        brokers = tuple(
            request.make("DescribeClusterBroker", broker_id=node, host=host, port=port, rack=None, is_fenced=False)
            for node, host, port in identity.brokers()
        )
        request.answer(
            error_code=Error.NONE, error_message=None, cluster_id=identity.cluster, controller_id=identity.leader,
            brokers=brokers, cluster_authorized_operations=NOBODY_SAID,
            endpoint_type=getattr(request.body, "endpoint_type", 1),
        )  # fmt: skip
