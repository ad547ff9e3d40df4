"""Exactly once into Kafka: changes and the position they lead to in one transaction.

    1. fence: whoever wrote under this name before can write no more, and what it left open is thrown away
    2. read the position that its last transaction stored
    3. begin
    4. send the changes of whole source transactions
    5. send the position after them
    6. commit

A crash between any two leaves Kafka as it was after the last 6, for whoever reads what is committed
(isolation.level=read_committed); the next start goes through 1 and 2 and reads the source again from there.

Why the position lies in a compacted topic of its own and not in a consumer group's offsets: a group's offsets expire
when nobody commits for a week, and a stored offset holds 4 KB, which the GTID set of an old MySQL outgrows. Why every
capture has a topic for itself: a second one's open transaction would hide the first one's last position at its start.

Rule 1: what is sent between a `begin` and a `finish` is read together or not at all.
Rule 2: `order="global"` sends everything to partition 0; `order="key"` lets the key choose, by Kafka's own hash. A
        TRUNCATE goes to every partition: each has rows that it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from confluent_kafka import KafkaError, KafkaException, Producer

from waterclock.cdc.position import Position
from waterclock.cdc.topics import KEY, Target, last_position, prepared
from waterclock.changes.maxwell_message import TRUNCATE, MaxwellMessage
from waterclock.errors import ConnectionLost, UsageError

_PATIENCE_S = 60.0
_DEAF_S = 1.0  # a call to the client does not hear Ctrl-C; one whose time was over goes on with the next call
_ABORT_S = 5.0
_BY_KEY = -1
_SERVED_EVERY = 1000  # so often the client may tell what arrived; it holds so much more at most
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_TIMEOUT_MS = 300_000  # so long may a transaction stay open: a million changes take a tenth of it
_QUIET = {"log_level": 2}  # a broker that is away is told of in one sentence, and not twenty times a second
_SETTINGS = {
    "acks": "all",
    "enable.idempotence": True,
    "transaction.timeout.ms": _TIMEOUT_MS,
    "partitioner": "murmur2_random",  # as Kafka's own clients: who else writes by key finds the same partition
    "compression.type": "lz4",
    "linger.ms": 5,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 262_144,
    "message.max.bytes": 1_000_000_000,  # how large a message may be is for the topic to say
    "delivery.report.only.error": True,
}


class Publisher:
    """Writes changes under a name that only one process at a time can have; the steps are the file's.

    `client` are librdkafka's settings, for TLS and SASL. `stored` is the position that Kafka holds, None where there is
    none yet; `in_transaction` counts the changes that were sent and not committed.
    """

    def __init__(self, target: Target, name: str, client: Mapping[str, Any] | None = None) -> None:
        self._target, self._name, self._state_topic = target, name, f"{name}.position"
        settings = {**_QUIET, **(client or {}), "bootstrap.servers": target.servers}
        self._partitions = prepared(settings, target, self._state_topic)
        self._refused: list[KafkaError] = []  # what Kafka did not take
        named = {"transactional.id": f"waterclock-cdc-{name}", "on_delivery": _noting(self._refused)}
        self._producer = Producer({**settings, **_SETTINGS, **named})
        self._open, self.in_transaction = False, 0
        self.fence()
        self.stored = last_position(settings, self._state_topic)  # 2

    def fence(self) -> None:
        """Step 1."""
        with self._told():
            for left in reversed(range(int(_PATIENCE_S / _DEAF_S))):
                try:
                    self._producer.init_transactions(_DEAF_S)
                    return
                except KafkaException as error:
                    if not left or not error.args[0].retriable():
                        raise

    def begin(self) -> None:
        """Step 3, where no transaction is open."""
        if not self._open:
            with self._told():
                self._producer.begin_transaction()
            self._open = True

    def send(self, change: MaxwellMessage) -> None:
        """Step 4."""
        if not self._open:
            self.begin()
        key, value = change.as_key(), change.as_json()
        for partition in self._partitions_of(change):
            self._produce(self._target.topic, key, value, partition)
        self.in_transaction += 1
        if not self.in_transaction % _SERVED_EVERY:
            self._producer.poll(0)

    def store(self, position: Position) -> None:
        """Step 5."""
        self.begin()
        self._produce(self._state_topic, KEY, position.as_json(), 0)

    def finish(self) -> None:
        """Step 6; when it returns, Kafka has it all."""
        with self._told():
            self._committed()
        self._open, self.in_transaction = False, 0

    def commit(self, position: Position) -> None:
        """Steps 5 and 6."""
        self.store(position)
        self.finish()
        self.stored = position

    def close(self) -> None:
        """Throw away what is not committed; without a connection, Kafka does that by itself."""
        if self._open:
            self._open = False
            with suppress(KafkaException):
                self._producer.abort_transaction(_ABORT_S)

    def _committed(self) -> None:
        while True:
            try:
                self._producer.commit_transaction(_DEAF_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    def _partitions_of(self, change: MaxwellMessage) -> Iterable[int]:
        if self._target.order == "global":
            return (0,)
        return range(self._partitions) if change.type == TRUNCATE else (_BY_KEY,)

    def _produce(self, topic: str, key: bytes, value: bytes, partition: int) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, partition)
                return
            except BufferError:  # as much is on its way as the client may hold
                self._producer.poll(0.1)
            except KafkaException as raised:
                self._say(raised)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Kafka's errors by whose doing."""
        try:
            yield
        except KafkaException as raised:
            self._say(raised)

    def _say(self, raised: KafkaException) -> NoReturn:
        error = self._cause(raised.args[0])
        if self._refused and self._refused[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise UsageError(
                f"A change is larger than the topic {self._target.topic} takes. Set the topic's max.message.bytes higher, "
                "and start again: nothing was left out."
            ) from None
        if error.code() in _FENCED:
            raise UsageError(
                f"Another process captures under the name {self._name}, and Kafka lets only the later one "
                "write. Stop one of "
                "them, or give them different names (--name) and topics."
            ) from None
        raise ConnectionLost(f"Kafka did not take the changes: {error.str()}.") from None

    def _cause(self, error: KafkaError) -> KafkaError:
        """`produce` says of a client that can do no more only that it can not; the end of its transaction says why."""
        if error.code() == KafkaError._FATAL:
            try:
                self._producer.abort_transaction(_ABORT_S)
            except KafkaException as raised:
                cause: KafkaError = raised.args[0]
                return cause
        return error


def _noting(refused: list[KafkaError]) -> Callable[[KafkaError | None, object], None]:
    """Not a method: a client that knew its publisher would outlive it until the garbage collector comes."""

    def note(error: KafkaError | None, message: object) -> None:
        if error is not None:
            refused.append(error)

    return note
