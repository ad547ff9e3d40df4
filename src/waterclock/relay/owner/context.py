"""Where owners work: names, connections, how a producer of theirs is made; and a disk that may refuse.

Rule 1: a disk that refuses ends nothing. What is due is delivered all the same: what that settles is known in memory, and
        stands in Kafka. What comes in waits: the input is the log, and loses nothing.
Rule 2: a refusal is logged at WARNING, with the path and the number of bytes that the disk was to take: once a minute,
        while it lasts. So is its end.
Rule 3: the disk is tried again after `AGAIN_NS`, not at every step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from waterclock.clock import Clock, WallClock
from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError, WaterclockError
from waterclock.kafka.errors import Meaning, Verdict, meaning_of, verdict_of, words_of
from waterclock.kafka.settings import LASTING, SENDING
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.relay.cluster.targets import Targets
from waterclock.relay.cluster.watcher import Watcher
from waterclock.relay.logs import Logs
from waterclock.relay.owner.pace import TIMEOUT_MS
from waterclock.relay.store import NO_FILE_LEFT, DiskRefused, Identity, PartitionStore
from waterclock.relay.wire.settlement import mark_of
from waterclock.relay.wire.topics import Topics

log = logging.getLogger("waterclock.relay")
AGAIN_NS: Final = 1_000_000_000
SAID_EVERY_NS: Final = 60_000_000_000
_ANSWER_S: Final = 10.0
_MORE_FILES: Final = "Raise ulimit -Hn (LimitNOFILE=)"
# librdkafka 2.16 that bootstraps anew when no broker answers, its default, forgets the group's coordinator, and waits for
# it for ever in a transaction (its issues 5511 and 5456), whatever time it is given: no user's setting wins over this one
_STAYING: Final = {"metadata.recovery.strategy": "none"}
_PRODUCER: Final = {
    "transaction.timeout.ms": TIMEOUT_MS,
    "delivery.timeout.ms": TIMEOUT_MS * 7 // 10,  # what has no answer by then can still be aborted by its own producer
    "topic.metadata.propagation.max.ms": 3_000,  # a target that is gone is known before that
    "retries": 10,  # some 4 s; then too few replicas, or a damaged batch, is the error, and not a time that is over
}
# Apache Kafka answers CONCURRENT_TRANSACTIONS to the first request of a transaction while it still writes the markers of
# the one before. If that is AddPartitionsToTxn, librdkafka asks again after 20 ms, whatever it is set to (pace.py); another
# request comes again after this pause (100 ms by default: 99 of 100 messages were late by that), then after twice as long
# each time, up to a second.
_ASKS_AGAIN_SOON: Final = {"retry.backoff.ms": 10}
# large batches while a turn is being sent; a commit waits for no linger, it flushes
BATCH_BYTES: Final = 1_000_000  # of several records; a larger one goes alone
_SENDING: Final = {**SENDING, "linger.ms": 50, "delivery.report.only.error": False, "batch.size": BATCH_BYTES}


class GroupOffset(NamedTuple):
    """What a group's offset says: the next record to answer. `by_relay`: a relay's turn committed it."""

    offset: int
    by_relay: bool


# called with the progress of a long reading: of what, how many of how many offsets or messages
Reading = Callable[[str, int, int], object]
NOTE: Final = "relay"  # the metadata of the offsets that a turn commits; those of other programs do not have it


@dataclass(frozen=True)
class Context:
    """Where owners work, by `clock`; what is asked of Kafka is waited for by `machine`. `watcher` asks Kafka for everything
    beside records. `group` is the consumer group's name; `outsider` its metadata that names no member: an owner's offsets
    count until it is fenced, whatever the group shares meanwhile. `reading` is called with the progress of a reading that
    may last, every second or so: it shows the group that this process is well. What it raises ends the reading."""

    settings: Mapping[str, Any]
    watcher: Watcher
    topics: Topics
    topic_id: str
    group: str
    folder: Path
    clock: WallClock
    machine: Clock
    logs: Logs
    targets: Targets
    outsider: Any
    reading: Reading

    @cached_property
    def input_hash(self) -> bytes:
        """What stands for the input in settlements: a hash of the topic's id."""
        return mark_of(self.topic_id)

    def open_store(self, partition: int) -> PartitionStore:
        """The partition's files, locked."""
        return PartitionStore(self.folder, Identity(self.group, self.topic_id, partition), self.clock)

    def begins(self, partition: int) -> int | None:
        """The first offset of the input, as of now; None if Kafka does not say."""
        with suppress(ConnectionLost):
            return self.logs.bounds(self.topics.input, partition)[0]
        return None

    def committed(self, partition: int, patience_s: float) -> GroupOffset | None:
        """The group's offset of a partition of the input; None if there is none. While a transaction is about to move it,
        the offset before that: a consumer would wait until the transaction has ended. So long is Kafka waited for."""
        asked = ConsumerGroupTopicPartitions(self.group, [TopicPartition(self.topics.input, partition)])
        try:
            answers = self.watcher.client.list_consumer_group_offsets(
                [asked], require_stable=False, request_timeout=min(_ANSWER_S, patience_s)
            )
            (found,) = answers[self.group].result().topic_partitions
            if found.error is not None:
                raise KafkaException(found.error)
        except KafkaException as error:
            raise ConnectionLost(f"Kafka does not say how far the group has come: {words_of(error)}.") from None
        return GroupOffset(int(found.offset), found.metadata == NOTE) if found.offset >= 0 else None

    def written_end(self, topic: str, partition: int, patience_s: float) -> int:
        """The end of all that is written there, committed or not."""
        place, level = TopicPartition(topic, partition), IsolationLevel.READ_UNCOMMITTED
        asked = {place: OffsetSpec.latest()}
        try:
            answers = self.watcher.client.list_offsets(
                asked, isolation_level=level, request_timeout=min(_ANSWER_S, patience_s)
            )
            return int(answers[place].result().offset)
        except KafkaException as error:
            raise ConnectionLost(f"Kafka does not say where {topic}-{partition} ends: {words_of(error)}.") from None

    def make_producer(self, partition: int) -> TransactionalProducer:
        """The one that may write for the partition."""
        name = f"{self.group}-{self.topics.input}-{partition}"
        settings = {**_ASKS_AGAIN_SOON, **self.settings, **_PRODUCER}
        return TransactionalProducer(settings, name, partial(_error_of, name), self.machine, _SENDING)

    def place_of(self, partition: int) -> str:
        """How a partition of the input is named."""
        return f"{self.topics.input}-{partition}"

    def prefix(self, partition: int) -> str:
        """`place` without the offset."""
        return f"{self.topics.input}-{partition}-"

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


