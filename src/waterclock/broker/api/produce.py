"""Produce: append what came, and answer once it is as safe as the producer wants it.

    acks    answered
    0       never
    1       after the append
    -1      once every partition's records are below the high watermark: on the disk, and with the followers in sync;
            and once the store knows of the partitions that joined a transaction by it

If there is an authorizer, topics that the producer may not write to are refused, each for itself; so is a whole
request with a transaction that it may not write in.

A `DelayedProduce` waits in the purgatory for that. If its time is up first, each partition that lags gets
REQUEST_TIMED_OUT; its records stay and may become durable all the same.

A compacted topic takes no record without a key. A small batch may hold millions of records, so those are looked through in
slices first (`Connection.work`), and what its connection has sent behind them waits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from waterclock.broker.log.batch import CODEC, HEADER, header_of
from waterclock.broker.log.partition import ZSTD, Partition
from waterclock.broker.log.records import explain, keyless_in_steps
from waterclock.broker.security.acls import Operation, ResourceType
from waterclock.broker.transactions.admission import Admission, transactional
from waterclock.broker.wire import produce
from waterclock.broker.wire.errors import Error
from waterclock.broker.wire.produce import ProducedPartition, ProduceRequest
from waterclock.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from waterclock.broker.flusher import Flusher
    from waterclock.broker.folder.topics import Topics
    from waterclock.broker.net.connection import Connection
    from waterclock.broker.net.outgoing import Slot
    from waterclock.broker.replication.replicas import Replicas
    from waterclock.broker.security.authorizer import Authorizer, Rights

ALL: Final = -1
CODEC_AT: Final = 22  # the byte of a batch whose last bits name its compression
ZSTD_SINCE: Final = 7  # the version of Produce. KIP-110
VERSIONS: Final = (3, 13)
AGAIN: Final = frozenset({Error.KAFKA_STORAGE_ERROR, Error.NOT_ENOUGH_REPLICAS, Error.CORRUPT_MESSAGE})
"""Every producer sends a batch again that was refused so."""
NOTHING_KNOWN: Final[Mapping[int, bool]] = {}  # of batches, by their identity: whether each record has a key

ProducedRows: TypeAlias = "list[tuple[bytes, list[ProducedPartition]]]"
IsWritten: TypeAlias = "Callable[[], bool] | None"


class DelayedProduce:
    """The answer to acks=all. `waits`: each partition's end after its append, and the place of its row.

    `refused(partition)` says why acks=all cannot be had now: fewer are in sync than there must be, and it waits in vain.
    `written()` says whether the transaction's partitions are durable, if there is something to wait for.
    """

    __slots__ = ("_answer", "_refused", "_rows", "_slot", "_waits", "_written")

    def __init__(
        self,
        slot: Slot,
        answer: Callable[[ProducedRows], bytes],
        rows: ProducedRows,
        waits: list[tuple[Partition, int, int, int]],
        refused: Callable[[Partition], Error],
        written: IsWritten,
    ) -> None:
        self._slot = slot
        self._answer = answer
        self._rows = rows
        self._waits = waits
        self._refused, self._written = refused, written

    def try_complete(self, op: DelayedOperation) -> bool:
        for wait in self._waits:
            if wait[0].high < wait[1] and not self._in_vain(wait[0]):
                return False
        return self._written is None or self._written() or any(wait[0].deposed for wait in self._waits)

    def _in_vain(self, partition: Partition) -> Error:
        if partition.deleted or partition.deposed:
            return Error.NOT_LEADER_OR_FOLLOWER
        return Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self._refused(partition) else Error.NONE

    def on_complete(self, op: DelayedOperation) -> None:
        for partition, end, topic, row in self._waits:
            error = self._in_vain(partition)
            if partition.high < end or error == Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
                self._fail(topic, row, error or Error.REQUEST_TIMED_OUT)
        if self._written is not None and not self._written():
            for topic, (_, rows) in enumerate(self._rows):
                for row, appended in enumerate(rows):
                    if not appended.error:
                        self._fail(topic, row, Error.REQUEST_TIMED_OUT)
        if not self._slot.gone:
            self._slot.answer([self._answer(self._rows)])

    def _fail(self, topic: int, row: int, error: Error) -> None:
        rows = self._rows[topic][1]
        rows[row] = rows[row]._replace(error=error, base=-1)


class ProduceApi:
    """`admission` says what may be written within a transaction."""

    def __init__(
        self,
        topics: Topics,
        flusher: Flusher,
        purgatory: Purgatory,
        wall_ms: Callable[[], int],
        admission: Admission,
        replicas: Replicas,
    ) -> None:
        self._topics = topics
        self._flusher = flusher
        self._purgatory = purgatory
        self._replicas = replicas
        self._wall_ms, self._admission = wall_ms, admission
        self.records = self.bytes = 0
        self.authorizer: Authorizer | None = None

    def __call__(self, connection: Connection, data: memoryview, at: int, version: int, correlation: int) -> None:
        """Handle the request whose body begins at `at`."""
        request = produce.read(data, at, version)
        slot = connection.slot() if request.acks else None
        if self._to_be_looked_through(request):
            request = produce.read(memoryview(bytearray(data)), at, version)  # the bytes must stay
            connection.work(self._look_through(connection, slot, request, version, correlation))
        else:
            self._produce(connection, slot, request, version, correlation, NOTHING_KNOWN)

    def _to_be_looked_through(self, request: ProduceRequest) -> bool:
        for key, _ in request.topics:
            partitions = self._topics.by_key.get(key)
            if partitions and partitions[0].settings.compact:
                return True
        return False

    def _look_through(
        self, connection: Connection, slot: Slot | None, request: ProduceRequest, version: int, correlation: int
    ) -> Iterator[None]:
        keyed: dict[int, bool] = {}
        for key, batches in request.topics:
            partitions = self._topics.by_key.get(key)
            if not partitions or not partitions[0].settings.compact:
                continue
            for _, batch in batches:
                if HEADER <= len(batch) <= partitions[0].settings.max_message_bytes:
                    keyed[id(batch)] = not (yield from keyless_in_steps(batch))
        self._produce(connection, slot, request, version, correlation, keyed)

    def _produce(
        self,
        connection: Connection,
        slot: Slot | None,
        request: ProduceRequest,
        version: int,
        correlation: int,
        keyed: Mapping[int, bool],
    ) -> None:
        rights = self.authorizer.rights(connection) if self.authorizer is not None else None
        rows, waits = self._append_all(request, version, rights, keyed)
        name = request.transactional_id
        written = self._admission.written(name) if name is not None else None
        if slot is None:
            if any(row.error for _, some in rows for row in some):
                connection.close()  # the only answer there is, and Kafka's
            return

        def answer(rows: ProducedRows) -> bytes:
            return produce.answer(correlation, version, rows)

        if request.acks == ALL and (waits or written is not None):
            delayed = DelayedProduce(slot, answer, rows, waits, self._replicas.refused, written)
            op = DelayedOperation(delayed.try_complete, delayed.on_complete, request.timeout_ms / 1000)
            keys: tuple[Hashable, ...] = tuple(wait[0] for wait in waits)
            self._purgatory.try_complete_else_watch(op, keys if written is None else (*keys, name))
        else:
            slot.answer([answer(rows)])

    def _append_all(
        self, request: ProduceRequest, version: int, rights: Rights | None, keyed: Mapping[int, bool]
    ) -> tuple[ProducedRows, list[tuple[Partition, int, int, int]]]:
        rows: ProducedRows = []
        waits: list[tuple[Partition, int, int, int]] = []
        missing = Error.UNKNOWN_TOPIC_ID if version >= produce.BY_ID else Error.UNKNOWN_TOPIC_OR_PARTITION
        now_ms = self._wall_ms()
        for key, batches in request.topics:
            partitions, some = self._topics.by_key.get(key), []
            if rights is not None and (refused := _forbidden(rights, request, key, partitions, version)):
                rows.append((key, [ProducedPartition(number, refused) for number, _ in batches]))
                continue
            for number, batch in batches:
                if partitions is None or not 0 <= number < len(partitions):
                    error = missing if partitions is None else Error.UNKNOWN_TOPIC_OR_PARTITION
                    some.append(ProducedPartition(number, error))
                    continue
                partition = partitions[number]
                some.append(row := self._append(request, partition, batch, now_ms, version, keyed))
                if not row.error and partition.high < partition.end:
                    waits.append((partition, partition.end, len(rows), len(some) - 1))
            rows.append((key, some))
        return rows, waits

    def _append(
        self,
        request: ProduceRequest,
        partition: Partition,
        batch: memoryview,
        now_ms: int,
        version: int,
        keyed: Mapping[int, bool],
    ) -> ProducedPartition:
        error = self._refused(request, partition, batch, version)
        base = -1
        if not error:
            end = partition.end
            error, base = partition.append(batch, now_ms, keyed.get(id(batch)))
            if partition.end != end:
                self.records += partition.end - end
                self.bytes += len(batch)
                self._flusher.mark(partition)
        if error:
            if error in AGAIN and len(batch) >= HEADER:
                partition.producers.refused(header_of(batch))
            return ProducedPartition(
                partition.number, error, -1, -1, -1, *explain(error, batch, partition.settings, now_ms)
            )
        time = now_ms if partition.settings.append_time else -1
        return ProducedPartition(partition.number, error, base, time, partition.start)

    def _refused(self, request: ProduceRequest, partition: Partition, batch: memoryview, version: int) -> Error:
        if partition.deposed:
            return Error.NOT_LEADER_OR_FOLLOWER
        if request.acks == ALL:
            error = self._replicas.refused(partition)
            if error:
                return error
        elif request.acks not in (0, 1):
            return Error.INVALID_REQUIRED_ACKS
        if version < ZSTD_SINCE and len(batch) > CODEC_AT and batch[CODEC_AT] & CODEC == ZSTD:
            return Error.UNSUPPORTED_COMPRESSION_TYPE
        if request.transactional_id is not None:
            return self._admission.admit(request.transactional_id, partition, batch, version)
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if transactional(batch) else Error.NONE


def _forbidden(
    rights: Rights, request: ProduceRequest, key: bytes, partitions: list[Partition] | None, version: int
) -> Error:
    """Why nothing may be written to a topic by this client. A topic that is not there is one by its name only."""
    transaction = request.transactional_id
    if (
        transaction is not None
        and not rights.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction)
        and any(transactional(batch) for _, batches in request.topics for _, batch in batches)
    ):  # what is of no transaction it may write
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if partitions is None and version >= produce.BY_ID:
        return Error.NONE
    name = partitions[0].topic if partitions else key.decode(errors="replace")
    may = rights.may(Operation.WRITE, ResourceType.TOPIC, name)
    return Error.NONE if may else Error.TOPIC_AUTHORIZATION_FAILED
