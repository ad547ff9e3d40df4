"""A handler at work: one consumer group, that calls a function for each message of a topic, in order.

    1. take      the next message
    2. call      the function
    3. done      its offset is noted, and given to Kafka once a second; or, if it raised:
       fail      the message is sent on to be tried again, or put aside (retries.py), with its offset, in one transaction

Rule 1: at least once: a crash between 2 and 3 calls the function with the same message again, whose `id` is the same. With
        a database, exactly once for what the function writes there (handled_offsets.py); Kafka's offset then comes second.
Rule 2: a message that fails holds nobody up: those behind it are handled while it waits.
Rule 3: one path for crash and error: when Kafka or the database is lost, the handler is closed, and a new one begins where
        the last commit was.
Rule 4: with a database, a message that was sent on may not be noted there when a crash comes. Its offset in the group bears
        a note that says so (`_SENT_ON`): it is passed over when it comes again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from waterclock.clock import Clock
from waterclock.durations import Duration
from waterclock.errors import ConnectionLost, UsageError, WaterclockError
from waterclock.kafka import Partition, library
from waterclock.kafka.admin import Admin
from waterclock.kafka.errors import Meaning, Verdict, is_refusal, meaning_of, verdict_of, words_of
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.outside import uuid
from waterclock.relay.handlers.retries import WAITS, LeftBroken, Retries, SentOn, delivery_of, id_of
from waterclock.relay.owner.context import staying
from waterclock.relay.wire.topics import STARTS

if TYPE_CHECKING:
    from waterclock.relay.handlers.handled_offsets import HandledOffsets

log = logging.getLogger("waterclock.relay")
COMMIT_S: Final = 1.0
_SENT_ON: Final = "sent on"
_CONSUMER: Final = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
    "fetch.wait.max.ms": 100,
}
_PRODUCER: Final = {"transaction.timeout.ms": 10_000}  # so long an open one holds back what stands behind it


class TooLarge(ConnectionLost):
    """Kafka does not take a message that is sent on: with its headers it is too large."""


@dataclass(frozen=True)
class HandlerOptions:
    """A function for a topic. `database`: of what it writes to, with its offsets; `waits`: before each further attempt."""

    topic: str
    function: Callable[..., Any]
    group: str
    database: str | None = None
    waits: Sequence[Duration] = WAITS


class Handler:
    """The steps of the file, for one process among those of the group. Called by one thread at a time."""

    def __init__(self, settings: Mapping[str, Any], relay: str, options: HandlerOptions, clock: Clock) -> None:
        self._settings = staying(settings)
        self._options = options
        self._clock = clock
        group = options.group
        self._retries = Retries(f"{group}.retry", f"{group}.dead", waits=options.waits, relay=relay)
        self._next: dict[Partition, int] = {}  # offsets that Kafka does not know yet
        self._sent_on: dict[Partition, int] = {}  # rule 4
        self._committed_s = clock.monotonic_s()
        self._producer: TransactionalProducer | None = None
        self._handled: HandledOffsets | None = None
        topics, admin = [options.topic, self._retries.to], Admin(self._settings, starts=STARTS)
        there = admin.topics()
        for topic in (topic for topic in (*topics, self._retries.dead) if topic not in there):
            admin.make(topic, there.get(relay, 1))  # with as many partitions as the relay's input
        if options.database is not None:
            from waterclock.relay.handlers.handled_offsets import HandledOffsets

            ids = {topic: admin.topic_id(topic) for topic in topics}
            self._handled = HandledOffsets(options.database, group, ids)
        self._consumer = library.Consumer({**self._settings, **_CONSUMER, "group.id": group})
        lost = self._on_lost
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=lost)

    # Steps

    def step(self, wait_s: float) -> bool:
        """Steps 1 to 3 for a message, if one comes within `wait_s`; whether one did."""
        message = self.take(wait_s)
        if message is not None:
            self.end(message, self.call(message))
        return message is not None

    def take(self, wait_s: float) -> Message | None:
        """Step 1."""
        if self._clock.monotonic_s() - self._committed_s >= COMMIT_S:
            self._commit(self._next)
        try:
            message = self._consumer.poll(wait_s)
        except KafkaException as raised:  # of what the group's callbacks ask
            raise ConnectionLost(f"Kafka does not say how far {self._options.group} is: {words_of(raised)}.") from None
        if message is None:
            return None
        if (error := message.error()) is not None:
            if is_refusal(error):
                raise UsageError(
                    f"Kafka refuses the handler {self._options.group}: {words_of(error)}. Look at the rights."
                )
            log.info("Kafka says: %s", error.str())
            return None
        if self._sent_on.get(_partition(message)) == message.offset():
            self._note(message)
            return None
        if (stray := self._retries.stray(message, self._options.topic)) is not None:  # another function's
            self._send_on(message, stray, self._retries.aside(message, stray))
            return None
        return message

    def call(self, message: Message) -> Exception | None:
        """Step 2, of a function that is no coroutine function; what it raised, if it did."""
        raised: list[Exception] = []

        def handle(*connection: Any) -> None:
            try:
                self._options.function(delivery_of(message), *connection)
            except Exception as error:
                raised.append(error)
                raise

        try:
            handle() if self._handled is None else self._handled.apply(message, handle)
        except Exception as error:
            if error in raised or isinstance(error, LeftBroken):
                return error
            raise
        return None

    async def awaited(self, message: Message) -> Exception | None:
        """Step 2, of a coroutine function."""
        try:
            await self._options.function(delivery_of(message))
        except Exception as error:
            return error
        return None

    def end(self, message: Message, error: Exception | None) -> None:
        """Step 3: the function has ended, with an error or without."""
        if error is None:
            self._done(message)
        else:
            self._send_on(message, error, self._retries.after(message, error))

    def _done(self, message: Message) -> None:
        self._next[_partition(message)] = message.offset() + 1

    def _send_on(self, message: Message, error: Exception, outgoing: SentOn) -> None:
        try:
            self._send(message, outgoing)
        except TooLarge:
            self._let_go_of_producer()
            outgoing = self._retries.named(message, error)
            self._send(message, outgoing)
        what = "is put aside" if outgoing.is_dead else "is tried again"
        log.warning("%s %s: %s: %s", id_of(message), what, type(error).__name__, error)
        self._note(message)

    def _send(self, message: Message, outgoing: SentOn) -> None:
        self._commit(self._next)
        self._next.pop(_partition(message), None)  # given to Kafka later it would take the transaction's offset back
        producer = self._producer or self._open_producer()
        offsets = {_partition(message): message.offset() + 1}
        producer.begin()
        producer.send(outgoing.topic, outgoing.value, outgoing.key, headers=outgoing.headers)
        producer.send_offsets(offsets, self._consumer.consumer_group_metadata(), _SENT_ON)
        producer.commit()

    def _note(self, message: Message) -> None:
        """Rule 4: the database hears of a message that was sent on."""
        if self._handled is not None:
            self._handled.apply(message, lambda connection: None)
        self._done(message)

    def _open_producer(self) -> TransactionalProducer:
        name = f"{self._options.group}-{uuid.uuid4().hex[:12]}"
        self._producer = TransactionalProducer({**self._settings, **_PRODUCER}, name, partial(_error_of, name))
        self._producer.fence(self._options.topic)
        return self._producer

    # The group

    def _on_assign(self, consumer: library.Consumer, given: list[TopicPartition]) -> None:
        if self._handled is not None and given:
            self._handled.refuse_another(Admin(self._settings, starts=STARTS), {each.topic for each in given})
            for each, known in zip(given, consumer.committed(given, timeout=10), strict=True):
                offset = self._handled.next_offset(each.topic, each.partition)
                if offset is not None:  # it begins where the database says
                    each.offset = offset
                if known.metadata == _SENT_ON:  # rule 4
                    self._sent_on[each.topic, each.partition] = known.offset - 1
        consumer.incremental_assign(given)

    def _on_revoke(self, consumer: library.Consumer, taken: Sequence[TopicPartition]) -> None:
        own = {(each.topic, each.partition) for each in taken}
        self._commit({partition: offset for partition, offset in self._next.items() if partition in own})
        self._on_lost(consumer, taken)
        consumer.incremental_unassign(list(taken))

    def _on_lost(self, consumer: library.Consumer, taken: Sequence[TopicPartition]) -> None:
        for each in taken:
            self._next.pop((each.topic, each.partition), None)
            self._sent_on.pop((each.topic, each.partition), None)

    def _commit(self, offsets: dict[Partition, int]) -> None:
        """Kafka hears how far it is; if that fails, messages come again."""
        self._committed_s = self._clock.monotonic_s()
        if not offsets:
            return
        behind = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=behind, asynchronous=False)
        except KafkaException as error:
            log.warning("Kafka does not take the offsets of %s: %s", self._options.group, words_of(error))
            return
        for partition in list(offsets):
            self._next.pop(partition, None)

    def close(self) -> None:
        """Leave the group, with what is done; a message that is not done comes again, here or elsewhere."""
        self._commit(self._next)
        with suppress(KafkaException, WaterclockError):
            self._consumer.unsubscribe()
            for _ in range(50):
                if not self._consumer.assignment():
                    break
                self._consumer.poll(0.02)
        self._consumer.close()
        self._let_go_of_producer()
        if self._handled is not None:
            self._handled.close()

    def _let_go_of_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


def _partition(message: Message) -> Partition:
    return message.topic(), message.partition()


def _error_of(name: str, error: KafkaError) -> WaterclockError:
    if meaning_of(error) is Meaning.TOO_LARGE:
        return TooLarge(f"Kafka does not take a message that {name} sends on: {words_of(error)}.")
    if is_refusal(error) or verdict_of(error) is Verdict.CLIENT:
        return UsageError(f"Kafka refuses what the handler {name} sends: {words_of(error)}. Look at the rights.")
    return ConnectionLost(f"Kafka did not take what {name} sent on: {words_of(error)}.")
