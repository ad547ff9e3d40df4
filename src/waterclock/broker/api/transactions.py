"""The requests of idempotent and transactional producers: what they ask of the transaction coordinator.

    InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn

Rule 1: an error that a client's version is answered as the one that makes it do the same.
Rule 2: a request about several partitions is done for all of them or for none.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import timedelta
from typing import Any, Final

from waterclock.broker.api.table import Api, may_with_topic
from waterclock.broker.api.waiting import Countdown
from waterclock.broker.folder.topics import TopicPartition, Topics
from waterclock.broker.groups.offsets import CommittedOffset
from waterclock.broker.security.acls import Operation
from waterclock.broker.transactions.coordinator import CommittingMember, TransactionCoordinator
from waterclock.broker.transactions.record import NONE, ProducerId
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

INIT, ADD, ADD_OFFSETS, END, OFFSETS = 22, 24, 25, 26, 28
BATCHED: Final = 4  # from here on AddPartitionsToTxn is about several transactions
MILLISECOND: Final = timedelta(milliseconds=1)
KNOWS_FENCED: Final = {INIT: 4, ADD: 2, ADD_OFFSETS: 2, END: 2}  # from these versions on
KNOWS_ABORTABLE: Final = 4  # TxnOffsetCommit
SECOND: Final = 5  # EndTxn and TxnOffsetCommit of protocol 2


def known_error(request: Request, error: Error) -> Error:
    """The error as the client's version knows it."""
    if error is Error.PRODUCER_FENCED and request.version < KNOWS_FENCED[request.key]:
        return Error.INVALID_PRODUCER_EPOCH
    return error


