"""What the owners of all partitions have in common: names, connections, and how a producer of theirs is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from waterclock.clock import WallClock
from waterclock.errors import ConnectionLost, UsageError, WaterclockError
from waterclock.kafka.errors import Meaning, Verdict, meaning_of, verdict_of, words_of
from waterclock.kafka.settings import LASTING, SENDING
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.relay.cluster.targets import Targets
from waterclock.relay.cluster.watcher import Watcher
from waterclock.relay.logs import Logs
from waterclock.relay.owner.pace import TIMEOUT_MS
from waterclock.relay.store import Identity, PartitionStore
from waterclock.relay.wire.settlement import mark_of
from waterclock.relay.wire.topics import Topics

# librdkafka 2.16 that bootstraps anew when no broker answers, its default, forgets the group's coordinator, and waits for
# it for ever in a transaction (its issues 5511 and 5456), whatever time it is given: no user's setting wins over this one
_STAYING: Final = {"metadata.recovery.strategy": "none"}
_PRODUCER: Final = {
    "transaction.timeout.ms": TIMEOUT_MS,
    "delivery.timeout.ms": TIMEOUT_MS * 7 // 10,  # what has no answer by then can still be aborted by its own producer
    "topic.metadata.propagation.max.ms": 3_000,  # a target that is gone is known before that
    "retries": 10,  # and what a topic's replicas or a damaged batch are to blame for, by its name: within some 4 s
}
# Apache Kafka sends the first request of a transaction away while it still writes the markers of the one before: 100 ms
# later, librdkafka's default, 99 of 100 messages were late by that. It waits for twice as long each time, up to a second.
_ASKS_AGAIN_SOON: Final = {"retry.backoff.ms": 10}
# large batches while a turn is being sent; a commit waits for no linger, it flushes
BATCH_BYTES: Final = 1_000_000  # of several records; a larger one goes alone
_SENDING: Final = {**SENDING, "linger.ms": 50, "delivery.report.only.error": False, "batch.size": BATCH_BYTES}


class GroupOffset(NamedTuple):
    """What a group's offset says: the next record to answer. `by_relay`: a relay's turn committed it."""

    offset: int
    by_relay: bool


# hears while much is read at once: of what, how many of how many offsets or messages
Reading = Callable[[str, int, int], object]
NOTE: Final = "relay"  # stands beside the offsets that a turn commits; those of other programs do not have it


@dataclass(frozen=True)
class Context:
    """Where owners work. `watcher` asks Kafka for everything beside records. `group` is the consumer group's name,
    `committed` its offset of an input partition (None: none), `member` the metadata by which Kafka knows whether this
    process is still in the group. `reading` hears how far something is read if that may last, every second or so: the
    group learns by it that this process is well. What it raises ends the reading."""

    settings: Mapping[str, Any]
    watcher: Watcher
    topics: Topics
    topic_id: str
    group: str
    folder: Path
    clock: WallClock
    logs: Logs
    targets: Targets
    committed: Callable[[int], GroupOffset | None]
    member: Callable[[], Any]
    reading: Reading

    @cached_property
    def mark(self) -> bytes:
        """What stands for the input in settlements."""
        return mark_of(self.topic_id)

    def open_store(self, partition: int) -> PartitionStore:
        """The partition's files, locked."""
        return PartitionStore(self.folder, Identity(self.group, self.topic_id, partition), self.clock)

    def begins(self, partition: int) -> int | None:
        """The first offset of the input, as of now; None if Kafka does not say."""
        with suppress(ConnectionLost):
            return self.logs.bounds(self.topics.input, partition)[0]
        return None

    def make_producer(self, partition: int) -> TransactionalProducer:
        """The one that may write for the partition."""
        name = f"{self.group}-{self.topics.input}-{partition}"
        settings = {**_ASKS_AGAIN_SOON, **self.settings, **_PRODUCER}
        return TransactionalProducer(settings, name, partial(_error_of, name), None, _SENDING)

    def place_of(self, partition: int) -> str:
        """How a partition of the input is named."""
        return f"{self.topics.input}-{partition}"

    def place(self, partition: int, offset: int) -> str:
        """How a record of the input is named."""
        return f"{self.topics.input}-{partition}-{offset}"


def staying(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A user's settings, for clients that outlast it when no broker answers.

    >>> staying({"reconnect.backoff.ms": 9, "metadata.recovery.strategy": "rebootstrap"})["metadata.recovery.strategy"]
    'none'
    """
    return {**LASTING, **settings, **_STAYING}


def in_silence(log: str, done: int, all: int) -> None:
    """Nobody hears of a reading."""


def committed_of(consumer: Consumer, topic: str, number: int) -> GroupOffset | None:
    """What the consumer's group says of a partition; None if it says nothing."""
    try:
        (found,) = consumer.committed([TopicPartition(topic, number)], timeout=10)
    except KafkaException as error:
        raise ConnectionLost(f"Kafka does not say how far the group has come: {words_of(error)}.") from None
    return GroupOffset(int(found.offset), found.metadata == NOTE) if found.offset >= 0 else None


class RecordRefused(ConnectionLost):
    """Kafka does not take something of a transaction, which can be aborted, and begun again without it (refusals.py).
    `error`: what it says of the transaction; it need not be what it says of a record."""

    def __init__(self, words: str, error: KafkaError) -> None:
        super().__init__(words)
        self.error = error


def _error_of(name: str, error: KafkaError) -> WaterclockError:
    verdict = verdict_of(error)
    if verdict is Verdict.CLIENT:
        return UsageError(
            f"Kafka refuses what the relay {name} sends: {error.str()}. Look at --kafka-config and the rights."
        )
    if meaning_of(error) is Meaning.FENCED:
        return ConnectionLost(f"Another relay has taken over what {name} had.")
    words = f"Kafka did not take a turn of {name}: {error.str()}."
    if error.fatal() or meaning_of(error) is Meaning.OUT:
        return ConnectionLost(words)
    refused = error.txn_requires_abort() or verdict is not Verdict.AGAIN
    return RecordRefused(words, error) if refused else ConnectionLost(words)
