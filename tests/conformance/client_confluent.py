"""confluent-kafka (librdkafka) behind the seam of clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import confluent_kafka as ck

from tests.conformance.clients import Endpoint, Message, Reader, Reading, Refused, Writing

WAIT_S = 20.0


def config(endpoint: Endpoint) -> dict[str, Any]:
    given: dict[str, Any] = {"bootstrap.servers": endpoint.bootstrap, "log_level": 0, "error_cb": lambda error: None}
    if endpoint.mechanism:
        given |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": endpoint.mechanism}
        given |= {"sasl.username": endpoint.user, "sasl.password": endpoint.password}
    return given


@contextmanager
def refusals() -> Iterator[None]:
    """The client's errors as `Refused`; a fatal one may come out of a callback, wrapped as a SystemError."""
    try:
        yield
    except (ck.KafkaException, SystemError) as error:
        found = error if isinstance(error, ck.KafkaException) else error.__cause__ or error.__context__
        if not isinstance(found, ck.KafkaException):
            raise
        raise Refused(found.args[0].code(), found.args[0].str()) from None


class ConfluentProducer:
    def __init__(self, endpoint: Endpoint, writing: Writing) -> None:
        settings = {**config(endpoint), "acks": writing.acks, "enable.idempotence": writing.idempotent}
        settings["compression.type"] = writing.compression or "none"
        if writing.transactional_id:
            settings |= {"transactional.id": writing.transactional_id, "enable.idempotence": True}
            settings |= {"transaction.timeout.ms": writing.timeout_ms, "message.timeout.ms": writing.timeout_ms}
        self._producer = ck.Producer(settings)
        if writing.transactional_id:
            try:
                self._call(self._producer.init_transactions)
            except Refused:
                self.close()
                raise

    def _call(self, method: Any, *arguments: Any) -> None:
        with refusals():
            method(*arguments, WAIT_S)

    def write(self, topic: str, messages: Iterable[Message]) -> list[int]:
        given: list[tuple[Any, Any]] = []
        with refusals():
            for m in messages:
                fields = {"value": m.value, "key": m.key, "headers": list(m.headers), "timestamp": m.timestamp_ms}
                self._producer.produce(
                    topic, partition=m.partition, on_delivery=lambda error, sent: given.append((error, sent)), **fields
                )
            self._producer.flush(WAIT_S)
        for error, _ in given:
            if error:
                raise Refused(error.code(), error.str())
        return [sent.offset() for _, sent in given]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def offer(self, reader: Reader, topic: str, partition: int, offset: int) -> None:
        assert isinstance(reader, ConfluentReader)
        given = [ck.TopicPartition(topic, partition, offset)]
        self._call(self._producer.send_offsets_to_transaction, given, reader.consumer.consumer_group_metadata())

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        """A refusal that a test keeps would keep it alive, and its threads would write into the tests behind it."""
        self._producer.flush(1)
        self._producer.purge()
        with suppress(ck.KafkaException, SystemError):  # one that was fenced says so once more
            self._producer.close()


class ConfluentReader:
    def __init__(self, endpoint: Endpoint, reading: Reading) -> None:
        settings = {
            **config(endpoint), "group.id": reading.group or "nobody", "enable.auto.commit": False,
            "auto.offset.reset": "latest" if reading.latest else "earliest",
            "isolation.level": "read_committed" if reading.isolated else "read_uncommitted",
            "heartbeat.interval.ms": 200, "session.timeout.ms": 6000, "topic.metadata.refresh.interval.ms": 1000,
        }  # fmt: skip
        if reading.instance:
            settings["group.instance.id"] = reading.instance
        self.consumer = ck.Consumer(settings)
        if reading.topics:
            self.consumer.subscribe(list(reading.topics))
        else:
            self.consumer.assign([ck.TopicPartition(t, p, ck.OFFSET_BEGINNING) for t, p in reading.partitions])

    def poll(self) -> list[Message]:
        found = []
        for m in self.consumer.consume(500, 0.1):
            if m.error():
                raise Refused(m.error().code(), m.error().str())
            headers = tuple((name, value) for name, value in m.headers() or [])
            found.append(Message(m.value(), m.key(), headers, m.timestamp()[1], m.partition(), m.offset()))
        return found

    def assignment(self) -> set[tuple[str, int]]:
        return {(p.topic, p.partition) for p in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def committed(self, topic: str, partition: int) -> int:
        return max(-1, self.consumer.committed([ck.TopicPartition(topic, partition)], WAIT_S)[0].offset)

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        first, last = self.consumer.get_watermark_offsets(ck.TopicPartition(topic, partition), WAIT_S)
        return first, last

    def at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        (given,) = self.consumer.offsets_for_times([ck.TopicPartition(topic, partition, timestamp_ms)], WAIT_S)
        return max(-1, given.offset)

    def close(self) -> None:
        self.consumer.close()