class TransactionApis:
    """`longest`: characters of text that a committed offset may carry."""

    def __init__(self, topics: Topics, coordinator: TransactionCoordinator, longest: int) -> None:
        self._topics = topics
        self._coordinator = coordinator
        self._longest = longest

    def apis(self) -> dict[int, Api]:
        return {
            INIT: Api(self.init, 0, 5), ADD: Api(self.add, 0, 5), ADD_OFFSETS: Api(self.add_offsets, 0, 4),
            END: Api(self.end, 0, 5), OFFSETS: Api(self.commit_offsets, 0, 5),
        }  # fmt: skip

    # InitProducerId

    def init(self, request: Request) -> None:
        body = request.body
        last = ProducerId(getattr(body, "producer_id", NONE), getattr(body, "producer_epoch", NONE))

        def given(error: Error, producer: ProducerId) -> None:
            error = known_error(request, error)
            request.answer(error_code=error, producer_id=producer.producer_id, producer_epoch=producer.epoch)

        if (last.producer_id == NONE) != (last.epoch == NONE):
            given(Error.INVALID_REQUEST, ProducerId(NONE, NONE))
            return
        timeout_ms = body.transaction_timeout // MILLISECOND
        self._coordinator.init(body.transactional_id, timeout_ms, last if last.epoch != NONE else None, given)

    # AddPartitionsToTxn

    def add(self, request: Request) -> None:
        if request.version < BATCHED:
            self._add_one(request)
            return
        requested = request.body.transactions
        rows: list[Any] = [None] * len(requested)
        several = Countdown(
            len(requested), lambda: request.answer(error_code=Error.NONE, results_by_transaction=tuple(rows))
        )
        for row, one in enumerate(requested):
            self._add_of_several(request, one, rows, row, several)

    def _add_one(self, request: Request) -> None:
        body = request.body
        topics = body.v3_and_below_topics
        producer = ProducerId(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)

        def answer(error: Error, missing: set[TopicPartition]) -> None:
            rows = self._results(request, topics, error, missing, forbidden)
            request.answer(results_by_topic_v3_and_below=rows)

        forbidden = {one.name for one in topics if not may_with_topic(request, Operation.WRITE, one.name)}
        if forbidden:
            partitions = ((topic.name, number) for topic in topics for number in topic.partitions)
            answer(Error.OPERATION_NOT_ATTEMPTED, {tp for tp in partitions if self._topics.partition(*tp) is None})
            return
        self._add(body.v3_and_below_transactional_id, producer, topics, answer)

    def _add_of_several(self, request: Request, requested: Any, rows: list[Any], row: int, several: Countdown) -> None:
        producer = ProducerId(requested.producer_id, requested.producer_epoch)

        def answer(error: Error, missing: set[TopicPartition]) -> None:
            results = self._results(request, requested.topics, error, missing)
            rows[row] = request.make(
                "AddPartitionsToTxnResult", transactional_id=requested.transactional_id, topic_results=results
            )
            several.settled()

        if requested.verify_only:
            partitions = ((topic.name, number) for topic in requested.topics for number in topic.partitions)
            errors = (self._coordinator.has(requested.transactional_id, producer, tp) for tp in partitions)
            answer(next((error for error in errors if error), Error.NONE), set())
        else:
            self._add(requested.transactional_id, producer, requested.topics, answer)

    def _add(self, name: str, producer: ProducerId, topics: Any, answer: Any) -> None:
        partitions = [(topic.name, number) for topic in topics for number in topic.partitions]
        missing = {tp for tp in partitions if self._topics.partition(*tp) is None}
        if missing and name:
            answer(Error.OPERATION_NOT_ATTEMPTED, missing)
        else:
            self._coordinator.add(name, producer, partitions, [], lambda error: answer(error, set()))

    def _results(
        self, request: Request, topics: Any, error: Error, missing: set[TopicPartition],
        forbidden: Container[str] = (),
    ) -> tuple[Any, ...]:  # fmt: skip
        error = known_error(request, error)

        def row(tp: TopicPartition) -> Any:
            code = Error.UNKNOWN_TOPIC_OR_PARTITION if tp in missing else error
            code = Error.TOPIC_AUTHORIZATION_FAILED if tp[0] in forbidden else code
            return request.make("AddPartitionsToTxnPartitionResult", partition_index=tp[1], partition_error_code=code)

        return tuple(
            request.make(
                "AddPartitionsToTxnTopicResult",
                name=topic.name,
                results_by_partition=tuple(row((topic.name, number)) for number in topic.partitions),
            )
            for topic in topics
        )

    # AddOffsetsToTxn and EndTxn

    def add_offsets(self, request: Request) -> None:
        body = request.body
        producer = ProducerId(body.producer_id, body.producer_epoch)

        def answer(error: Error) -> None:
            request.answer(error_code=known_error(request, error))

        self._coordinator.add(body.transactional_id, producer, [], [body.group_id], answer)

    def end(self, request: Request) -> None:
        body = request.body
        producer = ProducerId(body.producer_id, body.producer_epoch)

        def answer(error: Error, then: ProducerId) -> None:
            error = known_error(request, error)
            request.answer(error_code=error, producer_id=then.producer_id, producer_epoch=then.epoch)

        protocol = 2 if request.version >= SECOND else 1
        self._coordinator.end(body.transactional_id, producer, body.committed, protocol, answer)

    # TxnOffsetCommit

    def commit_offsets(self, request: Request) -> None:
        body = request.body
        errors: dict[TopicPartition, Error] = {}
        good = self._good(request, errors)

        def answer(error: Error) -> None:
            self._answer_offsets(request, errors, _error_of_offsets(request, error))

        if not body.group_id:
            answer(Error.INVALID_GROUP_ID)
        elif not good:
            answer(Error.NONE)
        else:
            instance, generation = getattr(body, "group_instance_id", None), getattr(body, "generation_id", -1)
            member = CommittingMember(body.group_id, getattr(body, "member_id", ""), instance, generation)
            producer = ProducerId(body.producer_id, body.producer_epoch)
            protocol = 2 if request.version >= SECOND else 1
            self._coordinator.hold(body.transactional_id, producer, member, protocol, good, answer)

    def _good(self, request: Request, errors: dict[TopicPartition, Error]) -> dict[TopicPartition, CommittedOffset]:
        """What can be committed; what is wrong with the others goes to `errors`."""
        good, now_ms = {}, self._coordinator.wall_ms()
        for topic in request.body.topics:
            for requested in topic.partitions:
                tp, text = (topic.name, requested.partition_index), requested.committed_metadata or ""
                if not may_with_topic(request, Operation.READ, topic.name):
                    errors[tp] = Error.TOPIC_AUTHORIZATION_FAILED
                elif self._topics.partition(*tp) is None:
                    errors[tp] = Error.UNKNOWN_TOPIC_OR_PARTITION
                elif len(text) > self._longest:
                    errors[tp] = Error.OFFSET_METADATA_TOO_LARGE
                else:
                    epoch = getattr(requested, "committed_leader_epoch", NONE)
                    topic_id = self._topics.by_name[topic.name].id.hex
                    good[tp] = CommittedOffset(requested.committed_offset, epoch, text, now_ms, topic=topic_id)
        return good

    def _answer_offsets(self, request: Request, errors: dict[TopicPartition, Error], error: Error) -> None:
        def row(name: str, number: int) -> Any:
            code = errors.get((name, number), error)
            return request.make("TxnOffsetCommitResponsePartition", partition_index=number, error_code=code)

        topics = (
            request.make(
                "TxnOffsetCommitResponseTopic",
                name=topic.name,
                partitions=tuple(row(topic.name, requested.partition_index) for requested in topic.partitions),
            )
            for topic in request.body.topics
        )
        request.answer(topics=tuple(topics))


def _error_of_offsets(request: Request, error: Error) -> Error:
    """Group members know fewer errors of transactions, in all versions."""
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if error is Error.CONCURRENT_TRANSACTIONS:
        return Error.COORDINATOR_LOAD_IN_PROGRESS  # sent again soon, by every client
    if error is Error.TRANSACTION_ABORTABLE and request.version < KNOWS_ABORTABLE:
        return Error.INVALID_TXN_STATE
    return error