class DiskSpace:
    """Whether the disk takes what the files of the partition `name` are given. `refusals`: how often it refused. `wanted`:
    the bytes that it refused last, 0 if it has taken everything since."""

    def __init__(self, name: str, clock: WallClock) -> None:
        self._name, self._clock = name, clock
        self._again_ns = self._say_ns = clock.monotonic_ns()
        self.refusals = self.wanted = 0
        self.is_refusing = self._was_said = False

    @property
    def is_time(self) -> bool:
        """Whether something may be written to the disk."""
        return not self.is_refusing or self._clock.monotonic_ns() >= self._again_ns

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Do something that writes. If the disk refuses it, that is noted, and no error is raised."""
        try:
            yield
        except OSError as error:
            now_ns = self._clock.monotonic_ns()
            self.is_refusing, self._again_ns = True, now_ns + AGAIN_NS
            self.refusals, self.wanted = self.refusals + 1, error.wanted if isinstance(error, DiskRefused) else 0
            if now_ns >= self._say_ns:
                self._was_said, self._say_ns = True, now_ns + SAID_EVERY_NS
                log.warning(
                    "%s: the disk does not take %d bytes for %s: %s. New requests, cancels too, wait in the input until it "
                    "does; what is due is delivered. %s.",
                    self._name,
                    self.wanted,
                    error.filename,
                    error.strerror,
                    _MORE_FILES if error.errno in NO_FILE_LEFT else "Make room on that disk",
                )

    def took(self) -> None:
        """The disk took what was to be written."""
        if self._was_said:
            log.warning("%s: the disk takes what is written again", self._name)
        self.is_refusing = self._was_said = False
        self.wanted = 0


def no_disk(name: str, error: OSError) -> EnvironmentMissing:
    """The error if the files of `name` cannot even be opened."""
    if error.errno in NO_FILE_LEFT:
        words = f"The files of {name} cannot be opened: {error.strerror}."
        return EnvironmentMissing(f"{words} {_MORE_FILES}.")
    file = error.filename or "a file"
    return EnvironmentMissing(
        f"The disk refuses the files of {name}: {error.strerror} ({file}). Make room, or mend it."
    )


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
            f"Kafka refuses what the relay {name} sends: {words_of(error)}. Look at --kafka-config and the rights."
        )
    if meaning_of(error) is Meaning.FENCED:
        return ConnectionLost(f"Another relay has taken over what {name} had.")
    words = f"Kafka did not take a turn of {name}: {words_of(error)}."
    if error.fatal() or meaning_of(error) is Meaning.OUT:
        return ConnectionLost(words)
    refused = error.txn_requires_abort() or verdict is not Verdict.AGAIN
    return RecordRefused(words, error) if refused else ConnectionLost(words)
