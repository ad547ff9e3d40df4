"""WriteTxnMarkers: an operator ends a transaction that hangs in a partition (`Admin.abortTransaction`, KIP-664).

    the marker                                                 is answered
    of an earlier epoch than the producer's; for protocol 2    INVALID_PRODUCER_EPOCH
      also of the same one
    of an earlier coordinator's epoch than the last marker's   TRANSACTION_COORDINATOR_FENCED
    any other, whether a transaction is open or not            NONE, once it is durable here and with the followers in sync

Rule 1: it ends what the partition knows of the transaction, and nothing that its coordinator knows: other partitions, and
    offsets that it holds, stay as they are. So it is said in the log.
Source: the answers are those of Apache Kafka 4.3; KIP-1228 for the version of a transaction's protocol in the marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.demands import may_with_cluster
from waterclock.broker.api.table import Api
from waterclock.broker.security.acls import Operation
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error
from waterclock.broker.wire.refusal import refuse

if TYPE_CHECKING:
    from waterclock.broker.log.partition import Partition
    from waterclock.broker.topics import Topics
    from waterclock.broker.transactions.markers import MarkerWriter

WRITE_TXN_MARKERS: Final = 27
RAISES_THE_EPOCH: Final = 2  # the protocol whose markers have the next epoch
log = logging.getLogger("waterclock.broker")


class TxnMarkerApi:
    """WriteTxnMarkers, by the one who writes all other markers too."""

    def __init__(self, topics: Topics, ending: MarkerWriter, wall_ms: Callable[[], int]) -> None:
        self._topics = topics
        self._ending = ending
        self._wall_ms = wall_ms

    def apis(self) -> dict[int, Api]:
        return {WRITE_TXN_MARKERS: Api(self.write, 1, 2)}

    def write(self, request: Request) -> None:
        if not any(may_with_cluster(request, one) for one in (Operation.ALTER, Operation.CLUSTER_ACTION)):
            refuse(request, Error.CLUSTER_AUTHORIZATION_FAILED)
            return
        waits: list[tuple[Partition, int]] = []
        rows = tuple(
            request.make(
                "WritableTxnMarkerResult", producer_id=marker.producer_id,
                topics=tuple(self._topic(request, marker, topic, waits) for topic in marker.topics),
            )
            for marker in request.body.markers
        )  # fmt: skip
        self._ending.wait(waits, lambda: request.answer(markers=rows))

    def _topic(self, request: Request, marker: Any, topic: Any, waits: list[tuple[Partition, int]]) -> Any:
        partitions = []
        for number in topic.partition_indexes:
            partition = self._topics.partition(topic.name, number)
            error = Error.UNKNOWN_TOPIC_OR_PARTITION if partition is None else self._append(partition, marker)
            if partition is not None and not error:
                waits.append((partition, partition.end))
            partitions.append(
                request.make("WritableTxnMarkerPartitionResult", partition_index=number, error_code=error)
            )
        return request.make("WritableTxnMarkerTopicResult", name=topic.name, partitions=tuple(partitions))

    def _append(self, partition: Partition, marker: Any) -> Error:
        error = _refused(partition, marker)
        if error:
            return error
        open_since = partition.producers.open.get(marker.producer_id)
        error = self._ending.write(
            partition, marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch,
            self._wall_ms(),
        )  # fmt: skip
        if open_since is not None and not error:
            log.warning(
                "%s-%d: the transaction of producer %d that was open from offset %d on was %s by an operator",
                partition.topic, partition.number, marker.producer_id, open_since,
                "committed" if marker.transaction_result else "aborted",
            )  # fmt: skip
        return error


def _refused(partition: Partition, marker: Any) -> Error:
    if partition.deposed:
        return Error.NOT_LEADER_OR_FOLLOWER
    known = partition.producers.known.get(marker.producer_id)
    if known is None:
        return Error.NONE
    raises = getattr(marker, "transaction_version", 0) >= RAISES_THE_EPOCH
    if marker.producer_epoch < known.epoch + raises:
        return Error.INVALID_PRODUCER_EPOCH
    earlier = marker.coordinator_epoch < known.coordinator_epoch
    return Error.TRANSACTION_COORDINATOR_FENCED if earlier else Error.NONE
