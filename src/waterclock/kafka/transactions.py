"""A producer of transactions: one process at a time under a name, and all that it sends at once or nothing.

    1. fence     whoever had the name before can write no more, and what it left open is thrown away
    2. begin
    3. send      records to any topics, and how far a consumer group has come with what they were made of
    4. commit    readers of what is committed see them all; or abort: they see none

A crash between any two leaves Kafka as it was after the last 4, for whoever reads what is committed
(isolation.level=read_committed). The next under the name begins with 1.

Rule 1: after an error the producer is of no more use: close it and make a new one, for it begins with 1. But if
        Kafka refused a record (`requires_abort` of the error), `abort` makes it as good as new.
Rule 2: a commit is asked for until it is answered: to give up leaves it open whether it got through, which is for who reads
        that elsewhere. Ctrl-C is heard, and so is `give_up`, for a thread that hears no Ctrl-C.
Rule 3: what a record was refused for is the error, and not what its transaction then says.
Rule 4: who has to know what became of a record gives `send` an `on_delivery`. With SENDING it hears of a refusal only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from waterclock.clock import Clock, SystemClock
from waterclock.errors import WaterclockError
from waterclock.kafka import Offsets, library
from waterclock.kafka.errors import Verdict, verdict_of
from waterclock.kafka.patience import AGAIN_AFTER_S, CALL_S, Backoff, patiently
from waterclock.kafka.settings import SENDING, producing

BY_KEY = -1  # the partition that Kafka's own hash of the key chooses
_FENCING_S = 60.0
_FIRST_CALL_S = 0.02
_OFFSETS_S = 15.0
_ABORT_S = 60.0
_CLOSING_S = 5.0
_REPORTED_S = 0.05
_SERVED_EVERY = 1000  # so often librdkafka may report what was refused; it holds so much more at most
NOW = 0  # the timestamp that the client gives

Headers = Sequence[tuple[str, bytes | None]]
OnDelivery = Callable[[KafkaError | None, Message], object]


class TransactionalProducer:
    """Sends under `transactional_id`; the steps are the file's.

    `settings` are librdkafka's, the transaction's timeout among them; `sending` wins over them but for what a user may say
    (kafka/settings.py). `error_of` makes the error to raise of Kafka's. It must not know who uses this producer, or both
    would live until the garbage collector comes. `is_open`: a transaction is; `has_failed`: rule 1.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        transactional_id: str,
        error_of: Callable[[KafkaError], WaterclockError],
        clock: Clock | None = None,
        sending: Mapping[str, Any] | None = None,
    ) -> None:
        self._error_of, self._clock = error_of, clock or SystemClock()
        self._refused: list[KafkaError] = []  # why records were not taken
        own: dict[str, Any] = {"transactional.id": transactional_id}
        wins = SENDING if sending is None else sending
        self._notes = bool(wins["delivery.report.only.error"])  # else it would be called for every record
        if self._notes:
            own["on_delivery"] = _noting(self._refused)
        self._made = {**producing(settings, wins), **own}
        self.producer = library.Producer(self._made)
        self.is_open = self.has_failed = False
        self._is_given_up = False
        self._sent = 0

    def fence(self, topic: str | None = None, patience_s: float = math.inf) -> None:
        """Step 1, quicker with the name of a `topic` that is there; Kafka is waited for for a minute, or `patience_s`.

        librdkafka that finds no connection when it looks for the coordinator looks again half a second later, in one of
        five cases. The second question about the topic is answered by the broker that it stays with.

        Whoever had the name may have left a transaction open: Kafka throws it away, and answers CONCURRENT_TRANSACTIONS
        some milliseconds before it is done with that. librdkafka (2.16) would ask again after half a second, a number of
        its own; a new client asks at once, and nothing of the old one, which has its answer, is on its way.
        """
        self._look_twice(topic)
        backoff, call_s = Backoff((AGAIN_AFTER_S,), self._clock, min(patience_s, _FENCING_S)), _FIRST_CALL_S
        while True:
            try:
                self.producer.init_transactions(call_s)
                return
            except KafkaException as raised:
                error = raised.args[0]
                if self._is_no_use(error) or backoff.is_over:
                    self._fail(raised)
            if error.code() == KafkaError.CONCURRENT_TRANSACTIONS:
                self.producer = library.Producer(self._made)  # the old one ends with the last that knows it
                self._look_twice(topic)
                call_s = _FIRST_CALL_S
                continue
            if call_s == CALL_S or error.code() != KafkaError._TIMED_OUT:
                backoff.sleep()
            call_s = min(CALL_S, 2.5 * call_s)

    def _look_twice(self, topic: str | None) -> None:
        for _ in range(0 if topic is None else 2):
            self.look_again(str(topic))

    def begin(self) -> None:
        """Step 2, if no transaction is open."""
        if not self.is_open:
            try:
                self.producer.begin_transaction()
            except KafkaException as raised:
                self._fail(raised)
            self.is_open = True

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = BY_KEY,
        *,
        headers: Headers = (),
        timestamp_ms: int = NOW,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Step 3; waits while as much is on its way as librdkafka may hold."""
        more: dict[str, Any] = {} if on_delivery is None else {"on_delivery": on_delivery}
        if headers:
            more["headers"] = headers if isinstance(headers, list) else list(headers)
        while True:
            try:
                self.producer.produce(topic, value, key, partition, timestamp=timestamp_ms, **more)
                break
            except BufferError:
                self._serve(0.1)
            except KafkaException as raised:
                self._fail(raised)
        self._sent += 1
        if not self._sent % _SERVED_EVERY:
            self._serve(0)

    def send_many(
        self,
        topics: Iterable[str],
        messages: Iterable[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    ) -> None:
        """Step 3 for each of these: a topic, and value, key and headers. Quicker than one by one: there are tens of
        thousands."""
        produce = self.producer.produce
        for count, (topic, (value, key, headers)) in enumerate(zip(topics, messages, strict=True), 1):
            try:
                produce(topic, value, key, BY_KEY, None, None, NOW, headers)  # named, they would cost a quarter more
            except (BufferError, KafkaException):  # as seldom as there is no room
                self.send(topic, value, key, headers=headers)
            if not count % _SERVED_EVERY:
                self._serve(0)

    def send_part(self, topic: str, pairs: Iterable[tuple[bytes, bytes]], partition: int = BY_KEY) -> None:
        """Step 3 for each of these: key and value."""
        produce = self.producer.produce
        for count, (key, value) in enumerate(pairs, 1):
            try:
                produce(topic, value, key, partition)
            except (BufferError, KafkaException):
                self.send(topic, value, key, partition)
            if not count % _SERVED_EVERY:
                self._serve(0)

    def arrive(self, patience_s: float) -> bool:
        """Wait until Kafka has answered for each record that was sent; whether it has, when time is over."""
        try:
            return not self.producer.flush(patience_s)
        except KafkaException as raised:
            self._fail(raised)
        except SystemError:  # as of `_serve`
            self._fail(KafkaException(KafkaError(KafkaError._FATAL)))

    def send_offsets(self, offsets: Offsets, group: Any, note: str = "") -> None:
        """Step 3: `offsets`, of the next record to read, count for the group from the commit on; `note` stands beside them.

        `group` is the consumer's own `consumer_group_metadata()`: if the group has gone on without this member, the
        transaction cannot be committed any more.
        """
        places = [TopicPartition(topic, partition, offset, note) for (topic, partition), offset in offsets.items()]
        self._ask(partial(self.producer.send_offsets_to_transaction, places, group), _OFFSETS_S)

    def commit(self, patience_s: float = math.inf) -> None:
        """Step 4; when it returns, Kafka has it all."""
        self._ask(self.producer.commit_transaction, patience_s)
        self.is_open = False

    def abort(self, patience_s: float = _ABORT_S) -> None:
        """Step 4 the other way; when it returns, nothing of the transaction is there, and another one may begin."""
        self._ask(self.producer.abort_transaction, patience_s)
        self.is_open = self.has_failed = False
        self._refused.clear()

    def look_again(self, topic: str) -> None:
        """Have librdkafka ask about a topic that refused: it would refuse for it, for 5 minutes."""
        with suppress(KafkaException):  # the next record says what is wrong
            self.producer.list_topics(topic, timeout=CALL_S)

    def give_up(self) -> None:
        """From any thread: whoever waits for an answer of Kafka's has an error within a second or so, and rule 1 holds."""
        self._is_given_up = True

    def close(self) -> None:
        """Throw away what is not committed; without a connection, Kafka does that by itself when time is over."""
        if self.is_open:
            self.is_open = False
            with suppress(KafkaException):
                abort = partial(self.producer.abort_transaction, CALL_S)
                patiently(abort, self._is_no_use, _CLOSING_S, self._clock)

    def _serve(self, wait_s: float) -> None:
        """Have librdkafka report what became of records."""
        try:
            self.producer.poll(wait_s)
        except KafkaException as raised:
            self._fail(raised)
        except SystemError:
            # the error of a client that can do no more waits to be raised while a report is made of each record, which
            # Python takes for a fault of the client's
            self._fail(KafkaException(KafkaError(KafkaError._FATAL)))

    def _ask(self, call: Callable[[float], object], patience_s: float) -> None:
        try:
            patiently(partial(call, CALL_S), self._is_no_use, patience_s, self._clock)
        except KafkaException as raised:
            self._fail(raised)

    def _is_no_use(self, error: KafkaError) -> bool:
        return self._is_given_up or not error.retriable()

    def _fail(self, raised: KafkaException) -> NoReturn:
        self.has_failed = True
        if raised.args[0].fatal():
            # the broker threw it away when another took the name; librdkafka would ask for seconds
            self.is_open = False
        with suppress(KafkaException, SystemError):
            # the transaction may know that a record was refused before we do; who hears of each record hears it in `abort`
            self.producer.poll(_REPORTED_S if self._notes else 0)
        for refused in self._refused:
            if verdict_of(refused) is not Verdict.AGAIN:
                raise self._error_of(refused) from None  # rule 3
        raise self._error_of(self._cause(raised.args[0])) from None

    def _cause(self, error: KafkaError) -> KafkaError:
        """`produce` says of a client that can do no more, and of a transaction that Kafka will not take, only that it
        cannot go on; the end of the transaction says why. Such a transaction cannot be committed any more."""
        if error.code() not in (KafkaError._FATAL, KafkaError._STATE):
            return error
        producer, is_fatal = self.producer, error.code() == KafkaError._FATAL
        try:
            (producer.abort_transaction if is_fatal else producer.commit_transaction)(_CLOSING_S)
        except KafkaException as raised:
            return raised.args[0]
        return error


def _noting(refused: list[KafkaError]) -> Callable[[KafkaError | None, object], None]:
    """Not a method: librdkafka's client would know its owner, and outlive it until the garbage collector comes."""

    def note(error: KafkaError | None, message: object) -> None:
        if error is not None:
            refused.append(error)

    return note
