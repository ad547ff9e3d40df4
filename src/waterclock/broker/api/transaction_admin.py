"""Producers and transactions for people: DescribeProducers, DescribeTransactions, ListTransactions, WriteTxnMarkers.

By WriteTxnMarkers an operator ends a transaction that hangs in a partition (`Admin.abortTransaction`, KIP-664):

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
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.table import Api, may_with_cluster, may_with_topic
from waterclock.broker.folder.topics import Topics
from waterclock.broker.groups.subscriptions import matcher
from waterclock.broker.log.partition import Partition
from waterclock.broker.security.acls import Operation, ResourceType
from waterclock.broker.transactions.coordinator import TransactionCoordinator
from waterclock.broker.transactions.ledger import Transaction
from waterclock.broker.transactions.record import TransactionState
from waterclock.broker.wire.answers import refuse
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.transactions.markers import MarkerWriter

PRODUCERS, DESCRIBE, LIST = 61, 65, 66
START: Final = datetime(1970, 1, 1, tzinfo=UTC)
NOT_HERE: Final = "This server does not host this topic-partition."


class TransactionViewApis:
    """Nothing here changes anything."""

    def __init__(self, topics: Topics, coordinator: TransactionCoordinator) -> None:
        self._topics, self._coordinator = topics, coordinator

    def apis(self) -> dict[int, Api]:
        return {
            PRODUCERS: Api(self.producers, 0, 0), DESCRIBE: Api(self.describe, 0, 0), LIST: Api(self.list, 0, 2),
        }  # fmt: skip

    # DescribeProducers

    def producers(self, request: Request) -> None:
        topics = (
            request.make(
                "TopicResponse",
                name=topic.name,
                partitions=tuple(self._partition(request, topic.name, number) for number in topic.partition_indexes),
            )
            for topic in request.body.topics
        )
        request.answer(topics=tuple(topics))

    def _partition(self, request: Request, name: str, number: int) -> Any:
        may = may_with_topic(request, Operation.READ, name)
        partition = self._topics.partition(name, number) if may else None
        error, message = Error.NONE, None
        if not may:
            error = Error.TOPIC_AUTHORIZATION_FAILED
        elif partition is None:
            there = name in self._topics.by_name
            error, message = Error.UNKNOWN_TOPIC_OR_PARTITION, None if there else NOT_HERE
        rows = tuple(_producers(request, partition)) if partition is not None else ()
        return request.make(
            "PartitionResponse", partition_index=number, error_code=error, error_message=message, active_producers=rows
        )

    # DescribeTransactions

    def describe(self, request: Request) -> None:
        rows = tuple(self._described(request, name) for name in request.body.transactional_ids)
        request.answer(transaction_states=rows)

    def _described(self, request: Request, name: str) -> Any:
        if not request.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
            return _transaction(request, name, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "", 0, 0, 0, 0, ())
        transaction = self._coordinator.ledger.known(name)
        if transaction is None:
            error = Error.TRANSACTIONAL_ID_NOT_FOUND if name else Error.INVALID_REQUEST
            return _transaction(request, name, error, "", 0, 0, 0, 0, ())
        record = transaction.record
        partitions: dict[str, list[int]] = {}
        seen = (tp for tp in record.partitions if may_with_topic(request, Operation.DESCRIBE, tp[0]))
        for topic, number in seen:
            partitions.setdefault(topic, []).append(number)
        topics = tuple(request.make("TopicData", topic=t, partitions=tuple(n)) for t, n in partitions.items())
        return _transaction(
            request, name, Error.NONE, record.state, record.timeout_ms, record.started_ms, *record.id, topics
        )

    # ListTransactions

    def list(self, request: Request) -> None:
        requested = request.body
        every = {str(state) for state in TransactionState}
        known = every & set(requested.state_filters)
        unknown = tuple(name for name in requested.state_filters if name not in every)
        matches = _matcher(getattr(requested, "transactional_id_pattern", None))
        if matches is None:
            error, rows, unknown = Error.INVALID_REGULAR_EXPRESSION, (), ()
        else:
            error, fits = Error.NONE, self._fits(requested, known)
            found = (
                t
                for n, t in self._coordinator.ledger.by_name.items()
                if t.record.producer_id >= 0 and fits(t) and matches(n)
                if request.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, n)
            )
            rows = tuple(
                request.make(
                    "TransactionState", transactional_id=one.name, producer_id=one.record.producer_id,
                    transaction_state=one.record.state,
                )
                for one in found
            )  # fmt: skip
        request.answer(error_code=error, unknown_state_filters=unknown, transaction_states=rows)

    def _fits(self, requested: Any, states: set[str]) -> Callable[[Transaction], bool]:
        producers, longer_ms = set(requested.producer_id_filters), getattr(requested, "duration_filter", -1)
        begun_before = self._coordinator.wall_ms() - longer_ms

        def fits(transaction: Transaction) -> bool:
            record = transaction.record
            if (requested.state_filters and record.state not in states) or (
                producers and record.producer_id not in producers
            ):
                return False
            return longer_ms < 0 or record.started_ms < begun_before

        return fits


def _producers(request: Request, partition: Partition) -> Any:
    producers = partition.producers
    for producer_id, known in producers.known.items():
        yield request.make(
            "ProducerState", producer_id=producer_id, producer_epoch=known.epoch,
            last_sequence=known.sent[-1].last if known.sent else -1, last_timestamp=known.last_timestamp,
            coordinator_epoch=known.coordinator_epoch, current_txn_start_offset=producers.open.get(producer_id, -1),
        )  # fmt: skip


def _transaction(
    request: Request, name: str, error: Error, state: str, timeout_ms: int, started_ms: int, producer_id: int,
    epoch: int, topics: tuple[Any, ...],
) -> Any:  # fmt: skip
    return request.make(
        "TransactionState", error_code=error, transactional_id=name, transaction_state=state,
        transaction_timeout=timedelta(milliseconds=timeout_ms),
        transaction_start_time=START + timedelta(milliseconds=started_ms),
        producer_id=producer_id, producer_epoch=epoch, topics=topics,
    )  # fmt: skip


def _matcher(pattern: str | None) -> Callable[[str], bool] | None:
    """What a whole name is held against; None for what is no regular expression."""
    if not pattern:
        return lambda name: True
    try:
        return matcher(pattern)
    except ValueError:
        return None


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
